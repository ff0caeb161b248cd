// SPDX-License-Identifier: MIT

import Deflate
import JSON
import NIOCore
import NIOWebSocket
import ServiceLifecycle
import Synchronization

/// A gateway's link, from hello to the end. Source: docs/hub-protocol.md.
struct LinkSession: Sendable {
  /// The newest version of the protocol that this hub speaks: with lanes.
  private static let version: Int64 = 2
  /// Most batches of one gateway in flight, which share a transaction. On a busy hub, further batches wait in the network.
  static let window = 16
  /// A link without messages for this many of the gateway's intervals is lost.
  fileprivate static let missedIntervals = 2.5
  /// Seconds for the hello. Earlier pings do not count.
  fileprivate static let helloLimit = 10.0
  /// The hub answers a hello within this time, if necessary with `busy`, and repeats `busy` before a gateway has waited for 15 s.
  private static let firstBusy: Duration = .milliseconds(1500)
  private static let nextBusy: Duration = .seconds(8)
  /// How long a gateway may wait while the database is unavailable.
  private static let greetingLimit: Duration = .seconds(90)

  let gateway: String
  let stores: HubStores
  let registry: LinkRegistry
  let limiter: RateLimiter
  let maxMessage: Int
  var origin: LinkProtocol.Origin?
  /// The agreed compression; `nil`: nothing is compressed.
  let compression: PerMessageDeflate?
  /// Whether the link's token still allows it: frames may wait here while the hub closes the connection.
  let isAllowed: @Sendable () -> Bool

  /// The time of the gateway's last message, its longest pause between messages, and its hello; and its states that wait for the database.
  final class Liveness: Sendable {
    private let opened = ContinuousClock.now
    /// `nil`: the link ends if the database does not take a state.
    let states: WaitingStates?

    init(_ states: WaitingStates? = nil) { self.states = states }

    let state = Mutex(
      (heard: ContinuousClock.now, interval: 120.0, epoch: String?.none, isBrief: false, handlesConflicts: false))
    /// Seconds until the silence timeout, or the hello timeout.
    var left: Double {
      state.withLock { state in
        guard state.epoch != nil else { return LinkSession.helloLimit - Self.seconds(since: opened) }
        return state.interval * LinkSession.missedIntervals - Self.seconds(since: state.heard)
      }
    }

    private static func seconds(since moment: ContinuousClock.Instant) -> Double {
      Double((ContinuousClock.now - moment).components.seconds)
    }
  }

  func run(_ channel: FrameChannel) async {
    let liveness = Liveness(WaitingStates(of: gateway, stores))
    let encoding = HubMetrics.Encoding(compression)
    stores.metrics.linkOpened(encoding)
    HubLog.debug("link of \(gateway) made, \(encoding.rawValue)")
    defer {
      liveness.states?.end()
      stores.metrics.linkEnded(encoding)
      HubLog.debug("link of \(gateway) ended")
    }
    // `try?`: the reason for the end of a link does not matter.
    try? await withGracefulShutdownHandler {
      try await channel.executeThenClose { inbound, outbound in
        let close: @Sendable () -> Void = { channel.channel.close(promise: nil) }
        let id = await registry.open(
          gateway,
          { bytes in
            // `try?`: a closed link takes nothing.
            (try? await outbound.write(Self.text(bytes))) != nil
          }, isSilent: { liveness.left <= 0 }, holder: holder(liveness, channel.channel),
          giveWay: {
            // A half-open link does not take it: nothing waits for that.
            channel.channel.writeAndFlush(LinkProtocol.replaced, promise: nil)
            close()
          }, close: close)
        do {
          var messages = LinkMessageAssembler(most: maxMessage, compression)
          var flow = PendingBatches(outbound)
          for try await frame in inbound {
            liveness.state.withLock { $0.heard = .now }
            guard isAllowed() else { break }
            guard let message = try messages.take(frame) else { continue }
            guard try await take(message, &flow, liveness) else { break }
          }
        } catch let failure as LinkMessageAssembler.Failure {
          // `try?`: a closed link takes nothing.
          try? await outbound.write(LinkProtocol.close(failure.code, failure.reason))
        } catch {
        }
        await registry.ended(gateway, id)
      }
    } onGracefulShutdown: {
      channel.channel.close(promise: nil)
    }
  }

