// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Sync

@Suite struct RadioClockTests {
  private let start = MonotonicTime(seconds: 1000)

  @Test func `a radio whose clock was ahead is ignored until the time that it had`() {
    var clock = RadioClock()
    clock.told(1_800_086_400, now: start)
    #expect(clock.stepped(at: start) == nil)
    // Ten minutes later it is started anew, in 2024, and set.
    let later = start + .seconds(600)
    clock.told(1_715_770_351, now: later)
    clock.wasSet(to: 1_800_000_600)
    #expect(clock.stepped(at: later) == 1_800_087_000)
    #expect(clock.stepped(at: later + .seconds(86_000)) == 1_800_087_000)
    #expect(clock.stepped(at: later + .seconds(86_400)) == nil, "the time is past")
    clock.forgetTime()
    #expect(clock.stepped(at: later) == nil && clock.time(at: later) == nil)
  }

  @Test func `a clock that was right is not told as one that was ahead when it is started anew`() {
    var clock = RadioClock()
    clock.told(1_800_000_000, now: start)
    let later = start + .seconds(600)
    clock.told(1_715_770_351, now: later)
    clock.wasSet(to: 1_800_000_598)
    #expect(clock.stepped(at: later) == nil)
  }

  @Test func `a radio whose milliseconds have begun at zero again was not started, and a restart is one`() throws {
    var clock = RadioClock()
    clock.runs(for: .seconds(4_294_000), now: start)
    let begun = try #require(clock.started)
    // 967 s later its 32 bits are full.
    let later = start + .seconds(2000)
    clock.forgetStart()
    clock.runs(for: .seconds(1033), now: later)
    let still = try #require(clock.started)
    #expect(abs((still - begun).inSeconds) < 1)
    clock.runs(for: .seconds(1093), now: later + .seconds(60))
    let further = try #require(clock.started)
    #expect(abs((further - begun).inSeconds) < 1, "and it stays so")
    clock.runs(for: .seconds(5), now: later + .seconds(120))
    #expect(clock.started == later + .seconds(115))
    clock.forgetTime()
    clock.runs(for: .seconds(4_294_000), now: later)
    #expect(clock.started == later + .seconds(-4_294_000), "another radio's start says nothing of this one's")
  }
}
