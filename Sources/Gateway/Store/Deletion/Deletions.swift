// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite
import UntrustedText

/// Deletions of messages, in pieces: a conversation of a hundred thousand holds nobody up, and one that a kill cuts off goes on after it.
///
/// Behind its messages, each takes their words out of the parts of the search indexes that no longer count, and out of the database's log.
extension Store {
  /// The most messages that are deleted by their numbers at once.
  public static let maxDeletedByNumber = 100
  /// Rows at which a piece looks; those of them that it deletes at most; and pages of a search index that it writes.
  private static let (rowsAtOnce, deletedAtOnce, pagesAtOnce): (Int64, Int64, Int) = (2000, 50, 500)
  /// Events in one that tells of them.
  private static let toldAtOnce = 100

  /// Messages that this deletion has left to delete were there when it began: later ones stay.
  private struct Remainder {
    let id: Int64
    /// `nil`: its messages are deleted.
    let conversation: ConversationName?
    let before: Int64
    /// Where it is, and where it ends, in messages, sent messages, and the journal.
    let messages, sent, events: (after: Int64, through: Int64)
  }

  /// Messages of a conversation: `waiting` have not been sent yet, and stay.
  public struct Deletable: Equatable, Sendable {
    public var received, sent, waiting: Int64

    public init(received: Int64, sent: Int64, waiting: Int64) {
      (self.received, self.sent, self.waiting) = (received, sent, waiting)
    }
  }

  public enum DeletionStep: Equatable, Sendable {
    /// Nothing is to be deleted.
    case idle
    case goesOn
    /// Only the database's log still has what was deleted: `overwriteLog`, then `endDeletions`.
    case logIsLeft
  }

  /// Within a `write`, with complete lists and search indexes: deletes these messages at once, as far as they are there and have ended. Returns their
  /// number.
  public func delete(messages: [Int64], outgoing: [Int64], at moment: Moment) throws(SQLiteError) -> Int {
    let names = try conversations(ofMessages: messages, outgoing)
    var deleted = DeletedEvents()
    try emptyMessages(messages, &deleted)
    try emptyOutgoing(outgoing, &deleted)
    guard deleted.messages > 0 else { return 0 }
    try tell(deleted, at: moment)
    for name in names { try recount(afterDeletingIn: name) }
    try database.run(
      "INSERT INTO deletions VALUES (NULL, NULL, 0, 0, 0, 0, 0, 0, 0, ?)", .integer(Int64(deleted.messages)))
    return deleted.messages
  }

  /// Within a `write`: from now on, `continueDeletions` deletes this conversation's messages, received or sent before a time (milliseconds since 1970;
  /// `nil`: up to now).
  ///
  /// Sent messages that have not ended now stay, also if they end meanwhile. Returns how many there are of each.
  @discardableResult
  public func delete(_ conversation: ConversationName, before: Int64?) throws(SQLiteError) -> Deletable {
    let found = try countDeletable(conversation, before: before)
    let first = try database.value("SELECT min(id) FROM messages")?.integer ?? 1
    let firstSent = try database.value("SELECT min(id) FROM outgoing")?.integer ?? 1
    let lastSent = try database.value("SELECT max(id) FROM outgoing")?.integer ?? 0
    let journal = journalState.open
    try database.run(
      "INSERT INTO deletions VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, 0)", .text(conversation.description),
      .integer(before ?? .max), .integer(first - 1), .integer(journal.lastMessage), .integer(firstSent - 1),
      .integer(lastSent), .integer(journal.oldest - 1), .integer(journal.last))
    return found
  }

  /// How many messages the running deletions have deleted; `nil`: none runs.
  public func deletedSoFar() throws(StoreError) -> Int64? {
    try value("SELECT sum(removed) FROM deletions")?.integer
  }

  /// How many messages a deletion of this conversation would delete, with complete search indexes, and how many have not ended.
  public func deletable(_ name: ConversationName, before: Int64?) throws(StoreError) -> Deletable {
    try translating { () throws(SQLiteError) in try countDeletable(name, before: before) }
  }

  private func countDeletable(_ name: ConversationName, before: Int64?) throws(SQLiteError) -> Deletable {
    let before = before ?? .max
    let received = try database.value(
      "SELECT count(*) FROM messages WHERE at < ?1 AND id IN (SELECT rowid FROM words WHERE words MATCH ?2)",
      .integer(before), .text("place : \(name.indexWord)"))
    var (ended, waiting): (Int64, Int64) = (0, 0)
    let states = try database.rows(
      """
      SELECT ended_at IS NULL, count(*) FROM outgoing
        WHERE \(Self.sentIn(name)) AND state <> \(Tombstone.word) AND created_at < ?2 GROUP BY 1
      """, [name.column, .integer(before)]
    ) { (isWaiting: $0.integer(0) != 0, count: $0.integer(1)) }
    for state in states { if state.isWaiting { waiting = state.count } else { ended = state.count } }
    return Deletable(received: received?.integer ?? 0, sent: ended, waiting: waiting)
  }

