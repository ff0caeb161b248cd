// SPDX-License-Identifier: MIT

import Timing

/// A timer; keep it to be able to cancel it.
public final class LoopTimer {
  fileprivate let time: MonotonicTime
  fileprivate var action: (() -> Void)?

  fileprivate init(_ time: MonotonicTime, _ action: @escaping () -> Void) {
    self.time = time
    self.action = action
  }

  public func cancel() { action = nil }
  /// Whether the timer has yet to fire.
  public var isScheduled: Bool { action != nil }
}

/// Timers by time: a binary heap. Cancelled ones are dropped when they are due, and when the heap has doubled.
struct TimerQueue {
  /// With fewer timers, a search for cancelled ones is not worthwhile.
  private static let few = 64

  private var heap: [LoopTimer] = []
  /// When the heap has this size, cancelled timers are removed; it is twice the number that was alive then, so that the
  /// cost is spread over many calls.
  private var sweepAt = few

  /// Timers, including cancelled ones.
  var count: Int { heap.count }
  /// Timers that have yet to fire.
  var waiting: Int { heap.count { $0.action != nil } }

  /// The time of the next timer that is not cancelled.
  var next: MonotonicTime? {
    mutating get {
      dropCancelled()
      return heap.first?.time
    }
  }

  mutating func add(at time: MonotonicTime, _ action: @escaping () -> Void) -> LoopTimer {
    if heap.count > sweepAt {
      let alive = heap.filter { $0.action != nil }
      heap.removeAll(keepingCapacity: true)
      for timer in alive { push(timer) }
      sweepAt = max(Self.few, 2 * alive.count)
    }
    let timer = LoopTimer(time, action)
    push(timer)
    return timer
  }

  /// Removes one timer that is due, and returns its action.
  mutating func due(now: MonotonicTime) -> (() -> Void)? {
    dropCancelled()
    guard let first = heap.first, first.time <= now else { return nil }
    let action = first.action
    first.action = nil
    pop()
    return action
  }

  private mutating func dropCancelled() {
    while let first = heap.first, first.action == nil { pop() }
  }

  private mutating func push(_ timer: LoopTimer) {
    heap.append(timer)
    var child = heap.count - 1
    while child > 0 {
      let parent = (child - 1) / 2
      guard heap[child].time < heap[parent].time else { return }
      heap.swapAt(child, parent)
      child = parent
    }
  }

  private mutating func pop() {
    guard let last = heap.popLast(), !heap.isEmpty else { return }
    heap[0] = last
    var parent = 0
    while true {
      let left = 2 * parent + 1
      guard left < heap.count else { return }
      let right = left + 1
      let child = right < heap.count && heap[right].time < heap[left].time ? right : left
      guard heap[child].time < heap[parent].time else { return }
      heap.swapAt(child, parent)
      parent = child
    }
  }
}
