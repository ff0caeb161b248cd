// SPDX-License-Identifier: MIT

import Timing

/// The time in which the gateway heard the air, in milliseconds: its radio was there and was read. Pure.
struct ListeningTime {
  /// A radio is read at least each minute. A longer gap was none of listening: the machine was suspended, or the radio did not answer.
  private static let longestGap: Duration = .seconds(300)
  /// After this long without listening, signs may have been missed. Milliseconds.
  private static let missed: Int64 = 600_000

  /// All of it, since the database is new.
  private(set) var total: Int64
  private var looked: MonotonicTime?
  /// When it listened last; `nil`: not since the start.
  private var listened: MonotonicTime?

  /// More than a hundred thousand years, and small enough for sums.
  private static let most: Int64 = 1 << 52

  init(total: Int64) { self.total = min(max(total, 0), Self.most) }

  /// Returns true if it listens again after a time in which it may have missed something.
  mutating func look(isListening: Bool, now: MonotonicTime) -> Bool {
    defer { looked = isListening ? now : nil }
    guard isListening else { return false }
    if let looked, now - looked <= Self.longestGap {
      total = min(total + Int64((now - looked).inSeconds * 1000), Self.most)
      listened = now
      return false
    }
    defer { listened = now }
    guard let listened else { return true }
    return Int64((now - listened).inSeconds * 1000) >= Self.missed
  }
}
