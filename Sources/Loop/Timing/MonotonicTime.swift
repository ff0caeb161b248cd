// SPDX-License-Identifier: MIT

/// A point on a clock that only moves forwards, independent of the time of day.
///
/// Pure code takes it as an argument; only `EventLoop` reads the machine's clock. It counts nanoseconds since an
/// arbitrary start (the machine's boot, or zero in tests). Arithmetic saturates: it never traps.
public struct MonotonicTime: Comparable, Hashable, Sendable {
  /// Nanoseconds since the clock's start.
  public var nanoseconds: Int64

  public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
  public init(seconds: Double) { nanoseconds = MonotonicTime.clamp(seconds * 1e9) }

  /// A point that is never reached.
  public static let never = MonotonicTime(nanoseconds: .max)

  public static func < (left: Self, right: Self) -> Bool { left.nanoseconds < right.nanoseconds }

  public static func + (time: Self, duration: Duration) -> Self {
    Self(nanoseconds: time.nanoseconds.adding(saturating: duration.wholeNanoseconds))
  }

  public static func - (later: Self, earlier: Self) -> Duration {
    let (difference, overflow) = later.nanoseconds.subtractingReportingOverflow(earlier.nanoseconds)
    return .nanoseconds(overflow ? Int64.max : difference)
  }

  private static func clamp(_ value: Double) -> Int64 {
    guard value.isFinite else { return value > 0 ? .max : 0 }
    return value >= 9.2e18 ? .max : value <= -9.2e18 ? .min : Int64(value)
  }
}

extension Duration {
  /// The duration in nanoseconds, saturated to 64 bits (292 years).
  public var wholeNanoseconds: Int64 {
    let (seconds, attoseconds) = components
    let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    if overflow { return seconds > 0 ? .max : .min }
    let (sum, carried) = scaled.addingReportingOverflow(attoseconds / 1_000_000_000)
    return carried ? (seconds > 0 ? .max : .min) : sum
  }

  /// The duration in seconds.
  public var inSeconds: Double { Double(wholeNanoseconds) / 1e9 }
}
