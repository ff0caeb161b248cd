// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// Which nodes may leave the radio's table, and which have left it.
extension Store {
  /// Once in so many milliseconds it is written down that a node was talked to: often enough for days to count.
  private static let talkStep: Int64 = 86_400_000
  /// A radio's clock that shows less was never set.
  private static let plausibleClock: Int64 = 1_700_000_000

  /// Within an existing `write`: something was received that only this node can have sent: a message, an acknowledgement or an
  /// answer. Stored at most once in ten minutes for each node.
  public func noteHeard(_ key: KeyPrefix, at milliseconds: Int64) throws(SQLiteError) {
    try database.run(
      """
      UPDATE contacts SET last_heard = ?1 WHERE key >= ?2 AND key < ?3
        AND (last_heard IS NULL OR last_heard NOT BETWEEN ?1 - \(Self.heardStep) AND ?1 + \(Self.heardStep))
      """, .integer(milliseconds), .blob(key.bytes), .blob(key.bytes + Array(repeating: 0xFF, count: 26)))
  }

  /// Milliseconds.
  private static let heardStep: Int64 = 600_000

  /// Within a `write`: a direct message of this node, or for it.
  public func noteTalk(with key: KeyPrefix, at milliseconds: Int64) throws(SQLiteError) {
    try database.run(
      """
      UPDATE contacts SET talked_at = ?1 WHERE key >= ?2 AND key < ?3 AND ifnull(talked_at, 0) < ?1 - \(Self.talkStep)
      """, .integer(milliseconds), .blob(key.bytes), .blob(key.bytes + Array(repeating: 0xFF, count: 26)))
  }

  /// Nodes that may be evicted: first those without any conversation, then those heard longest ago. No favourites, only these
  /// types, and none that was heard or in a conversation since then (milliseconds since 1970).
  public func evictable(types: Set<UInt8>, unheardSince: Int64, limit: Int) throws(StoreError) -> [StoredContact] {
    var keys: [PublicKey] = []
    let list = types.sorted().map(String.init).joined(separator: ",")
    try translating { () throws(SQLiteError) in
      try database.each(
        """
        SELECT key, max(ifnull(last_heard, 0), ifnull(talked_at, 0),
          CASE WHEN last_modified > \(Self.plausibleClock) THEN last_modified * 1000 ELSE first_seen END) AS seen
        FROM contacts WHERE on_radio = 1 AND flags & 1 = 0 AND type IN (\(list)) AND seen < ?
        ORDER BY talked_at IS NOT NULL, seen LIMIT ?
        """, [.integer(unheardSince), .integer(Int64(clamping: limit))]
      ) { (row) throws(SQLiteError) in
        if let key = PublicKey(bytes: row.blob(0)) { keys.append(key) }
        return true
      }
    }
    var found: [StoredContact] = []
    for key in keys { if let stored = try contact(key) { found.append(stored) } }
    return found
  }

  /// Within a `write`: whether it was taken out of the present radio's table to make room.
  public func setEvicted(_ key: PublicKey, _ isEvicted: Bool) throws(SQLiteError) {
    try database.run("UPDATE contacts SET evicted = ? WHERE key = ?", .integer(isEvicted ? radio : 0), .blob(key.bytes))
  }

  /// Whether the present radio had it, and lost it to make room.
  public func isEvicted(_ key: PublicKey) throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in
      try database.value("SELECT evicted FROM contacts WHERE key = ? AND on_radio = 0", .blob(key.bytes))?.integer
        == radio
    }
  }
}
