// SPDX-License-Identifier: MIT

import Synchronization
import Testing

@testable import Hub

/// Requests of many callers for the same work, on a database that is frozen or unreachable.
@Suite struct CoalescerTests {
  /// A database that does nothing while it is frozen.
  private final class Database: Sendable {
    let state = Mutex((isFrozen: false, failures: 0, groups: [Int]()))

    func work(_ items: [Int]) async throws(HubDatabaseError) -> [Int] {
      // `try?`: this task is never cancelled.
      while state.withLock({ $0.isFrozen }) { try? await Task.sleep(for: .milliseconds(5)) }
      let fails = state.withLock { state in
        defer { state.failures -= 1 }
        return state.failures > 0
      }
      if fails { throw HubDatabaseError(kind: .unavailable, message: "the disk is full") }
      state.withLock { $0.groups.append(items.count) }
      return items
    }
  }

  private func coalescer(_ database: Database, patience: Duration) -> Coalescer<Int, Int> {
    Coalescer(patience: patience, weight: { _ in 0.001 }) { (items) async throws(HubDatabaseError) in
      try await database.work(items)
    }
  }

  @Test func `after a stall of the database all waiting requests are committed in few groups`() async throws {
    let database = Database()
    database.state.withLock { $0.isFrozen = true }
    let coalescer = coalescer(database, patience: .seconds(3600))
    let waiting = (0..<500).map { coalescer.begin($0) }
    database.state.withLock { $0.isFrozen = false }
    for (number, ticket) in waiting.enumerated() { #expect(try await ticket.answer() == number) }
    #expect(database.state.withLock { $0.groups.count } < 10, "\(database.state.withLock { $0.groups })")
  }

  @Test func `requests wait for a database that is away, in their order`() async throws {
    let database = Database()
    database.state.withLock { $0.failures = 2 }
    let coalescer = coalescer(database, patience: .seconds(3600))
    async let first = coalescer.submit(1)
    async let second = coalescer.submit(2)
    let answers = try await [first, second]
    #expect(answers == [1, 2])
    #expect(database.state.withLock { $0.failures } < 0)
  }

  @Test func `a request that waited too long is refused with a reason, and later requests are served`() async throws {
    let database = Database()
    database.state.withLock { $0.isFrozen = true }
    let coalescer = coalescer(database, patience: .zero)
    let late = await #expect(throws: QueueTimeout.self) { try await coalescer.submit(1) }
    #expect(late?.retryAfter == 1 && late?.description == Admission.message)
    // The request under way continues, and fails.
    database.state.withLock { ($0.isFrozen, $0.failures) = (false, 1_000_000) }
    let away = await #expect(throws: QueueTimeout.self) { try await coalescer.submit(2) }
    let reason = try #require(away?.description)
    #expect(reason.contains("the database does not answer") || reason == Admission.message)
    database.state.withLock { $0.failures = 0 }
    while true {
      // `try?`: with this time limit it may fail once more.
      if let answer = try? await coalescer.submit(3) {
        #expect(answer == 3)
        break
      }
    }
  }
}
