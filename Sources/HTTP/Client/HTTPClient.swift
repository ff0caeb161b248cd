// SPDX-License-Identifier: MIT

import CLinux
import Escaping
import EventLoop
import Glibc
import Streams
import Timing

/// Where an HTTP server is.
public enum HTTPEndpoint: Equatable, Sendable {
  case tcp(host: String, port: UInt16, tls: Bool)
  case unix(location: String)
  /// A socket that is connected already, which the client owns from then on; good for one connection.
  case connected(Int32)

  /// `http://host:port/path` and `https://…` taken apart; the path has no `/` at its end. `nil` for anything else,
  /// user names among it.
  /// With `allowsQuery` the path is kept to its last byte.
  public static func parse(_ url: String, allowsQuery: Bool = false) -> (endpoint: HTTPEndpoint, path: String)? {
    // By bytes: a sign that an accent follows is one all the same, and what breaks a line would begin a header of its own.
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

  /// `HOST`, `HOST:PORT`, or an address of IPv6 in brackets.
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

  /// What goes there does not leave this machine.
  public static func isThisMachine(_ host: String) -> Bool {
    let isNumber = host.utf8.allSatisfy { (0x30...0x39).contains($0) || $0 == UInt8(ascii: ".") }
    return host.isExactly("localhost") || host.isExactly("::1") || (isNumber && host.begins(with: "127."))
  }

  var hostHeader: String {
    switch self {
    case .tcp(let host, let port, let tls):
      let shown = host.has(":") ? "[\(host)]" : host
      return port == (tls ? 443 : 80) ? shown : "\(shown):\(port)"
    case .unix, .connected: return "localhost"
    }
  }
}

/// Why a request has no response. All of these are worth trying again.
public enum HTTPFailure: Error, Equatable, Sendable, CustomStringConvertible {
  case unreachable(String)
  case timedOut
  case closed(String)
  case malformed(String)

  public var description: String {
    switch self {
    case .unreachable(let words): words
    case .timedOut: "no answer in time"
    case .closed(let words): "the connection ended: \(words)"
    case .malformed(let words): "the answer is no HTTP: \(words)"
    }
  }
}

/// One connection to one server, one request at a time, kept open between requests.
public final class HTTPClient {
  public typealias Completion = (Result<HTTPResponse, HTTPFailure>) -> Void

  /// Answers larger than this are refused: none that we ask for is.
  private static let maxBody = 1 << 20

  private let endpoint: HTTPEndpoint
  private let tls: TLSContext?
  private let loop: EventLoop
  private var stream: (any ByteStream)?
  private var connector: Connector?
  private var parser = HTTPParser(.responses, maxBody: HTTPClient.maxBody)
  private var limit: ProgressLimit?
  private var completion: Completion?
  private var onPiece: (([UInt8]) -> Void)?
  private var response = HTTPResponse(status: 0)
  private var request: HTTPRequest?
  private var isTooLarge = false
  /// The request went out on a connection that had been idle: the server may have closed it just then.
  private var isReused = false

  public init(_ endpoint: HTTPEndpoint, tls: TLSContext? = nil, on loop: EventLoop) {
    self.endpoint = endpoint
    self.tls = tls
    self.loop = loop
  }

  public var isBusy: Bool { completion != nil }

  /// Sends the request and hears of the whole answer, or, with `onPiece`, of its body piece by piece (the answer then
  /// comes with an empty body when it ends; a refusal comes whole). It fails when nothing has moved, either way, for
  /// `timeout`; `nil` waits for ever.
  public func send(
    _ request: HTTPRequest, timeout: Duration?, onPiece: (([UInt8]) -> Void)? = nil, _ completion: @escaping Completion
  ) {
    guard self.completion == nil else { return completion(.failure(.closed("a request is under way already"))) }
    self.completion = completion
    self.onPiece = onPiece
    self.request = request
    response = HTTPResponse(status: 0)
    isTooLarge = false
    if let timeout {
      limit = ProgressLimit(timeout, on: loop) { [weak self] in
        self?.stream?.movedBytes ?? 0
      } giveUp: { [weak self] in
        guard let self else { return }
        self.fail(self.stream == nil ? .unreachable("no connection in time") : .timedOut)
      }
    }
    if stream != nil {
      isReused = true
      parser.maxBody = maxBody
      write()
    } else {
      isReused = false
      connect()
    }
  }

