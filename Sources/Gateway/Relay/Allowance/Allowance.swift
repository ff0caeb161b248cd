// SPDX-License-Identifier: MIT

import Store
import Timing

/// Decides which lanes an upstream may send within its bytes a day and a month. Pure.
///
/// As a period's bytes run out, `packets` stop first, then `nodes`, `messages` last. For the lower lanes, the rest of a month is spread over its
/// remaining days.
///
/// A day and a month are those of the local calendar while the clock is right. A period begins when a right clock reaches a later one than ever
/// before, or when the last one has lasted its full length by a clock that nobody sets. So no bytes are given twice, wherever the clock steps, and no
/// wrong clock stops anything for longer than a period. A period that began out of step with the calendar lasts an hour longer, until it is in step
/// again.
struct Allowance: Equatable {
  struct Limits: Equatable, Sendable {
    /// Bytes; `nil`: any number.
    var daily: Int64?
    var monthly: Int64?
    var bulkHours: BulkHours?

    var countsBytes: Bool { daily != nil || monthly != nil }
    var isSome: Bool { countsBytes || bulkHours != nil }
  }

  /// The use of a day or of a month.
  struct Period: Equatable {
    /// The day or month in the calendar, or the following one if the period began in the middle of one. `nil`: the first period, before the clock was
    /// right.
    var number: Int64?
    /// The number of a period that began while the clock was wrong.
    static let unknown: Int64 = -1
    /// Seconds that the program has run in it.
    var elapsed: Int64 = 0
    var bytes: Int64 = 0
  }

  /// A reading of the clocks.
  struct Look: Equatable {
    /// Seconds since 1970 by the local clock.
    var local: Int64
    var isTrusted: Bool
    /// Time of the monotonic clock.
    var now: MonotonicTime
  }

  /// The part of a period that a lane may use, in hundredths.
  static let parts = ByLane<Int64>(messages: 100, nodes: 80, packets: 60)
  /// The approximate bytes that a connection costs, with certificates.
  static let opening: Int64 = 8000
  /// A lane with less room than this stops: about one event with all headers. Messages stop last, and must have room for a new connection.
  static let least = ByLane<Int64>(messages: opening, nodes: 1500, packets: 1500)
  /// The longest day and month, and the hour of summer time.
  private static let (dayLength, monthLength, summer): (Int64, Int64, Int64) = (86_400, 31 * 86_400, 3600)

  let limits: Limits
  private(set) var day = Period()
  private(set) var month = Period()
  private var calendar = AllowanceCalendar(local: 0)
  private var isTrusted = false
  private var lookedAt: MonotonicTime?
  /// The last reading of a clock that was right.
  private var lastRight: Look?

  init(_ limits: Limits, day: Period = Period(), month: Period = Period()) {
    (self.limits, self.day, self.month) = (limits, day, month)
  }

  // MARK: Time and bytes

  /// True: a period has begun.
  mutating func pass(_ look: Look) -> Bool {
    let since = max(0, (look.now - (lookedAt ?? look.now)).wholeNanoseconds / 1_000_000_000)
    lookedAt = (lookedAt ?? look.now) + .seconds(since)
    (calendar, isTrusted) = (AllowanceCalendar(local: look.local), look.isTrusted)
    let wasSet = isTrusted && lastRight.map { Self.isSet(from: $0, to: look) } ?? false
    if isTrusted { lastRight = look }
    let newDay = Self.pass(&day, since, isTrusted ? calendar.day : nil, wasSet, Self.dayLength)
    let newMonth = Self.pass(&month, since, isTrusted ? calendar.month : nil, wasSet, Self.monthLength)
    return newDay || newMonth
  }

  /// The clock, right then and now, was set in between by more than summer time.
  private static func isSet(from last: Look, to look: Look) -> Bool {
    let shown = look.local.subtractingReportingOverflow(last.local).partialValue
    let passed = (look.now - last.now).wholeNanoseconds / 1_000_000_000
    return shown.subtractingReportingOverflow(passed).partialValue.magnitude > UInt64(summer) * 2
  }

  private static func pass(
    _ period: inout Period, _ seconds: Int64, _ number: Int64?, _ wasSet: Bool, _ length: Int64
  ) -> Bool {
    period.elapsed = min(period.elapsed + seconds, length * 2)
    guard let number else {
      guard period.elapsed >= length else { return false }
      period = Period(number: Period.unknown)
      return true
    }
    switch period.number {
    case nil: period.number = number
    case Period.unknown?: period.number = number + 1
    case let begun? where number > begun:
      if !wasSet {
        period = Period(number: number)
        return true
      }
      // Setting the clock forwards gives no new bytes: the present period goes on.
      period.number = number + 1
    default: break
    }
    guard period.elapsed >= length + summer else { return false }
    period = Period(number: number + 1)
    return true
  }

  mutating func count(_ bytes: Int64) {
    day.bytes = Self.sum(day.bytes, bytes)
    month.bytes = Self.sum(month.bytes, bytes)
  }

