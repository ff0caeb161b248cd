// SPDX-License-Identifier: MIT

import HTTP
import HTTPTypes
import NIOCore
import NIOHTTP1
import NIOHTTPTypes

/// Closes a connection that sends no request in time, and at once when the hub stops.
final class FirstRequestTimeoutHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = NIOAny
  private var limit: Scheduled<Void>?

  func handlerAdded(context: ChannelHandlerContext) {
    let channel = context.channel
    limit = context.eventLoop.scheduleTask(in: .milliseconds(RequestWatch.patience)) { channel.close(promise: nil) }
  }

  func handlerRemoved(context: ChannelHandlerContext) { limit?.cancel() }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if event is ChannelShouldQuiesceEvent {
      context.close(promise: nil)
    } else {
      context.fireUserInboundEventTriggered(event)
    }
  }

  /// Removes the handler once the connection is known to be a request or a link.
  static func remove(from channel: any Channel) throws {
    let handler = try channel.pipeline.syncOperations.handler(type: FirstRequestTimeoutHandler.self)
    channel.pipeline.syncOperations.removeHandler(handler, promise: nil)
  }
}

/// Passes only valid link requests to the upgrade. NIO closes other upgrades without an answer, so this handler removes their upgrade headers: the
/// HTTP answer then states the error.
///
/// It also answers a first request that is not HTTP. Hummingbird answers later ones.
final class LinkHandshakeFilter: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPServerRequestPart
  typealias InboundOut = HTTPServerRequestPart
  typealias OutboundOut = HTTPServerResponsePart
  typealias Admit = @Sendable (HTTPRequestHead) -> LinkProtocol.UpgradeDecision
  /// Decides after a query or a test. `nil`: the gateway gets no link.
  typealias Decide = @Sendable (HTTPRequestHead) async throws -> LinkProtocol.AuthorizedGateway?
  private let admit: Admit
  private let decide: Decide
  private(set) var client: LinkProtocol.AuthorizedGateway?
  /// The parts behind a request that waits for a decision; `nil`: no request waits. A request for a link has one such part.
  private var held: [HTTPServerRequestPart]?
  private static let mostHeld = 16

  init(_ admit: @escaping Admit, _ decide: @escaping Decide) { (self.admit, self.decide) = (admit, decide) }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let part = unwrapInboundIn(data)
    if let count = held?.count {
      guard count < Self.mostHeld else { return context.close(promise: nil) }
      held?.append(part)
      return
    }
    guard case .head(let head) = part, head.headers.contains(name: "Upgrade") else {
      return context.fireChannelRead(data)
    }
    switch LinkProtocol.isHandshake(head) ? admit(head) : .closed {
    case .open(let coming): return pass(head, of: coming, context)
    case .closed: return pass(head, of: nil, context)
    case .undecided: held = []
    }
    let this = NIOLoopBound((gate: self, context: context), eventLoop: context.eventLoop)
    context.eventLoop.makeFutureWithTask { [decide] in try await decide(head) }.whenComplete { answer in
      let (gate, context) = this.value
      guard context.channel.isActive else { return }
      // Without an answer of the database the hub refuses the link, and the HTTP answer says so.
      gate.pass(head, of: try? answer.get(), context)
      gate.release(context)
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard error is HTTPParserError else { return context.fireErrorCaught(error) }
    let headers: NIOHTTP1.HTTPHeaders = ["Connection": "close", "Content-Length": "0"]
    context.write(
      wrapOutboundOut(.head(HTTPResponseHead(version: .http1_1, status: .badRequest, headers: headers))), promise: nil)
    let channel = context.channel
    context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in channel.close(mode: .output, promise: nil) }
  }

  /// Passes the held parts on first: the request itself may cause the removal of this handler.
  func removeHandler(context: ChannelHandlerContext, removalToken: ChannelHandlerContext.RemovalToken) {
    release(context)
    context.leavePipeline(removalToken: removalToken)
  }

  private func release(_ context: ChannelHandlerContext) {
    let parts = held ?? []
    held = nil
    for part in parts { context.fireChannelRead(wrapInboundOut(part)) }
    if !parts.isEmpty { context.fireChannelReadComplete() }
  }

  private func pass(
    _ head: HTTPRequestHead, of client: LinkProtocol.AuthorizedGateway?, _ context: ChannelHandlerContext
  ) {
    var head = head
    self.client = client
    if client == nil {
      head.headers.remove(name: "Upgrade")
      head.headers.remove(name: "Connection")
    }
    context.fireChannelRead(wrapInboundOut(.head(head)))
  }
}

extension Error {
  /// The client's bytes are not HTTP.
  var isBrokenRequest: Bool { self is HTTPParserError }
}

