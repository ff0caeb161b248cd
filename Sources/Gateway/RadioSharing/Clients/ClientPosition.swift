// SPDX-License-Identifier: MIT

/// A client's position in the radio's list of messages. Pure.
///
/// The request for the next message confirms the last one. But a client may ask for several without waiting for the answers: only what its machine has
/// taken over counts as received. The position is stored at intervals.
struct ClientPosition {
  /// The position is stored after this many messages, and whenever the client has received all.
  private static let step = 32

  /// The last confirmed message.
  private(set) var confirmed: Int64
  /// The message delivered after it.
  private var delivered: Int64?
  /// The last message that the client's machine has taken over.
  private var taken: Int64
  private var unsaved = 0
  /// What the store has; `nil`: nothing, because the client is new and has not asked for a message.
  private var stored: Int64?

  /// `isStored`: the store has this position.
  init(after message: Int64, isStored: Bool = false) {
    (confirmed, taken, stored) = (message, message, isStored ? message : nil)
  }

  /// The last message that the client received.
  var last: Int64 { max(confirmed, delivered ?? 0) }
  /// The next message is the one after this.
  var next: Int64 { delivered ?? confirmed }
  /// The last message that the client has confirmed, and its machine has taken over.
  var received: Int64 { min(confirmed, taken) }
  /// The client has not asked for a message, and may be nobody: a position for each connection would push those of others out.
  var isNew: Bool { stored == nil }
  /// Enough has changed to store it.
  var isDue: Bool { unsaved >= Self.step || isNew }

  mutating func deliver(_ message: Int64) { delivered = message }

  /// The client's machine has acknowledged all that was written to it.
  mutating func wasTaken() { taken = last }

  mutating func confirm() {
    guard let delivered else { return }
    (confirmed, self.delivered) = (delivered, nil)
    unsaved += 1
  }

  /// Returns the position to store; `nil`: it is stored.
  mutating func takeUnsaved() -> Int64? {
    unsaved = 0
    guard received != stored else { return nil }
    stored = received
    return received
  }
}
