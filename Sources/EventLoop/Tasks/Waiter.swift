// SPDX-License-Identifier: MIT

import Timing

/// Where one task waits until it is resumed, or cancelled. Resumed before it waits: the next wait returns at once.
public final class Waiter {
  private enum State {
    case idle, resumed
    case waiting(CheckedContinuation<Void, Never>)
  }
  private var state = State.idle

  public init() {}

  public func resume() {
    switch state {
    case .waiting(let continuation):
      state = .idle
      continuation.resume()
    case .idle: state = .resumed
    case .resumed: break
    }
  }

  /// Throws when the task is cancelled.
  public func wait() async throws(CancellationError) {
    guard !Task.isCancelled else { throw CancellationError() }
    if case .resumed = state { return state = .idle }
    // Who cancels is on the loop's thread, too.
    let this = Confined(self)
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        if Task.isCancelled { continuation.resume() } else { state = .waiting(continuation) }
      }
    } onCancel: {
      this.value.cancelled()
    }
    guard !Task.isCancelled else { throw CancellationError() }
  }

  private func cancelled() {
    guard case .waiting(let continuation) = state else { return }
    state = .idle
    continuation.resume()
  }
}

extension Waiter {
  /// Returns when it was resumed, or when the time has come; `nil`: there is no time.
  public func wait(until time: MonotonicTime?, on loop: EventLoop) async throws(CancellationError) {
    guard let time else { return try await wait() }
    let timer = loop.schedule(at: time) { self.resume() }
    defer { timer.cancel() }
    try await wait()
  }
}