  /// Within a `write`: one piece of the oldest deletion.
  public func continueDeletions(at moment: Moment) throws(SQLiteError) -> DeletionStep {
    guard let work = try nextWork() else { return .idle }
    if let name = work.conversation {
      if work.messages.after < work.messages.through { return try deleteReceived(work, name, moment) }
      if work.sent.after < work.sent.through { return try deleteSent(work, name, moment) }
      if work.events.after < work.events.through { return try deleteEvents(work, name, moment) }
      try recount(afterDeletingIn: name)
      try database.run("UPDATE deletions SET conversation = NULL WHERE id = ?", .integer(work.id))
      return .goesOn
    }
    for index in ["words", "sent_words"] {
      let before = database.changes
      try database.run("INSERT INTO \(index)(\(index), rank) VALUES ('merge', -\(Self.pagesAtOnce))")
      // The statement itself counts as a change.
      if database.changes - before > 1 { return .goesOn }
    }
    return .logIsLeft
  }

  /// Within a `write`.
  public func endDeletions() throws(SQLiteError) {
    try database.run("DELETE FROM deletions WHERE conversation IS NULL")
  }

  private func nextWork() throws(SQLiteError) -> Remainder? {
    // Those whose messages are deleted share the rest.
    try database.first(
      """
      SELECT id, conversation, before, message, message_end, sent, sent_end, seq, seq_end FROM deletions
        ORDER BY conversation IS NULL, id LIMIT 1
      """, []
    ) { row in
      Remainder(
        id: row.integer(0), conversation: row.textIfAny(1).flatMap { ConversationName($0) }, before: row.bits(2),
        messages: (row.integer(3), row.integer(4)), sent: (row.integer(5), row.integer(6)),
        events: (row.integer(7), row.integer(8)))
    }
  }

  // MARK: Pieces

  private func deleteReceived(
    _ work: Remainder, _ name: ConversationName, _ moment: Moment
  ) throws(SQLiteError) -> DeletionStep {
    let end = min(work.messages.through, work.messages.after + Self.rowsAtOnce)
    let ids = try database.rows(
      """
      SELECT id FROM messages WHERE id > ?2 AND id <= ?3 AND \(name.channel == nil ? "sender" : "channel") = ?1
        AND at < ?4 ORDER BY id LIMIT \(Self.deletedAtOnce)
      """, [name.column, .integer(work.messages.after), .integer(end), .integer(work.before)]
    ) { $0.integer(0) }
    var deleted = DeletedEvents()
    try emptyMessages(ids, &deleted)
    try tell(deleted, at: moment)
    return try move(work, "message", to: ids.count < Self.deletedAtOnce ? end : ids.last ?? end, deleted)
  }

  private func deleteSent(
    _ work: Remainder, _ name: ConversationName, _ moment: Moment
  ) throws(SQLiteError) -> DeletionStep {
    let ids = try database.rows(
      """
      SELECT id FROM outgoing WHERE id > ?3 AND id <= ?4 AND \(Self.sentIn(name)) AND created_at < ?2
        AND ended_at IS NOT NULL AND ifnull(ended_seq, 0) <= ?5 ORDER BY id LIMIT \(Self.deletedAtOnce)
      """,
      [
        name.column, .integer(work.before), .integer(work.sent.after), .integer(work.sent.through),
        .integer(work.events.through),
      ]
    ) { $0.integer(0) }
    var deleted = DeletedEvents()
    try emptyOutgoing(ids, &deleted)
    try tell(deleted, at: moment)
    return try move(work, "sent", to: ids.count < Self.deletedAtOnce ? work.sent.through : ids.last ?? 0, deleted)
  }

  /// SQL: sent messages of the conversation `?1`.
  private static func sentIn(_ name: ConversationName) -> String {
    name.channel == nil ? "substr(recipient, 1, 6) = ?1" : "channel = ?1"
  }

  /// Events of messages that have no row any more.
  private func deleteEvents(
    _ work: Remainder, _ name: ConversationName, _ moment: Moment
  ) throws(SQLiteError) -> DeletionStep {
    let end = min(work.events.through, work.events.after + Self.rowsAtOnce)
    let rows: [(seq: Int64, isSent: Bool, body: [UInt8])] = try database.rows(
      """
      SELECT seq, kind = 'outgoing', body FROM journal
        WHERE seq > ? AND seq <= ? AND kind IN ('message', 'outgoing') AND at < ?
      """, [.integer(work.events.after), .integer(end), .integer(work.before)]
    ) { ($0.integer(0), $0.integer(1) != 0, $0.blob(2)) }
    var deleted = DeletedEvents()
    for row in rows {
      // `try?`: a damaged event is told as a gap.
      guard let body = try? JSONValue(parsing: row.body), name.isOf(body) else { continue }
      if row.isSent {
        guard body["text"] != nil, let key = body["id"]?.string,
          try database.value("SELECT 1 FROM outgoing WHERE key = ? AND state <> \(Tombstone.word)", .text(key)) == nil
        else { continue }
      }
      try emptyEvent(row.seq, &deleted)
    }
    try tell(deleted, at: moment)
    return try move(work, "seq", to: end, deleted)
  }

