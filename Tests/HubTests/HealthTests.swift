// SPDX-License-Identifier: MIT

import Alerts
import Dispatch
import Foundation
import Glibc
import JSON
import SQLite
import Synchronization
import TestSupport
import Testing

@testable import Hub

@Suite struct HealthTests {
  private let scratch = Scratch(inMemory: true)

  @Test func `a hub is ready if its database answered recently, and otherwise names the problem`() async throws {
    let database = StuckDatabase(try SQLiteHubDatabase(location: scratch.location("hub.db")))
    let gate = database.gate
    let probe = DatabaseProbe(HubStore(database), readOnlyQuery: "SELECT 0", versionQuery: "PRAGMA user_version")
    // Independent of this machine's delay between question and answer.
    let begun = ContinuousClock.now
    #expect(probe.problem() == .starting)
    await probe.probe()
    #expect(probe.problem(at: begun) == nil)

    gate.isStuck.withLock { $0 = true }
    async let stuck = probe.probe()
    gate.asked.wait()
    // The database was asked and does not answer: the probe reports this without an answer.
    #expect(probe.problem(at: begun) == nil)
    #expect(probe.problem(at: .now + DatabaseProbe.patience + .seconds(1)) == .silent)
    gate.isStuck.withLock { $0 = false }
    gate.answers.signal()
    #expect(await !stuck)
    #expect(probe.problem(at: begun) == nil)

    gate.failure.withLock { $0 = HubDatabaseError(kind: .unavailable, message: "no route to host") }
    await probe.probe()
    #expect(probe.problem() == .down)
    gate.failure.withLock { $0 = nil }
    await probe.probe()
    #expect(probe.problem(at: begun) == nil)
  }

