// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

@Suite struct PatienceTests {
  /// The seconds until a wait is given up, if the awaited program uses `share` of a processor; `nil`: more than an hour.
  private func givesUp(at share: Double, endsAt end: Double = .infinity) -> Double? {
    var patience = Patience(now: 0)
    for step in 0..<36_000 {
      let now = Double(step) / 10
      if patience.isOver(now: now, work: { Work(own: min(now, end) * share) }) { return now }
    }
    return nil
  }

  @Test func `a wait continues while something progresses, however slowly, and ends a while after the last progress`() {
    let still = Patience.stillness
    #expect((givesUp(at: 0.1) ?? 0) >= 15 * still, "for ever is a quarter of an hour")
    #expect((givesUp(at: 0.001) ?? 0) > still && (givesUp(at: 0.001) ?? .infinity) < still + 3)
    let stopped = givesUp(at: 0.5, endsAt: 7 * still) ?? 0
    #expect(stopped > 8 * still && stopped < 9 * still + 3)
  }

  @Test func `a program that logs its progress is progressing, although it computes nothing`() {
    var patience = Patience(now: 0)
    let (still, end) = (Patience.stillness, 3 * Patience.stillness)
    // A log line in the middle of each minute, three times.
    let over = (0..<36_000).lazy.map { Double($0) / 10 }.first { now in
      patience.isOver(now: now, said: Int(min(now, end) / still + 0.5), work: { Work(own: 0) })
    }
    #expect(over.map { $0 > end + still && $0 < end + 2 * still + 3 } ?? false, "\(over ?? -1)")
  }

  @Test func `programs that start and end repeatedly do not count as progress`() {
    let before = Work(own: 1, programs: [1: 5, 2: 7, 3: 100])
    #expect(Work(own: 1, programs: [1: 5, 2: 7, 4: 50]).since(before) == 0, "one has ended, another has begun")
    #expect(Work(own: 3, programs: [1: 5.5, 2: 7]).since(before) == 2.5)
  }

  @Test func `the computing of a program and its children is counted, unless it is left out`() throws {
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    let program = try Program("/bin/sh", ["-c", "sh -c '\(busy)'; echo ready; read x"])
    try program.line(with: "ready")
    #expect(Work.done().programs[program.processID] ?? 0 > 0.05, "seconds")
    Work.leaveOut(program.processID)
    #expect(Work.done().programs[program.processID] == nil, "its share is gone")
  }
}