  /// Closes the connection; a request under way hears nothing.
  public func close() {
    limit?.cancel()
    completion = nil
    onPiece = nil
    connector?.cancel()
    connector = nil
    closeStream()
  }

  private func closeStream() {
    stream?.close()
    stream = nil
  }

  private func connect() {
    switch endpoint {
    case .tcp(let host, let port, _):
      connector = Connector(host: host, port: port, timeout: .seconds(15), on: loop) { [weak self] result in
        guard let self else { return }
        self.connector = nil
        switch result {
        case .success(let socket): self.connected(socket)
        case .failure(let failure): self.fail(.unreachable(failure.description))
        }
      }
    case .connected(let socket): connected(socket)
    case .unix(let location):
      do {
        connected(try UnixSocket.connect(location))
      } catch {
        loop.later { [weak self] in self?.fail(.unreachable("\(location): \(error.words)")) }
      }
    }
  }

  /// Of what goes on piece by piece nothing is kept.
  private var maxBody: Int { onPiece == nil ? Self.maxBody : .max }

  private func connected(_ socket: Int32) {
    let plain = SocketStream(socket, on: loop)
    if case .tcp(let host, _, true) = endpoint {
      guard let tls, let secure = TLSStream(plain, tls, host: host) else {
        return fail(.unreachable("TLS is not set up"))
      }
      stream = secure
    } else {
      stream = plain
    }
    parser = HTTPParser(.responses, maxBody: maxBody)
    stream?.onBytes = { [weak self] bytes in self?.received(bytes) }
    stream?.onClose = { [weak self] words in self?.closed(words) }
    stream?.start()
    write()
  }

  private func write() {
    guard let request else { return }
    stream?.write(request.encode(host: endpoint.hostHeader))
  }

  private func received(_ bytes: [UInt8]) {
    guard completion != nil else { return closeStream() }  // an answer that nobody asked for
    var isOver = false
    let taken: Int
    do throws(HTTPParseError) {
      taken = try parser.parse(bytes[...]) { event in
        switch event {
        case .response(let status, let headers): response = HTTPResponse(status: status, headers: headers)
        case .body(let piece): take(piece)
        case .end: isOver = true
        case .request: break
        }
      }
    } catch {
      return fail(.malformed("\(error)"))
    }
    if isTooLarge { return fail(.malformed("\(HTTPParseError.bodyTooLarge)")) }
    guard isOver else { return }
    // More than was asked for: whose answer the next would be is not known.
    finish(mayReuse: taken == bytes.count)
  }

  private func take(_ piece: [UInt8]) {
    if let onPiece, (200..<300).contains(response.status) { return onPiece(piece) }
    isTooLarge = isTooLarge || response.body.count + piece.count > Self.maxBody
    if !isTooLarge { response.body.append(contentsOf: piece) }
  }

  private func finish(mayReuse: Bool) {
    if !parser.keepsAlive || !mayReuse { closeStream() }
    complete(.success(response))
  }

  private func closed(_ words: String?) {
    stream = nil
    guard completion != nil else { return }
    if parser.endsWithConnection, words == nil { return complete(.success(response)) }
    if isReused, response.status == 0 {
      // The server closed the idle connection; nothing of an answer came: once more, on a new one.
      isReused = false
      return connect()
    }
    fail(.closed(words ?? "by the server"))
  }

  private func fail(_ failure: HTTPFailure) {
    connector?.cancel()
    connector = nil
    closeStream()
    complete(.failure(failure))
  }

  private func complete(_ result: Result<HTTPResponse, HTTPFailure>) {
    limit?.cancel()
    let completion = completion
    self.completion = nil
    onPiece = nil
    request = nil
    completion?(result)
  }
}
