// SPDX-License-Identifier: MIT

import COpenSSL
import Escaping
import EventLoop
import Streams
import Timing

/// Why a WebSocket could not be opened, or has ended.
public enum WebSocketFailure: Error, Equatable, Sendable, CustomStringConvertible {
  /// Nobody is there: a name, a port, TLS.
  case unreachable(String)
  /// An HTTP server is there, and answers with something else than a WebSocket.
  case notUpgraded(HTTPResponse)
  /// The opening handshake was not answered, or with nonsense: something in between does not let it through.
  case blocked(String)
  /// It was open.
  case closed(String)

  public var description: String {
    switch self {
    case .unreachable(let words), .blocked(let words): words
    case .notUpgraded(let response): "no WebSocket there: HTTP \(response.status)"
    case .closed(let words): "the connection ended: \(words)"
    }
  }
}

/// A client's WebSocket, without extensions. Pings are answered; who uses it sends its own. Source: RFC 6455.
public final class WebSocket {
  public struct Settings: Sendable {
    public var host: String
    public var port: UInt16
    /// Path and query.
    public var target: String
    public var headers: HTTPHeaders
    public var subprotocol: String?
    /// Bytes of a message from the server, at most.
    public var maxMessage: Int

    public init(
      host: String, port: UInt16, target: String, headers: HTTPHeaders = [:], subprotocol: String? = nil,
      maxMessage: Int = 1 << 20
    ) {
      self.host = host
      self.port = port
      self.target = target.isEmpty ? "/" : target
      self.headers = headers
      self.subprotocol = subprotocol
      self.maxMessage = maxMessage
    }
  }

  /// Name look-up and TCP; and so long nothing may move in TLS and the opening handshake.
  private static let openLimit: Duration = .seconds(20)
  /// Pings are not answered while more than this waits to be read.
  private static let maxUnsent = 64 * 1024

  private let settings: Settings
  private let tls: TLSContext?
  private let loop: EventLoop
  private var connector: Connector?
  private var stream: (any ByteStream)?
  private var decoder: WebSocketDecoder
  private var handshake = HTTPParser(.upgrade, maxBody: 0)
  /// Telling may bring more (TLS reads when it writes): that waits for its turn.
  private var isTelling = false
  /// Pings that are answered at once; of more that came together only the newest is (RFC 6455 § 5.5.3).
  private static let pongsAtOnce = 16
  private var pongsLeft = pongsAtOnce
  private var newestPing: [UInt8]?
  private var limit: ProgressLimit?
  private let key: String
  /// From `open` to the end.
  private var isActive = false

  public private(set) var isOpen = false
  /// With frame headers; without TLS.
  public private(set) var bytesSent: UInt64 = 0
  public private(set) var bytesReceived: UInt64 = 0
  public var onOpen: () -> Void = {}
  public var onMessage: ([UInt8]) -> Void = { _ in }
  public var onPong: () -> Void = {}
  public var onDrained: () -> Void = {}
  /// Told once; nothing follows.
  public var onEnd: (WebSocketFailure) -> Void = { _ in }

  public init(_ settings: Settings, tls: TLSContext?, on loop: EventLoop) {
    self.settings = settings
    self.tls = tls
    self.loop = loop
    decoder = WebSocketDecoder(maxPayload: settings.maxMessage)
    key = WebSocketKey.random()
  }

  public var pendingBytes: Int { stream?.pendingBytes ?? 0 }
  /// As of `ByteStream`.
  public var movedBytes: UInt64 { stream?.movedBytes ?? 0 }

  public func open() {
    isActive = true
    limit = ProgressLimit(Self.openLimit, on: loop) { [weak self] in
      self?.movedBytes ?? 0
    } giveUp: { [weak self] in
      self?.end(self?.stream == nil ? .unreachable("no connection in time") : .blocked("no answer in time"))
    }
    connector = Connector(host: settings.host, port: settings.port, timeout: Self.openLimit, on: loop) {
      [weak self] result in
      guard let self else { return }
      self.connector = nil
      switch result {
      case .success(let socket): self.connected(socket)
      case .failure(let failure): self.end(.unreachable(failure.description))
      }
    }
  }

  private func connected(_ socket: Int32) {
    let plain = SocketStream(socket, on: loop)
    if let tls {
      guard let secure = TLSStream(plain, tls, host: settings.host) else {
        return end(.unreachable("TLS is not set up"))
      }
      stream = secure
    } else {
      stream = plain
    }
    stream?.onBytes = { [weak self] bytes in self?.received(bytes) }
    stream?.onClose = { [weak self] words in self?.streamEnded(words) }
    stream?.onDrained = { [weak self] in self?.onDrained() }
    stream?.start()
    var request = HTTPRequest("GET", settings.target, headers: settings.headers)
    request.headers.add("Upgrade", "websocket")
    request.headers.add("Connection", "Upgrade")
    request.headers.add("Sec-WebSocket-Version", "13")
    request.headers.add("Sec-WebSocket-Key", key)
    if let subprotocol = settings.subprotocol { request.headers.add("Sec-WebSocket-Protocol", subprotocol) }
    let endpoint = HTTPEndpoint.tcp(host: settings.host, port: settings.port, tls: tls != nil)
    write(request.encode(host: endpoint.hostHeader))
  }

  private func write(_ bytes: [UInt8]) {
    bytesSent &+= UInt64(bytes.count)
    stream?.write(bytes)
  }

  // MARK: Sending

  public func send(text: [UInt8]) { send(WebSocketFrame(opcode: .text, payload: text)) }
  public func send(binary: [UInt8]) { send(WebSocketFrame(opcode: .binary, payload: binary)) }
  public func ping() { send(WebSocketFrame(opcode: .ping)) }

