// SPDX-License-Identifier: MIT

import Deflate
import HTTPTypes
import HummingbirdCore
import JSON
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import NIOWebSocket
import UntrustedText

typealias FrameChannel = NIOAsyncChannel<WebSocketFrame, WebSocketFrame>

/// A connection to the hub: HTTP/1.1, which a gateway upgrades to its link, a WebSocket.
struct LinkUpgradeChannel: ServerChildChannel, HTTPChannelHandler {
  typealias HTTPChannel = NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>

  enum Negotiated: Sendable {
    case http(HTTPChannel)
    case link(FrameChannel, LinkProtocol.AuthorizedGateway, PerMessageDeflate?)
  }

  struct Value: ServerChildChannelValue {
    let channel: any Channel
    let negotiated: EventLoopFuture<Negotiated>
  }

  /// TCP_THIN_LINEAR_TIMEOUTS of <linux/tcp.h>.
  private static let linearTimeouts = ChannelOptions.Types.SocketOption(level: .tcp, name: .init(rawValue: 16))

  let responder: HTTPChannelHandler.Responder
  /// The largest message in bytes.
  let maxMessage: Int
  let connections: ConnectionTable
  let admit: LinkHandshakeFilter.Admit
  let decide: LinkHandshakeFilter.Decide
  /// Serves a link with its agreed compression.
  let serve: @Sendable (FrameChannel, LinkProtocol.AuthorizedGateway, PerMessageDeflate?) async -> Void

  func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
    channel.eventLoop.makeCompletedFuture {
      switch connections.admit(channel) {
      case .admitted:
        try ReadBuffers.use(by: channel)
        return Value(channel: channel, negotiated: try negotiation(channel, logger))
      case .rejected: try channel.pipeline.syncOperations.addHandler(RejectedConnection())
      case .dropped: channel.close(promise: nil)
      }
      return Value(channel: channel, negotiated: channel.eventLoop.makeFailedFuture(ChannelError.ioOnClosedChannel))
    }
  }

  private func negotiation(_ channel: any Channel, _ logger: Logger) throws -> EventLoopFuture<Negotiated> {
    let operations = channel.pipeline.syncOperations
    try operations.addHandler(FirstRequestTimeoutHandler())
    let upgrader = NIOTypedWebSocketServerUpgrader<Negotiated>(
      maxFrameSize: maxMessage,
      // `LinkHandshakeFilter` passes only handshakes.
      shouldUpgrade: { channel, head in channel.eventLoop.makeSucceededFuture(LinkProtocol.answer(head)) },
      upgradePipelineHandler: { [self] channel, head in
        channel.eventLoop.makeCompletedFuture { try link(channel, LinkProtocol.compression(head)?.agreed) }
      })
    let configuration = NIOTypedHTTPServerUpgradeConfiguration<Negotiated>(upgraders: [upgrader]) { [self] channel in
      channel.eventLoop.makeCompletedFuture { try requests(channel, logger) }
    }
    var pipeline = NIOUpgradableHTTPServerPipelineConfiguration(upgradeConfiguration: configuration)
    // As in Hummingbird: it handles requests one after another, and the handlers above answer errors.
    pipeline.enablePipelining = false
    pipeline.enableErrorHandling = false
    pipeline.enableResponseHeaderValidation = false
    let negotiated = try operations.configureUpgradableHTTPServerPipeline(configuration: pipeline)
    let upgrade = try operations.handler(type: NIOTypedHTTPServerUpgradeHandler<Negotiated>.self)
    try operations.addHandler(LinkHandshakeFilter(admit, decide), position: .before(upgrade))
    return negotiated
  }

  private func link(_ channel: any Channel, _ compression: PerMessageDeflate?) throws -> Negotiated {
    let operations = channel.pipeline.syncOperations
    try FirstRequestTimeoutHandler.remove(from: channel)
    // Retransmits at even intervals, so that an answer arrives soon after an interruption of some seconds. A kernel without the option behaves as
    // usual.
    channel.setOption(Self.linearTimeouts, value: 1).whenFailure { _ in }
    let gate = try operations.handler(type: LinkHandshakeFilter.self)
    operations.removeHandler(gate, promise: nil)
    guard let client = gate.client, connections.register(client.grant, on: channel) else {
      channel.close(promise: nil)
      throw ChannelError.inappropriateOperationForState
    }
    if let compression { try operations.addHandler(LinkCompressor(compression)) }
    return .link(try FrameChannel(wrappingChannelSynchronously: channel), client, compression)
  }

  private func requests(_ channel: any Channel, _ logger: Logger) throws -> Negotiated {
    let operations = channel.pipeline.syncOperations
    try FirstRequestTimeoutHandler.remove(from: channel)
    operations.removeHandler(try operations.handler(type: LinkHandshakeFilter.self), promise: nil)
    try operations.addHandler(HTTP1ToHTTPServerCodec(secure: false))
    try operations.addHandler(RequestTimeoutHandler(connections))
    // Closes the connection when the hub stops: at once while idle, otherwise after the answer.
    try operations.addHandler(HTTPConnectionStateHandler(idleTimeout: nil, logger: logger))
    return .http(
      try HTTPChannel(wrappingChannelSynchronously: channel, configuration: .init(isOutboundHalfClosureEnabled: true)))
  }

  func handle(value: Value, logger: Logger) async {
    // `try?`: a connection that ended before its first request needs nothing.
    switch try? await value.negotiated.get() {
    case .http(let channel):
      // A disconnected client needs no answer: this cancels its requests.
      let requests = Task { await handleHTTP(asyncChannel: channel, logger: logger) }
      channel.channel.closeFuture.whenComplete { _ in requests.cancel() }
      await withTaskCancellationHandler {
        await requests.value
      } onCancel: {
        requests.cancel()
      }
    case .link(let channel, let client, let compression): await serve(channel, client, compression)
    case nil: break
    }
  }
}

