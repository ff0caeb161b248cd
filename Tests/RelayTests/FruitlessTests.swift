// SPDX-License-Identifier: MIT

import EventLoop
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// A hub that welcomes each connection, and closes it at the first batch while it is in trouble.
private final class TroubledHub: Carrier {
  let kind = "hub"
  let place = "nowhere"
  let keepsConnection = true
  let serverKeepsCount = true
  let bytesSent: UInt64 = 0
  var isTroubled = true
  /// The number of batches that it accepts of each connection while it is in trouble.
  var portion = 0
  private var taken = 0
  private(set) var greetings = 0
  private var acknowledged = ByLane<Int64?>(all: nil)

  func greet() async -> Greeting {
    greetings += 1
    taken = 0
    return .has(.byLane(acknowledged))
  }

  func carry(_ batch: Batch) async -> Verdict {
    taken += 1
    guard !isTroubled || taken <= portion else { return .retry(reason: "HTTP 503", after: nil) }
    let last = batch.events.last?.seq
    acknowledged[batch.lane ?? .messages] = last
    return .acknowledged(through: last ?? 0)
  }

  func tookUnanswered(through seq: Int64) { acknowledged.messages = seq }

  func close() {}
}

/// A server whose test takes five seconds.
private final class SlowTest: Carrier {
  let kind = "hub"
  let place = "nowhere"
  let serverKeepsCount = false
  let bytesSent: UInt64 = 0
  private let loop: EventLoop
  private var running = 0
  private(set) var most = 0
  private(set) var closings = 0

  init(on loop: EventLoop) { self.loop = loop }

  func greet() async -> Greeting { .ready }
  func carry(_ batch: Batch) async -> Verdict { .acknowledged(through: batch.last) }

  func test() async -> Verdict {
    running += 1
    most = max(most, running)
    // `try?`: nobody cancels it.
    try? await loop.sleep(for: .seconds(5))
    running -= 1
    return .acknowledged(through: 0)
  }

  func close() { closings += 1 }
}

/// A broker that closes each connection when it has answered a batch: the carrier expects that batch to report the end.
private final class ClosingBroker: Carrier {
  let kind = "mqtt"
  let place = "nowhere"
  let keepsConnection = true
  let serverKeepsCount = false
  let bytesSent: UInt64 = 0
  private(set) var greetings = 0
  private var ended = Promise<ConnectionEnd>()

  func greet() async -> Greeting {
    greetings += 1
    ended = Promise()
    return .ready
  }

  func hold() async throws(CancellationError) -> ConnectionEnd { try await ended.value() }

  func carry(_ batch: Batch) async -> Verdict {
    ended.keep(.lost(nil))
    return .acknowledged(through: batch.last)
  }

  func close() {}
}

/// An upstream in invented time, its store, and the lines of its log.
private final class Line {
  private let scratch = Scratch(inMemory: true)
  let loop: EventLoop
  let store: Store
  private(set) var upstream: Upstream!
  private(set) var logged: [String] = []

  init(
    _ settings: Upstream.Settings = Upstream.Settings(name: "hub"), to server: any Carrier,
    on loop: EventLoop = EventLoop(on: InventedMachine())
  ) throws {
    self.loop = loop
    store = try Store(Store.Settings(location: scratch.location("gw.db")))
    upstream = try Upstream(
      settings, carrier: server, store: store, on: loop,
      log: Log(level: .info, sink: { [weak self] in self?.logged.append($1) }))
    loop.afterTurn { [store, weak self] in
      store.commit()
      if store.transactions.takeNews().hasGrown { self?.upstream.wake() }
    }
  }

  deinit { upstream.stop() }

  func append(_ kind: EventKind = .message, count: Int = 1) {
    store.write { store throws(SQLiteError) in
      for _ in 0..<count {
        try store.append(kind, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
      }
    }
  }

  /// The connection comes and goes while nothing waits.
  func greetAgain(append kind: EventKind? = nil) {
    upstream.shipment.greetAgain()
    if let kind { append(kind) }
    upstream.wake()
    loop.pass(.seconds(600))
  }
}

@Suite struct FruitlessTests {
  @Test func `a connection that ends with the answer to the last batch is opened again`() throws {
    let broker = ClosingBroker()
    let line = try Line(Upstream.Settings(name: "broker", fromStart: true), to: broker)
    line.upstream.wake()
    line.append()
    line.loop.pass(.seconds(600))
    #expect(broker.greetings == 2 && line.upstream.status.pending == 0)
  }

