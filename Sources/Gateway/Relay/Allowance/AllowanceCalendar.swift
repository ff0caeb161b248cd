// SPDX-License-Identifier: MIT

import Glibc

/// Days and months of a local calendar, from seconds since 1970 by a local clock. Pure.
struct AllowanceCalendar: Equatable {
  static let day: Int64 = 86_400
  /// The accepted times: 1970 to 9999.
  private static let range: ClosedRange<Int64> = 0...253_402_300_799

  /// Days since 1970, and months since the year 0.
  let day: Int64
  let month: Int64
  let secondOfDay: Int64
  /// Days left in this month, including today.
  let daysLeft: Int64

  init(local: Int64) {
    let local = min(max(local, Self.range.lowerBound), Self.range.upperBound)
    (day, secondOfDay) = (local / Self.day, local % Self.day)
    var (seconds, parts) = (time_t(local), tm())
    gmtime_r(&seconds, &parts)
    month = Int64(parts.tm_year + 1900) * 12 + Int64(parts.tm_mon)
    // The beginning of the next month; `timegm` carries over into the next year.
    (parts.tm_mon, parts.tm_mday) = (parts.tm_mon + 1, 1)
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (0, 0, 0)
    daysLeft = Int64(timegm(&parts)) / Self.day - day
  }

  var secondsUntilMidnight: Int64 { Self.day - secondOfDay }
}
