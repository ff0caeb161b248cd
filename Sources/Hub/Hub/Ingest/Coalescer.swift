// SPDX-License-Identifier: MIT

import ServiceLifecycle
import Synchronization

/// A request did not end in time. It may still end.
struct QueueTimeout: Error, CustomStringConvertible {
  /// The database's last error in words for clients, if that was the reason.
  let failure: String?
  /// Other requests ended meanwhile: there are too many, and no stall.
  let isOverload: Bool

  var description: String { failure ?? Admission.message }
  /// Seconds until the client should retry. After a stall it may retry at once, since the hub itself waits for the database. An overload spreads the
  /// retries.
  var retryAfter: Int { isOverload ? .random(in: 1...20) : 1 }
}

/// Groups the database work of many callers: all waiting items are one group, so the next group grows while one is in progress. Items keep their
/// order.
///
/// If a group fails, each half is tried, down to the items that cannot be done. With `patience`, a group is retried while the database is
/// unavailable, and an item that has waited for that long fails.
final class Coalescer<Item: Sendable, Answer: Sendable>: Sendable {
  typealias Work = @Sendable ([Item]) async throws(HubDatabaseError) -> [Answer]

  /// An item with its place in the order.
  final class Ticket: Sendable {
    private enum State {
      case waits(CheckedContinuation<Answer, any Error>?)
      case isOver(Result<Answer, any Error>)
    }

    fileprivate let item: Item
    /// Groups that ended before the item came.
    fileprivate let groups: Int
    fileprivate let since = ContinuousClock.now
    private let state = Mutex(State.waits(nil))

    fileprivate init(_ item: Item, groups: Int) { (self.item, self.groups) = (item, groups) }

    fileprivate var isAnswered: Bool { state.withLock { if case .isOver = $0 { true } else { false } } }

    fileprivate func resume(_ result: Result<Answer, any Error>) {
      let continuation = state.withLock { state -> CheckedContinuation<Answer, any Error>? in
        guard case .waits(let continuation) = state else { return nil }
        state = .isOver(result)
        return continuation
      }
      continuation?.resume(with: result)
    }

    /// Waits for the answer; for one caller only.
    func answer() async throws -> Answer {
      try await withCheckedThrowingContinuation { continuation in
        let result = state.withLock { state -> Result<Answer, any Error>? in
          if case .isOver(let result) = state { return result }
          state = .waits(continuation)
          return nil
        }
        if let result { continuation.resume(with: result) }
      }
    }
  }

  private struct Queue {
    var waiting: [Ticket] = []
    var group: [Ticket] = []
    var isBusy = false
    var isWatched = false
    var groups = 0
    var failure: String?
  }

  /// Pause before a retry while the database is unavailable, and between two checks for items that have waited too long.
  private static var pause: Duration { .milliseconds(500) }

  private let weight: @Sendable (Item) -> Double
  private let patience: Duration?
  private let work: Work
  private let queue = Mutex(Queue())

  /// `weight`: a group weighs at most 1, or is one item. `work`: returns an answer for each item, in order.
  init(patience: Duration? = nil, weight: @escaping @Sendable (Item) -> Double, _ work: @escaping Work) {
    (self.patience, self.weight, self.work) = (patience, weight, work)
  }

  /// Returns when the item has ended. With `patience` it may throw `QueueTimeout`.
  func submit(_ item: Item) async throws -> Answer { try await begin(item).answer() }

  /// Queues the item, and fixes its place in the order.
  func begin(_ item: Item) -> Ticket {
    let (waiting, begins, watches) = queue.withLock { queue in
      let waiting = Ticket(item, groups: queue.groups)
      queue.waiting.append(waiting)
      defer { (queue.isBusy, queue.isWatched) = (true, patience != nil) }
      return (waiting, !queue.isBusy, patience != nil && !queue.isWatched)
    }
    if begins { Task(executorPreference: CallingThread.preferred) { await self.run() } }
    if watches {
      Task { [weak self] in
        // `try?`: nobody cancels it.
        repeat { try? await Task.sleep(for: Self.pause) } while self?.failLate() == true
      }
    }
    return waiting
  }

  private func run() async {
    while let group = next() {
      let (again, failure) = await finish(group)
      queue.withLock { queue in
        queue.groups += failure == nil ? 1 : 0
        queue.failure = failure?.reason
        queue.waiting.insert(contentsOf: again.filter { !$0.isAnswered }, at: 0)
        queue.group = []
      }
      // `try?`: nobody cancels it.
      if failure != nil { try? await Task.sleep(for: Self.pause) }
    }
  }

  private func next() -> [Ticket]? {
    queue.withLock { queue in
      var (sum, count) = (0.0, 0)
      for waiting in queue.waiting {
        sum += weight(waiting.item)
        guard count == 0 || sum <= 1 else { break }
        count += 1
      }
      queue.isBusy = count > 0
      guard count > 0 else { return nil }
      queue.group = Array(queue.waiting.prefix(count))
      queue.waiting.removeFirst(count)
      return queue.group
    }
  }

  /// Works on a group; returns the items to retry when the database is available.
  private func finish(_ tickets: [Ticket]) async -> (again: [Ticket], HubDatabaseError?) {
    // Nobody waits any more for those that were refused meanwhile: their senders come again.
    let group = tickets.filter { !$0.isAnswered }
    guard !group.isEmpty else { return ([], nil) }
    do throws(HubDatabaseError) {
      let answers = try await work(group.map(\.item))
      for (waiting, answer) in zip(group, answers) { waiting.resume(.success(answer)) }
      return ([], nil)
    } catch {
      if error.kind == .unavailable, patience != nil { return (group, error) }
      guard group.count > 1, error.kind != .unavailable, error.kind != .outdated else {
        for waiting in group { waiting.resume(.failure(error)) }
        return ([], nil)
      }
      let half = group.count / 2
      let (first, failure) = await finish(Array(group[..<half]))
      let (second, other) = await finish(Array(group[half...]))
      return (first + second, failure ?? other)
    }
  }

  /// Fails the items that have waited too long. The group in progress continues. `false`: nothing is left to do.
  private func failLate() -> Bool {
    let now = ContinuousClock.now
    let (late, isBusy) = queue.withLock { queue in
      queue.isWatched = queue.isBusy
      // A hub that is stopping does not wait for its database.
      let isEnding = queue.failure != nil && Task.isShuttingDownGracefully
      func isLate(_ waiting: Ticket) -> Bool { isEnding || now - waiting.since >= patience ?? .zero }
      let late = (queue.group + queue.waiting).filter(isLate)
      queue.waiting.removeAll(where: isLate)
      return (
        late.map { ($0, QueueTimeout(failure: queue.failure, isOverload: queue.groups > $0.groups)) }, queue.isBusy
      )
    }
    for (waiting, words) in late { waiting.resume(.failure(words)) }
    return isBusy
  }
}
