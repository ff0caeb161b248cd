// SPDX-License-Identifier: MIT

import SQLite

/// The journal's events about a message.
public struct MessageEvents: Equatable, Sendable {
  /// The seq of the event that has the text.
  public var text: Int64
  /// The seq of the last event: for a sent message, that of its newest state.
  public var newest: Int64
  /// The seq of the event of a sent message's end, which has the text, too; `nil`: the message has not ended, or ended
  /// before events had this.
  public var ended: Int64?
}

extension Store {
  /// `nil`: there is no such message, or it is from before messages stored the seqs of their events.
  public func events(ofMessage id: Int64) throws(StoreError) -> MessageEvents? {
    try events("SELECT seq, seq, NULL FROM messages WHERE id = ?", id)
  }

  /// The events of a sent message; `nil` as above.
  public func events(ofOutgoing id: Int64) throws(StoreError) -> MessageEvents? {
    try events("SELECT seq, newest_seq, ended_seq FROM outgoing WHERE id = ?", id)
  }

  private func events(_ query: String, _ id: Int64) throws(StoreError) -> MessageEvents? {
    try first(query, [.integer(id)]) { row in
      guard let text = row.integerIfAny(0) else { return nil }
      return MessageEvents(text: text, newest: max(text, row.integerIfAny(1) ?? text), ended: row.integerIfAny(2))
    }
  }
}