/// The protocol of a link. Source: docs/hub-protocol.md.
enum LinkProtocol {
  static let name = "meshpost.v1"

  /// Headers besides those of every WebSocket handshake.
  static func answer(_ head: HTTPRequestHead) -> HTTPHeaders {
    var headers: HTTPHeaders = ["Sec-WebSocket-Protocol": name]
    if let answer = compression(head)?.answer { headers.add(name: "Sec-WebSocket-Extensions", value: answer) }
    return headers
  }

  static func compression(_ head: HTTPRequestHead) -> (agreed: PerMessageDeflate, answer: String)? {
    PerMessageDeflate.accepted(
      head.headers["Sec-WebSocket-Extensions"], clientBits: LinkCompressor.gatewayWindowBits,
      serverBits: LinkCompressor.windowBits)
  }

  /// Ends a link. `reason`: the gateway shows it; it has at most 123 bytes (RFC 6455 § 5.5).
  static func close(_ code: WebSocketErrorCode, _ reason: String = "") -> WebSocketFrame {
    var data = ByteBuffer()
    data.write(webSocketErrorCode: code)
    data.writeString(reason)
    return WebSocketFrame(fin: true, opcode: .connectionClose, data: data)
  }

  /// The epoch that a hello names. A hello that names another gateway than the link's address would store that gateway's events under this one's name.
  static func epoch(of hello: JSONValue, from gateway: String) throws(LinkMessageAssembler.Failure) -> String {
    if let named = hello["gateway"], named.string.map({ $0.isExactly(gateway) }) != true {
      throw LinkMessageAssembler.Failure(
        code: .policyViolation, reason: "the hello names another gateway than the link's address")
    }
    guard let epoch = hello["epoch"]?.string, Name.isAllowed(epoch) else {
      throw LinkMessageAssembler.Failure(code: .policyViolation, reason: "an epoch must be \(Name.allowed)")
    }
    return epoch
  }

  /// Ends a link whose place a newer one has taken.
  static var replaced: WebSocketFrame {
    close(
      WebSocketErrorCode(codeNumber: 4409),
      "a newer link with this gateway's id has taken this one's place: is the id on two machines?")
  }

  struct AuthorizedGateway: Sendable {
    let gateway: String
    let grant: HubAccess.Grant
    var origin: Origin?
  }

  /// The upstream that opens a link, and the epoch of its database: a gateway with several live links sends both.
  struct Origin: Sendable {
    static let field = "Meshpost-Upstream"
    static let name = HTTPField.Name(field)!
    private static let maxBytes = 512

    let epoch: String
    /// Percent-encoded.
    let upstream: String

    init?(_ value: String?) {
      guard let value, value.utf8.count <= Self.maxBytes else { return nil }
      let parts = value.split(separator: "/", maxSplits: 1)
      guard parts.count == 2 else { return nil }
      (epoch, upstream) = (String(parts[0]), String(parts[1]))
    }
  }

  enum UpgradeDecision: Sendable {
    case open(AuthorizedGateway)
    /// The request opens no link, or may not open it: HTTP answers.
    case closed
    /// The answer needs the database, the folder of tokens, or a test of the open link.
    case undecided
  }

  /// Whether the headers that RFC 6455 requires are there; NIO closes a connection without them.
  static func isHandshake(_ head: HTTPRequestHead) -> Bool {
    head.method == .GET && head.headers["Host"].count == 1 && head.headers["Sec-WebSocket-Key"].count == 1
      && head.headers["Sec-WebSocket-Version"] == ["13"]
      && head.headers[canonicalForm: "Upgrade"].contains { $0.lowercased() == "websocket" }
      && head.headers[canonicalForm: "Connection"].contains { $0.lowercased() == "upgrade" }
  }

  /// The gateway in the address of a link.
  static func gateway(in target: String) -> String? {
    let path = target.prefix { $0 != "?" }
    let parts = path.split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count == 5, parts[1] == "v1", parts[2] == "gateways", parts[4] == "link",
      Name.isAllowed(String(parts[3]))
    else { return nil }
    return String(parts[3])
  }
}
