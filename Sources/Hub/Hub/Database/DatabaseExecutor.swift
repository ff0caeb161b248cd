// SPDX-License-Identifier: MIT

import Dispatch

/// Runs an actor's work in order on a queue of its own, so that waiting for a disk or a server delays no other work.
final class DatabaseExecutor: SerialExecutor {
  private let queue = DispatchQueue(label: "meshpost.hub.database")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
  }

  func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
}
