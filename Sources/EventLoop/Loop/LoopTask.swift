// SPDX-License-Identifier: MIT

import Glibc
import Synchronization
import Timing

/// A loop as the executor of tasks: they run on its thread, one after the other, in its turns. No pool of threads is started.
final class LoopExecutor: TaskExecutor {
  /// Only touched on the loop's thread.
  private nonisolated(unsafe) unowned let loop: EventLoop
  private let thread = pthread_self()

  init(_ loop: EventLoop) { self.loop = loop }

  func enqueue(_ job: consuming ExecutorJob) {
    precondition(
      pthread_equal(pthread_self(), thread) != 0,
      "a task was resumed by another thread: these speak to a loop by `Wakeup` alone")
    loop.enqueue(UnownedJob(job))
  }
}

extension EventLoop {
  /// Begins a task: it runs in the turns of this loop, and so does all that it awaits.
  ///
  /// Whatever the loop's thread owns may be used in it, as in a callback: nothing of it is `Sendable`, and nothing has to be. Functions that it
  /// awaits run where it runs (`NonisolatedNonsendingByDefault`). `Task { }` and `Task.sleep` would start the runtime's pool of threads:
  /// they are not used. Decision 0014.
  @discardableResult
  public func begin(_ work: @escaping () async -> Void) -> LoopTask {
    let work = Confined(work)
    return LoopTask(Task(executorPreference: executor) { await work.value() })
  }

  /// Until the time has come. Throws when the task is cancelled before.
  public func sleep(until time: MonotonicTime) async throws(CancellationError) {
    let waiter = Waiter()
    let timer = schedule(at: time) { waiter.resume() }
    defer { timer.cancel() }
    try await waiter.wait()
  }

  public func sleep(for duration: Duration) async throws(CancellationError) { try await sleep(until: now + duration) }
}

/// A task of a loop.
public struct LoopTask {
  private let task: Task<Void, Never>

  init(_ task: Task<Void, Never>) { self.task = task }

  /// What it waits for ends at once, with `CancellationError`. On the loop's thread.
  public func cancel() { task.cancel() }
}

/// What never leaves a loop's thread, although the compiler cannot know: both ends of its way are on that thread.
private struct Confined<Value>: @unchecked Sendable {
  let value: Value
  init(_ value: Value) { self.value = value }
}

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
