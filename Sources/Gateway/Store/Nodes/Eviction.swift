// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// Counts of nodes in memory.
public struct NodeCounts {
  /// Nodes added since the nodes were last counted; at the start they were not counted.
  var added = Int64.max
  /// Nodes deleted since the start to keep `Settings.nodesMax`.
  public internal(set) var forgotten: Int64 = 0
}

/// Nodes that may leave the radio's table, and nodes that have left it.
extension Store {
  /// A conversation with a node is noted at most once in this time, in milliseconds: ages are counted in days.
  private static let talkStep: Int64 = 86_400_000
  /// The reception of a node is noted at most once in this time, in milliseconds.
  private static let heardStep: Int64 = 600_000
  /// Nodes that were heard within so many milliseconds of each other count as heard at the same time. Then the radio's
  /// times decide on the order, as for all nodes that the radio had before it was attached. Where everybody is active,
  /// ten minutes make a difference.
  private static let sameTime: Int64 = 3_600_000
  /// A node with which we have had a conversation stays until it has not been heard for so many milliseconds.
  private static let talkAge: Int64 = 90 * 86_400_000

  /// Within a `write`: something was received that only this node can have sent: a message, an acknowledgement or an
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

  /// Within a `write`: a direct message from or to this node.
  public func noteTalk(with key: KeyPrefix, at milliseconds: Int64) throws(SQLiteError) {
    try database.run(
      """
      UPDATE contacts SET talked_at = ?1, seen = ?4 WHERE key >= ?2 AND key < ?3
        AND (talked_at IS NULL OR seen < ?4 - \(Self.talkStep))
      """, .integer(milliseconds), .blob(key.bytes), .blob(key.bytes + Array(repeating: 0xFF, count: 26)),
      .integer(elapsedNow))
  }

  /// Nodes that may leave the radio's table, in the order of leaving: first repeaters and sensors, which do not write
  /// to us, then nodes whose last reception or conversation is longest ago, by time that has certainly passed. Excluded
  /// are favourites, nodes that may run commands on the radio, other types, nodes heard within the last `age` milliseconds, and nodes with a conversation that
  /// were heard in the last 90 days.
  public func evictable(
    types: Set<UInt8>, age: Int64, elapsed: Int64, limit: Int, except kept: Set<PublicKey> = []
  ) throws(StoreError) -> [StoredContact] {
    var found: [StoredContact] = []
    for key in try orderOfLeaving(types: types, age: age, elapsed: elapsed, limit: limit, except: kept) {
      if let stored = try contact(key) { found.append(stored) }
    }
    return found
  }

  /// The keys of these nodes. With an `age` of 0 conversations keep nobody: those nodes come last.
  public func orderOfLeaving(
    types: Set<UInt8>, age: Int64, elapsed: Int64, limit: Int, except kept: Set<PublicKey> = []
  ) throws(StoreError) -> [PublicKey] {
    var keys: [PublicKey] = []
    let list = types.sorted().map(String.init).joined(separator: ",")
    try translating { () throws(SQLiteError) in
      try database.each(
        """
        SELECT key FROM contacts WHERE on_radio = 1 AND flags & \(Self.keptFlags) = 0 AND type IN (\(list))
          AND seen <= ?1 AND (talked_at IS NULL OR seen <= ?2)
        ORDER BY talked_at IS NOT NULL, type NOT IN (\(NodeType.repeater.rawValue), \(NodeType.sensor.rawValue)),
          seen / \(age > 0 ? Self.sameTime : Self.heardStep), last_modified
        """, [.integer(elapsed - age), .integer(elapsed - (age > 0 ? max(age, Self.talkAge) : 0))]
      ) { (row) throws(SQLiteError) in
        if let key = PublicKey(bytes: row.blob(0)), !kept.contains(key) { keys.append(key) }
        return keys.count < limit
      }
    }
    return keys
  }

  /// Nodes beyond the bound that are checked at a time.
  private static let forgetStep: Int64 = 50

