// SPDX-License-Identifier: MIT

import Dispatch
import Synchronization
import TestSupport
import Testing

@testable import Hub

/// Readers take turns with their queries, which run until the test releases them.
@Suite struct ReaderPoolTests {
  private let scratch = Scratch(inMemory: true)

  /// The running queries, in order of their start.
  private final class Questions: Sendable {
    private let begun = Mutex([String]())
    private let counts = AsyncStream.makeStream(of: [String].self)
    private let gates = Mutex([String: DispatchSemaphore]())

    private func gate(_ name: String) -> DispatchSemaphore {
      gates.withLock { gates in
        let gate = gates[name] ?? DispatchSemaphore(value: 0)
        gates[name] = gate
        return gate
      }
    }

    /// Runs a query until the test releases it.
    func run(_ name: String) -> String {
      counts.continuation.yield(
        begun.withLock {
          $0.append(name)
          return $0
        })
      gate(name).wait()
      return name
    }

    func letGo(_ name: String) { gate(name).signal() }

    /// Waits until this many queries have begun, and returns their names.
    func begun(_ count: Int) async -> [String] {
      for await begun in counts.stream where begun.count >= count { return begun }
      return []
    }
  }

  private func turns(_ readers: Int = 2) throws -> ReaderPool {
    _ = try HubStore(location: scratch.location("hub.db"))
    return ReaderPool(
      try (0..<readers).map { _ in HubStore(try SQLiteHubDatabase(reading: scratch.location("hub.db"))) })
  }

  /// Queues queries in this order.
  private func ask(
    _ names: [String], of holder: String, _ turns: ReaderPool, _ questions: Questions
  ) async -> [Task<String, any Error>] {
    var tasks: [Task<String, any Error>] = []
    for name in names {
      let known = turns.waiting + turns.running
      tasks.append(Task { try await turns.ask(holder) { _ in questions.run(name) } })
      while turns.waiting + turns.running == known { await Task.yield() }
    }
    return tasks
  }

