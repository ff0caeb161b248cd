// SPDX-License-Identifier: MIT

import Timing

/// How fast a server acknowledges what it is sent, for people: pure.
///
/// Only what had to wait for the line tells: a single event is answered after a round trip, however much more there would have been room for.
/// What has waited for a line that was down does not tell.
struct AcknowledgedRate: Equatable {
  /// Without an acknowledgement for so long, the rate of before is not the present one.
  static let lasting: Duration = .seconds(600)
  /// Of what was measured before, this much counts with the next one.
  private static let memory = 0.8

  private var bytes = 0.0
  private var seconds = 0.0
  private var answeredAt: MonotonicTime?

  /// `filledLine`: as much was under way as might be, and the line was up.
  mutating func answered(bytes count: Int, filledLine: Bool, sentAt: MonotonicTime, now: MonotonicTime) {
    let took = now - max(sentAt, answeredAt ?? sentAt)
    answeredAt = now
    guard filledLine, count > 0 else { return }
    bytes = bytes * Self.memory + Double(count)
    seconds = seconds * Self.memory + took.inSeconds
  }

  /// Bytes a second, at least 1; `nil`: not known.
  func bytesPerSecond(now: MonotonicTime) -> Double? {
    guard let answeredAt, now - answeredAt <= Self.lasting, bytes > 0 else { return nil }
    return max(1, bytes / max(seconds, 0.001))
  }
}
