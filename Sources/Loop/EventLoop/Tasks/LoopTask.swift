// SPDX-License-Identifier: MIT

import Glibc
import Timing

/// Runs tasks on the loop's thread, one after the other, in its turns. No thread pool is started.
final class LoopExecutor: TaskExecutor {
  /// Touched only on the loop's thread.
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
  /// Begins a task on this loop. Everything that it awaits runs there, too.
  ///
  /// The task may use anything that the loop's thread owns, like a callback: nothing has to be `Sendable`. The caller
  /// keeps the result, which is the only way to cancel the task. Functions that the task awaits run on the caller's
  /// executor (`NonisolatedNonsendingByDefault`). `Task { }` and `Task.sleep` would start the runtime's thread pool and
  /// are not used. Decision 0014.
  public func begin(_ work: @escaping () async -> Void) -> LoopTask {
    let (work, loop) = (Confined(work), Confined(self))
    taskCount += 1
    return LoopTask(
      Task(executorPreference: executor) {
        await work.value()
        loop.value.taskCount -= 1
      })
  }

  /// Runs the loop until `main` has ended.
  public func run(_ main: @escaping () async -> Void) {
    let task = begin {
      await main()
      self.stop()
    }
    run()
    withExtendedLifetime(task) {}
  }

  /// Sleeps until `time`. Throws if the task is cancelled before.
  public func sleep(until time: MonotonicTime) async throws(CancellationError) {
    try await Waiter().wait(until: time, on: self)
  }

  public func sleep(for duration: Duration) async throws(CancellationError) { try await sleep(until: now + duration) }

  /// Never returns; throws once the task is cancelled.
  public func untilCancelled() async throws(CancellationError) {
    let waiter = Waiter()
    while true { try await waiter.wait() }
  }
}

/// A task of a loop.
public struct LoopTask {
  private let task: Task<Void, Never>

  init(_ task: Task<Void, Never>) { self.task = task }

  /// Cancels the task: its waits end at once with `CancellationError`. Call it on the loop's thread.
  public func cancel() { task.cancel() }

  /// Returns when the task has ended.
  public func ended() async { await task.value }
}

/// A value that never leaves the loop's thread, which the compiler cannot know.
struct Confined<Value>: @unchecked Sendable {
  let value: Value
  init(_ value: Value) { self.value = value }
}
