// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// Which nodes may leave the radio's table, and which have left it.
extension Store {
  /// Once in so many milliseconds it is written down that a node was talked to: often enough for days to count.
  private static let talkStep: Int64 = 86_400_000
  /// And that it was heard.
  private static let heardStep: Int64 = 600_000
  /// Milliseconds within which nodes count as heard at the same time: then the radio's stamps decide who is first, as for all that it had when
  /// it was met.
  private static let sameTime: Int64 = 3_600_000
  /// Who was ever talked to stays until it has not been heard for so many milliseconds.
  private static let talkAge: Int64 = 90 * 86_400_000

  /// Within an existing `write`: something was received that only this node can have sent: a message, an acknowledgement or an
  /// answer. Stored at most once in ten minutes for each node.
  public func noteHeard(_ key: KeyPrefix, at milliseconds: Int64) throws(SQLiteError) {
    nodeWasHeard(key, milliseconds)
    try database.run(
      """
      UPDATE contacts SET last_heard = ?1, seen = ?4 WHERE key >= ?2 AND key < ?3
        AND (last_heard IS NULL OR last_heard NOT BETWEEN ?1 - \(Self.heardStep) AND ?1 + \(Self.heardStep)
          OR seen < ?4 - \(Self.heardStep))
      """, .integer(milliseconds), .blob(key.bytes), .blob(key.bytes + Array(repeating: 0xFF, count: 26)),
      .integer(elapsedNow))
  }

  /// Within a `write`: a direct message of this node, or for it.
  public func noteTalk(with key: KeyPrefix, at milliseconds: Int64) throws(SQLiteError) {
    try database.run(
      """
      UPDATE contacts SET talked_at = ?1, seen = ?4 WHERE key >= ?2 AND key < ?3
        AND (talked_at IS NULL OR seen < ?4 - \(Self.talkStep))
      """, .integer(milliseconds), .blob(key.bytes), .blob(key.bytes + Array(repeating: 0xFF, count: 26)),
      .integer(elapsedNow))
  }

  /// Nodes that may leave the radio's table, the first to leave first: repeaters and sensors, which do not write to us, before all others,
  /// then those that were heard or talked to longest ago, by time that has surely passed. No favourites, only these types, none that was heard
  /// for less than `age` milliseconds, and none that was ever talked to and heard in the last 90 days (with an `age` of 0 they are the last).
  public func evictable(
    types: Set<UInt8>, age: Int64, elapsed: Int64, limit: Int, except kept: Set<PublicKey> = []
  ) throws(StoreError) -> [StoredContact] {
    var keys: [PublicKey] = []
    let list = types.sorted().map(String.init).joined(separator: ",")
    try translating { () throws(SQLiteError) in
      try database.each(
        """
        SELECT key FROM contacts WHERE on_radio = 1 AND flags & 1 = 0 AND type IN (\(list))
          AND seen <= ?1 AND (talked_at IS NULL OR seen <= ?2)
        ORDER BY talked_at IS NOT NULL, type NOT IN (\(NodeType.repeater.rawValue), \(NodeType.sensor.rawValue)),
          seen / \(Self.sameTime), last_modified
        """, [.integer(elapsed - age), .integer(elapsed - (age > 0 ? max(age, Self.talkAge) : 0))]
      ) { (row) throws(SQLiteError) in
        if let key = PublicKey(bytes: row.blob(0)), !kept.contains(key) { keys.append(key) }
        return keys.count < limit
      }
    }
    var found: [StoredContact] = []
    for key in keys { if let stored = try contact(key) { found.append(stored) } }
    return found
  }

  /// Nodes beyond the bound that are looked at together.
  private static let forgetStep: Int64 = 50

  /// Within a `write`, when a node was added: beyond `Settings.nodesMax` those go that were heard longest ago, of those that are not in the
  /// radio's table, were never talked to, are no favourites, and have no name, note or tag of ours. Anybody with a radio can invent nodes.
  func forgetNodes() throws(SQLiteError) {
    nodesAdded = nodesAdded == .max ? .max : nodesAdded + 1
    guard nodesAdded >= Self.forgetStep else { return }
    nodesAdded = 0
    let count = try database.value("SELECT count(*) FROM contacts")?.integer ?? 0
    guard count > settings.nodesMax else { return }
    nodesForgotten += Int64(
      try database.run(
        """
        DELETE FROM contacts WHERE key IN (
          SELECT key FROM contacts AS c WHERE on_radio = 0 AND talked_at IS NULL AND flags & 1 = 0 AND NOT EXISTS(
            SELECT 1 FROM documents AS d
            WHERE d.key >= 'node/' || lower(hex(c.key)) || '/' AND d.key < 'node/' || lower(hex(c.key)) || '0')
          ORDER BY evicted != 0, seen, first_seen LIMIT ?)
        """, .integer(count - settings.nodesMax)))
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
