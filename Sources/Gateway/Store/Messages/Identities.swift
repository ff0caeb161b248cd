// SPDX-License-Identifier: MIT

import MeshCrypto
import SQLite

/// The identity of a message, which recognises duplicates (docs/protocol/app-conventions.md § 8): its time, then 12
/// bytes of a SHA-256. The leading time keeps new entries of the index together.
struct MessageIdentity: Hashable, Comparable {
  private let high: UInt64
  private let low: UInt64

  /// `nil` unless there are 16 bytes.
  init?(bytes: some Collection<UInt8>) {
    guard bytes.count == 16 else { return nil }
    high = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    low = bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  init(of traits: MessageTraits) {
    let bytes = traits.identity
    high = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    low = bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  var bytes: [UInt8] {
    withUnsafeBytes(of: high.bigEndian) { Array($0) } + withUnsafeBytes(of: low.bigEndian) { Array($0) }
  }

  static func < (one: Self, other: Self) -> Bool { (one.high, one.low) < (other.high, other.low) }
}

/// The newest messages by their identities. Identities of older ones are in a table, which is extended by many at a
/// time: an entry with each message would write a page of its own.
struct RecentIdentities {
  /// If several messages have the same identity, the newest.
  private var ids: [MessageIdentity: Int64] = [:]
  private(set) var messages = 0
  /// The greatest identity in the table. `nil`: the table is empty.
  private let greatest: MessageIdentity?

  /// Messages added to the table at a time.
  static let step = 128

  init(_ database: Database) throws(SQLiteError) {
    let entered = try database.meta("identified")?.integer ?? 0
    greatest = try database.value("SELECT max(identity) FROM identities")?.blob.flatMap { MessageIdentity(bytes: $0) }
    var found: [(identity: MessageIdentity, id: Int64)] = []
    // Bounded, whatever a damaged number says.
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
  /// The id of the message with this identity; `nil`: there is none.
  func message(identified identity: MessageIdentity) throws(SQLiteError) -> Int64? {
    let recent = try recentIdentities()
    if let id = recent[identity] { return id }
    guard recent.mayBeInTable(identity) else { return nil }
    let id = try database.value("SELECT message FROM identities WHERE identity = ?", .blob(identity.bytes))?.integer
    // If the message is gone or its row is damaged, the received one counts as new.
    guard let id, try database.value("SELECT 1 FROM messages WHERE id = ?", .integer(id)) != nil else { return nil }
    return id
  }

  /// The least error of a wrong clock in seconds, and the longest time of a sender's retries in milliseconds.
  private static let (wrongClock, longestRetry): (UInt64, Int64) = (86_400, 3_600_000)

  /// Whether the message is a new one, although its text, sender and sender's time equal those of message `known`. A
  /// node without a clock begins at the same second after each start, so it may repeat a time. A node whose clock was
  /// right when the first message arrived does not repeat a second: somebody has recorded and replayed the message. It
  /// is never new if a room repeats its posts days later, if it waited in a radio for an unknown time, or if it is read
  /// again after a kill.
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

  /// Call it within a `write`, for the newest message.
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

  /// Call it within a `write`, before messages up to this id are deleted.
  func forgetIdentities(upTo id: Int64) throws(SQLiteError) {
    try database.run(
      "DELETE FROM identities WHERE identity IN (SELECT identity FROM messages WHERE id <= ?1) AND message <= ?1",
      .integer(id))
    // Read again from the remaining messages.
    identities = nil
  }

  private func recentIdentities() throws(SQLiteError) -> RecentIdentities {
    if let identities { return identities }
    let read = try RecentIdentities(database)
    identities = read
    return read
  }
}
