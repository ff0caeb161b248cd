// SPDX-License-Identifier: MIT

import ArgumentParser
import Glibc

/// A time in the form that people type.
struct TimeArgument: ExpressibleByArgument {
  static let forms =
    "2026-11-21, \"2026-11-21 14:30\" (local, or UTC with a Z at the end), today, yesterday, 90m, 2h, 3d, 1w ago"

  /// Since 1970.
  let milliseconds: Int64

  init?(argument: String) {
    let now = time(nil)
    guard let seconds = Self.relative(argument, now: now) ?? Self.absolute(argument) else { return nil }
    // There are no records before 1970.
    milliseconds = max(0, Int64(seconds)) * 1000
  }

  private static func relative(_ text: String, now: time_t) -> time_t? {
    if text == "now" { return now }
    if text == "today" || text == "yesterday" {
      var (moment, parts) = (now, tm())
      localtime_r(&moment, &parts)
      (parts.tm_hour, parts.tm_min, parts.tm_sec, parts.tm_isdst) = (0, 0, 0, -1)
      if text == "yesterday" { parts.tm_mday -= 1 }
      return mktime(&parts)
    }
    // A number without a unit is no time.
    guard let last = text.utf8.last, last > UInt8(ascii: "9"), let ago = DurationArgument(argument: text) else {
      return nil
    }
    return now - time_t(ago.seconds)
  }

  /// A date, with an optional time of day.
  private static func absolute(_ text: String) -> time_t? {
    let isUTC = text.hasSuffix("Z")
    let halves = text.dropLast(isUTC ? 1 : 0).split { $0 == " " || $0 == "T" }
    guard let date = halves.first.flatMap({ numbers($0, "-") }), date.count == 3, halves.count <= 2 else { return nil }
    let clock = halves.count == 2 ? numbers(halves[1], ":") : [0, 0]
    guard let clock, (2...3).contains(clock.count) else { return nil }
    guard (1970...9999).contains(date[0]), (1...12).contains(date[1]), (1...31).contains(date[2]), clock[0] < 24,
      clock.dropFirst().allSatisfy({ $0 < 60 })
    else { return nil }
    var parts = tm()
    (parts.tm_year, parts.tm_mon, parts.tm_mday) = (date[0] - 1900, date[1] - 1, date[2])
    // The C library takes 31 February for 3 March. In UTC no day lacks its midnight.
    var day = parts
    _ = timegm(&day)
    guard day.tm_mday == date[2] else { return nil }
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (clock[0], clock[1], clock.count > 2 ? clock[2] : 0)
    parts.tm_isdst = -1
    return isUTC ? timegm(&parts) : mktime(&parts)
  }

  private static func numbers(_ text: Substring, _ separator: Character) -> [Int32]? {
    let parts = text.split(separator: separator, omittingEmptySubsequences: false)
    let numbers = parts.compactMap { $0.allSatisfy(\.isNumber) ? Int32($0) : nil }
    return numbers.count == parts.count ? numbers : nil
  }
}
