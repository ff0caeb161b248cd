// SPDX-License-Identifier: MIT

import Deflate
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import NIOWebSocket

typealias FrameChannel = NIOAsyncChannel<WebSocketFrame, WebSocketFrame>

/// Connections to the hub: HTTP/1.1, and from it gateways' links, which are WebSockets.
struct LinkUpgradeChannel: ServerChildChannel, HTTPChannelHandler {
  typealias HTTPChannel = NIOAsyncChannel<HTTPRequestPart, HTTPResponsePart>

  enum Negotiated: Sendable {
    case http(HTTPChannel)
    case link(FrameChannel, Link)
  }

  struct Value: ServerChildChannelValue {
    let channel: any Channel
    let negotiated: EventLoopFuture<Negotiated>
  }

  /// What is known of a link when it opens.
  struct Link: Sendable {
    let gateway: String
    let grant: HubAccess.Grant
    let origin: LinkProtocol.Origin?
    let compression: PerMessageDeflate?
  }

  /// TCP_THIN_LINEAR_TIMEOUTS of <linux/tcp.h>.
  private static let asksEvenly = ChannelOptions.Types.SocketOption(level: .tcp, name: .init(rawValue: 16))

  let responder: HTTPChannelHandler.Responder
  /// Bytes of a message at most.
  let maxMessage: Int
  let places: Places
  let admit: LinkGate.Admit
  let decide: LinkGate.Decide
  let serve: @Sendable (FrameChannel, Link) async -> Void

  func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
    channel.eventLoop.makeCompletedFuture {
      switch places.admit(channel) {
      case .admitted:
        try ReadBuffers.use(by: channel)
        return Value(channel: channel, negotiated: try negotiation(channel, logger))
      case .turnedAway: try channel.pipeline.syncOperations.addHandler(TurnedAway())
      case .dropped: channel.close(promise: nil)
      }
      return Value(channel: channel, negotiated: channel.eventLoop.makeFailedFuture(ChannelError.ioOnClosedChannel))
    }
  }

  private func negotiation(_ channel: any Channel, _ logger: Logger) throws -> EventLoopFuture<Negotiated> {
    let operations = channel.pipeline.syncOperations
    try operations.addHandler(UndecidedConnection())
    let upgrader = NIOTypedWebSocketServerUpgrader<Negotiated>(
      maxFrameSize: maxMessage,
      // The gate has let through what may be one.
      shouldUpgrade: { channel, head in channel.eventLoop.makeSucceededFuture(LinkProtocol.answer(head)) },
      upgradePipelineHandler: { [self] channel, head in
        channel.eventLoop.makeCompletedFuture { try link(channel, LinkProtocol.compression(head)?.agreed) }
      })
    let configuration = NIOTypedHTTPServerUpgradeConfiguration<Negotiated>(upgraders: [upgrader]) { [self] channel in
      channel.eventLoop.makeCompletedFuture { try requests(channel, logger) }
    }
    var pipeline = NIOUpgradableHTTPServerPipelineConfiguration(upgradeConfiguration: configuration)
    // As Hummingbird has it: requests are taken one after another, and errors are answered above.
    pipeline.enablePipelining = false
    pipeline.enableErrorHandling = false
    pipeline.enableResponseHeaderValidation = false
    let negotiated = try operations.configureUpgradableHTTPServerPipeline(configuration: pipeline)
    let upgrade = try operations.handler(type: NIOTypedHTTPServerUpgradeHandler<Negotiated>.self)
    try operations.addHandler(LinkGate(admit, decide), position: .before(upgrade))
    return negotiated
  }

  private func link(_ channel: any Channel, _ compression: PerMessageDeflate?) throws -> Negotiated {
    let operations = channel.pipeline.syncOperations
    try UndecidedConnection.decided(channel)
    // After a cut of some seconds TCP sends an answer again that much sooner; a kernel without it goes on as ever.
    channel.setOption(Self.asksEvenly, value: 1).whenFailure { _ in }
    let gate = try operations.handler(type: LinkGate.self)
    operations.removeHandler(gate, promise: nil)
    guard let visitor = gate.visitor, places.showed(channel, visitor.grant) else {
      channel.close(promise: nil)
      throw ChannelError.inappropriateOperationForState
    }
    if let compression { try operations.addHandler(LinkCompressor(compression)) }
    return .link(
      try FrameChannel(wrappingChannelSynchronously: channel),
      Link(gateway: visitor.gateway, grant: visitor.grant, origin: visitor.origin, compression: compression))
  }

  private func requests(_ channel: any Channel, _ logger: Logger) throws -> Negotiated {
    let operations = channel.pipeline.syncOperations
    try UndecidedConnection.decided(channel)
    operations.removeHandler(try operations.handler(type: LinkGate.self), promise: nil)
    try operations.addHandler(HTTP1ToHTTPServerCodec(secure: false))
    try operations.addHandler(RequestClock(places))
    // Closes it when the hub ends: at once while it is idle, else after the answer.
    try operations.addHandler(HTTPConnectionStateHandler(idleTimeout: nil, logger: logger))
    return .http(
      try HTTPChannel(wrappingChannelSynchronously: channel, configuration: .init(isOutboundHalfClosureEnabled: true)))
  }

  func handle(value: Value, logger: Logger) async {
    // `try?`: a connection that ended before its first request asks for nothing.
    switch try? await value.negotiated.get() {
    case .http(let channel):
      // Who is gone needs no answer: what they have asked ends.
      let requests = Task { await handleHTTP(asyncChannel: channel, logger: logger) }
      channel.channel.closeFuture.whenComplete { _ in requests.cancel() }
      await withTaskCancellationHandler {
        await requests.value
      } onCancel: {
        requests.cancel()
      }
    case .link(let channel, let link): await serve(channel, link)
    case nil: break
    }
  }
}

/// The protocol of a link. Source: docs/hub-protocol.md.
enum LinkProtocol {
  static let name = "meshpost.v1"

  /// Beside what every WebSocket's handshake has.
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

  /// A gateway that may open its link.
  struct Visitor: Sendable {
    let gateway: String
    let grant: HubAccess.Grant
    var origin: Origin?
  }

  /// Which of its upstreams opens a link, and of which database: a gateway that has several live links says so.
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

  /// Whether somebody may open a link.
  enum Entry: Sendable {
    case open(Visitor)
    /// It is none, or not allowed, and HTTP answers.
    case closed
    /// The database has to be asked, the folder of tokens looked at, or the link that is there tried.
    case undecided
  }

  /// The headers required by RFC 6455; NIO closes a connection without them.
  static func isHandshake(_ head: HTTPRequestHead) -> Bool {
    head.method == .GET && head.headers["Sec-WebSocket-Key"].count == 1
      && head.headers["Sec-WebSocket-Version"] == ["13"]
      && head.headers[canonicalForm: "Upgrade"].contains { $0.lowercased() == "websocket" }
      && head.headers[canonicalForm: "Connection"].contains { $0.lowercased() == "upgrade" }
  }

  /// The gateway that a link's address names.
  static func gateway(in target: String) -> String? {
    let path = target.prefix { $0 != "?" }
    let parts = path.split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count == 5, parts[1] == "v1", parts[2] == "gateways", parts[4] == "link",
      Name.isAllowed(String(parts[3]))
    else { return nil }
    return String(parts[3])
  }
}
