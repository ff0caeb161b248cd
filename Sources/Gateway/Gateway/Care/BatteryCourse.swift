// SPDX-License-Identifier: MIT

import Alerts

/// A node's battery over days. Pure.
///
/// A solar node's voltage falls every night, so only the highest of each day counts.
struct BatteryCourse: Equatable {
  struct Day: Equatable {
    /// Whole days of steady time.
    var number: Int64
    var highest: UInt16
  }

  static let day: Int64 = 86_400_000
  /// Above the limit by so much, the battery is well again; millivolts.
  static let recovery: UInt16 = 100
  /// Converters differ from reading to reading by so many millivolts.
  private static let jitter = 10
  static let mostDays = 16

  var lowReadings = 0
  /// Days with readings, oldest first; the last one is not over.
  var days: [Day] = []

  /// `millivolts` 0: the board has no measurement. `elapsed`: steady time in milliseconds.
  mutating func took(
    _ millivolts: UInt16, at elapsed: Int64, _ settings: CareSettings
  ) -> (low: AlertReading, falling: AlertReading) {
    guard millivolts > 0 else { return (.between, .between) }
    note(millivolts, elapsed)
    return (low(millivolts, settings), falling(settings))
  }

  /// Two readings in a row: a transmission pulls the voltage down for a moment.
  private mutating func low(_ millivolts: UInt16, _ settings: CareSettings) -> AlertReading {
    guard millivolts < settings.batteryLow else {
      lowReadings = 0
      return Int(millivolts) >= Int(settings.batteryLow) + Int(Self.recovery) ? .well : .between
    }
    lowReadings = min(lowReadings + 1, 2)
    guard lowReadings == 2 else { return .between }
    return .bad(text: "the battery is low: \(Self.volts(millivolts))", value: Double(millivolts) / 1000)
  }

  private mutating func note(_ millivolts: UInt16, _ elapsed: Int64) {
    let number = elapsed / Self.day
    if let last = days.last, last.number >= number {
      days[days.count - 1].highest = max(last.highest, millivolts)
    } else {
      days.append(Day(number: number, highest: millivolts))
      if days.count > Self.mostDays { days.removeFirst() }
    }
  }

  private func falling(_ settings: CareSettings) -> AlertReading {
    guard let today = days.last else { return .between }
    let whole = days.dropLast()
    guard let last = whole.last else { return .well }
    // Charged again, or steady for as long as it would have to fall.
    if Int(today.highest) >= Int(last.highest) + Int(settings.fall) / 2 { return .well }
    let recent = whole.suffix(settings.fallDays + 1)
    guard recent.count > settings.fallDays, let first = recent.first else { return .between }
    // Days without readings say nothing, and many of them end the course.
    guard last.number - first.number <= Int64(2 * settings.fallDays) else { return .between }
    if Int(first.highest) - Int(last.highest) <= Int(settings.fall) / 4 { return .well }
    let drops = zip(recent, recent.dropFirst()).map { Int($0.highest) - Int($1.highest) }.sorted()
    // On each day a little: a single great fall is no course, and nor is a steady voltage.
    let least = max(1, Int(settings.fall) / settings.fallDays / 2)
    guard drops[0] >= -Self.jitter, drops[(drops.count - 1) / 2] >= least,
      Int(first.highest) - Int(last.highest) >= Int(settings.fall)
    else { return .between }
    var start = whole.count - 1 - settings.fallDays
    while start > 0, Int(whole[start - 1].highest) - Int(whole[start].highest) >= least { start -= 1 }
    let words =
      "the battery has been falling for \(whole.count - 1 - start) days, from \(Self.volts(whole[start].highest)) to \(Self.volts(last.highest))"
    return .bad(text: words, value: Double(last.highest) / 1000)
  }

  static func volts(_ millivolts: UInt16) -> String {
    "\(millivolts / 1000).\(String(1000 + Int(millivolts % 1000)).dropFirst()) V"
  }
}
