// SPDX-License-Identifier: MIT

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
    day = local / Self.day
    secondOfDay = local % Self.day
    // Source: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let shifted = day + 719_468
    let era = shifted / 146_097
    let ofEra = shifted % 146_097
    let yearOfEra = (ofEra - ofEra / 1460 + ofEra / 36_524 - ofEra / 146_096) / 365
    let ofYear = ofEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let part = (5 * ofYear + 2) / 153
    let monthOfYear = part < 10 ? part + 3 : part - 9
    let year = yearOfEra + era * 400 + (monthOfYear <= 2 ? 1 : 0)
    month = year * 12 + monthOfYear - 1
    let dayOfMonth = ofYear - (153 * part + 2) / 5 + 1
    daysLeft = Self.days(of: monthOfYear, year) - dayOfMonth + 1
  }

  private static func days(of month: Int64, _ year: Int64) -> Int64 {
    let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
    switch month {
    case 2: return isLeap ? 29 : 28
    case 4, 6, 9, 11: return 30
    default: return 31
    }
  }

  var secondsUntilMidnight: Int64 { Self.day - secondOfDay }
}
