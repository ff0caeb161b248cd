// SPDX-License-Identifier: MIT

import SQLite

extension Store {
  /// The number of programs whose position in the messages is stored; beyond it, the least recently used are forgotten.
  public static let maxClients: Int64 = 64

  /// The id of the last message that this client received; `nil`: a new client.
  public func clientCursor(_ name: String) throws(StoreError) -> Int64? {
    try translating { () throws(SQLiteError) in
      try database.value("SELECT message FROM clients WHERE name = ?", .text(name))?.integer
    }
  }

  /// Within a `write`: the client has received all messages up to this one.
  public func setClientCursor(_ name: String, message: Int64, at milliseconds: Int64) throws(SQLiteError) {
    // The most recently used one stays so, even if the clock was set back.
    try database.run(
      """
      INSERT OR REPLACE INTO clients(name, message, used_at)
      VALUES (?, ?, max(?, ifnull((SELECT max(used_at) + 1 FROM clients), 0)))
      """, .text(name), .integer(message), .integer(milliseconds))
    try database.run(
      """
      DELETE FROM clients WHERE name IN (SELECT name FROM clients ORDER BY used_at DESC LIMIT -1 OFFSET \(Self.maxClients))
      """)
  }

  /// The oldest message of the attached radio with a greater id; `nil`: none.
  public func message(after id: Int64) throws(StoreError) -> StoredMessage? {
    var found: StoredMessage?
    try translating { () throws(SQLiteError) in
      try database.each(
        "SELECT \(Self.messageColumns) FROM messages WHERE id > ? AND radio IN (?, \(Self.everyRadio)) ORDER BY id LIMIT 1",
        [.integer(max(id, (self.radio(radio)?.firstMessage ?? 1) - 1)), .integer(radio)]
      ) { (row) throws(SQLiteError) in
        found = Self.message(row)
        return false
      }
    }
    return found
  }
}
