// SPDX-License-Identifier: MIT

import MeshCrypto
import SQLite

/// By what two arrivals are one message (docs/protocol/app-conventions.md § 8): its time, then 12 bytes of a SHA-256.
/// The time in front keeps new entries of the index together.
struct MessageIdentity: Hashable, Comparable {
  private let high: UInt64
  private let low: UInt64

  /// `nil`: not 16 bytes.
  init?(bytes: some Collection<UInt8>) {
    guard bytes.count == 16 else { return nil }
    high = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    low = bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// Identity of a message. `key`: the bytes that tell it from others of that second.
  init(time: UInt32, of key: [UInt8]) {
    let digest = Digest.sha256(key)
    high = UInt64(time) << 32 | digest.prefix(4).reduce(0) { $0 << 8 | UInt64($1) }
    low = digest.dropFirst(4).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  var bytes: [UInt8] {
    withUnsafeBytes(of: high.bigEndian) { Array($0) } + withUnsafeBytes(of: low.bigEndian) { Array($0) }
  }

  static func < (one: Self, other: Self) -> Bool { (one.high, one.low) < (other.high, other.low) }
}

/// The newest messages by their identities. Those of the others are in a table that follows behind, many at a time: an entry with each
/// message would write a page of its own.
struct RecentIdentities {
  /// Of several messages of one identity the newest.
  private var ids: [MessageIdentity: Int64] = [:]
  private(set) var messages = 0
  /// The greatest identity in the table: what is greater is not there. `nil`: the table is empty.
  private let greatest: MessageIdentity?

  /// Messages that are indexed at once.
  static let step = 128

  init(_ database: Database) throws(SQLiteError) {
    let entered = try database.value("SELECT value FROM meta WHERE name = 'identified'")?.integer ?? 0
    greatest = try database.value("SELECT max(identity) FROM identities")?.blob.flatMap { MessageIdentity(bytes: $0) }
    var found: [(identity: MessageIdentity, id: Int64)] = []
    // No more than there can be, whatever a damaged number says.
    try database.every(
      "SELECT identity, id FROM messages WHERE id > ? ORDER BY id DESC LIMIT \(Self.step)", [.integer(entered)]
    ) { row in
      if let identity = MessageIdentity(bytes: row.blob(0)) { found.append((identity, row.integer(1))) }
    }
    for one in found.reversed() { add(one.identity, one.id) }
  }

  subscript(identity: MessageIdentity) -> Int64? { ids[identity] }
  func mayBeInTable(_ identity: MessageIdentity) -> Bool { greatest.map { identity <= $0 } ?? false }

  mutating func add(_ identity: MessageIdentity, _ id: Int64) {
    ids[identity] = id
    messages += 1
  }
}

extension Store {
  /// The message of this identity; `nil`: there is none.
  func message(identified identity: MessageIdentity) throws(SQLiteError) -> Int64? {
    let recent = try recentIdentities()
    if let id = recent[identity] { return id }
    guard recent.mayBeInTable(identity) else { return nil }
    let id = try database.value("SELECT message FROM identities WHERE identity = ?", .blob(identity.bytes))?.integer
    // One that is there no more, or damage: it is a new message, rather than none.
    guard let id, try database.value("SELECT 1 FROM messages WHERE id = ?", .integer(id)) != nil else { return nil }
    return id
  }

  /// How far a clock is away that goes wrong, in seconds, and how long a sender tries again, in milliseconds.
  private static let (wrongClock, longestRetry): (UInt64, Int64) = (86_400, 3_600_000)

  /// Whether it is no copy of that one, although it says the same with the same sender's time: a node without a clock begins at the same second with
  /// each start. A clock that was right when the first came says no second twice: who sends that later has recorded it. A room sends its posts again,
  /// days later; and what waited in a radio may have been heard at any time, like what is read once more after a kill.
  func isAnother(_ message: StoredMessage, than known: Int64) throws(SQLiteError) -> Bool {
    let received = message.received
    guard message.kind != .room, message.wait == .none, received.trusted, let sent = message.senderTime,
      let before = try database.value("SELECT at FROM messages WHERE id = ? AND trusted = 1", .integer(known))?.integer
    else { return false }
    let isClockWrong = [before, received.milliseconds].allSatisfy {
      ($0 / 1000 - Int64(sent)).magnitude > Self.wrongClock
    }
    return isClockWrong && received.milliseconds - before > Self.longestRetry
  }

  /// Within a `write`, of the newest message.
  func identify(_ identity: MessageIdentity, _ id: Int64) throws(SQLiteError) {
    var recent = try recentIdentities()
    identities = nil
    recent.add(identity, id)
    identities = recent
    guard recent.messages >= RecentIdentities.step else { return }
    try database.run(
      """
      INSERT OR REPLACE INTO identities
      SELECT identity, max(id) FROM messages WHERE id > ? GROUP BY identity ORDER BY identity
      """, .integer(id - Int64(recent.messages)))
    try setMeta("identified", .integer(id))
    identities = nil
  }

  /// Within a `write`, before messages up to this id are deleted.
  func forgetIdentities(upTo id: Int64) throws(SQLiteError) {
    try database.run(
      "DELETE FROM identities WHERE identity IN (SELECT identity FROM messages WHERE id <= ?1) AND message <= ?1",
      .integer(id))
    // It is read again from what is left.
    identities = nil
  }

  private func recentIdentities() throws(SQLiteError) -> RecentIdentities {
    if let identities { return identities }
    let read = try RecentIdentities(database)
    identities = read
    return read
  }
}
