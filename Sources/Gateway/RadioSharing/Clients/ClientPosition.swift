// SPDX-License-Identifier: MIT

/// A client's position in the radio's list of messages. Pure.
///
/// The request for the next message confirms the last one. The position is stored at intervals.
struct ClientPosition {
  /// The position is stored after this many messages, and whenever the client has received all.
  private static let step = 32

  /// The last confirmed message.
  private(set) var confirmed: Int64
  /// The message delivered after it.
  private var delivered: Int64?
  private var unsaved = 0

  init(after message: Int64) { confirmed = message }

  /// The last message that the client received.
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

  /// Returns the position to store; `nil`: it is stored.
  mutating func takeUnsaved() -> Int64? {
    guard unsaved > 0 else { return nil }
    unsaved = 0
    return confirmed
  }
}
