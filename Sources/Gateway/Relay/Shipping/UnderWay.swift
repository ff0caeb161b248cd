// SPDX-License-Identifier: MIT

import EventLoop
import Store

/// Work under way: batches in the order in which they were sent, the task that holds the connection, and cursors that are being written.
struct UnderWay {
  enum Purpose: Equatable { case journal, deadLetter(id: Int64, marks: Int64), proof }

  /// A batch, and the task that waits for its answer.
  struct Flight {
    let number: UInt64
    let batch: Batch
    let lane: Lane
    let purpose: Purpose
    let task: LoopTask
    let epoch: String
  }

  var flights: [Flight] = []
  private var lastNumber: UInt64 = 0
  var holder: LoopTask?
  let writes: LoopTasks

  init(on loop: EventLoop) { writes = LoopTasks(on: loop) }

  mutating func nextNumber() -> UInt64 {
    lastNumber += 1
    return lastNumber
  }

  mutating func forget(in lane: Lane?) {
    for flight in flights where lane == nil || flight.lane == lane { flight.task.cancel() }
    flights.removeAll { lane == nil || $0.lane == lane }
  }

  /// Ends the task that holds the connection.
  mutating func release() {
    holder?.cancel()
    holder = nil
  }

  /// Cursors that are being written are not cancelled: their commit ends them.
  mutating func end() {
    forget(in: nil)
    release()
  }
}
