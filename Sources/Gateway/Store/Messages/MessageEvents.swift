// SPDX-License-Identifier: MIT

import SQLite

/// Events of the journal about a message.
public struct MessageEvents: Equatable, Sendable {
  /// The one that has its text.
  public var text: Int64
  /// The last one: that of the newest state of a sent message.
  public var newest: Int64
  /// That of a sent message's end, which has its text, too; `nil`: it goes on, or is from before ends had that.
  public var ended: Int64?
}

extension Store {
  /// `nil`: not known: it is from before messages knew their events, or there is no such message.
  public func events(ofMessage id: Int64) throws(StoreError) -> MessageEvents? {
    try events("SELECT seq, seq, NULL FROM messages WHERE id = ?", id)
  }

  /// Events of a sent message, as above.
  public func events(ofOutgoing id: Int64) throws(StoreError) -> MessageEvents? {
    try events("SELECT seq, newest_seq, ended_seq FROM outgoing WHERE id = ?", id)
  }

  private func events(_ query: String, _ id: Int64) throws(StoreError) -> MessageEvents? {
    var found: MessageEvents?
    try translating { () throws(SQLiteError) in
      try database.each(query, [.integer(id)]) { (row) throws(SQLiteError) in
        if let text = row.integerIfAny(0) {
          found = MessageEvents(text: text, newest: max(text, row.integerIfAny(1) ?? text), ended: row.integerIfAny(2))
        }
        return false
      }
    }
    return found
  }
}
