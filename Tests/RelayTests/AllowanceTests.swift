// SPDX-License-Identifier: MIT

import Store
import Testing
import Timing

@testable import Relay

/// A gateway whose upstream sends as much as the allowance permits, with a clock that may be wrong.
private struct Month {
  static let start: Int64 = 1_796_083_200  // 1 December 2026
  var allowance: Allowance
  var random: SeededRandom
  /// The true number of seconds since the start.
  var passed: Int64 = 0
  var clockError: Int64 = 0
  var isTrusted = true
  /// The stored account before the gateway was killed.
  var kept = ""
  var usedByDay: [Int64: Int64] = [:]
  var used: Int64 = 0
  var usedByLane = ByLane<Int64>(all: 0)
  var complaints: [String] = []
  private var booted: Int64 = 0

  init(_ limits: Allowance.Limits, seed: UInt64) {
    (allowance, random) = (Allowance(limits), SeededRandom(seed: seed))
  }

  private var look: Allowance.Look {
    Allowance.Look(
      local: Self.start + passed + clockError, isTrusted: isTrusted,
      now: MonotonicTime(seconds: Double(passed - booted)))
  }

  mutating func sleep(_ seconds: Int64) {
    passed += seconds
    _ = allowance.pass(look)
  }

  /// Sends waiting bytes as far as the allowance permits; the stored account is ahead of them.
  mutating func send(_ lane: Lane, _ bytes: Int64) {
    guard allowance.allows(lane), bytes <= allowance.forBatch(lane) else { return }
    kept = allowance.kept(ahead: bytes + 2000)
    allowance.count(bytes)
    used += bytes
    usedByLane[lane] += bytes
    usedByDay[passed / 86_400, default: 0] += bytes
    for higher in Lane.allCases where lane.isBelow(higher) && allowance.isSpent(higher) && !allowance.isSpent(lane) {
      complaints.append("\(higher) stops before \(lane)")
    }
  }

  mutating func restart(isClean: Bool) {
    allowance = Allowance(allowance.limits, kept: isClean ? allowance.kept(ahead: 0) : kept)
    booted = passed
    _ = allowance.pass(look)
  }
}

@Suite struct AllowanceTests {
  private static func limits(_ daily: Int64?, _ monthly: Int64?, _ hours: String? = nil) throws -> Allowance.Limits {
    Allowance.Limits(
      daily: daily, monthly: monthly,
      bulkHours: try hours.map { text throws(BulkHours.Failure) in try BulkHours(parsing: text) })
  }

