// SPDX-License-Identifier: MIT

import Timing

/// The number of events that wait for the slowest upstream, in the gateway's state: rounded down to a power of ten from
/// 10 on, otherwise 0. A number is shown when it has lasted for `lasting`, and changes at most once in five minutes; 0
/// is shown at once. Pure.
struct ShownBacklog: Equatable {
  private static let between: Duration = .seconds(300)
  private static let lasting: Duration = .seconds(10)

  private(set) var events: Int64 = 0
  /// When ten or more began to wait.
  private var waits: MonotonicTime?
  /// When a number over 0 was last shown.
  private var shown: MonotonicTime?

  /// Takes the current number. Returns true if the shown number has changed.
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
