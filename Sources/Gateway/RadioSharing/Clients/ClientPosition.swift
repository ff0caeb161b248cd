// SPDX-License-Identifier: MIT

/// How far a client is in the radio's list of messages. Pure.
///
/// A message is confirmed by the request for the next one; its position is written to disk now and then.
struct ClientPosition {
  /// Its position is stored after this many messages, and whenever it has received all.
  private static let step = 32

  /// The last confirmed message.
  private(set) var confirmed: Int64
  /// The one delivered after it.
  private var delivered: Int64?
  private var unsaved = 0

  init(after message: Int64) { confirmed = message }

  /// The last message that it was given.
  var last: Int64 { max(confirmed, delivered ?? 0) }
  /// The next message is the one after this.
  var next: Int64 { delivered ?? confirmed }
  /// Enough has changed to store it.
  var isDue: Bool { unsaved >= Self.step }

  mutating func deliver(_ message: Int64) { delivered = message }

  mutating func confirm() {
    guard let delivered else { return }
    (confirmed, self.delivered) = (delivered, nil)
    unsaved += 1
  }

  /// Returns what is to be stored; `nil`: it is.
  mutating func takeUnsaved() -> Int64? {
    guard unsaved > 0 else { return nil }
    unsaved = 0
    return confirmed
  }
}