  @Test func `a standby server is not ready`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let probe = DatabaseProbe(store, readOnlyQuery: "SELECT 1", versionQuery: "SELECT 0")
    await probe.probe()
    #expect(probe.problem() == .readOnly)
  }

  @Test func `a hub without room on its disk says so until there is room`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    await stores.probe.probe()
    #expect(stores.probe.now.failure == nil)
    // SQLite's error is that of a full disk.
    let (text, gateway) = (String(repeating: "x", count: 8000), "g")
    try await stores.writer.limitSize(true)
    await #expect { try await stores.setState("a", .string(text), of: gateway, at: 1) } throws: { error in
      (error as? HubDatabaseError)?.reason == "the hub's disk is full: it stores nothing until there is room"
    }
    await stores.probe.probe()
    #expect(stores.probe.now.failure == nil && stores.probe.isDiskFull)
    try await stores.writer.limitSize(false)
    await stores.probe.probe()
    #expect(stores.probe.isDiskFull, "it may be full again at once")
    stores.probe.tests(stores.disk, free: { 4096 }) { try await stores.writer.keepMark() }
    await stores.disk.testIfFull(at: .now + .seconds(30))
    #expect(stores.probe.isDiskFull, "it has room for something small only")
    stores.disk.storedBatch()
    await stores.disk.testIfFull(at: .now + .seconds(30))
    #expect(!stores.probe.isDiskFull, "a batch was stored: a small disk has room, too")
    try await stores.writer.limitSize(true)
    await #expect(throws: (any Error).self) { try await stores.setState("b", .string(text), of: gateway, at: 1) }
    try await stores.writer.limitSize(false)
    await stores.disk.testIfFull(at: .now + .seconds(30))
    #expect(stores.probe.isDiskFull, "the batch was stored before it was full again")
    stores.probe.tests(stores.disk) { try await stores.writer.keepMark() }
    await stores.disk.testIfFull(at: .now + .seconds(30))
    #expect(!stores.probe.isDiskFull)
  }

  @Test func `a hub whose file another program keeps locked says so until something is written`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let other = try SQLiteHubDatabase(location: scratch.location("hub.db"))
    _ = try await stores.writer.number("PRAGMA busy_timeout = 1")
    try other.perform([], begins: true, ends: false)
    let now = ContinuousClock.now
    await #expect(throws: HubDatabaseError.self) { try await stores.writer.keepMark() }
    #expect(!stores.lock.isLong, "it may be short")
    let locked = HubDatabaseError(kind: .conflict, message: "database is locked", cause: .locked)
    stores.lock.note(locked, at: now + .seconds(60))
    #expect(stores.lock.isLong && !stores.lock.isUntested(at: now + .seconds(70)))
    #expect(stores.lock.isUntested(at: now + .seconds(90)))
    var settings = HubAlertSettings()
    settings.rules.times[.hubDatabase] = AlertTimes(begins: .zero, ends: .zero)
    let alerts = HubAlerts(settings, stores, LinkRegistry(), name: "h", location: scratch.location("hub.db"))
    await stores.probe.probe()
    for _ in 0..<2 { await alerts.check() }
    try other.perform([], begins: false, ends: true)
    try await stores.writer.keepMark()
    // The database takes the alert now.
    await alerts.check()
    let stored = try await stores.monitor.alerts(before: .max, openOnly: false, limit: 10).alerts
    let words = "was locked by another program: nothing was stored"
    #expect(stored.contains { $0.rule == "hub_database" && $0.text.hasSuffix(words) }, "\(stored)")
    #expect(!stores.lock.isLong && !stores.lock.isUntested(at: now + .seconds(90)))
  }

  @Test func `a hub that starts on a full disk refuses with the reason, and opens its database once there is room`()
    async throws
  {
    let full = HubDatabaseError(kind: .unavailable, message: "full", cause: .fullDisk)
    let number = Mutex(0)
    let attempts = DatabaseAttempts(pause: .milliseconds(1)) {
      let attempt = number.withLock { number in
        number += 1
        return number
      }
      if attempt < 3 { throw full }
    }
    try await attempts.run()
    #expect(try attempts.outcome.get())
    #expect(number.withLock { $0 } == 3)
    // A bad disk is no full one: nobody waits for it.
    let bad = DatabaseAttempts(pause: .milliseconds(1)) { throw HubDatabaseError(kind: .unavailable, message: "bad") }
    try await bad.run()
    #expect(throws: HubDatabaseError.self) { try bad.outcome.get() }

    let configuration = try HubConfiguration(parsing: Array("port = 1".utf8), file: "hub.toml", for: .commands)
    #expect(WaitingStart(configuration, after: full) != nil)
    let locked = HubDatabaseError(kind: .conflict, message: "database is locked", cause: .locked)
    #expect(WaitingStart(configuration, after: locked) != nil && locked.reason.contains("locked"))
    #expect(WaitingStart(configuration, after: HubDatabaseError(kind: .unavailable, message: "bad")) == nil)
  }

  @Test func `a link keeps states for which the disk has no room, and stores the newest later`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let states = WaitingStates(of: "g", stores, pause: 0.01...0.02)
    defer { states.end() }
    let text = JSONValue.string(String(repeating: "x", count: 8000))
    try await stores.writer.limitSize(true)
    for number in 1...3 { try await states.keep(.array([text, .integer(Int64(number))]), as: "gateway") }
    #expect(try await stores.lookups.states(of: "g").count < 100)
    try await stores.writer.limitSize(false)
    while true {
      let kept = try JSONValue(parsing: await stores.lookups.states(of: "g"))
      guard let body = kept["gateway"]?["body"]?.array else {
        await Task.yield()
        continue
      }
      #expect(body.last?.integer == 3)
      break
    }
  }

  @Test func `a hub whose tables a newer program has upgraded stores nothing more`() async throws {
    let location = scratch.location("hub.db")
    let store = try HubStore(location: location)
    let probe = DatabaseProbe(store, readOnlyQuery: "SELECT 0", versionQuery: "PRAGMA user_version")
    await probe.probe()
    #expect(probe.problem() == nil)
    let event = HubEvent(seq: 1, at: 1, trusted: true, kind: "advert", body: .object([("key", .string("k"))]))
    let batch = PreparedBatch([event], of: "e", in: .nodes, from: "g", after: nil, at: 1)
    #expect(try await store.take([batch]) == [.acknowledged(1)])

    let newer = try Database(location: location)
    try newer.execute("PRAGMA user_version = \(HubSchema.newest + 1)")
    await #expect(throws: HubDatabaseError.outdated) { try await store.take([batch]) }
    await #expect(throws: HubDatabaseError.outdated) { try await store.keepUnordered([batch]) }
    #expect(await probe.run(), "it ends by itself")
    #expect(probe.problem() == .outdated)
    // A refused database leaves nothing open.
    try newer.execute("PRAGMA user_version = \(HubSchema.newest)")
    #expect(try await store.take([batch]) == [.acknowledged(1)])
  }

  @Test func `a restarted or replaced database server is reported once`() async throws {
    let location = scratch.location("hub.db")
    let store = try HubStore(location: location)
    let probe = DatabaseProbe(
      store, readOnlyQuery: "SELECT 0", versionQuery: "PRAGMA user_version",
      identityQuery: "SELECT count(*) FROM gateways")
    var told: [Bool] = []
    for seq: Int64 in 1...2 {
      for _ in 0..<2 { told.append(await probe.probe()) }
      let event = HubEvent(seq: 1, at: 1, trusted: true, kind: "advert", body: .object([("key", .string("k"))]))
      let batch = PreparedBatch([event], of: "e", in: .nodes, from: "g\(seq)", after: nil, at: 1)
      _ = try await store.take([batch])
    }
    told.append(await probe.probe())
    #expect(told == [false, false, true, false, true])
  }

  @Test func `tables that are there again are reported as another database`() async throws {
    let database = StuckDatabase(try SQLiteHubDatabase(location: scratch.location("hub.db")))
    let gate = database.gate
    let probe = DatabaseProbe(
      HubStore(database), readOnlyQuery: "SELECT 0", versionQuery: "PRAGMA user_version", identityQuery: "SELECT 1")
    var told = [await probe.probe()]
    for cause in [nil, .noTables] as [HubDatabaseError.Cause?] {
      gate.failure.withLock { $0 = HubDatabaseError(kind: .unavailable, message: "away", cause: cause) }
      told.append(await probe.probe())
      gate.failure.withLock { $0 = nil }
      for _ in 0..<2 { told.append(await probe.probe()) }
    }
    #expect(told == [false, false, false, false, false, true, false])
  }

  @Test func `a histogram counts each value in exactly one bucket`() {
    var histogram = HubMetrics.Histogram([1, 10])
    for value in [0.5, 1, 1.5, 10, 11, 1e9] { histogram.add(value) }
    #expect(histogram.counts == [2, 2, 2] && histogram.sum == 1_000_000_024)
  }

  @Test func `batches are counted by lane with their delay, and untrusted clocks are not counted as delays`() {
    let metrics = HubMetrics()
    func batch(_ at: Int64, isTrusted: Bool) -> PreparedBatch {
      PreparedBatch(
        [HubEvent(seq: 1, at: at, trusted: isTrusted, kind: "advert", body: .object([]))], of: "e", in: .nodes,
        from: "g", after: nil, at: 100_000)
    }
    let batches = [batch(95_000, isTrusted: true), batch(0, isTrusted: false), batch(200_000, isTrusted: true)]
    metrics.committed(
      batches + [batch(0, isTrusted: true)], [.acknowledged(1), .acknowledged(1), .acknowledged(1), .outOfOrder(0)],
      within: .zero)
    let now = metrics.now
    #expect(now.batches == [.nodes: 3] && now.events == [.nodes: 3] && now.outOfOrder == 1)
    #expect(now.delays[.nodes]?.counts == [1, 1, 0, 0, 0, 0, 0])
    #expect(now.commitBatches.counts == [0, 1, 0, 0, 0, 0])
  }

  @Test func `a fleet that connects causes one log line a minute, and a quiet minute none`() {
    let metrics = HubMetrics()
    let before = metrics.now
    #expect(LogSummary.words(metrics.now, since: before) == nil)
    for _ in 0..<4000 { metrics.linkOpened(.dictionary) }
    for _ in 0..<10 { metrics.linkEnded(.dictionary) }
    metrics.wasBusy(.queue)
    let words = LogSummary.words(metrics.now, since: before)
    #expect(
      words == "the last minute: 3990 links, 4000 made, 10 ended; 0 batches, 0 events; 1 to come again")
    #expect(LogSummary.words(metrics.now, since: metrics.now) == nil)
  }

  @Test func `a token for metrics allows only metrics, and a gateway's token does not allow them`() {
    let tokens = HubConfiguration.Access.allCases.map { access in
      HubConfiguration.Token(
        name: access.rawValue, secrets: ["the-token-\(access.rawValue)"], gateway: "*", access: access)
    }
    let own = HubConfiguration.Token(name: "own", secrets: ["the-token-own"], gateway: "hill", access: .all)
    let access = HubAccess(tokens + [own])
    for token in tokens {
      let isAllowed = access.check("Bearer \(token.secrets[0])", gateway: nil, .measure).allowed == token.name
      #expect(isAllowed == (token.access != .write), "\(token.access)")
    }
    #expect(access.check("Bearer the-token-own", gateway: nil, .measure) == .forbidden("own"))
    for operation in [HubAccess.Operation.read, .write, .command] {
      #expect(access.check("Bearer the-token-metrics", gateway: "hill", operation) == .forbidden("metrics"))
      #expect(access.check("Bearer the-token-metrics", gateway: nil, operation) == .forbidden("metrics"))
    }
  }

  @Test func `a slow query is logged with its statement, without its values`() throws {
    let inner = StuckDatabase(try SQLiteHubDatabase(location: scratch.location("hub.db")))
    inner.gate.delay.withLock { $0 = 1.05 }
    let told = Mutex([String]())
    let database = TimedDatabase(inner) { words, took in told.withLock { $0.append("\(words) \(took > .seconds(1))") } }
    try database.each("SELECT id\n  FROM gateways WHERE id = ?1", ["a-secret"]) { _ in true }
    #expect(told.withLock { $0 } == ["SELECT id FROM gateways WHERE id = ?1 true"])
  }
}

