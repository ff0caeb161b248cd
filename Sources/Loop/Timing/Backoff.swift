// SPDX-License-Identifier: MIT

/// How long to wait before the next attempt: exponential, with full jitter.
///
/// The ceiling doubles with every failure from `first` to `limit`. The wait is random, uniform between 0 and the
/// ceiling, but at least a tenth of `first`, so that a failing peer is not flooded. Randomness is an argument, so that
/// tests can seed it.
public struct Backoff: Sendable, Equatable {
  /// The ceiling of the first wait.
  public let first: Duration
  /// The highest ceiling.
  public let limit: Duration
  /// Failures in a row so far.
  public private(set) var failures = 0

  public init(first: Duration, limit: Duration) {
    self.first = first
    self.limit = limit
  }

  /// An attempt has failed; returns the wait before the next one.
  public mutating func next(using random: inout some RandomNumberGenerator) -> Duration {
    var ceiling = max(first.wholeNanoseconds, 1)
    for _ in 0..<min(failures, 40) where ceiling < limit.wholeNanoseconds {
      let (doubled, overflow) = ceiling.multipliedReportingOverflow(by: 2)
      ceiling = overflow ? limit.wholeNanoseconds : doubled
    }
    ceiling = max(1, min(ceiling, limit.wholeNanoseconds))
    failures = min(failures + 1, 1_000_000)
    let floor = min(ceiling, first.wholeNanoseconds / 10)
    return .nanoseconds(Int64.random(in: floor...ceiling, using: &random))
  }

  /// An attempt has succeeded: the next failure starts from `first` again.
  public mutating func reset() { failures = 0 }
}

/// A small seeded generator (SplitMix64) for tests and simulations.
public struct SeededRandom: RandomNumberGenerator, Sendable {
  private var state: UInt64

  public init(seed: UInt64) { state = seed }

  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