  private func send(_ frame: WebSocketFrame) {
    guard isOpen else { return }
    write(frame.encode(mask: .random(in: .min ... .max)))
  }

  /// Says goodbye, as far as it goes out at once, and closes; nothing is told.
  public func close() {
    send(WebSocketFrame(opcode: .close, payload: [0x03, 0xE8]))  // 1000: normal closure
    shut()
  }

  private func shut() {
    limit?.cancel()
    connector?.cancel()
    connector = nil
    stream?.close()
    stream = nil
    isOpen = false
    isActive = false
  }

  private func end(_ failure: WebSocketFailure) {
    guard isActive else { return }
    shut()
    onEnd(failure)
  }

  // MARK: Receiving

  private func streamEnded(_ words: String?) {
    let words = words ?? "closed by the server"
    if isOpen { return end(.closed(words)) }
    // TLS that fails is nobody there; a server that hangs up on a handshake may be a proxy in between.
    end(words.hasPrefix("TLS") ? .unreachable(words) : .blocked(words))
  }

  private func received(_ bytes: [UInt8]) {
    bytesReceived &+= UInt64(bytes.count)
    guard !isOpen else { return decode(bytes) }
    var answer: HTTPResponse?
    do throws(HTTPParseError) {
      let taken = try handshake.parse(bytes[...]) { event in
        if case .response(let status, let headers) = event { answer = HTTPResponse(status: status, headers: headers) }
      }
      guard let answer, accept(answer) else { return }
      isTelling = true
      decoder.append(Array(bytes[taken...]))
      onOpen()
      isTelling = false
      tell()
    } catch {
      // Of an answer whose head was right, the body does not matter.
      if answer.map(accept) == nil { end(.blocked("the answer is no HTTP: \(error)")) }
    }
  }

  /// True: it is open now.
  private func accept(_ answer: HTTPResponse) -> Bool {
    guard answer.status == 101 else {
      end(.notUpgraded(answer))
      return false
    }
    if let words = objection(answer.headers) {
      end(.blocked("the answer to the handshake is wrong: \(words)"))
      return false
    }
    limit?.cancel()
    isOpen = true
    return true
  }

  /// What is wrong with the server's answer. Source: RFC 6455 § 4.1.
  private func objection(_ headers: HTTPHeaders) -> String? {
    guard headers.hasToken("websocket", in: "Upgrade") else { return "Upgrade" }
    guard headers.hasToken("upgrade", in: "Connection") else { return "Connection" }
    let accepted = headers.values(of: "Sec-WebSocket-Accept")
    guard accepted.count == 1, accepted[0].isExactly(WebSocketKey.answer(to: key)) else {
      return "Sec-WebSocket-Accept"
    }
    guard headers.values(of: "Sec-WebSocket-Extensions").isEmpty else { return "an extension nobody asked for" }
    let subprotocols = headers.values(of: "Sec-WebSocket-Protocol")
    guard subprotocols.isEmpty || (subprotocols.count == 1 && settings.subprotocol?.isExactly(subprotocols[0]) == true)
    else {
      return "a subprotocol nobody asked for"
    }
    return nil
  }

  private func decode(_ bytes: [UInt8]) {
    decoder.append(bytes)
    tell()
  }

  private func tell() {
    guard !isTelling else { return }
    isTelling = true
    pongsLeft = Self.pongsAtOnce
    defer { isTelling = false }
    do throws(WebSocketError) {
      while isOpen, let frame = try decoder.next() { try take(frame) }
    } catch {
      return fail(error)
    }
    answerNewestPing()
  }

  private func take(_ frame: WebSocketFrame) throws(WebSocketError) {
    switch frame.opcode {
    case .ping: answerPing(frame.payload)
    case .pong: onPong()
    case .close:
      let reason = try WebSocketClose.reason(frame.payload)
      answerNewestPing()
      send(WebSocketFrame(opcode: .close, payload: Array(frame.payload.prefix(2))))
      end(.closed(reason.isEmpty ? "closed by the server" : reason))
    default: onMessage(frame.payload)
    }
  }

  private func answerPing(_ payload: [UInt8]) {
    guard pongsLeft > 0, pendingBytes <= Self.maxUnsent else {
      newestPing = payload
      return
    }
    pongsLeft -= 1
    newestPing = nil
    send(WebSocketFrame(opcode: .pong, payload: payload))
  }

  private func answerNewestPing() {
    guard let payload = newestPing, pendingBytes <= Self.maxUnsent else { return }
    newestPing = nil
    send(WebSocketFrame(opcode: .pong, payload: payload))
  }

  /// The server is told why, as far as it goes out at once.
  private func fail(_ error: WebSocketError) {
    send(WebSocketFrame(opcode: .close, payload: [UInt8(error.code >> 8), UInt8(error.code & 0xFF)]))
    end(.closed("\(error)"))
  }
}

/// The keys of the opening handshake. Source: RFC 6455 § 4.
enum WebSocketKey {
  static func random() -> String { base64((0..<16).map { _ in UInt8.random(in: .min ... .max) }) }

  static func answer(to key: String) -> String {
    let text = Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8)
    var digest = [UInt8](repeating: 0, count: 20)
    var count: UInt32 = 0
    let done = EVP_Digest(text, text.count, &digest, &count, EVP_sha1(), nil)
    precondition(done == 1, "libcrypto refused SHA-1: the installation is broken")
    return base64(digest)
  }

  static func base64(_ bytes: [UInt8]) -> String {
    var output = [UInt8](repeating: 0, count: (bytes.count + 2) / 3 * 4 + 1)
    let count = EVP_EncodeBlock(&output, bytes, Int32(bytes.count))
    return String(decoding: output.prefix(Int(count)), as: UTF8.self)
  }
}
