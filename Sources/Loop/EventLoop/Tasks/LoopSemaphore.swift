// SPDX-License-Identifier: MIT

/// Admits a limited number of tasks at a time (by default one). The most urgent waiting task is next; of equals, the
/// one that waited longest.
public final class LoopSemaphore<Priority: Comparable> {
  /// Thrown when the queue is full.
  public struct Full: Error, Equatable, Sendable {
    public let waiting: Int
  }

  private let bound: Int
  private var queue: [(priority: Priority, waiter: Waiter)] = []
  private let capacity: Int
  private var inside = 0
  /// Whether any task is inside.
  public var isTaken: Bool { inside > 0 }

  /// `capacity`: tasks inside at a time. `bound`: tasks that may wait.
  public init(capacity: Int = 1, bound: Int) { (self.capacity, self.bound) = (capacity, bound) }

  public var waiting: Int { queue.count }

  /// Waits for this task's turn; call `leave` afterwards. Lower priorities come first.
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
        // The turn was given to this task just before it was cancelled.
        leave()
      }
      throw error
    }
  }

  /// Ends this task's turn and admits the next task.
  public func leave() {
    guard let next = queue.first else { return inside -= 1 }
    queue.removeFirst()
    next.waiter.resume()
  }

  /// Waits for its turn and runs `work`.
  public func with<Result>(_ priority: Priority, _ work: () async throws -> Result) async throws -> Result {
    try await enter(priority)
    defer { leave() }
    return try await work()
  }
}