/// An SQLite database that answers when the test permits it.
private final class StuckDatabase: HubDatabase {
  final class Gate: Sendable {
    let isStuck = Mutex(false)
    let asked = DispatchSemaphore(value: 0)
    let answers = DispatchSemaphore(value: 0)
    let failure = Mutex(HubDatabaseError?.none)
    /// Seconds.
    let delay = Mutex(0.0)
  }

  let gate = Gate()
  private let database: SQLiteHubDatabase

  init(_ database: SQLiteHubDatabase) { self.database = database }

  func each(
    _ sql: String, _ values: [any SQLBindable], _ row: (any HubRow) throws(HubDatabaseError) -> Bool
  ) throws(HubDatabaseError) {
    if let failure = gate.failure.withLock({ $0 }) { throw failure }
    if gate.isStuck.withLock({ $0 }) {
      gate.asked.signal()
      gate.answers.wait()
    }
    let delay = gate.delay.withLock { $0 }
    if delay > 0 { usleep(UInt32(delay * 1_000_000)) }
    try database.each(sql, values, row)
  }

  func run(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> Int { try database.run(sql, values) }
  func rollback() { database.rollback() }
  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError) {
    try database.perform(calls, begins: begins, ends: ends)
  }
  func read(_ calls: [HubCall]) throws(HubDatabaseError) { try database.read(calls) }
  let dialect = HubSchema.Dialect.sqlite
}

extension HubStore {
  /// Lets the file grow no further, or again.
  fileprivate func limitSize(_ isFull: Bool) throws(HubDatabaseError) {
    let pages = try number("PRAGMA page_count")
    _ = try number("PRAGMA max_page_count = \(isFull ? pages : 1 << 30)")
  }
}
