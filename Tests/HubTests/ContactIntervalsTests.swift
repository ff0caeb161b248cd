// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Hub

@Suite struct ContactIntervalsTests {
  private static let least: Duration = .seconds(900)

  private func time(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }

  private func look(
    _ intervals: inout ContactIntervals, seen: Int64, at seconds: Double, hasLink: Bool = false, isLinked: Bool = false
  ) {
    intervals.update(
      "hill", seen: seen, hasLink: hasLink, isLinked: isLinked, least: Self.least, now: time(seconds))
  }

  @Test func `a gateway that keeps a link is late after its time limit, and never while it is linked`() {
    var intervals = ContactIntervals()
    for second in stride(from: 0.0, through: 7200, by: 15) {
      look(&intervals, seen: 1, at: second, hasLink: true, isLinked: true)
      #expect(!intervals.isLate("hill", now: time(second)))
    }
    look(&intervals, seen: 1, at: 7215, hasLink: true)
    #expect(!intervals.isLate("hill", now: time(8099)) && intervals.isLate("hill", now: time(8100)))
    look(&intervals, seen: 2, at: 8100, hasLink: true)
    #expect(!intervals.isLate("hill", now: time(8100)))
  }

  @Test func `a gateway that no longer keeps a link is late by its usual pauses`() {
    var intervals = ContactIntervals()
    look(&intervals, seen: 1, at: 0, hasLink: true, isLinked: true)
    var (seen, now) = (Int64(1), 0.0)
    // From then on it posts every three hours.
    while now < 2 * 86_400 {
      (seen, now) = (seen + 1, now + 10_800)
      look(&intervals, seen: seen, at: now, hasLink: now <= 86_400)
    }
    #expect(
      !intervals.isLate("hill", now: time(now + 3600)) && !intervals.isLate("hill", now: time(now + 4 * 10_800 - 1)))
    #expect(intervals.isLate("hill", now: time(now + 4 * 10_800 + 1)))
  }

  @Test
  func `a gateway without a link is late after four of its longest pauses, and after a day while no pause is known`() {
    var intervals = ContactIntervals()
    look(&intervals, seen: 0, at: 0)
    #expect(!intervals.isLate("hill", now: time(86_399)) && intervals.isLate("hill", now: time(86_400)))
    // Twice an hour, and once after two hours.
    var (seen, now) = (Int64(0), 0.0)
    for pause in [1800.0, 1800, 7200, 1800, 1800] {
      (seen, now) = (seen + 1, now + pause)
      look(&intervals, seen: seen, at: now)
    }
    // An hour of a week, in which it becomes half as long.
    let limit = 4 * 7200 * 0.99588
    #expect(
      !intervals.isLate("hill", now: time(now + limit - 5)) && intervals.isLate("hill", now: time(now + limit + 5)))
    // Rare contacts are forgotten.
    for _ in 0..<700 {
      (seen, now) = (seen + 1, now + 1800)
      look(&intervals, seen: seen, at: now)
    }
    #expect(!intervals.isLate("hill", now: time(now + 7199)) && intervals.isLate("hill", now: time(now + 7201)))
  }

  @Test func `many contacts in a short time do not shorten the longest pause`() {
    var intervals = ContactIntervals()
    var (seen, now) = (Int64(0), 0.0)
    look(&intervals, seen: seen, at: now)
    for pause in [60.0, 10_800] + [Double](repeating: 60, count: 60) {
      (seen, now) = (seen + 1, now + pause)
      look(&intervals, seen: seen, at: now)
    }
    #expect(!intervals.isLate("hill", now: time(now + 40_000)) && intervals.isLate("hill", now: time(now + 43_201)))
  }

  @Test func `a gateway whose contacts all came at once has no pause yet`() {
    var intervals = ContactIntervals()
    for second in 0...20 { look(&intervals, seen: Int64(second), at: Double(second) * 15) }
    #expect(!intervals.isLate("hill", now: time(300 + 86_399)) && intervals.isLate("hill", now: time(300 + 86_400)))
    // With a short time limit, what is a pause is shorter, too.
    var quick = ContactIntervals()
    func contact(_ seen: Int64, at seconds: Double) {
      quick.update("hill", seen: seen, hasLink: false, isLinked: false, least: .seconds(20), now: time(seconds))
    }
    for (seen, second) in [0.0, 5, 10, 55].enumerated() { contact(Int64(seen), at: second) }
    #expect(!quick.isLate("hill", now: time(55 + 179)) && quick.isLate("hill", now: time(55 + 181)))
  }

  @Test func `an outage counts as a pause of a day, and contacts all day long as short pauses`() {
    var intervals = ContactIntervals()
    for (seen, hour) in [0.0, 1, 73].enumerated() { look(&intervals, seen: Int64(seen), at: hour * 3600) }
    let (now, day) = (73 * 3600.0, 86_400.0)
    #expect(
      !intervals.isLate("hill", now: time(now + 4 * day - 1)) && intervals.isLate("hill", now: time(now + 4 * day + 1)))
    var lively = ContactIntervals()
    for step in 0...2881 { look(&lively, seen: Int64(step), at: Double(step) * 30) }
    let last = 2881 * 30.0
    #expect(!lively.isLate("hill", now: time(last + 899)) && lively.isLate("hill", now: time(last + 901)))
  }

  /// The database's times come from clocks that are set forwards and back.
  @Test(arguments: 0..<10 as Range<UInt64>)
  func `setting clocks makes no gateway late or well`(_ seed: UInt64) {
    var random = SeededRandom(seed: seed)
    var (intervals, seen, silentSince) = (ContactIntervals(), Int64(1), 0.0)
    look(&intervals, seen: seen, at: 0, hasLink: true)
    for second in stride(from: 15.0, through: 40_000, by: 15) {
      if second < 20_000, Int.random(in: 0..<20, using: &random) == 0 {
        // Any other time means that the gateway was heard.
        seen = Int64.random(in: -1 << 50...1 << 50, using: &random)
        silentSince = second
      }
      look(&intervals, seen: seen, at: second, hasLink: true)
      #expect(intervals.isLate("hill", now: time(second)) == (second - silentSince >= 900))
    }
  }

  @Test func `a gateway that was silent before the hub started counts as heard when it contacts the hub`() {
    var intervals = ContactIntervals()
    look(&intervals, seen: 5, at: 0, hasLink: true)
    look(&intervals, seen: 5, at: 15, hasLink: true)
    #expect(!intervals.wasHeard("hill"))
    look(&intervals, seen: 6, at: 30, hasLink: true)
    #expect(intervals.wasHeard("hill"))
    intervals.keep(only: [])
    #expect(intervals.gateways.isEmpty && !intervals.isLate("hill", now: time(1e9)))
  }

  /// The database was unreachable for hours, and the contacts of that time are unknown.
  @Test func `an outage of the hub makes no gateway late, and gateways that were late stay late`() {
    var intervals = ContactIntervals()
    func look(_ gateway: String, seen: Int64, at seconds: Double, hasLink: Bool) {
      intervals.update(
        gateway, seen: seen, hasLink: hasLink, isLinked: false, least: Self.least, now: time(seconds))
    }
    for gateway in ["lost", "linked"] { look(gateway, seen: 1, at: 0, hasLink: true) }
    for number in 0..<10 { look("hourly", seen: Int64(number), at: Double(number) * 100, hasLink: false) }
    look("linked", seen: 2, at: 1000, hasLink: true)
    #expect(intervals.isLate("lost", now: time(1000)) && !intervals.isLate("linked", now: time(1000)))
    intervals.skip(from: time(1000), to: time(21_000), least: Self.least)
    for (gateway, seen, hasLink) in [("lost", 1, true), ("linked", 2, true), ("hourly", 9, false)] {
      look(gateway, seen: Int64(seen), at: 21_000, hasLink: hasLink)
      #expect(intervals.isLate(gateway, now: time(21_000)) == (gateway == "lost"))
    }
    #expect(!intervals.isLate("linked", now: time(21_899)) && intervals.isLate("linked", now: time(21_900)))
    // The hub's own absence does not count as a pause of a gateway.
    look("hourly", seen: 10, at: 21_015, hasLink: false)
    #expect(intervals.isLate("hourly", now: time(21_015 + 901)))
  }
}
