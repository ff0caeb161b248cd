// SPDX-License-Identifier: MIT

import Synchronization

/// Work on the database for many who ask at the same time: whatever waits is done together, and the longer that takes, the more is in
/// the next group. Items are done in the order in which they came.
///
/// If a group fails on what is in it, its halves are tried, until only those fail that cannot be done.
final class Gathered<Item: Sendable, Answer: Sendable>: Sendable {
  typealias Work = @Sendable ([Item]) async throws(HubDatabaseError) -> [Answer]

  private struct Waiting {
    let item: Item
    let answer: CheckedContinuation<Answer, any Error>
  }

  private struct Queue {
    var waiting: [Waiting] = []
    var isBusy = false
  }

  private let weight: @Sendable (Item) -> Double
  private let work: Work
  private let stored: @Sendable ([Item], Duration, Bool) -> Void
  private let queue = Mutex(Queue())

  /// `weight`: a group has at most 1 of it, or one item. `work`: as many answers as items, in order. `stored`: how long a group took, and
  /// whether others waited behind it.
  init(
    weight: @escaping @Sendable (Item) -> Double,
    stored: @escaping @Sendable ([Item], Duration, Bool) -> Void = { _, _, _ in }, _ work: @escaping Work
  ) {
    (self.weight, self.stored, self.work) = (weight, stored, work)
  }

  /// Returns when it is done.
  func ask(_ item: Item) async throws -> Answer {
    try await withCheckedThrowingContinuation { answer in
      let begins = queue.withLock { queue in
        queue.waiting.append(Waiting(item: item, answer: answer))
        defer { queue.isBusy = true }
        return !queue.isBusy
      }
      if begins { Task { await self.run() } }
    }
  }

  private func run() async {
    while let group = next() {
      let begun = ContinuousClock.now
      let isWhole = await finish(group)
      if isWhole {
        stored(group.map(\.item), ContinuousClock.now - begun, queue.withLock { !$0.waiting.isEmpty })
      }
    }
  }

  private func next() -> [Waiting]? {
    queue.withLock { queue in
      var (sum, count) = (0.0, 0)
      for waiting in queue.waiting {
        sum += weight(waiting.item)
        guard count == 0 || sum <= 1 else { break }
        count += 1
      }
      queue.isBusy = count > 0
      guard count > 0 else { return nil }
      defer { queue.waiting.removeFirst(count) }
      return Array(queue.waiting.prefix(count))
    }
  }

  /// False: not as one.
  @discardableResult private func finish(_ group: [Waiting]) async -> Bool {
    do throws(HubDatabaseError) {
      let answers = try await work(group.map(\.item))
      for (waiting, answer) in zip(group, answers) { waiting.answer.resume(returning: answer) }
      return true
    } catch {
      guard group.count > 1, error.kind != .unavailable, error.kind != .outdated else {
        for waiting in group { waiting.answer.resume(throwing: error) }
        return false
      }
      let half = group.count / 2
      await finish(Array(group[..<half]))
      await finish(Array(group[half...]))
      return false
    }
  }
}
