// SPDX-License-Identifier: MIT

import Timing

/// How many events wait for the slowest upstream, as servers see it in the gateway's state: the power of ten that is reached, from 10 on,
/// else 0; and another one at most each five minutes. Pure.
struct ShownBacklog: Equatable {
  private static let between: Duration = .seconds(300)

  private(set) var events: Int64 = 0
  private var since: MonotonicTime?

  /// How many wait now. True: another number is shown.
  mutating func read(_ count: Int64, now: MonotonicTime) -> Bool {
    let coarse = Self.coarse(count)
    guard coarse != events else { return false }
    if let since, now - since < Self.between { return false }
    (events, since) = (coarse, now)
    return true
  }

  private static func coarse(_ count: Int64) -> Int64 {
    guard count >= 10 else { return 0 }
    var power: Int64 = 1
    while power <= count / 10 { power *= 10 }
    return power
  }
}