/// Closes a connection whose requests do not progress, or whose client does not read its answers.
final class RequestTimeoutHandler: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPRequestPart
  typealias InboundOut = HTTPRequestPart
  typealias OutboundIn = HTTPResponsePart
  typealias OutboundOut = HTTPResponsePart
  private static let interval = TimeAmount.seconds(2)
  /// Marks an answer that leaves without a date. The handler removes the mark.
  static let isBrief = HTTPField.Name("Meshpost-Brief")!

  private let connections: ConnectionTable
  private var watch = RequestWatch(now: RequestTimeoutHandler.now)
  private var timer: RepeatedTask?
  private var written: Int64 = 0

  init(_ connections: ConnectionTable) { self.connections = connections }

  private static var now: Int64 { Int64(clamping: NIODeadline.now().uptimeNanoseconds / 1_000_000) }

  func handlerAdded(context: ChannelHandlerContext) {
    let this = NIOLoopBound((handler: self, channel: context.channel), eventLoop: context.eventLoop)
    timer = context.eventLoop.scheduleRepeatedTask(initialDelay: Self.interval, delay: Self.interval) { task in
      let (handler, channel) = this.value
      if !handler.mayGoOn(channel) {
        task.cancel()
        channel.close(promise: nil)
      }
    }
  }

  func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

  func channelInactive(context: ChannelHandlerContext) {
    timer?.cancel()
    context.fireChannelInactive()
  }

  private func mayGoOn(_ channel: any Channel) -> Bool {
    // `try?`: without the option nothing counts as buffered.
    let buffered = (try? channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
    return watch.mayGoOn(
      now: Self.now, isKnown: connections.isKnown(channel), waiting: buffered, taken: written - Int64(buffered))
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if (event as? ChannelEvent) == .inputClosed { watch.hungUp(now: Self.now) }
    context.fireUserInboundEventTriggered(event)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head:
      watch.began(now: Self.now)
      connections.setIdle(context.channel, false)
    case .body(let bytes): watch.received(bytes.readableBytes, now: Self.now)
    case .end: watch.ended(now: Self.now)
    }
    context.fireChannelRead(data)
  }

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    switch unwrapOutboundIn(data) {
    case .end:
      watch.answered(now: Self.now)
      connections.setIdle(context.channel, watch.isIdle)
    case .head(var head) where head.headerFields[Self.isBrief] != nil:
      head.headerFields[Self.isBrief] = nil
      head.headerFields[.date] = nil
      return context.write(wrapOutboundOut(.head(head)), promise: promise)
    case .body(let bytes): written += Int64(bytes.readableBytes)
    case .head: break
    }
    context.write(data, promise: promise)
  }
}

/// Answers a connection beyond the limit with an error, and closes it.
final class RejectedConnection: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer
  /// Time for one request and its answer.
  private static let patience = TimeAmount.seconds(2)
  private var hasAnswered = false

  func handlerAdded(context: ChannelHandlerContext) {
    let channel = context.channel
    context.eventLoop.scheduleTask(in: Self.patience) { channel.close(promise: nil) }
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !hasAnswered else { return }
    hasAnswered = true
    let body = "{\"error\":\"the hub has no room for more connections\"}"
    let head =
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 30\r\nConnection: close\r\nContent-Type: application/json\r\n"
      + "Content-Length: \(body.utf8.count)\r\n\r\n"
    let channel = context.channel
    context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: head + body))).whenComplete { _ in
      channel.close(mode: .output, promise: nil)
    }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if event is ChannelShouldQuiesceEvent || (event as? ChannelEvent) == .inputClosed { context.close(promise: nil) }
  }
}

/// Allocates buffers for a connection's input: as large as recent input, and freed after use.
///
/// NIO keeps up to four buffers of an open connection, each up to 64 KiB. With this allocator it keeps only the first one, which has the size of most
/// requests for a link. Source: `NIOPooledRecvBufferAllocator`.
struct ReadBuffers: RecvByteBufferAllocator {
  private static let first = 512

  private var later = AdaptiveRecvByteBufferAllocator()
  private var hasRead = false

  static func use(by channel: any Channel) throws {
    guard let options = channel.syncOptions else { return }
    try options.setOption(.recvAllocator, value: ReadBuffers())
    // NIO keeps as many buffers as may be read at once.
    try options.setOption(.maxMessagesPerRead, value: 1)
  }

  func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
    hasRead ? later.buffer(allocator: allocator) : allocator.buffer(capacity: Self.first)
  }

  /// `nil`: so NIO reuses no buffer because of its size.
  func nextBufferSize() -> Int? { nil }

  /// `true` says that the next buffer may be larger, so that NIO does not reuse this one.
  mutating func record(actualReadBytes: Int) -> Bool {
    _ = hasRead ? later.record(actualReadBytes: actualReadBytes) : false
    hasRead = true
    return true
  }
}
