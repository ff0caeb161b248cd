// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Gateway

@Suite struct ShownStateTests {
  private func read(
    _ shown: inout ShownVoltage, _ millivolts: UInt16, isLow: Bool = false, at seconds: Double
  ) -> Bool {
    shown.read(millivolts, isLow: isLow, now: time(seconds))
  }

  private func time(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }

  @Test func `a voltage is shown in steps, at most once an hour, and at once while it is low`() {
    var shown = ShownVoltage()
    let steps: [(UInt16, Bool, Double, Bool, Int?)] = [
      (0, false, 0, false, nil), (4012, false, 0, true, 4000), (4049, false, 7200, false, 4000),
      (3900, false, 7200, true, 3900), (3800, false, 10_000, false, 3900), (3300, true, 10_000, true, 3300),
    ]
    for (millivolts, isLow, seconds, isNew, expected) in steps {
      let told = read(&shown, millivolts, isLow: isLow, at: seconds)
      #expect(told == isNew && shown.millivolts == expected, "\(millivolts) at \(seconds)")
    }
  }

  @Test(arguments: 0..<10 as Range<UInt64>)
  func `random readings cause few state reports`(_ seed: UInt64) {
    var random = SeededRandom(seed: seed)
    var (voltage, backlog, sent) = (ShownVoltage(), ShownBacklog(), (voltages: 0, backlogs: 0))
    for minute in 0..<1440 {
      let now = time(Double(minute) * 60)
      if voltage.read(UInt16.random(in: 3000...4200, using: &random), isLow: false, now: now) { sent.voltages += 1 }
      if backlog.read(Int64.random(in: 0...1_000_000, using: &random), now: now) { sent.backlogs += 1 }
    }
    #expect(sent.voltages <= 24 && sent.backlogs <= 2 * 288)
  }

  @Test func `a backlog is shown by its power of ten, and fewer than ten events are not shown`() {
    for (events, coarse) in [
      (9, 0), (10, 10), (99, 10), (100, 100), (123_456, 100_000), (3, 0), (.max, 1_000_000_000_000_000_000),
    ] as [(Int64, Int64)] {
      var shown = ShownBacklog()
      let early = shown.read(events, now: time(0))
      let late = shown.read(events, now: time(10))
      #expect(!early && late == (coarse > 0) && shown.events == coarse)
    }
  }

  @Test func `the end of a backlog is shown at once, and a brief backlog is never shown`() {
    var shown = ShownBacklog()
    let readings: [(Int64, Double, isNew: Bool)] = [
      (50, 0, false), (0, 9, false), (50, 12, false), (50, 22, true), (500, 300, false), (500, 322, true),
      (3, 323, true),
      (0, 324, false), (50, 330, false), (50, 621, false), (50, 622, true), (9, 622, true),
    ]
    for (events, seconds, isNew) in readings {
      let told = shown.read(events, now: time(seconds))
      #expect(told == isNew, "\(events) at \(seconds) s")
    }
  }
}
