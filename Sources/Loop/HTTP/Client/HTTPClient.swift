// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import ProxyTunnel
import Sockets
import Timing
import UntrustedText

/// The address of an HTTP server.
public enum HTTPEndpoint: Equatable, Sendable {
  case tcp(host: String, port: UInt16, tls: Bool)
  case unix(location: String)
  /// A connected socket, which the client owns from then on; used for one connection.
  case connected(Int32)

  /// Parses `http://host:port/path` and `https://…`; the path has no trailing `/`. `nil` for anything else,
  /// including URLs with user names.
  /// With `allowsQuery` the path is kept unchanged.
  public static func parse(_ url: String, allowsQuery: Bool = false) -> (endpoint: HTTPEndpoint, path: String)? {
    // Compared by bytes: a character may be combined with the next one, and a line break would inject a header.
    let tls = url.begins(with: "https://")
    guard tls || url.begins(with: "http://"), url.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F }), !url.has("#") else {
      return nil
    }
    let rest = url.utf8.dropFirst(tls ? 8 : 7)
    let authority = Array(rest.prefix { $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "?") })
    var path = Array(rest.dropFirst(authority.count))
    while !allowsQuery, path.last == UInt8(ascii: "/") { path.removeLast() }
    guard !authority.contains(UInt8(ascii: "@")), allowsQuery || !path.contains(UInt8(ascii: "?")),
      let (host, port) = place(authority, usual: tls ? 443 : 80)
    else { return nil }
    if path.first == UInt8(ascii: "?") { path.insert(UInt8(ascii: "/"), at: 0) }
    return (.tcp(host: host, port: port, tls: tls), String(decoding: path, as: UTF8.self))
  }

  /// Whether two URLs lead to the same place despite their spelling: a host in capitals, the default port, a slash at
  /// the end.
  public static func areOne(_ one: String, _ other: String) -> Bool {
    guard let one = parse(one), let other = parse(other) else { return one.isExactly(other) }
    return one.path.isExactly(other.path) && one.endpoint.normal == other.endpoint.normal
  }

  private var normal: HTTPEndpoint {
    guard case .tcp(let host, let port, let tls) = self else { return self }
    // `try?`: an invalid name is compared as it is.
    let name = ((try? HostName.ascii(host)) ?? host).lowercased()
    return .tcp(host: name.hasSuffix(".") ? String(name.dropLast()) : name, port: port, tls: tls)
  }

  /// `HOST`, `HOST:PORT`, or an IPv6 address in brackets.
  private static func place(_ authority: [UInt8], usual: UInt16) -> (host: String, port: UInt16)? {
    var (host, port) = (authority[...], usual)
    let bracket = host.lastIndex(of: UInt8(ascii: "]")) ?? host.startIndex
    if let colon = host.lastIndex(of: UInt8(ascii: ":")), colon >= bracket {
      let digits = host[(colon + 1)...]
      guard digits.allSatisfy({ (0x30...0x39).contains($0) }),
        let number = UInt16(String(decoding: digits, as: UTF8.self)), number > 0
      else { return nil }
      (host, port) = (host[..<colon], number)
    }
    if host.count > 1, host.first == UInt8(ascii: "["), host.last == UInt8(ascii: "]") {
      host = host.dropFirst().dropLast()
    }
    guard !host.isEmpty, !host.contains(UInt8(ascii: "[")), !host.contains(UInt8(ascii: "]")) else { return nil }
    return (String(decoding: host, as: UTF8.self), port)
  }

  /// Requests to this host do not leave the machine.
  public static func isThisMachine(_ host: String) -> Bool {
    let isNumber = host.utf8.allSatisfy { (0x30...0x39).contains($0) || $0 == UInt8(ascii: ".") }
    return host.isExactly("localhost") || host.isExactly("::1") || (isNumber && host.begins(with: "127."))
  }

  var hostHeader: String {
    switch self {
    case .tcp(let host, let port, let tls):
      // `try?`: an invalid name is not connected to.
      let host = (try? HostName.ascii(host)) ?? host
      let shown = host.has(":") ? "[\(host)]" : host
      return port == (tls ? 443 : 80) ? shown : "\(shown):\(port)"
    case .unix, .connected: return "localhost"
    }
  }
}

