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

@Suite struct FruitlessTests {
  @Test func `a connection that ends with the answer to the last batch is opened again`() throws {
    let scratch = Scratch(inMemory: true)
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let broker = ClosingBroker()
    let upstream = try Upstream(
      Upstream.Settings(name: "broker", fromStart: true), carrier: broker, store: store, on: loop,
      log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn { [store, weak upstream] in
      store.commit()
      if store.transactions.takeNews().hasGrown { upstream?.wake() }
    }
    upstream.wake()
    store.write { store throws(SQLiteError) in
      try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
    }
    loop.pass(.seconds(600))
    #expect(broker.greetings == 2 && upstream.status.pending == 0)
    upstream.stop()
  }

  @Test func `two tests of one upstream run one after the other`() throws {
    let scratch = Scratch(inMemory: true)
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let server = SlowTest(on: loop)
    let upstream = try Upstream(
      Upstream.Settings(name: "hub"), carrier: server, store: store, on: loop,
      log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn { store.commit() }
    var answers: [String?] = []
    for _ in 1...4 { _ = loop.begin { answers.append(await upstream.test()) } }
    loop.pass(.seconds(30))
    #expect(server.most == 1 && answers.count == 4, "\(answers)")
    #expect(answers.contains(nil) && answers.contains("another test of it is under way"), "\(answers)")
    upstream.stop()
  }

  @Test func `the test of a paused upstream leaves no connection behind that nobody reads`() throws {
    let scratch = Scratch(inMemory: true)
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let server = SlowTest(on: loop)
    let upstream = try Upstream(
      Upstream.Settings(name: "hub"), carrier: server, store: store, on: loop,
      log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn { store.commit() }
    upstream.setPaused(true)
    _ = loop.begin { _ = await upstream.test() }
    loop.pass(.seconds(10))
    #expect(server.closings == 1)
    upstream.stop()
  }

  @Test func `a server that answers but accepts nothing for a day causes four log lines`() throws {
    let scratch = Scratch(inMemory: true)
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let hub = TroubledHub()
    var lines: [String] = []
    let upstream = try Upstream(
      Upstream.Settings(name: "hub", batchEvents: 1, fromStart: true), carrier: hub, store: store, on: loop,
      log: Log(level: .info, sink: { _, line in lines.append(line) }))
    loop.afterTurn { [store, weak upstream] in
      store.commit()
      if store.transactions.takeNews().hasGrown { upstream?.wake() }
    }
    upstream.wake()
    store.write { store throws(SQLiteError) in
      try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
    }
    loop.pass(.seconds(86_400))
    #expect(hub.greetings > 100)
    let trouble = "hub: HTTP 503"
    #expect(
      lines == [
        "\(trouble). Nothing is lost. Retrying automatically",
        "hub: connected again; events to send: 1",
        "\(trouble), again: it can be reached, and takes nothing. Nothing is lost. Retrying automatically",
      ], "\(lines.prefix(10))")
    hub.isTroubled = false
    loop.pass(.seconds(600))
    #expect(lines.count == 4 && lines.last == "hub: connected again; events to send: 0", "\(lines.suffix(3))")
    hub.isTroubled = true
    loop.pass(.seconds(86_400))
    #expect(lines.count == 4, "nothing waits: \(lines.suffix(3))")
    upstream.stop()
  }

  @Test func `the time of the last success moves with acknowledgements, not with connections`() throws {
    let scratch = Scratch(inMemory: true)
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let hub = TroubledHub()
    let upstream = try Upstream(
      Upstream.Settings(name: "hub", batchEvents: 1, filter: EventFilter(kinds: ["message"]), fromStart: true),
      carrier: hub, store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn { [store, weak upstream] in
      store.commit()
      if store.transactions.takeNews().hasGrown { upstream?.wake() }
    }
    func append(_ kind: EventKind) {
      store.write { store throws(SQLiteError) in
        try store.append(kind, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
      }
    }
    // An event that it does not accept.
    append(.message)
    try store.commitNow()
    upstream.wake()
    loop.pass(.seconds(3600))
    #expect(hub.greetings > 10 && upstream.status.lastSuccess == nil)
    hub.isTroubled = false
    loop.pass(.seconds(600))
    let first = try #require(upstream.status.lastSuccess)
    #expect(upstream.status.pending == 0)
    // The connection comes and goes while nothing waits; events that are not for the hub are no success either.
    for _ in 0..<3 {
      upstream.shipment.greetAgain()
      append(.radio)
      upstream.wake()
      loop.pass(.seconds(600))
    }
    #expect(upstream.status.lastSuccess == first && upstream.status.pending == 0)
    hub.isTroubled = true
    append(.message)
    loop.pass(.seconds(3600))
    #expect(upstream.status.lastSuccess == first && upstream.status.pending == 1)
    // The hub has stored the event; its answer was lost with the connection.
    hub.isTroubled = false
    hub.tookUnanswered(through: 5)
    loop.pass(.seconds(600))
    let second = try #require(upstream.status.lastSuccess)
    #expect(second > first && upstream.status.pending == 0)
    upstream.stop()
  }

  @Test func `a server that has everything at the start of the gateway counts as one success`() throws {
    let scratch = Scratch(inMemory: true)
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let hub = TroubledHub()
    let upstream = try Upstream(
      Upstream.Settings(name: "hub"), carrier: hub, store: store, on: loop,
      log: Log(level: .error, sink: { _, _ in }))
    upstream.wake()
    loop.pass(.seconds(10))
    let first = try #require(upstream.status.lastSuccess)
    for _ in 0..<3 {
      upstream.shipment.greetAgain()
      upstream.wake()
      loop.pass(.seconds(600))
    }
    #expect(upstream.status.lastSuccess == first)
    upstream.stop()
  }

  @Test func `a connection that comes and goes is logged once, then once an hour with a count, and at its end`()
    throws
  {
    let scratch = Scratch(inMemory: true)
    let loop = EventLoop(on: InventedMachine())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let hub = TroubledHub()
    var lines: [String] = []
    let upstream = try Upstream(
      Upstream.Settings(name: "hub", batchEvents: 1, fromStart: true), carrier: hub, store: store, on: loop,
      log: Log(level: .info, sink: { _, line in lines.append(line) }))
    loop.afterTurn { [store, weak upstream] in
      store.commit()
      if store.transactions.takeNews().hasGrown { upstream?.wake() }
    }
    hub.portion = 1
    store.write { store throws(SQLiteError) in
      for _ in 0..<1500 {
        try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
      }
    }
    upstream.wake()
    loop.pass(.seconds(3 * 3600 + 60))
    #expect(hub.greetings > 300)
    let untold = lines.filter { !$0.contains("came and went") }.map { String($0.prefix(21)) }
    let (goes, comes) = ("hub: HTTP 503. Nothin", "hub: connected again;")
    #expect(untold == [goes, comes, goes, comes, "hub: HTTP 503, again:"], "\(lines.prefix(10))")
    #expect(lines.count == 8, "\(lines.suffix(5))")
    hub.isTroubled = false
    loop.pass(.seconds(700))
    #expect(lines.count == 9 && lines.last == "hub: the connection holds again", "\(lines.suffix(3))")
    hub.isTroubled = true
    loop.pass(.seconds(3600))
    #expect(lines.count == 9)
    upstream.stop()
  }
}