  private static func sum(_ first: Int64, _ second: Int64) -> Int64 {
    let (sum, overflow) = first.addingReportingOverflow(max(0, second))
    return overflow ? .max : sum
  }

  // MARK: What may be sent

  /// Bytes that the lane may use now, whatever the hour.
  func room(_ lane: Lane) -> Int64 {
    var room = Int64.max
    if let daily = limits.daily { room = min(room, Self.part(daily, lane) - day.bytes) }
    if let monthly = limits.monthly {
      room = min(room, Self.part(monthly, lane) - month.bytes)
      if lane != .messages { room = min(room, Self.part(share(of: monthly), lane) - day.bytes) }
    }
    return max(0, room)
  }

  private static func part(_ bytes: Int64, _ lane: Lane) -> Int64 {
    bytes / 100 * parts[lane] + bytes % 100 * parts[lane] / 100
  }

  /// Today's share of the month's bytes that were left when the day began.
  private func share(of monthly: Int64) -> Int64 {
    let isOfCalendar = month.number == calendar.month
    let days = isOfCalendar ? calendar.daysLeft : (Self.monthLength - month.elapsed) / Self.dayLength + 1
    return max(0, monthly - max(0, month.bytes - day.bytes)) / max(1, days)
  }

  /// Whether the lane waits for bytes.
  func isSpent(_ lane: Lane) -> Bool { room(lane) < Self.least[lane] }

  /// Bytes that the lane's next batch may cost.
  func forBatch(_ lane: Lane) -> Int64 {
    lane == .messages ? room(lane) - Self.opening + Self.least.packets : room(lane)
  }

  /// At most a twentieth is left: messages stop next.
  var isLow: Bool {
    [(limits.daily, day.bytes), (limits.monthly, month.bytes)].contains { limit, used in
      limit.map { used >= $0 - $0 / 20 } ?? false
    }
  }

  /// No byte is left.
  var isUsedUp: Bool {
    day.bytes >= limits.daily ?? .max || month.bytes >= limits.monthly ?? .max
  }

  /// Whether the lane waits for the hours in which everything is sent.
  func waitsForHours(_ lane: Lane) -> Bool {
    guard lane != .messages, let hours = limits.bulkHours else { return false }
    return !hours.contains(calendar.secondOfDay)
  }

  func allows(_ lane: Lane) -> Bool { !isSpent(lane) && !waitsForHours(lane) }

  /// Seconds until a lane that waits may be sent; `nil`: none waits.
  var changesIn: Int64? {
    var seconds: Int64?
    let spent = Lane.allCases.filter(isSpent)
    if !spent.isEmpty { seconds = dayEndsIn }
    // A new day does not help while the month is used up.
    if let monthly = limits.monthly, spent.contains(.messages),
      Self.part(monthly, .messages) - month.bytes < Self.least.messages
    {
      seconds = monthEndsIn
    }
    if let hours = limits.bulkHours, waitsForHours(.nodes) {
      seconds = min(seconds ?? .max, hours.secondsUntilBeginning(calendar.secondOfDay))
    }
    return seconds.map { max(1, $0) }
  }

  /// Seconds until the next day begins.
  var dayEndsIn: Int64 {
    let next = calendar.secondsUntilMidnight + (day.number == calendar.day + 1 ? Self.dayLength : 0)
    return ends(day, calendar.day, Self.dayLength, next: next)
  }

  private var monthEndsIn: Int64 {
    ends(
      month, calendar.month, Self.monthLength,
      next: (calendar.daysLeft - 1) * Self.dayLength + calendar.secondsUntilMidnight)
  }

  private func ends(_ period: Period, _ number: Int64, _ length: Int64, next: Int64) -> Int64 {
    guard isTrusted, let begun = period.number else { return max(0, length - period.elapsed) }
    let last = max(0, length + Self.summer - period.elapsed)
    return number >= begun || next > Self.dayLength && length == Self.dayLength ? min(next, last) : last
  }
}

// MARK: On disk

extension Allowance {
  /// The text that is kept over restarts, with `bytes` more than were used.
  func kept(ahead bytes: Int64) -> String {
    let words = [day, month].flatMap { period in
      [period.number.map { "\($0)" } ?? "-", "\(period.elapsed)", "\(Self.sum(period.bytes, bytes))"]
    }
    return words.joined(separator: " ")
  }

  /// Reads the kept text; an invalid one counts as empty.
  init(_ limits: Limits, kept: String) {
    self.init(limits)
    let words = kept.utf8.split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
    guard words.count == 6 else { return }
    func period(_ first: Int, _ length: Int64) -> Period? {
      guard let elapsed = Int64(words[first + 1]), let bytes = Int64(words[first + 2]) else { return nil }
      let number = Int64(words[first]).flatMap { (Period.unknown...10_000_000).contains($0) ? $0 : nil }
      return Period(number: number, elapsed: min(max(0, elapsed), length * 2), bytes: max(0, bytes))
    }
    guard let day = period(0, Self.dayLength), let month = period(3, Self.monthLength) else { return }
    (self.day, self.month) = (day, month)
  }
}
