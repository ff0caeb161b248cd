// SPDX-License-Identifier: MIT

import Timing

/// The rate at which a server acknowledges bytes, for people. Pure.
///
/// Only batches that filled the line count: a single event is answered after a round trip, whatever the line could carry. Batches that waited while
/// the line was down do not count either.
struct AcknowledgedRate: Equatable {
  /// After so long without an acknowledgement, the rate is unknown.
  static let lasting: Duration = .seconds(600)
  /// The weight of earlier measurements against the newest one.
  private static let memory = 0.8

  private var bytes = 0.0
  private var seconds = 0.0
  private var answeredAt: MonotonicTime?

  /// `filledLine`: enough was under way to fill the line, and the line was up.
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
