// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// A hub in invented time, at a line that costs more than the sent bytes.
private final class MeteredHub: Carrier {
  let kind = "hub"
  let place = "nowhere"
  let keepsConnection = true
  let serverKeepsCount = true
  let window = 4
  let bytesSent: UInt64 = 0
  private(set) var lineBytes: UInt64 = 0
  private let loop: EventLoop
  private(set) var isUp = false
  private(set) var greetings = 0
  private(set) var kinds: [String] = []
  /// The bodies of events about the allowance.
  private(set) var bodies: [JSONValue] = []
  /// Whether a lane may be sent now. `complaints`: how often a lane was sent that may not.
  var isAllowed: (Lane) -> Bool = { _ in true }
  private(set) var complaints = 0
  private var end = Promise<ConnectionEnd>()
  private(set) var acknowledged = ByLane<Int64?>(all: nil)

  init(on loop: EventLoop) { self.loop = loop }

  func greet() async -> Greeting {
    lineBytes += 6000
    greetings += 1
    (isUp, end) = (true, Promise())
    return .has(.byLane(acknowledged))
  }

  func carry(_ batch: Batch) async -> Verdict {
    guard isUp else { return .retry(reason: "the link is down", after: nil) }
    lineBytes += UInt64(batch.size + 200)
    let lane = batch.lane ?? .messages
    kinds += batch.events.map(\.kind)
    for event in batch.events where event.kind == EventKind.allowance.rawValue {
      // `try?`: the gateway has written the body itself.
      if let body = try? JSONValue(parsing: event.body) { bodies.append(body) }
    }
    if !isAllowed(lane) { complaints += 1 }
    acknowledged[lane] = batch.events.last?.seq ?? acknowledged[lane]
    // `try?`: the batch is void in any case.
    try? await loop.sleep(for: .milliseconds(600))
    return isUp ? .acknowledged(through: acknowledged[lane] ?? 0) : .hungUp(reason: "closed")
  }

  func hold() async throws(CancellationError) -> ConnectionEnd { try await end.value() }

  func lose() {
    isUp = false
    end.keep(.lost(.retry(reason: "cut", after: nil)))
  }

  func close() {
    if isUp { lineBytes += 150 }
    isUp = false
  }
}

@Suite struct AllowanceUpstreamTests {
  private let scratch = Scratch(inMemory: true)
  private let machine = InventedMachine()
  private let loop: EventLoop
  private let store: Store
  private let hub: MeteredHub

  init() throws {
    loop = EventLoop(on: machine)
    store = try Store(Store.Settings(location: scratch.location("gw.db")))
    hub = MeteredHub(on: loop)
  }

  private func upstream(
    daily: Int64? = 300_000, monthly: Int64? = nil, _ lines: @escaping (String) -> Void = { _ in }
  ) throws -> Upstream {
    var settings = Upstream.Settings(name: "hub", fromStart: true)
    settings.filter = EventFilter(kinds: Set(EventKind.allCases.map(\.rawValue)))
    (settings.dailyBytes, settings.monthlyBytes) = (daily, monthly)
    let upstream = try Upstream(
      settings, carrier: hub, store: store, on: loop, log: Log(level: .info, sink: { _, line in lines(line) }))
    upstream.account?.zone = { _ in 0 }
    loop.afterTurn { [store, weak upstream] in
      store.commit()
      if store.transactions.takeNews().hasGrown { upstream?.wake() }
    }
    upstream.wake()
    return upstream
  }

  private func append(_ kind: EventKind, _ count: Int, bytes: Int = 300) {
    store.write { store throws(SQLiteError) in
      for _ in 0..<count {
        try store.append(
          kind, at: Moment(milliseconds: 1, trusted: true),
          body: Array("\"\(String(repeating: "x", count: bytes))\"".utf8))
      }
    }
  }

  private func count(_ kind: String) -> Int { hub.kinds.count { $0 == kind } }

  @Test func `as a day's bytes run out, packets stop first and messages last, until the next day`() throws {
    var lines: [String] = []
    let upstream = try upstream { lines.append($0) }
    append(.packet, 1000)
    loop.pass(.seconds(3600))
    #expect((150_000...180_000).contains(hub.lineBytes), "\(hub.lineBytes)")
    #expect(upstream.status.allowance?.spent == [.packets] && hub.isUp)
    append(.advert, 1000)
    loop.pass(.seconds(3600))
    #expect((210_000...240_000).contains(hub.lineBytes), "\(hub.lineBytes)")
    #expect(upstream.status.allowance?.spent == [.nodes, .packets] && count("advert") > 50)
    append(.message, 1000)
    loop.pass(.seconds(3600))
    #expect((285_000...300_000).contains(hub.lineBytes), "\(hub.lineBytes)")
    #expect(count("message") > 50 && !hub.isUp, "a connection that nothing may be sent over is not kept")
    #expect(upstream.status.state == .waiting && upstream.status.reason?.contains("allowance") == true)
    #expect(upstream.status.allowance?.spent == Lane.allCases)
    let (used, packets) = (hub.lineBytes, count("packet"))
    // It is one o'clock at night: nothing is sent to the hub until the next change.
    loop.pass(.seconds(10 * 3600))
    #expect(hub.lineBytes == used)
    loop.pass(.seconds(86_400))
    #expect(count("message") > 300 && count("packet") >= packets && hub.lineBytes <= 600_000)
    // The third event waits behind the messages.
    #expect(count("allowance") == 2, "the stops are reported")
    #expect(lines.count { $0.contains("the allowance stops") } >= 3)
    upstream.stop()
  }