  @Test func `forty queries of one holder run one at a time, and another holder's query is answered at once`()
    async throws
  {
    let (turns, questions) = (try turns(), Questions())
    let names = (0...ReaderPool.mostWaiting).map { "a\($0)" }
    let all = await ask(names, of: "a", turns, questions)
    #expect(await questions.begun(1) == ["a0"])
    for _ in names.count..<40 {
      await #expect(throws: TooManyQueries.self) { try await turns.ask("a") { _ in questions.run("never") } }
    }
    // No query has been released.
    #expect(try await turns.ask("b") { try $0.gateways().count } == 0)
    #expect(turns.running == 1 && turns.waiting == ReaderPool.mostWaiting)
    for name in names { questions.letGo(name) }
    for (task, name) in zip(all, names) { #expect(try await task.value == name) }
    #expect(turns.running == 0 && turns.waiting == 0)
  }

  @Test func `holders take turns, however many queries each has sent`() async throws {
    let (turns, questions) = (try turns(), Questions())
    var all = await ask(["a0", "a1", "a2"], of: "a", turns, questions)
    all += await ask(["b0", "b1", "b2"], of: "b", turns, questions)
    all += await ask(["c0", "c1"], of: "c", turns, questions)
    _ = await questions.begun(2)
    // Both connections are in use: the next one goes to a reader without a running query.
    var order = ["a0", "b0"]
    for (done, count) in [("a0", 3), ("b0", 4), ("c0", 5), ("a1", 6), ("b1", 7), ("c1", 8)] {
      questions.letGo(done)
      order = await questions.begun(count)
    }
    #expect(Set(order.prefix(2)) == ["a0", "b0"])
    #expect(Array(order.dropFirst(2)) == ["c0", "a1", "b1", "c1", "a2", "b2"])
    for name in ["a2", "b2"] { questions.letGo(name) }
    for task in all { _ = try await task.value }
  }

  @Test func `a query whose client disconnected gives its place back`() async throws {
    let (turns, questions) = (try turns(), Questions())
    let all = await ask((0...ReaderPool.mostWaiting).map { "\($0)" }, of: "a", turns, questions)
    for task in all.dropFirst() { task.cancel() }
    for task in all.dropFirst() { await #expect(throws: HubDatabaseError.self) { try await task.value } }
    #expect(turns.waiting == 0 && turns.running == 1)
    questions.letGo("0")
    #expect(try await all[0].value == "0")
    #expect(try await turns.ask("a") { try $0.gateways().count } == 0)
  }

  @Test func `a holder that has used up its time waits for more, and another one does not`() async throws {
    func pool(_ part: Double) throws -> ReaderPool {
      _ = try HubStore(location: scratch.location("hub.db"))
      let store = HubStore(try SQLiteHubDatabase(reading: scratch.location("hub.db")))
      return ReaderPool([store], allowance: TurnAllowance(most: .nanoseconds(1), part: part))
    }
    let turns = try pool(1e-6)
    #expect(try await turns.ask("a") { try $0.gateways().count } == 0)
    let held = Task { try await turns.ask("a") { try $0.gateways().count } }
    while turns.waiting == 0 { await Task.yield() }
    #expect(try await turns.ask("b") { try $0.gateways().count } == 0)
    #expect(turns.waiting == 1 && turns.running == 0)
    held.cancel()
    await #expect(throws: HubDatabaseError.self) { try await held.value }
    // As much time as it took brings the next turn.
    let others = try pool(1)
    for _ in 0..<3 { #expect(try await others.ask("a") { try $0.gateways().count } == 0) }
  }

  @Test func `who has to wait for a short time does not wait for another's long time`() async throws {
    let pool = FairPool([1], mostOfOne: 1, mostWaitingOfOne: 16, allowance: TurnAllowance(most: .zero, part: 0.01))
    @Sendable func use(_ holder: String, for time: Duration) async throws {
      let thing = try await pool.take(for: holder)
      let begun = ContinuousClock.now
      while ContinuousClock.now - begun < time { await Task.yield() }
      pool.giveBack(thing, of: holder)
    }
    try await use("long", for: .milliseconds(300))
    try await use("short", for: .zero)
    // Half a minute.
    let long = Task { try await use("long", for: .zero) }
    while pool.waiting == 0 { await Task.yield() }
    try await use("short", for: .zero)
    #expect(pool.waiting == 1)
    long.cancel()
    await #expect(throws: HubDatabaseError.self) { try await long.value }
  }

  @Test func `all holders share a single connection in turn`() async throws {
    let (turns, questions) = (try turns(1), Questions())
    var all = await ask(["a0", "a1"], of: "a", turns, questions)
    all += await ask(["b0"], of: "b", turns, questions)
    for name in ["a0", "b0", "a1"] { questions.letGo(name) }
    #expect(await questions.begun(3) == ["a0", "b0", "a1"])
    for task in all { _ = try await task.value }
  }

  @Test func `holders with long queries leave connections to the others, however many they are`() async throws {
    _ = try HubStore(location: scratch.location("hub.db"))
    let turns = ReaderPool(
      try (0..<4).map { _ in HubStore(try SQLiteHubDatabase(reading: scratch.location("hub.db"))) }, reserved: 2,
      longTurn: .zero)
    let questions = Questions()
    let holders = ["a", "b", "c", "d", "e"]
    // Each has had a long query.
    for holder in holders { #expect(try await turns.ask(holder) { try $0.gateways().count } == 0) }
    var all: [Task<String, any Error>] = []
    for holder in holders { all += await ask(["\(holder)1"], of: holder, turns, questions) }
    // Two at once: which of them begins first is up to the machine.
    #expect(await questions.begun(2).sorted() == ["a1", "b1"])
    #expect(turns.running == 2 && turns.waiting == 3)
    for holder in ["f", "g"] { #expect(try await turns.ask(holder) { try $0.gateways().count } == 0) }
    #expect(turns.running == 2 && turns.waiting == 3)
    // They continue among themselves.
    for holder in holders { questions.letGo("\(holder)1") }
    for task in all { _ = try await task.value }
    #expect(await questions.begun(5).sorted() == ["a1", "b1", "c1", "d1", "e1"])
  }

  @Test func `a query that takes too long ends`() async throws {
    _ = try HubStore(location: scratch.location("hub.db"))
    let store = HubStore(
      try SQLiteHubDatabase(reading: scratch.location("hub.db"), longest: .milliseconds(50)))
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    await #expect(throws: HubDatabaseError.self) { _ = try await store.number(endless) }
    #expect(try await store.gateways().isEmpty)
  }

  @Test func `a gateway that asks for pages without end delays no greeting and no other gateway's page`() async throws {
    let (rig, questions) = (try LinkRig(), Questions())
    let names = (0...ReaderPool.mostWaiting).map { "\($0)" }
    let all = await ask(names, of: "g", rig.stores.pages, questions)
    #expect(await questions.begun(1) == ["0"])
    let question = #"{"type":"request","id":"7","method":"getUpdates","params":{"bucket":"commands","after":0}}"#
    let refused = try await rig.say(question)
    #expect(refused["ok"]?.bool == false && refused["code"]?.string == "busy")
    // None of its questions has been answered.
    #expect(try await rig.hello(version: 2)["type"]?.string == "welcome")
    #expect(try await rig.stores.lookups.gateways().isEmpty)
    let query = try #require(HubUpdates.Query({ $0 == "after" ? 0 : nil }, bucket: "commands"))
    #expect(try await !query.run(rig.stores, "h").isEmpty)
    for name in names { questions.letGo(name) }
    for task in all { _ = try await task.value }
    #expect(try await rig.say(question)["ok"]?.bool == true)
  }
}
