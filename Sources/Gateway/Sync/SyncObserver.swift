// SPDX-License-Identifier: MIT

import Companion

/// Follows what the radio says and how far the sync is. Each call comes at once, on the loop, in the order in which it happened.
public protocol SyncObserver: AnyObject {
  /// The link came or went.
  func linkChanged()
  /// `Synchronizer.state` is another one.
  func syncChanged()
  /// A push frame came. The sync has already handled it.
  func heard(_ push: Push, in frame: [UInt8])
  /// A contact's record came, new or not.
  func contactCame(_ contact: Contact)
  /// A message is on disk for the first time.
  func messageStored(_ message: QueuedMessage)
  /// The radio's queue was full, or answers of the radio are lost.
  func messagesWereLost(_ loss: RadioQueue.Loss)
  /// Another radio is attached than the last, or it has become another node: nothing that waits is for this one.
  func radioReplaced()
  /// The radio was asked for messages, and has none.
  func radioIsIdle()
}