  @Test func `an advert that does not fit into the allowance stops no messages`() throws {
    let upstream = try upstream(daily: 100_000)
    append(.advert, 1, bytes: 90_000)
    for _ in 0..<40 {
      append(.message, 1)
      loop.pass(.seconds(10))
    }
    #expect(count("message") == 40 && count("advert") == 0, "\(count("message"))")
    upstream.stop()
  }

  @Test func `events that the allowance holds back do not show an upstream as stuck`() throws {
    let upstream = try upstream()
    append(.packet, 1000)
    loop.pass(.seconds(3600))
    #expect(upstream.status.pending > 100 && upstream.progress == .unknown)
    append(.message, 1)
    loop.pass(.milliseconds(300))
    #expect(upstream.progress == .fine, "the message has waited only since now")
    upstream.stop()
  }

  @Test func `a dead letter of a stopped lane does not hold back those of messages`() throws {
    let upstream = try upstream()
    append(.message, 1)
    append(.advert, 1000)
    loop.pass(.seconds(3600))
    #expect(upstream.status.allowance?.spent == [.nodes, .packets])
    for (seq, kind) in [(2, "advert"), (1, "message")] as [(Int64, String)] {
      store.write { store throws(SQLiteError) in
        let event = JournalEvent(seq: seq, at: 1, trusted: true, kind: kind, body: Array("{}".utf8))
        try store.bury(event, upstream: "hub", status: 422, reason: "no", at: 1)
      }
    }
    try store.commitNow()
    #expect(try store.retryDeadLetters(of: "hub") == 2)
    upstream.resume()
    loop.pass(.seconds(60))
    #expect(try store.letter(1, of: "hub") == nil && store.letter(2, of: "hub") == .dead)
    // The other one goes behind the adverts of the next days.
    loop.pass(.seconds(5 * 86_400))
    #expect(try store.letter(2, of: "hub") == nil)
    upstream.stop()
  }

  @Test func `the coming stop of messages is reported while messages are still sent`() throws {
    let upstream = try upstream()
    for _ in 0..<2000 where upstream.status.allowance?.spent != Lane.allCases {
      append(.message, 1)
      loop.pass(.seconds(10))
    }
    #expect(upstream.status.allowance?.spent == Lane.allCases)
    let told = hub.bodies.filter { $0["stopped"] != nil }
    #expect(
      told.map { $0["stopped"]?.array?.compactMap(\.string) } == [
        ["packets"], ["nodes", "packets"], ["nodes", "packets"],
      ])
    #expect(told.map { $0["low"]?.bool } == [false, false, true])
    #expect(told.allSatisfy { ($0["day_bytes"]?.integer ?? 0) > 0 && $0["daily_bytes"]?.integer == 300_000 })
    upstream.stop()
  }

  @Test(arguments: 0..<2) func `random traffic keeps a monthly allowance, and messages stop last`(
    _ seed: UInt64
  ) throws {
    let monthly: Int64 = 4_000_000
    var random = SeededRandom(seed: seed)
    // The clock begins on 21 November; this test is about December.
    machine.wallOffset = (1_796_083_200 - loop.wallClock.seconds + 1) * 1000
    let upstream = try upstream(daily: nil, monthly: monthly)
    hub.isAllowed = { [weak upstream] lane in
      guard let allowance = upstream?.account?.allowance else { return false }
      return lane == .messages || !allowance.isSpent(.messages)
    }
    var stopped = 0
    while loop.wallClock.seconds < 1_798_761_600 - 7200 {
      // More messages than a month has room for, and as many other events.
      let kind: EventKind = [.packet, .advert, .message, .message].randomElement(using: &random) ?? .message
      append(kind, Int.random(in: 1...70, using: &random))
      if Int.random(in: 0..<40, using: &random) == 0 { hub.lose() }
      loop.pass(.seconds(Int64.random(in: 60...7200, using: &random)))
      if upstream.status.allowance?.spent.contains(.packets) == true { stopped += 1 }
    }
    #expect(hub.complaints == 0, "a lower lane was sent while messages were stopped")
    #expect(Int64(hub.lineBytes) <= monthly + monthly / 100, "\(hub.lineBytes)")
    #expect(Int64(hub.lineBytes) >= monthly - monthly / 100, "\(hub.lineBytes)")
    #expect(stopped > 10 && count("message") > 1000 && count("packet") > 0 && count("advert") > 0)
    upstream.stop()
  }

  @Test func `a gateway that is killed repeatedly uses no more than the day's bytes`() throws {
    append(.message, 3000)
    for _ in 0..<200 {
      let upstream = try upstream()
      loop.pass(.seconds(2))
      // The gateway is killed: the account at a regular end does not count.
      let kept = try store.allowance(of: "hub")
      upstream.stop()
      store.write { store throws(SQLiteError) in try store.setAllowance(of: "hub", kept ?? "") }
      store.settle()
    }
    #expect(hub.lineBytes <= 303_000, "\(hub.lineBytes)")
  }

  @Test func `a clean stop keeps the exact number of used bytes`() throws {
    let first = try upstream()
    append(.message, 20)
    loop.pass(.seconds(60))
    first.stop()
    store.settle()
    let second = try upstream()
    #expect(second.status.allowance?.dayBytes == Int64(hub.lineBytes))
    second.stop()
  }
}
