// SPDX-License-Identifier: MIT

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
    case link(FrameChannel, gateway: String)
  }

  struct Value: ServerChildChannelValue {
    let channel: any Channel
    let negotiated: EventLoopFuture<Negotiated>
  }

  let responder: HTTPChannelHandler.Responder
  /// Bytes of a message at most.
  let mostMessage: Int
  /// The gateway whose link this is; `nil`: it is none, or not allowed, and HTTP answers.
  let admit: @Sendable (HTTPRequestHead) -> String?
  let serve: @Sendable (FrameChannel, _ gateway: String) async -> Void

  func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
    channel.eventLoop.makeCompletedFuture {
      try channel.pipeline.syncOperations.addHandler(UndecidedConnection())
      let upgrader = NIOTypedWebSocketServerUpgrader<Negotiated>(
        maxFrameSize: mostMessage,
        shouldUpgrade: { [admit] channel, head in
          channel.eventLoop.makeSucceededFuture(admit(head) == nil ? nil : HTTPHeaders([LinkProtocol.header]))
        },
        upgradePipelineHandler: { [admit, mostMessage] channel, head in
          channel.eventLoop.makeCompletedFuture {
            try UndecidedConnection.decided(channel)
            try channel.pipeline.syncOperations.addHandler(
              NIOWebSocketFrameAggregator(
                minNonFinalFragmentSize: 0, maxAccumulatedFrameCount: 1024, maxAccumulatedFrameSize: mostMessage))
            return .link(try FrameChannel(wrappingChannelSynchronously: channel), gateway: admit(head) ?? "")
          }
        })
      let configuration = NIOTypedHTTPServerUpgradeConfiguration<Negotiated>(upgraders: [upgrader]) { channel in
        channel.eventLoop.makeCompletedFuture {
          try UndecidedConnection.decided(channel)
          try channel.pipeline.syncOperations.addHandler(HTTP1ToHTTPServerCodec(secure: false))
          // Closes it when the hub ends: at once while it is idle, else after the answer.
          try channel.pipeline.syncOperations.addHandler(HTTPConnectionStateHandler(idleTimeout: nil, logger: logger))
          return .http(
            try HTTPChannel(
              wrappingChannelSynchronously: channel, configuration: .init(isOutboundHalfClosureEnabled: true)))
        }
      }
      var pipeline = NIOUpgradableHTTPServerPipelineConfiguration(upgradeConfiguration: configuration)
      // As Hummingbird has it: requests are taken one after another, and errors are answered above.
      pipeline.enablePipelining = false
      pipeline.enableErrorHandling = false
      pipeline.enableResponseHeaderValidation = false
      return Value(
        channel: channel,
        negotiated: try channel.pipeline.syncOperations.configureUpgradableHTTPServerPipeline(configuration: pipeline))
    }
  }

  func handle(value: Value, logger: Logger) async {
    // `try?`: a connection that ended before its first request asks for nothing.
    switch try? await value.negotiated.get() {
    case .http(let channel): await handleHTTP(asyncChannel: channel, logger: logger)
    case .link(let channel, let gateway): await serve(channel, gateway)
    case nil: break
    }
  }
}

/// A connection that has not asked for anything yet: when the hub ends there is nothing to wait for.
private final class UndecidedConnection: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = NIOAny

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if event is ChannelShouldQuiesceEvent {
      context.close(promise: nil)
    } else {
      context.fireUserInboundEventTriggered(event)
    }
  }

  static func decided(_ channel: any Channel) throws {
    let handler = try channel.pipeline.syncOperations.handler(type: UndecidedConnection.self)
    channel.pipeline.syncOperations.removeHandler(handler, promise: nil)
  }
}

/// What both ends of a link have agreed upon. Source: docs/hub-protocol.md.
enum LinkProtocol {
  static let name = "meshpost.v1"
  static let header = ("Sec-WebSocket-Protocol", name)

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