  /// Within a `write`, after adding a node: deletes nodes beyond `Settings.nodesMax`, those heard longest ago first.
  /// Nodes stay if they are in the radio's table, are favourites, have had a conversation, or have a name, note or tag
  /// of ours. The bound exists because anybody with a radio can invent nodes.
  func forgetNodes() throws(SQLiteError) {
    nodeCounts.added = nodeCounts.added == .max ? .max : nodeCounts.added + 1
    guard nodeCounts.added >= Self.forgetStep else { return }
    nodeCounts.added = 0
    let count = try database.value("SELECT count(*) FROM contacts")?.integer ?? 0
    guard count > settings.nodesMax else { return }
    nodeCounts.forgotten += Int64(
      try database.run(
        """
        DELETE FROM contacts WHERE key IN (
          SELECT key FROM contacts AS c WHERE on_radio = 0 AND talked_at IS NULL AND flags & 1 = 0 AND NOT EXISTS(
            SELECT 1 FROM documents AS d
            WHERE d.key >= 'node/' || lower(hex(c.key)) || '/' AND d.key < 'node/' || lower(hex(c.key)) || '0')
          ORDER BY evicted > 0, seen, first_seen LIMIT ?)
        """, .integer(count - settings.nodesMax)))
    try forgetClocksOfForgottenNodes()
  }

  /// Within a `write`: notes whether the node was removed from the present radio's table to make room.
  public func setEvicted(_ key: PublicKey, _ isEvicted: Bool) throws(SQLiteError) {
    try database.run("UPDATE contacts SET evicted = ? WHERE key = ?", .integer(isEvicted ? radio : 0), .blob(key.bytes))
  }

  /// Within a `write`: the present radio has heard the node, and had no place for it. Unlike one that was removed to make room, it goes early if the
  /// store has too many nodes: anybody can invent nodes.
  public func noteNoPlace(for key: PublicKey) throws(SQLiteError) {
    try database.run(
      "UPDATE contacts SET evicted = ? WHERE key = ? AND evicted = 0", .integer(-radio), .blob(key.bytes))
  }

  /// Nodes whose key begins with this byte and that write texts: whether the radio has one of them, and those that it does not have: first those with
  /// which there was a conversation, then the last heard.
  public func nodes(
    withHash hash: UInt8, limit: Int
  ) throws(StoreError) -> (hasContact: Bool, strangers: [StoredContact]) {
    let (low, high) = ([hash], hash == 0xFF ? [UInt8](repeating: 0xFF, count: 33) : [hash + 1])
    let writers = "(\(NodeType.chat.rawValue), \(NodeType.room.rawValue))"
    let keys = try rows(
      """
      SELECT key, on_radio FROM contacts WHERE key >= ?1 AND key < ?2 AND type IN \(writers)
      ORDER BY on_radio DESC, talked_at IS NULL, seen DESC, key LIMIT 64
      """, [.blob(low), .blob(high)]
    ) { (key: PublicKey(bytes: $0.blob(0)), onRadio: $0.integer(1) != 0) }
    var strangers: [StoredContact] = []
    for case (let key?, false) in keys.map({ ($0.key, $0.onRadio) }) where strangers.count < limit {
      if let stored = try contact(key) { strangers.append(stored) }
    }
    return (keys.contains { $0.onRadio }, strangers)
  }

  /// Bits of contacts that are not evicted: favourites, and nodes that may run commands.
  private static let keptFlags = 1 | Int(Contact.commandFlag)

  private var guestsName: String { "guests:\(radio)" }

  /// Nodes in the attached radio's table that were let in because they may be writing.
  public func guests() throws(StoreError) -> Set<PublicKey> {
    let bytes = try meta(guestsName)?.blob ?? []
    return Set(stride(from: 0, to: bytes.count, by: 32).compactMap { PublicKey(bytes: Array(bytes[$0...].prefix(32))) })
  }

  /// Within a `write`.
  public func keepGuests(_ guests: Set<PublicKey>) throws(SQLiteError) {
    try setMeta(guestsName, .blob(guests.flatMap(\.bytes)))
  }

  private var vainName: String { "guests:vain:\(radio)" }

  /// When nodes were let in that did not write, in milliseconds of `elapsed(at:)`.
  public func guestsInVain() throws(StoreError) -> [Int64] {
    let bytes = try meta(vainName)?.blob ?? []
    var times: [Int64] = []
    for start in stride(from: 0, to: bytes.count, by: 8) {
      var time: Int64 = 0
      for byte in bytes[start...].prefix(8) { time = time << 8 | Int64(byte) }
      times.append(time)
    }
    return times
  }

  /// Within a `write`.
  public func keepGuestsInVain(_ times: [Int64]) throws(SQLiteError) {
    var writer = FrameWriter()
    for time in times { writer.big(UInt64(bitPattern: time), 8) }
    try setMeta(vainName, .blob(writer.bytes))
  }

  /// Whether the node was removed from the present radio's table to make room, or found no place there.
  public func isEvicted(_ key: PublicKey) throws(StoreError) -> Bool {
    let evicted = try value("SELECT evicted FROM contacts WHERE key = ? AND on_radio = 0", .blob(key.bytes))?.integer
    return evicted.map { abs($0) == radio } ?? false
  }
}
