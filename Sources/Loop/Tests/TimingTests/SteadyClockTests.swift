// SPDX-License-Identifier: MIT

import Testing
import Timing

@Suite struct SteadyClockTests {
  private static let day: Int64 = 86_400_000
  private static let now: Int64 = 1_795_000_000_000

  @Test func `a step of the wall clock while the program runs does not change the elapsed time`() {
    var clock = SteadyClock(maxAway: 30 * Self.day)
    clock.look(trustedWall: Self.now, uptime: 1000)
    for (wall, uptime) in [
      (Self.now + 100 * Self.day, 2000), (Self.now - 900 * Self.day, 3000), (nil, 4000), (Self.now, 5000),
    ] as [(Int64?, Int64)] { clock.look(trustedWall: wall, uptime: uptime) }
    #expect(clock.elapsed == 4000)
    #expect(clock.wall == Self.now)
  }

  @Test func `time without the program counts if the clock was trusted before and after`() {
    var clock = SteadyClock(elapsed: 5, wall: Self.now, maxAway: 30 * Self.day)
    // The machine has no clock chip: its first time means nothing.
    clock.look(trustedWall: nil, uptime: 70)
    clock.look(trustedWall: nil, uptime: 1070)
    #expect(clock.elapsed == 1005)
    clock.look(trustedWall: Self.now + Self.day, uptime: 2070)
    // The two seconds are part of the day.
    #expect(clock.elapsed == Self.day + 5)
    clock.look(trustedWall: Self.now + 3 * Self.day, uptime: 2071)
    #expect(clock.elapsed == Self.day + 6, "once only")
  }

  @Test(arguments: [nil, now + 90 * day, now - 90 * day] as [Int64?])
  func `while the machine stays on, the time without the program is counted by the uptime`(_ wall: Int64?) {
    for kept in [Self.now, nil] {
      var clock = SteadyClock(elapsed: 5, wall: kept, maxAway: Self.day, uptime: 1000)
      clock.look(trustedWall: wall, uptime: 1000 + 30 * Self.day)
      #expect(clock.elapsed == 30 * Self.day + 5)
      #expect(clock.wall == wall ?? kept.map { $0 + 30 * Self.day })
    }
  }

  @Test func `time over a restart is limited, and never negative`() {
    for (wall, elapsed) in [
      (Self.now + 31 * Self.day, 30 * Self.day), (Int64.max, 30 * Self.day), (Self.now - Self.day, 0), (Int64.min, 0),
    ] {
      var clock = SteadyClock(wall: Self.now, maxAway: 30 * Self.day)
      clock.look(trustedWall: wall, uptime: 10)
      #expect(clock.elapsed == elapsed, "\(wall)")
    }
  }

  @Test func `time without the program does not count if no earlier trusted time is known`() {
    var clock = SteadyClock(elapsed: 7, wall: nil, maxAway: 30 * Self.day)
    clock.look(trustedWall: Self.now, uptime: 10)
    #expect(clock.elapsed == 7)
  }

  @Test func `numbers from the disk never trap`() {
    for value in [Int64.min, -1, 0, Int64.max] {
      var clock = SteadyClock(elapsed: value, wall: value, maxAway: .max)
      clock.look(trustedWall: .max, uptime: .min)
      clock.look(trustedWall: .min, uptime: .max)
      clock.look(trustedWall: .max, uptime: .max)
      #expect(clock.elapsed >= 0)
    }
  }
}
