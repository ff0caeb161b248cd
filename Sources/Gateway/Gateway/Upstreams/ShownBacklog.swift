// SPDX-License-Identifier: MIT

import Timing

/// How many events wait for the slowest upstream, as servers see it in the gateway's state: the power of ten that is reached, from 10 on,
/// else 0. What has just come and goes at once is not shown; that nothing waits any more is, at once; another number at most each five minutes.
/// Pure.
struct ShownBacklog: Equatable {
  private static let between: Duration = .seconds(300)
  private static let lasting: Duration = .seconds(10)

  private(set) var events: Int64 = 0
  /// Since when more than a few wait.
  private var waits: MonotonicTime?
  /// When a number over 0 was shown last.
  private var shown: MonotonicTime?

  /// How many wait now. True: another number is shown.
  mutating func read(_ count: Int64, now: MonotonicTime) -> Bool {
    let coarse = Self.coarse(count)
    guard coarse > 0 else {
      waits = nil
      defer { events = 0 }
      return events > 0
    }
    let since = waits ?? now
    waits = since
    guard coarse != events, now - since >= Self.lasting, shown.map({ now - $0 >= Self.between }) ?? true else {
      return false
    }
    (events, shown) = (coarse, now)
    return true
  }

  private static func coarse(_ count: Int64) -> Int64 {
    guard count >= 10 else { return 0 }
    var power: Int64 = 1
    while power <= count / 10 { power *= 10 }
    return power
  }
}