/// Why a request has no response. All but the last may succeed when retried.
public enum HTTPFailure: Error, Equatable, Sendable, CustomStringConvertible {
  case unreachable(String)
  case timedOut
  /// The answer has begun, and bytes arrive, but not its end.
  case endless
  case closed(String)
  case malformed(String)
  /// The client was closed, or the caller was cancelled.
  case cancelled

  public var description: String {
    switch self {
    case .unreachable(let message): message
    case .timedOut: "no answer in time"
    case .endless: "the answer does not end"
    case .closed(let message): "the connection ended: \(message)"
    case .malformed(let message): "the answer cannot be read: \(message)"
    case .cancelled: "the request was abandoned"
    }
  }
}

/// One connection to one server, with one request at a time; kept open between requests.
public final class HTTPClient {
  /// Maximum size of an answer; none of our servers sends more.
  private static let maxBody = 1 << 20
  /// Of a body that does not matter, and of a refusal's, so much is read to keep the connection: a new one is cheaper than
  /// a longer body.
  private static let maxSpare = 64 << 10
  /// So long for the rest of a body that does not matter.
  private static let ignoringLimit: Duration = .seconds(5)
  /// An answer has this many times the time-out, from its first byte on: a slow line needs several.
  private static let answerRounds = 20
  private static let connectLimit: Duration = .seconds(15)

  private let endpoint: HTTPEndpoint
  private let tls: TLSContext?
  private let proxy: TunnelSettings?
  private let meter: TrafficMeter?
  private let hostHeader: String
  private let loop: EventLoop
  private var stream: (any ByteStream)?
  private var parser = HTTPParser(.responses, maxBody: HTTPClient.maxBody)
  public private(set) var isBusy = false
  private var isClosed = false
  /// Whether this request has had a connection.
  private var isConnected = false
  /// The given socket is or was the client's stream: its number may have been reused.
  private var isSocketTaken = false
  /// What has arrived of the answer under way.
  private var answer = Answer()

  /// `proxy`: used for TCP endpoints. `meter`: counts bytes of the connections.
  public init(
    _ endpoint: HTTPEndpoint, tls: TLSContext? = nil, proxy: TunnelSettings? = nil, meter: TrafficMeter? = nil,
    on loop: EventLoop
  ) {
    self.meter = meter
    self.endpoint = endpoint
    self.tls = tls
    self.proxy = proxy
    self.loop = loop
    hostHeader = endpoint.hostHeader
  }

  /// Sends the request and returns the whole answer, or passes its body to `onPiece` as it arrives (then the returned body is
  /// empty, except for refusals). The body of a refusal is cut if it is too large, if the connection ends within it, or if it
  /// does not end within `timeout`. Fails if nothing is transferred either way for `timeout`, and if an answer that is not
  /// passed on lasts much longer; `nil` waits forever. `isRepeatable`: the server recognises the request if it gets it twice,
  /// whatever its method. `ignoresBody`: only the status matters, also that of a 2xx answer whose body is cut, or does not
  /// end; its body is not kept.
  public func send(
    _ request: HTTPRequest, timeout: Duration?, isRepeatable: Bool = false, ignoresBody: Bool = false,
    onPiece: (([UInt8]) -> Void)? = nil
  ) async throws(HTTPFailure) -> HTTPResponse {
    guard !isBusy else { throw .closed("another request is in progress") }
    (isBusy, isClosed, isConnected) = (true, false, false)
    defer { (isBusy, answer) = (false, Answer()) }
    do {
      return try await loop.whileMoving(timeout, { [weak self] in self?.stream?.movedBytes ?? 0 }) {
        try await self.exchange(
          request, isRepeatable: isRepeatable || request.isIdempotent,
          Answer(timeout: timeout, ignoresBody: ignoresBody, onPiece: onPiece))
      }
    } catch {
      closeStream()
      switch error {
      case let failure as HTTPFailure: throw failure
      case is TimedOut where answer.isEnough: return answer.response
      case is TimedOut: throw isConnected ? .timedOut : .unreachable("no connection in time")
      default: throw .cancelled
      }
    }
  }

