// SPDX-License-Identifier: MIT

/// Lets one task in at a time: the most urgent that waits, and of these the first.
public final class LoopSemaphore<Priority: Comparable> {
  /// So many wait already.
  public struct Full: Error, Equatable, Sendable {
    public let waiting: Int
  }

  private let bound: Int
  private var queue: [(priority: Priority, waiter: Waiter)] = []
  public private(set) var isTaken = false

  /// `bound`: tasks that may wait.
  public init(bound: Int) { self.bound = bound }

  public var waiting: Int { queue.count }

  /// Returns when it is this task's turn; `leave` ends that. Lower priorities come first.
  public func enter(_ priority: Priority) async throws {
    guard isTaken else { return isTaken = true }
    guard queue.count < bound else { throw Full(waiting: queue.count) }
    let waiter = Waiter()
    let place = queue.firstIndex { $0.priority > priority } ?? queue.count
    queue.insert((priority, waiter), at: place)
    do {
      try await waiter.wait()
    } catch {
      if let place = queue.firstIndex(where: { $0.waiter === waiter }) {
        queue.remove(at: place)
      } else {
        // It was this task's turn just now.
        leave()
      }
      throw error
    }
  }

  /// The next one's turn.
  public func leave() {
    guard let next = queue.first else { return isTaken = false }
    queue.removeFirst()
    next.waiter.resume()
  }

  /// Runs `work` when it is its turn.
  public func with<Result>(_ priority: Priority, _ work: () async throws -> Result) async throws -> Result {
    try await enter(priority)
    defer { leave() }
    return try await work()
  }
}
