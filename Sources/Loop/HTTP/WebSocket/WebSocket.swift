// SPDX-License-Identifier: MIT

import COpenSSL
import Deflate
import EventLoop
import ProxyTunnel
import Sockets
import Timing
import UntrustedText

/// Why a WebSocket could not be opened, or was closed.
public enum WebSocketFailure: Error, Equatable, Sendable, CustomStringConvertible {
  /// No connection: name, port, or TLS.
  case unreachable(String)
  /// An HTTP server answered with something other than a WebSocket.
  case notUpgraded(HTTPResponse)
  /// The handshake was not answered, or with invalid data: a proxy may block it.
  case blocked(String)
  /// The open connection was lost.
  case closed(String)
  /// The owner closed it, or the waiting task was cancelled.
  case cancelled

  public var description: String {
    switch self {
    case .unreachable(let words), .blocked(let words): words
    case .notUpgraded(let response): "not a WebSocket: HTTP \(response.status)"
    case .closed(let words): "the connection ended: \(words)"
    case .cancelled: "closed by this side"
    }
  }
}

/// A client's WebSocket. It answers pings while a task reads; its owner sends pings of its own. Source: RFC 6455, and
/// RFC 7692 for compression.
public final class WebSocket {
  public struct Settings: Sendable {
    public var host: String
    public var port: UInt16
    /// Path and query.
    public var target: String
    public var headers: HTTPHeaders
    public var subprotocol: String?
    /// Offered compression; `nil`: none.
    public var compression: PerMessageDeflate.Offer?
    /// The proxy, if any.
    public var proxy: TunnelSettings?
    /// Maximum message size, in bytes; `.max`: messages are passed on in pieces, as they arrive.
    public var maxMessage: Int

    public init(
      host: String, port: UInt16, target: String, headers: HTTPHeaders = [:], subprotocol: String? = nil,
      compression: PerMessageDeflate.Offer? = nil, proxy: TunnelSettings? = nil, maxMessage: Int = 1 << 20
    ) {
      self.host = host
      self.port = port
      self.target = target.isEmpty ? "/" : target
      self.headers = headers
      self.subprotocol = subprotocol
      self.compression = compression
      self.proxy = proxy
      self.maxMessage = maxMessage
    }
  }

  /// What the server has sent.
  public enum Event: Equatable, Sendable {
    case message([UInt8])
    /// The server's ping, already answered or to be answered in turn; the number of its bytes.
    case ping(Int)
    case pong
  }

  /// Limit for name look-up and TCP, and for each silence during TLS and the handshake.
  private static let openLimit: Duration = .seconds(20)
  /// A slow line needs several times that; a server that never ends its answer gets no more.
  private static let openRounds: Int64 = 20
  /// Limit for the words of a refusal.
  private static let wordsLimit: Duration = .seconds(2)
  /// Pings are not answered while more output than this waits.
  private static let maxUnsent = 64 * 1024
  /// Memory level of the compressor: 30 KiB in all with a window of 4 KiB.
  private static let memoryLevel = 4
  /// Shorter messages are sent uncompressed.
  private static let compressedFrom = 16
  private let settings: Settings
  private let tls: TLSContext?
  private let meter: TrafficMeter?
  private let loop: EventLoop
  private var stream: (any ByteStream)?
  private var decoder: WebSocketDecoder
  private var deflater: Deflater?
  private var keepsContext = true
  /// Pings that are answered at once. Of further ones only the newest is answered (RFC 6455 § 5.5.3), at most one a
  /// second.
  private var pongs = Ration(most: 16, oneIn: .seconds(1))
  private var newestPing: [UInt8]?
  private var pongBytes: UInt64 = 0
  private let key = WebSocketKey.random()
  private var failure: WebSocketFailure?

  public private(set) var isOpen = false
  /// Bytes including frame headers, without TLS.
  public private(set) var bytesSent: UInt64 = 0
  public private(set) var bytesReceived: UInt64 = 0