  private func holder(_ liveness: Liveness, _ channel: any Channel) -> LinkRegistry.Holder? {
    origin.map { origin in
      LinkRegistry.Holder(
        origin: origin, heard: { liveness.state.withLock { $0.heard } },
        ping: {
          channel.writeAndFlush(WebSocketFrame(fin: true, opcode: .ping, data: ByteBuffer()), promise: nil)
        })
    }
  }

  static func text(_ bytes: [UInt8]) -> WebSocketFrame {
    WebSocketFrame(fin: true, opcode: .text, data: ByteBuffer(bytes: bytes))
  }

  /// Handles a message; `false`: the link ends.
  private func take(
    _ message: LinkMessageAssembler.Message, _ flow: inout PendingBatches, _ liveness: Liveness
  ) async throws -> Bool {
    let outbound = flow.outbound
    switch message {
    case .ping(let data):
      await limiter.count(gateway, bytes: data.readableBytes)
      try await outbound.write(WebSocketFrame(fin: true, opcode: .pong, data: data))
    case .close:
      try await outbound.write(WebSocketFrame(fin: true, opcode: .connectionClose, data: ByteBuffer()))
      return false
    case .text(let bytes):
      // `try?`: invalid JSON ends the link, except in a batch, which is refused.
      guard let message = try? JSONValue(parsing: bytes), let type = message["type"]?.string else {
        guard let number = Self.batch(of: bytes) else {
          HubLog.debug("link of \(gateway): a message that is not JSON ends it")
          return false
        }
        flow.add { Self.refusal(number, .malformed("the batch is not valid JSON")) }
        return true
      }
      if type == "events" {
        await flow.waitForRoom(stores.ingest.admission)
        flow.add(await events(message, bytes.count, liveness))
        return true
      }
      let patience = type == "hello" ? Self.repeatBusy(on: outbound) : nil
      defer { patience?.cancel() }
      if let answer = try await answer(type, message, bytes, liveness) { try await outbound.write(Self.text(answer)) }
    case .other: break
    }
    return true
  }