  @Test(arguments: 0..<100) func `a monthly allowance is kept with random traffic and restarts`(
    _ seed: UInt64
  ) throws {
    let (daily, monthly): (Int64, Int64) = (3_000_000, 50_000_000)
    var month = Month(try Self.limits(seed % 3 == 0 ? nil : daily, monthly), seed: seed)
    month.sleep(0)
    var kills = 0
    while month.passed < 31 * 86_400 - 2000 {
      month.sleep(Int64.random(in: 1...1500, using: &month.random))
      for lane in Lane.allCases {
        for _ in 0..<Int.random(in: 0...20, using: &month.random) {
          month.send(lane, Int64.random(in: 200...5000, using: &month.random))
        }
      }
      switch Int.random(in: 0..<60, using: &month.random) {
      case 0: month.restart(isClean: true)
      case 1 where seed % 2 == 0:
        month.restart(isClean: false)
        kills += 1
      default: break
      }
    }
    #expect(month.complaints.isEmpty, "\(month.complaints.prefix(3))")
    #expect(month.used <= monthly)
    // All bytes except those that killed programs had stored in advance.
    #expect(month.used > monthly * (kills == 0 ? 99 : 95) / 100, "\(month.used)")
    if seed % 3 != 0 { for (day, used) in month.usedByDay { #expect(used <= daily, "day \(day)") } }
    #expect(month.usedByDay.count >= 12)
  }

  @Test(arguments: 0..<100)
  func `no change of the clock grants bytes twice, or stops an upstream for longer than a period`(
    _ seed: UInt64
  ) throws {
    let daily: Int64 = 1_000_000
    var month = Month(try Self.limits(daily, nil), seed: seed)
    month.sleep(0)
    var lastSent: Int64 = 0
    var longest: Int64 = 0
    while month.passed < 30 * 86_400 {
      month.sleep(600)
      let before = month.used
      for _ in 0..<10 { month.send(.messages, 5000) }
      if month.used > before {
        longest = max(longest, month.passed - lastSent)
        lastSent = month.passed
      }
      switch Int.random(in: 0..<100, using: &month.random) {
      case 0: month.clockError = Int64.random(in: -5_000_000...0, using: &month.random)
      case 1: month.clockError = 0
      case 2: month.isTrusted.toggle()
      case 3 where month.clockError == 0: month.restart(isClean: true)
      default: break
      }
    }
    // A clock that steps to and fro gives no more than a day's bytes.
    #expect(month.used <= daily * 31, "\(month.used)")
    #expect(longest <= 86_400 + 3600 + 1200, "\(longest)")
  }

  @Test func `a clock that was years ahead stops an upstream for a day at most`() throws {
    var month = Month(try Self.limits(1_000_000, nil), seed: 1)
    month.clockError = 400_000_000
    month.sleep(0)
    while month.allowance.allows(.messages) { month.send(.messages, 1500) }
    month.clockError = 0
    month.sleep(3600)
    #expect(!month.allowance.allows(.messages), "no bytes are given for stepping back")
    #expect(try #require(month.allowance.changesIn) <= 25 * 3600)
    month.sleep(try #require(month.allowance.changesIn))
    #expect(month.allowance.allows(.messages))
    // Gradually the days agree with the calendar again.
    for _ in 0..<40 {
      while month.allowance.allows(.messages) { month.send(.messages, 1500) }
      let next = try #require(month.allowance.changesIn)
      #expect(next <= 25 * 3600)
      month.sleep(next)
    }
    #expect(month.passed % 86_400 == 0 && month.allowance.allows(.messages))
  }

  @Test func `lower lanes stop first, and a month's bytes are not used up on its first day`() throws {
    var month = Month(try Self.limits(nil, 31_000_000), seed: 1)
    month.sleep(0)
    for _ in 0..<10_000 { month.send(.packets, 1000) }
    #expect((598_000...600_000).contains(month.used))
    for _ in 0..<10_000 { month.send(.nodes, 1000) }
    #expect((798_000...800_000).contains(month.used))
    #expect(month.allowance.changesIn == 86_400)
    #expect(Lane.allCases.filter(month.allowance.isSpent) == [.nodes, .packets])
    for _ in 0..<40_000 { month.send(.messages, 1000) }
    #expect((30_980_000...31_000_000).contains(month.used))
    #expect(month.allowance.changesIn == 2_678_400)
    month.sleep(31 * 86_400)
    #expect(Lane.allCases.allSatisfy(month.allowance.allows))
  }

  @Test func `outside the bulk hours only messages are sent`() throws {
    var month = Month(try Self.limits(nil, nil, "22:00-06:00"), seed: 1)
    month.sleep(0)
    #expect(Lane.allCases.allSatisfy(month.allowance.allows))
    month.sleep(6 * 3600)
    #expect(Lane.allCases.filter(month.allowance.allows) == [.messages])
    #expect(month.allowance.changesIn == 57_600)
    month.sleep(16 * 3600)
    #expect(Lane.allCases.allSatisfy(month.allowance.allows) && month.allowance.changesIn == nil)
  }

  @Test(arguments: ["", "22:00", "22-6", "22:00-06:60", "24:00-06:00", "06:00-06:00", "00:00-24:00", "22:00 - 06:00"])
  func `invalid bulk hours are refused`(_ text: String) {
    #expect(throws: BulkHours.Failure.self) { try BulkHours(parsing: text) }
  }

  @Test(arguments: ["", "x", "1 2 3", "1 2 3 4 5 6 7", "- - - - - -", "-1 -5 -9 99999999999 99999999999999999999 1"])
  func `a damaged account on disk counts as nothing used`(_ text: String) throws {
    let allowance = Allowance(try Self.limits(1_000_000, nil), kept: text)
    #expect(allowance.room(.messages) == 1_000_000)
  }

  @Test func `days and months follow the calendar`() {
    for (local, month, left) in [
      (0, 1970 * 12, 31), (1_709_164_800, 2024 * 12 + 1, 1), (1_709_251_200, 2024 * 12 + 2, 31),
      (1_796_083_199, 2026 * 12 + 10, 1), (1_796_083_200, 2026 * 12 + 11, 31), (4_107_456_000, 2100 * 12 + 1, 1),
    ] as [(Int64, Int64, Int64)] {
      let calendar = AllowanceCalendar(local: local)
      #expect(calendar.month == month && calendar.daysLeft == left, "\(local)")
    }
  }
}
