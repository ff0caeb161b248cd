// SPDX-License-Identifier: MIT

/// Lets so many tasks in at a time, one unless said otherwise: the most urgent that waits, and of these the first.
public final class LoopSemaphore<Priority: Comparable> {
  /// Thrown when as many wait as are allowed.
  public struct Full: Error, Equatable, Sendable {
    public let waiting: Int
  }

  private let bound: Int
  private var queue: [(priority: Priority, waiter: Waiter)] = []
  private let capacity: Int
  private var inside = 0
  /// Somebody is in.
  public var isTaken: Bool { inside > 0 }

  /// `capacity`: tasks that may be in at once. `bound`: tasks that may wait.
  public init(capacity: Int = 1, bound: Int) { (self.capacity, self.bound) = (capacity, bound) }

  public var waiting: Int { queue.count }

  /// Returns when it is this task's turn; `leave` ends that. Lower priorities come first.
  public func enter(_ priority: Priority) async throws {
    guard inside >= capacity else { return inside += 1 }
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
    guard let next = queue.first else { return inside -= 1 }
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
