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
    let (work, loop) = (Confined(work), Confined(self))
    taskCount += 1
    return LoopTask(
      Task(executorPreference: executor) {
        await work.value()
        loop.value.taskCount -= 1
      })
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
struct Confined<Value>: @unchecked Sendable {
  let value: Value
  init(_ value: Value) { self.value = value }
}