  /// Call `open` to connect. `meter`: counts its traffic.
  public init(_ settings: Settings, tls: TLSContext?, meter: TrafficMeter? = nil, on loop: EventLoop) {
    self.meter = meter
    self.settings = settings
    self.tls = tls
    self.loop = loop
    decoder = WebSocketDecoder(maxPayload: settings.maxMessage)
  }

  public var pendingBytes: Int { stream?.pendingBytes ?? 0 }
  /// See `ByteStream.movedBytes`.
  public var movedBytes: UInt64 { stream?.movedBytes ?? 0 }
  /// The part of `bytesSent` that the server's kernel has acknowledged, approximately.
  public var acknowledgedBytes: UInt64 { bytesSent - min(bytesSent, UInt64(stream?.outstandingBytes ?? 0)) }
  /// Received bytes of messages, complete or not; pings and pongs do not count.
  public var dataReceived: UInt64 { decoder.dataBytes }
  /// As `acknowledgedBytes`, without answers to pings.
  public var dataAcknowledged: UInt64 { acknowledgedBytes - min(acknowledgedBytes, pongBytes) }

  // MARK: Opening

  /// Connects, and performs the handshake.
  public func open() async throws(WebSocketFailure) {
    do {
      try await loop.whileMoving(Self.openLimit, rounds: Self.openRounds, { [weak self] in self?.movedBytes ?? 0 }) {
        try await self.connect()
        try await self.shakeHands()
      }
    } catch {
      let hadStream = stream != nil
      shut()
      switch error {
      case let failure as WebSocketFailure: throw failure
      case is TimedOut: throw hadStream ? .blocked("no answer in time") : .unreachable("no connection in time")
      default: throw .cancelled
      }
    }
    isOpen = true
  }

  private func connect() async throws {
    do throws(Connector.Failure) {
      let opened = try await loop.stream(
        to: settings.host, settings.port, tls: tls, proxy: settings.proxy, meter: meter, timeout: Self.openLimit)
      guard failure == nil else { throw .cancelled }
      stream = opened
    } catch {
      throw error == .cancelled ? WebSocketFailure.cancelled : .unreachable(error.description)
    }
  }

  private func shakeHands() async throws(WebSocketFailure) {
    var request = HTTPRequest("GET", settings.target, headers: settings.headers)
    request.headers.add("Upgrade", "websocket")
    request.headers.add("Connection", "Upgrade")
    request.headers.add("Sec-WebSocket-Version", "13")
    request.headers.add("Sec-WebSocket-Key", key)
    if let subprotocol = settings.subprotocol { request.headers.add("Sec-WebSocket-Protocol", subprotocol) }
    let endpoint = HTTPEndpoint.tcp(host: settings.host, port: settings.port, tls: tls != nil)
    if let offer = settings.compression { request.headers.add("Sec-WebSocket-Extensions", offer.value) }
    write(request.encode(host: endpoint.hostHeader))
    let answer = HandshakeAnswer()
    while true {
      let bytes = try await readHandshake()
      let (taken, failure) = answer.take(bytes)
      if let response = answer.response {
        guard response.status == 101 else { throw await refusal(answer) }
        try accept(response)
        return decoder.append(Array(bytes[taken...]))
      }
      if let failure { throw .blocked("the answer cannot be read: \(failure)") }
    }
  }

  /// The refusal with the beginning of its body, if that comes soon: its status counts without it, too.
  private func refusal(_ answer: HandshakeAnswer) async -> WebSocketFailure {
    // `try?`: it comes too slowly, or the connection ends.
    _ = try? await loop.withTimeout(Self.wordsLimit) {
      while !answer.isOver { _ = answer.take(try await self.read()) }
    }
    guard stream != nil, !Task.isCancelled, let response = answer.response else { return .cancelled }
    return .notUpgraded(response)
  }

