// SPDX-License-Identifier: MIT

import Timing

/// A timer that was set; keep it to cancel it.
public final class LoopTimer {
  fileprivate let time: MonotonicTime
  fileprivate var action: (() -> Void)?

  fileprivate init(_ time: MonotonicTime, _ action: @escaping () -> Void) {
    self.time = time
    self.action = action
  }

  public func cancel() { action = nil }
  /// Whether the timer is still to fire.
  public var isScheduled: Bool { action != nil }
}

/// Timers by time: a binary heap. Cancelled ones are dropped when their turn comes, or when they are the many.
struct TimerQueue {
  /// Fewer are not worth a search for cancelled ones.
  private static let few = 64

  private var heap: [LoopTimer] = []
  /// At this number the cancelled ones are taken out; twice what was alive then, so that no call pays for all.
  private var sweepAt = few

  /// Timers, including cancelled ones.
  var count: Int { heap.count }
  /// Timers that are still to fire.
  var waiting: Int { heap.count { $0.action != nil } }

  /// When the next timer that still counts is due.
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

  /// Takes the action of one timer that is due.
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
