// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

@Suite struct PatienceTests {
  /// Seconds until a wait is given up, when what is waited for computes `share` of a processor; `nil`: not in an hour.
  private func givesUp(at share: Double, endsAt end: Double = .infinity) -> Double? {
    var patience = Patience(now: 0)
    for step in 0..<36_000 {
      let now = Double(step) / 10
      if patience.isOver(now: now, work: { min(now, end) * share }) { return now }
    }
    return nil
  }

  @Test func `a wait goes on for as long as something moves, however slowly, and ends a while after the last movement`()
  {
    #expect(givesUp(at: 0.1) == nil)
    let still = Patience.stillness
    #expect((givesUp(at: 0.001) ?? 0) > still && (givesUp(at: 0.001) ?? .infinity) < still + 3)
    let stopped = givesUp(at: 0.5, endsAt: 10 * still) ?? 0
    #expect(stopped > 11 * still && stopped < 12 * still + 3)
  }

  @Test func `a program that has ended is movement`() {
    var patience = Patience(now: 0)
    let looks = [(1, 100.0), (2 + Patience.stillness, 40), (3 + 2 * Patience.stillness, 40)].map { now, work in
      patience.isOver(now: now, work: { work })
    }
    #expect(looks == [false, false, true])
  }

  @Test func `what a program and its children compute is counted, unless it is left out`() throws {
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    let before = Work.done()
    let program = try Program("/bin/sh", ["-c", "sh -c '\(busy)'; echo ready; read x"])
    try program.line(with: "ready")
    let counted = Work.done() - before
    #expect(counted > 0.05, "seconds")
    Work.leaveOut(program.processID)
    #expect(Work.done() < before + counted, "its share is gone")
  }
}
