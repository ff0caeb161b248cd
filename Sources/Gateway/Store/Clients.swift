// SPDX-License-Identifier: MIT

import SQLite

extension Store {
  /// The number of programs whose position in the messages is stored; beyond it, the least recently used are forgotten.
  public static let maxClients: Int64 = 64

  /// The id of the last message that this client received; `nil`: a new client.
  public func clientCursor(_ name: String) throws(StoreError) -> Int64? {
    try value("SELECT message FROM clients WHERE name = ?", .text(name))?.integer
  }

  /// Within a `write`: the client has received all messages up to this one. Returns the names of forgotten clients.
  @discardableResult
  public func setClientCursor(
    _ name: String, message: Int64, at milliseconds: Int64
  ) throws(SQLiteError) -> [String] {
    // The most recently used one stays so, even if the clock was set back.
    try database.run(
      """
      INSERT OR REPLACE INTO clients(name, message, used_at)
      VALUES (?, ?, max(?, ifnull((SELECT max(used_at) + 1 FROM clients), 0)))
      """, .text(name), .integer(message), .integer(milliseconds))
    let forgotten = try database.rows(
      "SELECT name FROM clients ORDER BY used_at DESC LIMIT -1 OFFSET \(Self.maxClients)"
    ) { $0.text(0) }
    for name in forgotten { try database.run("DELETE FROM clients WHERE name = ?", .text(name)) }
    return forgotten
  }

  /// The number of stored messages of the attached radio with a greater id, up to `most`.
  public func messageCount(after id: Int64, atMost most: Int64) throws(StoreError) -> Int64 {
    try value(
      """
      SELECT count(*) FROM
      (SELECT 1 FROM messages WHERE id > ? AND radio IN (?, \(Self.everyRadio)) AND kind <> \(Tombstone.word) LIMIT ?)
      """, .integer(max(id, beforeFirst)), .integer(radio), .integer(most))?.integer ?? 0
  }

  /// The number of messages with a greater id that were deleted since the attached radio's first one: of this radio, and of others that were attached
  /// meanwhile.
  public func deletedCount(after id: Int64) throws(StoreError) -> Int64 {
    guard let oldest = try value("SELECT min(id) FROM messages")?.integer else { return 0 }
    return max(0, oldest - 1 - max(id, beforeFirst))
  }

  private var beforeFirst: Int64 { (self.radio(radio)?.firstMessage ?? 1) - 1 }

  /// The oldest message of the attached radio with a greater id; `nil`: none.
  public func message(after id: Int64) throws(StoreError) -> StoredMessage? {
    try first(
      "SELECT \(Self.messageColumns) FROM messages WHERE id > ? AND radio IN (?, \(Self.everyRadio)) "
        + "AND kind <> \(Tombstone.word) ORDER BY id LIMIT 1",
      [.integer(max(id, beforeFirst)), .integer(radio)]
    ) { Self.message($0) }
  }
}
