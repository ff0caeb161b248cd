// SPDX-License-Identifier: MIT

import Dispatch
import Synchronization

/// Runs tasks and databases on the thread that waits for them: for a simulation, which does one thing after the other.
final class CallingThread: TaskExecutor {
  private static let shared = CallingThread()

  /// Whether databases work here, too, in place of their own queues.
  static let hasDatabases = Atomic(false)

  /// Where work begins that nobody waits for; `nil`: on any thread, as in a hub with a network.
  static var preferred: CallingThread? { hasDatabases.load(ordering: .relaxed) ? shared : nil }

  private let jobs = Mutex<[@Sendable () -> Void]>([])
  private let arrived = DispatchSemaphore(value: 0)

  static func add(_ job: @escaping @Sendable () -> Void) {
    shared.jobs.withLock { $0.append(job) }
    shared.arrived.signal()
  }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    Self.add { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }

  static func wait<Value: Sendable>(for work: @escaping @Sendable () async throws -> Value) throws -> Value {
    let outcome = Outcome<Value>()
    Task(executorPreference: shared) {
      let value: Result<Value, any Error>
      do { value = .success(try await work()) } catch { value = .failure(error) }
      outcome.value.withLock { $0 = value }
    }
    while true {
      shared.arrived.wait()
      shared.jobs.withLock { $0.removeFirst() }()
      guard shared.jobs.withLock({ $0.isEmpty }), let value = outcome.value.withLock({ $0 }) else { continue }
      return try value.get()
    }
  }

  private final class Outcome<Value: Sendable>: Sendable {
    let value = Mutex<Result<Value, any Error>?>(nil)
  }
}