  /// The number of a batch that is not valid JSON. The hub refuses such a batch, and the gateway finds the invalid event. If the hub closed the link,
  /// the same batch would return for ever.
  static func batch(of bytes: [UInt8]) -> Int64? {
    let beginning = Array(#"{"type":"events","n":"#.utf8)
    guard bytes.starts(with: beginning) else { return nil }
    return Int64(
      String(decoding: bytes.dropFirst(beginning.count).prefix(20).prefix { $0 != UInt8(ascii: ",") }, as: UTF8.self))
  }

  /// Handles one message; `nil`: there is no answer.
  func answer(
    _ type: String, _ message: JSONValue, _ bytes: [UInt8], _ liveness: Liveness
  ) async throws -> [UInt8]? {
    // Batches and states have rate limits of their own.
    if type != "events", type != "state" { await limiter.count(gateway, bytes: bytes.count) }
    switch type {
    case "hello": return try await welcome(message, liveness)
    case "events": return await events(message, bytes.count, liveness)()
    case "request": return await request(message)
    case "response":
      if let id = message["id"]?.string { await registry.answered(gateway, id: id, message) }
    case "state":
      if let name = message["name"]?.string, Name.isAllowed(name), let body = message["body"], body.fields != nil {
        try await keep(body, as: name, bytes.count, liveness.states)
      }
    default: break  // from a newer gateway
    }
    return nil
  }

  private static let leftOut = ThrottledLog(HubLog.write)

  private func keep(
    _ state: JSONValue, as name: String, _ bytes: Int, _ waiting: WaitingStates?
  ) async throws {
    guard await limiter.admit(gateway, bytes: bytes) == nil else {
      stores.metrics.wasBusy(.rate)
      return Self.leftOut.say("gateway \(gateway): its states are not kept: \(RateLimiter.message)")
    }
    do {
      guard let waiting else { return _ = try await stores.setState(name, state, of: gateway, at: HubClock.now) }
      try await waiting.keep(state, as: name)
    } catch {
      // An error here would end the link, and the gateway would send the same value on the next link.
      let failure: any Error = error
      guard (failure as? HubDatabaseError)?.kind == .unfit else { throw failure }
    }
  }

  /// Sends `busy` while a hello waits for the database: otherwise a whole fleet would disconnect and reconnect.
  private static func repeatBusy(
    on outbound: NIOAsyncChannelOutboundWriter<WebSocketFrame>
  ) -> Task<Void, any Error> {
    Task {
      var pause = firstBusy
      while true {
        try await Task.sleep(for: pause)
        let words = JSONWriter.object(["type": "busy", "error": "the hub waits for its database"])
        try await outbound.write(text(words))
        pause = nextBusy
      }
    }
  }

  /// Where the hub is in the epoch. While the database is unavailable, the gateway waits here, and does not reconnect again and again.
  private func standing(_ epoch: String) async throws -> HubStore.Standing {
    let end = ContinuousClock.now + Self.greetingLimit
    while true {
      do {
        return try await stores.standing(gateway: gateway, epoch: epoch)
      } catch let error as HubDatabaseError where error.kind == .unavailable && ContinuousClock.now < end {
        // A hub that stops does not wait for its database.
        if Task.isShuttingDownGracefully { throw error }
        try await Task.sleep(for: .seconds(Double.random(in: 1...5)))
      }
    }
  }

  private func welcome(_ hello: JSONValue, _ liveness: Liveness) async throws -> [UInt8]? {
    let epoch = try LinkProtocol.epoch(of: hello, from: gateway)
    let handlesConflicts = hello["conflicts"]?.bool == true
    liveness.state.withLock { state in
      (state.epoch, state.isBrief) = (epoch, hello["brief"]?.bool == true)
      state.handlesConflicts = handlesConflicts
    }
    if let interval = hello["keep_alive_s"]?.integer, (1...3600).contains(interval) {
      liveness.state.withLock { $0.interval = Double(interval) }
    }
    let standing = try await standing(epoch)
    let isCurrent = hello["protocol"]?.count ?? 1 >= Self.version
    let known: JSONObject =
      isCurrent
      ? JSONObject(
        joining: ["protocol": Self.version, "deletes": true],
        (standing.progress ?? HubStore.Progress()).json(withDigests: handlesConflicts), standing.json)
      : ["acknowledged": standing.progress?.acknowledged]
    return JSONWriter.object(
      JSONObject(
        joining: ["type": "welcome"], known, ["window": Self.window, "max_bytes": maxMessage, "at": HubClock.now]))
  }

  // MARK: Events

  /// Queues a batch; the answer comes when it is stored or refused.
  private func events(_ message: JSONValue, _ bytes: Int, _ liveness: Liveness) async -> PendingBatches.Answer {
    let (epoch, isBrief, handlesConflicts) = liveness.state.withLock { ($0.epoch, $0.isBrief, $0.handlesConflicts) }
    let number = message["n"]?.integer ?? 0
    let batch: EventBatch
    do throws(EventBatch.Refusal) {
      batch = try EventBatch(message, epoch: epoch)
    } catch {
      stores.metrics.refusedBatch()
      return { Self.refusal(number, error) }
    }
    if let wait = await limiter.admit(gateway, events: batch.events.count, bytes: bytes) {
      stores.metrics.wasBusy(.rate)
      return { Self.busy(number, RateLimiter.message, wait) }
    }
    var prepared = PreparedBatch(batch, from: gateway, after: batch.after, at: HubClock.now)
    prepared.handlesConflicts = handlesConflicts
    let size = prepared.bytes
    if let wait = stores.ingest.admission.enter(gateway, bytes: size) {
      stores.metrics.wasBusy(.queue)
      return { Self.busy(number, Admission.message, wait) }
    }
    let (waiting, last) = (stores.ingest.begin(prepared), batch.events.last?.seq)
    return { [stores, gateway] in
      defer { stores.ingest.admission.leave(gateway, bytes: size) }
      do {
        switch try await waiting.answer() {
        case .acknowledged(let through):
          // Most answers are this short.
          if isBrief, through == last { return Array("\(number)".utf8) }
          return Self.answer("taken", number, ["acknowledged": through])
        case .outOfOrder(let through): return Self.answer("out_of_order", number, ["acknowledged": through])
        case .conflict(let seq): return Self.answer("conflict", number, ["seq": seq])
        }
      } catch {
        return Self.failed(number, error, stores.metrics)
      }
    }
  }

  private static func failed(_ number: Int64, _ error: any Error, _ metrics: HubMetrics) -> [UInt8] {
    if let late = error as? QueueTimeout {
      metrics.wasBusy(late.failure == nil ? .queue : .database)
      return busy(number, late.description, late.retryAfter)
    }
    if let refused = error as? HubDatabaseError, refused.kind == .unfit {
      metrics.refusedBatch()
      return refusal(number, .badEvent(seq: nil, reason: refused.message))
    }
    metrics.wasBusy(.database)
    // The gateway keeps its events and retries; a random pause spreads the fleet.
    return busy(number, HubDatabaseError.reason(of: error), Int.random(in: 5...15))
  }

  private static func answer(_ type: String, _ number: Int64, _ more: JSONObject) -> [UInt8] {
    JSONWriter.object(JSONObject(joining: ["type": type, "n": number], more))
  }

  static func refusal(_ number: Int64, _ refusal: EventBatch.Refusal) -> [UInt8] {
    answer("refused", number, ["status": refusal.status, "error": refusal.message, "seq": refusal.seq])
  }

  private static func busy(_ number: Int64, _ message: String, _ seconds: Int) -> [UInt8] {
    answer("busy", number, ["error": message, "retry_after_s": seconds])
  }

  // MARK: Requests

  private func request(_ message: JSONValue) async -> [UInt8]? {
    guard let id = message["id"]?.string else { return nil }
    let parameters = message["params"] ?? .null
    do {
      switch message["method"]?.string {
      case "getUpdatesState": return Self.response(id, try await updatesState(parameters))
      case "getUpdates":
        if let page = try await updates(parameters) { return Self.response(id, page) }
        return Self.failure(id, "invalid", "bucket and after are required")
      default: return Self.failure(id, "unknown_method", "unknown method")
      }
    } catch is TooManyQueries {
      stores.metrics.wasBusy(.queue)
      return Self.failure(id, "busy", TooManyQueries.message)
    } catch {
      return Self.failure(id, "store", HubDatabaseError.reason(of: error))
    }
  }

  private static func response(_ id: String, _ result: [UInt8]) -> [UInt8] {
    JSONWriter.object(["type": "response", "id": id, "ok": true, "result": RawJSON(result)])
  }

  private static func failure(_ id: String, _ code: String, _ message: String) -> [UInt8] {
    JSONWriter.object(["type": "response", "id": id, "ok": false, "code": code, "error": message])
  }

  /// The states of the named buckets; also subscribes the link to their notifications.
  private func updatesState(_ parameters: JSONValue) async throws -> [UInt8] {
    let names = (parameters["buckets"]?.array ?? []).compactMap(\.string)
    await registry.subscribe(gateway, Set(names.prefix(64).filter(HubStore.isBucket)))
    let hearers = parameters["gateways"]?.array?.compactMap(\.string)
    return JSONWriter.object(
      HubUpdates.states(try await stores.bucketStates(of: names, for: gateway, hearers: hearers)))
  }

  private func updates(_ parameters: JSONValue) async throws -> [UInt8]? {
    guard let query = HubUpdates.Query({ parameters[$0]?.integer }, bucket: parameters["bucket"]?.string) else {
      return nil
    }
    return try await query.run(stores, gateway)
  }
}

/// A link's unanswered batches. Each is a task, which writes its answer after those of the earlier batches.
struct PendingBatches {
  /// The answer to a batch, once the batch is stored or refused.
  typealias Answer = @Sendable () async -> [UInt8]

  let outbound: NIOAsyncChannelOutboundWriter<WebSocketFrame>
  private var last: Task<Void, Never>?
  private let count = Counter()

  private final class Counter: Sendable {
    let value = Mutex(0)
  }

  init(_ outbound: NIOAsyncChannelOutboundWriter<WebSocketFrame>) { self.outbound = outbound }

  /// Waits for the batches in flight if the window is full or the hub is crowded.
  func waitForRoom(_ admission: Admission) async {
    if count.value.withLock({ $0 }) >= LinkSession.window || admission.isCrowded { await last?.value }
  }

  mutating func add(_ answer: @escaping Answer) {
    count.value.withLock { $0 += 1 }
    last = Task { [last, count, outbound] in
      let bytes = await answer()
      await last?.value
      // `try?`: a closed link takes no answer.
      try? await outbound.write(LinkSession.text(bytes))
      count.value.withLock { $0 -= 1 }
    }
  }
}
