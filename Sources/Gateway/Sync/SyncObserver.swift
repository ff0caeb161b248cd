// SPDX-License-Identifier: MIT

import Companion

/// Follows the radio's data and the state of the sync. Each call comes at once, in the order of the events.
public protocol SyncObserver: AnyObject {
  /// The link is up, or is lost.
  func linkChanged()
  /// `Synchronizer.state` has changed.
  func syncChanged()
  /// A push frame has arrived. The sync has already handled it.
  func heard(_ push: Push, in frame: [UInt8])
  /// A contact's record has arrived, new or not.
  func contactCame(_ contact: Contact)
  /// The radio has handed over a message. True: it is an answer to a question of this program, and is not stored.
  func takesAnswer(_ message: QueuedMessage) -> Bool
  /// A message is on disk for the first time.
  func messageStored(_ message: QueuedMessage)
  /// The radio has handed over a message that is on disk already: its sender repeats it.
  func messageRepeated(_ message: QueuedMessage)
  /// The radio lost messages, or may have.
  func messagesWereLost(_ loss: RadioQueue.Loss)
  /// Another radio is attached, or the radio has become another node: waiting messages are not for this one.
  func radioReplaced()
  /// The radio was asked for messages, and has none.
  func radioIsIdle()
}

extension SyncObserver {
  public func takesAnswer(_ message: QueuedMessage) -> Bool { false }
}
