// SPDX-License-Identifier: MIT

import Timing

/// Suspends tasks until `resume` or cancellation. A `resume` before a wait lets the next wait return at once. All
/// waiting tasks are resumed together.
public final class Waiter {
  private var isResumed = false
  private var lastNumber: UInt64 = 0
  private var waiting: [(number: UInt64, continuation: CheckedContinuation<Void, Never>)] = []

  public init() {}

  public func resume() {
    guard !waiting.isEmpty else { return isResumed = true }
    let resumed = waiting
    waiting = []
    for (_, continuation) in resumed { continuation.resume() }
  }

  /// Throws when the task is cancelled.
  public func wait() async throws(CancellationError) {
    guard !Task.isCancelled else { throw CancellationError() }
    if isResumed { return isResumed = false }
    lastNumber &+= 1
    let number = lastNumber
    // Cancellation comes from the loop's thread, too.
    let this = Confined(self)
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        if Task.isCancelled { continuation.resume() } else { waiting.append((number, continuation)) }
      }
    } onCancel: {
      this.value.cancelled(number)
    }
    guard !Task.isCancelled else { throw CancellationError() }
  }

  private func cancelled(_ number: UInt64) {
    guard let place = waiting.firstIndex(where: { $0.number == number }) else { return }
    waiting.remove(at: place).continuation.resume()
  }
}

extension Waiter {
  /// Returns when resumed, or at that time; `nil`: no time limit.
  public func wait(until time: MonotonicTime?, on loop: EventLoop) async throws(CancellationError) {
    guard let time else { return try await wait() }
    let timer = loop.schedule(at: time) { self.resume() }
    defer { timer.cancel() }
    try await wait()
  }
}