  private func readHandshake() async throws(WebSocketFailure) -> [UInt8] {
    do throws(StreamEnd) {
      return try await read()
    } catch {
      if error == .cancelled { throw .cancelled }
      let words = error.reason ?? "closed by the server"
      // A failure of TLS counts as unreachable; if the server hangs up during the handshake, a proxy in between may be
      // the cause.
      throw words.hasPrefix("TLS") ? .unreachable(words) : .blocked(words)
    }
  }

  private func accept(_ answer: HTTPResponse) throws(WebSocketFailure) {
    if let words = objection(answer.headers) { throw .blocked("invalid handshake response: \(words)") }
    try beginCompression(answer.headers.values(of: "Sec-WebSocket-Extensions"))
  }

  private func beginCompression(_ extensions: [String]) throws(WebSocketFailure) {
    guard !extensions.isEmpty else { return }
    let agreed: PerMessageDeflate?
    do throws(PerMessageDeflate.Objection) {
      guard let offer = settings.compression else { throw PerMessageDeflate.Objection() }
      agreed = try PerMessageDeflate.answered(extensions, to: offer)
    } catch {
      throw .blocked("invalid handshake response: an extension that was not requested")
    }
    guard let agreed else { return }
    let (ours, theirs) =
      agreed.hasDictionary ? (LinkDictionary.fromGateway, LinkDictionary.fromHub) : ([], [])
    guard let inflater = Inflater(windowBits: agreed.serverBits, dictionary: theirs) else {
      throw .blocked("no memory for compression")
    }
    decoder.compression = (inflater, agreed.serverKeepsContext)
    keepsContext = agreed.clientKeepsContext
    guard agreed.clientCompresses else { return }
    // Without memory for a compressor messages are sent uncompressed.
    deflater = Deflater(windowBits: agreed.clientBits, memoryLevel: Self.memoryLevel, dictionary: ours)
  }

  /// The reason to reject the server's answer. Source: RFC 6455 § 4.1.
  private func objection(_ headers: HTTPHeaders) -> String? {
    guard headers.hasToken("websocket", in: "Upgrade") else { return "Upgrade" }
    guard headers.hasToken("upgrade", in: "Connection") else { return "Connection" }
    let accepted = headers.values(of: "Sec-WebSocket-Accept")
    guard accepted.count == 1, accepted[0].isExactly(WebSocketKey.answer(to: key)) else {
      return "Sec-WebSocket-Accept"
    }
    let subprotocols = headers.values(of: "Sec-WebSocket-Protocol")
    guard subprotocols.isEmpty || (subprotocols.count == 1 && settings.subprotocol?.isExactly(subprotocols[0]) == true)
    else {
      return "a subprotocol that was not requested"
    }
    return nil
  }

  // MARK: Sending

  public func send(text: [UInt8]) { send(message: WebSocketFrame(opcode: .text, payload: text)) }
  public func send(binary: [UInt8]) { send(message: WebSocketFrame(opcode: .binary, payload: binary)) }
  public func ping() { send(WebSocketFrame(opcode: .ping)) }

  private func send(message: WebSocketFrame) {
    guard isOpen, let deflater, message.payload.count >= Self.compressedFrom else { return send(message) }
    var frame = message
    frame.isCompressed = true
    frame.payload = deflater.message(message.payload)
    if !keepsContext { deflater.reset() }
    send(frame)
  }

  private func send(_ frame: WebSocketFrame) {
    guard isOpen else { return }
    write(frame.encode(mask: .random(in: .min ... .max)))
  }

  private func write(_ bytes: [UInt8]) {
    bytesSent &+= UInt64(bytes.count)
    stream?.write(bytes)
  }

  /// Returns each time that all output was sent.
  public func drained() async throws(StreamEnd) {
    guard let stream else { throw .cancelled }
    try await stream.drained()
  }