  @Test func `two tests of one upstream run one after the other`() throws {
    let loop = EventLoop(on: InventedMachine())
    let server = SlowTest(on: loop)
    let line = try Line(to: server, on: loop)
    var answers: [String?] = []
    for _ in 1...4 { _ = loop.begin { answers.append(await line.upstream.test()) } }
    loop.pass(.seconds(30))
    #expect(server.most == 1 && answers.count == 4, "\(answers)")
    #expect(answers.contains(nil) && answers.contains("another test of it is under way"), "\(answers)")
  }

  @Test func `the test of a paused upstream leaves no connection behind that nobody reads`() throws {
    let loop = EventLoop(on: InventedMachine())
    let server = SlowTest(on: loop)
    let line = try Line(to: server, on: loop)
    line.upstream.setPaused(true)
    _ = loop.begin { _ = await line.upstream.test() }
    loop.pass(.seconds(10))
    #expect(server.closings == 1)
    // Its end closes the connection, too.
    withExtendedLifetime(line) {}
  }

  @Test func `a server that answers but accepts nothing for a day causes four log lines`() throws {
    let hub = TroubledHub()
    let line = try Line(Upstream.Settings(name: "hub", batchEvents: 1, fromStart: true), to: hub)
    line.upstream.wake()
    line.append()
    line.loop.pass(.seconds(86_400))
    #expect(hub.greetings > 100)
    let trouble = "hub: HTTP 503"
    #expect(
      line.logged == [
        "\(trouble). Retrying automatically",
        "hub: connected again; events to send: 1",
        "\(trouble), again: it can be reached, and takes nothing. Retrying automatically",
      ], "\(line.logged.prefix(10))")
    hub.isTroubled = false
    line.loop.pass(.seconds(600))
    #expect(line.logged.count == 4 && line.logged.last == "hub: connected again; events to send: 0", "\(line.logged)")
    hub.isTroubled = true
    line.loop.pass(.seconds(86_400))
    #expect(line.logged.count == 4, "nothing waits: \(line.logged.suffix(3))")
  }

  @Test func `the time of the last success moves with acknowledgements, not with connections`() throws {
    let hub = TroubledHub()
    let line = try Line(
      Upstream.Settings(name: "hub", batchEvents: 1, filter: EventFilter(kinds: ["message"]), fromStart: true), to: hub)
    // An event that it does not accept.
    line.append()
    try line.store.commitNow()
    line.upstream.wake()
    line.loop.pass(.seconds(3600))
    #expect(hub.greetings > 10 && line.upstream.status.lastSuccess == nil)
    hub.isTroubled = false
    line.loop.pass(.seconds(600))
    let first = try #require(line.upstream.status.lastSuccess)
    #expect(line.upstream.status.pending == 0)
    // Events that are not for the hub are no success either.
    for _ in 0..<3 { line.greetAgain(append: .radio) }
    #expect(line.upstream.status.lastSuccess == first && line.upstream.status.pending == 0)
    hub.isTroubled = true
    line.append()
    line.loop.pass(.seconds(3600))
    #expect(line.upstream.status.lastSuccess == first && line.upstream.status.pending == 1)
    // The hub has stored the event; its answer was lost with the connection.
    hub.isTroubled = false
    hub.tookUnanswered(through: 5)
    line.loop.pass(.seconds(600))
    let second = try #require(line.upstream.status.lastSuccess)
    #expect(second > first && line.upstream.status.pending == 0)
  }

  @Test func `a server that has everything at the start of the gateway counts as one success`() throws {
    let line = try Line(to: TroubledHub())
    line.upstream.wake()
    line.loop.pass(.seconds(10))
    let first = try #require(line.upstream.status.lastSuccess)
    for _ in 0..<3 { line.greetAgain() }
    #expect(line.upstream.status.lastSuccess == first)
  }

  @Test func `a connection that comes and goes is logged once, then once an hour with a count, and at its end`()
    throws
  {
    let hub = TroubledHub()
    let line = try Line(Upstream.Settings(name: "hub", batchEvents: 1, fromStart: true), to: hub)
    hub.portion = 1
    line.append(count: 1500)
    line.upstream.wake()
    line.loop.pass(.seconds(3 * 3600 + 60))
    #expect(hub.greetings > 300)
    let untold = line.logged.filter { !$0.contains("came and went") }.map { String($0.prefix(21)) }
    let (goes, comes) = ("hub: HTTP 503. Retryi", "hub: connected again;")
    #expect(untold == [goes, comes, goes, comes, "hub: HTTP 503, again:"], "\(line.logged.prefix(10))")
    #expect(line.logged.count == 8, "\(line.logged.suffix(5))")
    hub.isTroubled = false
    line.loop.pass(.seconds(700))
    #expect(line.logged.count == 9 && line.logged.last == "hub: the connection holds again", "\(line.logged.suffix(3))")
    hub.isTroubled = true
    line.loop.pass(.seconds(3600))
    #expect(line.logged.count == 9)
  }
}