  /// Closes the connection; a request in progress fails with `cancelled`.
  public func close() {
    isClosed = true
    closeStream()
  }

  private func closeStream() {
    stream?.close()
    stream = nil
  }

  // MARK: Connecting

  private func connect() async throws -> any ByteStream {
    switch endpoint {
    case .tcp(let host, let port, let isSecure):
      guard !isSecure || tls != nil else { throw HTTPFailure.unreachable("TLS is not set up") }
      do throws(Connector.Failure) {
        let stream = try await loop.stream(
          to: host, port, tls: isSecure ? tls : nil, proxy: proxy, meter: meter, timeout: Self.connectLimit)
        guard !isClosed else { throw .cancelled }
        return stream
      } catch {
        throw error == .cancelled ? HTTPFailure.cancelled : .unreachable(error.description)
      }
    case .connected(let socket):
      guard !isSocketTaken else { throw HTTPFailure.unreachable("the connection has ended") }
      isSocketTaken = true
      return SocketStream(socket, meter: meter, on: loop)
    case .unix(let location):
      let end = loop.now + UnixSocket.patience
      while true {
        do throws(SystemError) {
          return SocketStream(try UnixSocket.connect(location), on: loop)
        } catch {
          guard error.code == EAGAIN, loop.now < end else {
            throw HTTPFailure.unreachable("\(location): \(error.message)")
          }
        }
        try await loop.sleep(for: UnixSocket.pause)
        guard !isClosed else { throw HTTPFailure.cancelled }
      }
    }
  }

  // MARK: One request

  private func exchange(_ request: HTTPRequest, isRepeatable: Bool, _ empty: Answer) async throws -> HTTPResponse {
    // Nothing was sent yet: any request may go over a new connection.
    if let stream, !stream.isQuiet { closeStream() }
    if stream != nil {
      do {
        return try await ask(request, empty)
      } catch let unanswered as Unanswered {
        // The server may have closed the idle connection, or have done all before it ended. So only what it may do twice is retried, once, on a new
        // connection (RFC 9110, 9.2.2).
        guard isRepeatable, unanswered.end != .cancelled else { throw unanswered.failure }
      }
    }
    stream = try await connect()
    do {
      return try await ask(request, empty)
    } catch let unanswered as Unanswered {
      throw unanswered.failure
    }
  }

  /// The connection ended before the answer began.
  private struct Unanswered: Error {
    let end: StreamEnd

    var failure: HTTPFailure { end == .cancelled ? .cancelled : .closed(end.reason ?? "by the server") }
  }

  private func ask(_ request: HTTPRequest, _ empty: Answer) async throws -> HTTPResponse {
    guard let stream else { throw HTTPFailure.cancelled }
    isConnected = true
    answer = empty
    parser = HTTPParser(.responses, maxBody: answer.keepsBody ? Self.maxBody : .max)
    stream.write(request.encode(host: hostHeader))
    // Once the status is all that matters, a server that sends no more is not waited for until the time-out.
    var timer: LoopTimer?
    defer { timer?.cancel() }
    while !answer.isOver {
      let bytes: [UInt8]
      do throws(StreamEnd) {
        bytes = try await stream.read()
      } catch {
        self.stream = nil
        if error == .closed, parser.endsWithConnection { return answer.response }
        if answer.isGivenUp { return answer.response }
        guard answer.response.status != 0, error != .cancelled else { throw Unanswered(end: error) }
        if answer.isEnough { return answer.response }
        if error == .cut { throw HTTPFailure.closed("the end of the answer may be missing") }
        throw HTTPFailure.closed(error.reason ?? "by the server")
      }
      do throws(HTTPParseError) {
        let taken = try parser.parse(bytes[...]) { answer.take($0) }
        if answer.isTooLarge { throw .bodyTooLarge }
        // More than one answer arrived: the next one could not be assigned.
        if answer.isOver, !parser.keepsAlive || taken < bytes.count { closeStream() }
      } catch {
        guard answer.isEnough else { throw HTTPFailure.malformed("\(error)") }
        closeStream()
        return answer.response
      }
      if !answer.isOver, answer.isTooLong(at: loop.now) {
        closeStream()
        guard answer.isEnough else { throw HTTPFailure.endless }
        return answer.response
      }
      if timer == nil, !answer.isOver, answer.isIgnoring {
        timer = loop.schedule(after: Self.ignoringLimit) { [weak self, weak stream] in
          self?.answer.isGivenUp = true
          stream?.close()
        }
      }
    }
    return answer.response
  }

