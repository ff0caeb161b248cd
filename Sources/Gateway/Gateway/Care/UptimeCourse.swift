// SPDX-License-Identifier: MIT

import Alerts

/// Finds a node's restarts in the uptimes that it reports. Pure.
struct UptimeCourse: Equatable {
  struct Report: Equatable {
    var seconds: UInt32
    /// Steady time, milliseconds.
    var at: Int64
  }

  /// Firmware 1.9 counts milliseconds in 32 bits (`simple_repeater`, `getMillis() / 1000`): its uptime begins again after 49.7 days without a restart.
  private static let wrap: Int64 = 4_294_967
  /// An uptime may lack so many seconds, or this part of the time between two reports: clocks without a crystal differ by percents.
  private static let tolerance: Int64 = 600
  private static let part: Int64 = 20

  var last: Report?

  /// The uptime before the restart that this report shows; `nil`: it shows none.
  mutating func took(_ seconds: UInt32, at elapsed: Int64) -> UInt32? {
    defer { last = Report(seconds: seconds, at: elapsed) }
    guard let last else { return nil }
    let passed = max(0, elapsed - last.at) / 1000
    let expected = Int64(last.seconds) + passed
    let tolerance = max(Self.tolerance, passed / Self.part)
    if expected >= Self.wrap - tolerance, abs(expected % Self.wrap - Int64(seconds)) <= tolerance { return nil }
    // It fell; or the node has run again for longer than before.
    guard seconds < last.seconds || expected - Int64(seconds) > tolerance else { return nil }
    return last.seconds
  }

  /// This machine was started anew: how much time has passed since the last report is only what its clock says. Then an uptime that fell shows a restart,
  /// and nothing else does.
  mutating func forgetTime() { last?.at = Self.later }

  /// After every report, and small enough for sums.
  private static let later: Int64 = 1 << 52

  static func words(before: UInt32, now: UInt32) -> String {
    "it was started anew: it had run for \(span(before)), and has now for \(span(now))"
  }

  /// A time for people, in its two greatest units.
  static func span(_ seconds: some BinaryInteger) -> String {
    let seconds = Int64(clamping: seconds)
    return switch seconds {
    case 172_800...: "\(seconds / 86_400) days"
    case 3600...: "\(seconds / 3600) h \(seconds / 60 % 60) min"
    case 120...: "\(seconds / 60) min"
    default: "\(seconds) s"
    }
  }
}