  /// Sends a close frame if that is possible at once, and closes. `reason`: the error for the reading task.
  public func close(_ reason: WebSocketFailure = .cancelled) {
    send(WebSocketFrame(opcode: .close, payload: [0x03, 0xE8]))  // 1000: normal closure
    failure = failure ?? reason
    shut()
  }

  private func shut() {
    stream?.close()
    stream = nil
    isOpen = false
    deflater = nil
    decoder.compression = nil
  }

  // MARK: Receiving

  /// The next message. An error closes it, except cancellation: then it may be called again.
  public func next() async throws(WebSocketFailure) -> Event {
    while true {
      if let event = decoded() { return event }
      try await answerNewestPingInTurn()
      let bytes: [UInt8]
      do throws(StreamEnd) {
        bytes = try await read()
      } catch {
        // A cancelled reader may wait again.
        if error == .cancelled, stream != nil { throw .cancelled }
        shut()
        throw failure ?? (error == .cancelled ? .cancelled : .closed(error.reason ?? "closed by the server"))
      }
      decoder.append(bytes)
    }
  }

  private func read() async throws(StreamEnd) -> [UInt8] {
    guard let stream else { throw .cancelled }
    let bytes = try await stream.read()
    bytesReceived &+= UInt64(bytes.count)
    return bytes
  }

  /// The next event in the data that was received already.
  private func decoded() -> Event? {
    do throws(WebSocketError) {
      while isOpen, let frame = try decoder.next() {
        switch frame.opcode {
        case .ping:
          answerPing(frame.payload)
          return .ping(frame.payload.count)
        case .pong: return .pong
        case .close: return try closedByServer(frame)
        default: return .message(frame.payload)
        }
      }
      return nil
    } catch {
      // The server is told the reason if that is possible at once.
      send(WebSocketFrame(opcode: .close, payload: [UInt8(error.code >> 8), UInt8(error.code & 0xFF)]))
      failure = .closed("\(error)")
      shut()
      return nil
    }
  }

  private func closedByServer(_ frame: WebSocketFrame) throws(WebSocketError) -> Event? {
    let reason = try WebSocketClose.reason(frame.payload)
    answerNewestPing()
    send(WebSocketFrame(opcode: .close, payload: Array(frame.payload.prefix(2))))
    failure = .closed(reason.isEmpty ? "closed by the server" : reason)
    shut()
    return nil
  }

  private func answerPing(_ payload: [UInt8]) {
    guard pendingBytes <= Self.maxUnsent, pongs.take(at: loop.now) else {
      newestPing = payload
      return
    }
    sendPong(payload)
  }

  private func sendPong(_ payload: [UInt8]) {
    newestPing = nil
    let before = bytesSent
    send(WebSocketFrame(opcode: .pong, payload: payload))
    pongBytes &+= bytesSent - before
  }

  /// Reads from a server that pings without end no faster than its pings are answered.
  private func answerNewestPingInTurn() async throws(WebSocketFailure) {
    guard newestPing != nil else { return }
    do { try await loop.sleep(for: pongs.wait(at: loop.now)) } catch { throw .cancelled }
    answerNewestPing()
  }

  private func answerNewestPing() {
    guard let payload = newestPing, pendingBytes <= Self.maxUnsent else { return }
    sendPong(payload)
  }
}

/// The keys of the opening handshake. Source: RFC 6455 § 4.
public enum WebSocketKey {
  static func random() -> String { Base64.padded((0..<16).map { _ in UInt8.random(in: .min ... .max) }) }

  /// What a server answers to a client's key.
  public static func answer(to key: String) -> String {
    let text = Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8)
    var digest = [UInt8](repeating: 0, count: 20)
    var count: UInt32 = 0
    let done = EVP_Digest(text, text.count, &digest, &count, EVP_sha1(), nil)
    precondition(done == 1, "libcrypto refused SHA-1: the installation is broken")
    return Base64.padded(digest)
  }
}
