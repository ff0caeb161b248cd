// SPDX-License-Identifier: MIT

import Store
import Sync

/// The times that messages carry. Each gets another one: with equal times two equal texts would share their
/// acknowledgement, and a room would take the second for a repetition of the first.
struct SenderClock {
  private var last: UInt32

  init(_ store: Store) throws(StoreError) { last = try store.lastSenderTime() }

  /// So far ahead of a trusted clock the last time was wrong, and is not gone on from.
  private static let tolerance: Int64 = 86_400

  /// `radio`: the radio's clock. Without a synchronised clock of ours the later one is likelier right; a room refuses
  /// what is older than the radio's own login (companion.md § 9.8).
  mutating func next(_ now: Moment, radio: UInt32?, forRoom: Bool) -> UInt32 {
    let ours = now.milliseconds / 1000
    var time = ours
    if !now.trusted || forRoom { time = max(time, Int64(radio ?? 0) + (forRoom ? 1 : 0)) }
    if Int64(last) < ours + Self.tolerance || !now.trusted { time = max(time, Int64(last) + 1) }
    last = UInt32(clamping: time)
    return last
  }
}