  private struct Answer {
    private let timeout: Duration?
    private let ignoresBody: Bool
    private let onPiece: (([UInt8]) -> Void)?
    /// Of a 2xx answer. Another body has no size limit.
    var keepsBody: Bool { !ignoresBody && onPiece == nil }
    private(set) var response = HTTPResponse(status: 0)
    private(set) var isOver = false
    private(set) var isTooLarge = false
    /// Its body does not matter, and has not ended soon enough.
    var isGivenUp = false
    private var ignored = 0
    /// When its first byte arrived.
    private var begun: MonotonicTime?
    /// When its status was known.
    private var headed: MonotonicTime?
    /// The status says all that matters: it counts without the whole body, too.
    var isEnough: Bool { response.status != 0 && (ignoresBody || !isSuccess) }
    /// What follows does not matter.
    var isIgnoring: Bool { ignoresBody && isSuccess }
    private var isSuccess: Bool { (200..<300).contains(response.status) }

    init(timeout: Duration? = nil, ignoresBody: Bool = false, onPiece: (([UInt8]) -> Void)? = nil) {
      (self.timeout, self.ignoresBody, self.onPiece) = (timeout, ignoresBody, onPiece)
    }

    /// Some of it has arrived, and no more is waited for. A body that is passed on may last.
    mutating func isTooLong(at now: MonotonicTime) -> Bool {
      let since = begun ?? now
      begun = since
      if headed == nil, response.status != 0 { headed = now }
      if ignored > HTTPClient.maxSpare { return true }
      guard let timeout else { return false }
      if isEnough, let headed { return now - headed >= timeout }
      // A head without end is no body that is passed on.
      let mayLast = onPiece != nil && response.status != 0
      return !mayLast && (now - since) / HTTPClient.answerRounds >= timeout
    }

    mutating func take(_ event: HTTPParser.Event) {
      switch event {
      case .response(let status, let headers): response = HTTPResponse(status: status, headers: headers)
      case .body(let piece):
        if isIgnoring {
          ignored += piece.count
          return
        }
        if isSuccess, let onPiece { return onPiece(piece) }
        let most = isSuccess ? HTTPClient.maxBody : HTTPClient.maxSpare
        isTooLarge = isTooLarge || response.body.count + piece.count > most
        if !isTooLarge { response.body.append(contentsOf: piece) }
      case .end: isOver = true
      case .request: break
      }
    }
  }
}

extension EventLoop {
  /// A connection to a server, through the proxy and over TLS if they are given. `meter`: counts its traffic.
  public func stream(
    to host: String, _ port: UInt16, tls: TLSContext?, proxy: TunnelSettings?, meter: TrafficMeter?, timeout: Duration
  ) async throws(Connector.Failure) -> any ByteStream {
    meter?.attempts()
    let socket: Int32
    do throws(Connector.Failure) {
      socket = try await connect(host: host, port: port, through: proxy, timeout: timeout)
    } catch {
      meter?.failed()
      throw error
    }
    let plain = SocketStream(socket, meter: meter, on: self) { [weak self] in
      // Behind a proxy, the proxy chooses the address.
      if proxy == nil { self?.wasSilent(host, port) }
    }
    guard let tls else { return plain }
    guard let secure = TLSStream(plain, tls, host: host) else {
      throw .unusable("\(host) port \(port)", message: "TLS is not possible")
    }
    return secure
  }
}