  private func move(
    _ work: Remainder, _ column: String, to place: Int64, _ deleted: DeletedEvents
  ) throws(SQLiteError) -> DeletionStep {
    try database.run(
      "UPDATE deletions SET \(column) = ?, removed = removed + ? WHERE id = ?", .integer(place),
      .integer(Int64(deleted.messages)), .integer(work.id))
    return .goesOn
  }

  private func tell(_ deleted: DeletedEvents, at moment: Moment) throws(SQLiteError) {
    if !deleted.entries.isEmpty || deleted.messages > 0 { try addDeletedPlaces(Int64(deleted.received)) }
    var left = deleted.entries[...]
    while !left.isEmpty {
      try append(.deletion, at: moment, body: DeletedEvents(entries: Array(left.prefix(Self.toldAtOnce))).body)
      left = left.dropFirst(Self.toldAtOnce)
    }
  }

  // MARK: The list of conversations

  private func conversations(ofMessages ids: [Int64], _ sent: [Int64]) throws(SQLiteError) -> Set<ConversationName> {
    var names: Set<ConversationName> = []
    for id in ids {
      if let message = try messageEvent(id: id)?.event.message, let name = ConversationName(of: message) {
        names.insert(name)
      }
    }
    for id in sent {
      if let message = try readOneOutgoing("id = ?", .integer(id)), let name = ConversationName(of: message) {
        names.insert(name)
      }
    }
    return names
  }

  /// Finds the newest message that is left, and what of the rest is unread. A conversation without messages leaves the list.
  private func recount(afterDeletingIn name: ConversationName) throws(SQLiteError) {
    let radios = try database.rows("SELECT radio FROM conversations WHERE name = ?", [.text(name.description)]) {
      $0.integer(0)
    }
    for radio in radios {
      // In the index, and behind it.
      let message =
        try database.value(
          """
          SELECT max(id) FROM messages WHERE radio IN (?1, \(Self.everyRadio)) AND kind IN ('direct', 'room', 'channel')
            AND (id IN (SELECT rowid FROM words WHERE words MATCH ?2)
              OR id > ?3 AND \(name.channel == nil ? "sender" : "channel") = ?4)
            AND id <= ?5
          """, .integer(radio), .text("place : \(name.indexWord)"),
          .integer(try database.meta(Self.indexed)?.integer ?? 0), name.column,
          .integer(try database.meta(Self.listed)?.integer ?? 0))?.integer ?? 0
      let sent: (place: Int64, id: Int64) =
        try database.first(
          """
          SELECT place, id FROM outgoing WHERE \(Self.sentIn(name)) AND radio = ?2 AND state <> \(Tombstone.word)
            AND id <= ?3 ORDER BY id DESC LIMIT 1
          """, [name.column, .integer(radio), .integer(try database.meta(Self.listedSent)?.integer ?? 0)]
        ) { ($0.integer(0), $0.integer(1)) } ?? (0, 0)
      try database.run(
        """
        UPDATE conversations SET message = ?3, sent_place = ?4, sent = ?5,
          received = CASE WHEN ?3 > read_message THEN received ELSE read_received END WHERE radio = ?1 AND name = ?2
        """, .integer(radio), .text(name.description), .integer(message), .integer(sent.place), .integer(sent.id))
    }
    _ = try recountUnread(in: name)
    try database.run(
      "DELETE FROM conversations WHERE name = ? AND message = 0 AND sent = 0 AND level = 0", .text(name.description))
  }

  // MARK: The log

  /// Overwrites what the database's log still has of earlier transactions. The log stays: a start that finds none takes it for removed.
  public func overwriteLog() throws(StoreError) {
    try checkpoint()
    let bytes = Int64(OwnFile.Stamp(logLocation)?.size ?? 0)
    write { store throws(SQLiteError) in
      try store.database.run(
        "INSERT OR REPLACE INTO meta(name, value) VALUES ('overwriting', zeroblob(?))", .integer(bytes))
    }
    try commitNow()
    write { store throws(SQLiteError) in try store.database.run("DELETE FROM meta WHERE name = 'overwriting'") }
    try commitNow()
    try checkpoint()
  }
}

extension ConversationName {
  /// As in columns of messages.
  fileprivate var column: SQLiteValue {
    switch self {
    case .channel(let digest): .text(digest)
    case .node(let prefix): .blob(prefix.bytes)
    }
  }

  /// Whether an event's message is of this conversation.
  fileprivate func isOf(_ body: JSONValue) -> Bool {
    switch self {
    case .channel(let digest): body["channel"]?.string == digest
    case .node(let prefix): (body["sender"] ?? body["recipient"])?.string?.begins(with: prefix.hex) == true
    }
  }
}
