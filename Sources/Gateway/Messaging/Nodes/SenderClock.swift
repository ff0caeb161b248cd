// SPDX-License-Identifier: MIT

import Store

/// Gives each message a time of its own: two equal texts with equal times would share their acknowledgement, and a room would take the second for a
/// repetition.
struct SenderClock {
  private var last: UInt32
  private var lastInRooms: UInt32

  init(last: UInt32, lastInRooms: UInt32) {
    self.last = last
    self.lastInRooms = lastInRooms
  }

  init(_ store: Store) throws(StoreError) {
    self.init(last: try store.lastSenderTime(), lastInRooms: try store.lastSenderTime(of: .room))
  }

  /// A last time that is this far ahead of a trusted clock, in seconds, was wrong and is ignored. In rooms: of the
  /// radio's clock, and of ours, as a radio that has lost its time begins years ago.
  private static let tolerance: Int64 = 86_400

  /// Seconds since 1970. `radio`: the radio's clock; if our clock is not synchronised, the later one is more likely right.
  mutating func next(_ now: Moment, radio: UInt32?) -> UInt32 {
    let ours = now.milliseconds / 1000
    var time = now.trusted ? ours : max(ours, Int64(radio ?? 0))
    if Int64(last) < ours + Self.tolerance || !now.trusted { time = max(time, Int64(last) + 1) }
    last = UInt32(clamping: time)
    return last
  }

  /// A room compares with the last time that it saw from us. Logins and requests carry the radio's time: the room ignores a post before it, and after
  /// a post ahead of it would ignore every request (docs/protocol/companion.md § 9.8).
  mutating func nextInRoom(_ now: Moment, radio: UInt32?) -> UInt32 {
    let clock = radio.map { $0 &+ 1 } ?? UInt32(clamping: now.milliseconds / 1000)
    let latest = max(Int64(clock), now.milliseconds / 1000)
    let isWrong = (radio != nil || now.trusted) && Int64(lastInRooms) > latest + Self.tolerance
    lastInRooms = isWrong ? clock : max(clock, lastInRooms &+ 1)
    return lastInRooms
  }
}
