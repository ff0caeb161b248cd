// SPDX-License-Identifier: MIT

import Companion
import Store
import Timing

/// What is known of the time that messages spent in the radio's queue. Pure.
///
/// The queue has no times in it. But what it hands over came after it was last said to be empty: by this radio, in the life of
/// this program.
struct RadioQueue {
  /// A message that came at most so long ago came just now: two questions into an idle radio (`Synchronizer.pollInterval`).
  static let justNow: Duration = .seconds(120)

  private var radio: PublicKey?
  /// When the radio was asked, and then said that it had none.
  private var emptyAt: MonotonicTime?
  /// It has not been empty since the link came up: what it hands over may be from before.
  private var isBacklog = true

  /// Another radio's queue is another queue.
  mutating func connected(to radio: PublicKey) {
    if radio != self.radio { emptyAt = nil }
    self.radio = radio
    isBacklog = true
  }

  mutating func wasEmpty(askedAt: MonotonicTime) {
    emptyAt = askedAt
    isBacklog = false
  }

  /// How long the message that is taken now waited in the radio.
  func wait(now: MonotonicTime) -> RadioWait {
    guard let emptyAt else { return .unknown }
    let longest = now - emptyAt
    if !isBacklog, longest <= Self.justNow { return .none }
    return .atMost(seconds: Int64(max(0, longest.inSeconds).rounded(.up)))
  }
}
