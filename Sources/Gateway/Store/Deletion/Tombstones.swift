// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import SQLite

/// What is left of deleted messages. A row keeps its number, its seq and the hash that recognises duplicates, so that the journal has no hole, and
/// nothing comes back: docs/decisions/0042-what-is-deleted-leaves-a-mark.md.
enum Tombstone {
  /// The body of an event whose content was deleted.
  static let body = Array(#"{"deleted":true}"#.utf8)
  /// `messages.kind` and `outgoing.state`, in SQL.
  static let word = "'deleted'"

  /// A sent text, to recognise it when it comes back from another gateway.
  static func digest(of text: Text, on channel: String, senderTime: UInt32) -> [UInt8] {
    var traits = MessageTraits(kind: StoredMessage.Kind.channel.rawValue, time: senderTime, text: text.bytes)
    traits.channel = channel
    return MessageIdentity(of: traits).bytes
  }
}

/// Deleted events, as the event `deletion` tells them to those who have them.
struct DeletedEvents {
  /// An event, by its number and time: after a restore a number alone, or the id of a sent message, may be another's.
  struct Entry: Equatable {
    let seq: Int64
    let at: Int64
    /// Of a received message, or of a sent one.
    var message: Int64?
    var key: String?
  }

  var entries: [Entry] = []
  /// The numbers of messages among them, and of received ones.
  var messages = 0
  var received = 0

  var body: [UInt8] {
    JSONWriter.object { json in
      json.objects("events", entries) { entry, json in
        json.field("seq", entry.seq)
        json.field("at", entry.at)
        json.field("id", entry.message)
        json.field("outgoing", entry.key)
      }
    }
  }
}

extension JournalEvent {
  /// Whether only its place is left.
  public var isDeleted: Bool { body == Tombstone.body }
}

extension Store {
  private static let places = "deleted_messages"

  /// The number of received messages of which only the place is left; `nil`: nothing was ever deleted.
  func deletedPlaces() throws(SQLiteError) -> Int64? { try database.meta(Self.places)?.integer }

  /// Within a `write`.
  func addDeletedPlaces(_ count: Int64) throws(SQLiteError) {
    try setMeta(Self.places, .integer(max(0, (try deletedPlaces() ?? 0) + count)))
  }

  /// Whether messages were ever deleted here.
  public func hasDeleted() throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in try deletedPlaces() != nil }
  }

  // MARK: Received messages

  /// Within a `write`: empties these received messages, as far as they are there.
  func emptyMessages(_ ids: [Int64], _ deleted: inout DeletedEvents) throws(SQLiteError) {
    let before = deleted.messages
    defer { deleted.received += deleted.messages - before }
    for id in ids {
      guard let (event, isSound) = try messageEvent(id: id), event.message.kind != .deleted else { continue }
      let isIndexed = try unindexMessage(id)
      try emptyWays(of: .received(id), &deleted)
      try emptyReactions(
        of: id, event.message.text, by: Self.place(of: event.message).sender, inChannel: event.message.kind == .channel,
        &deleted)
      var rest = event
      (rest.message, rest.channelName, rest.radio) = (Self.emptied(event.message), nil, nil)
      // The row of a damaged message stays damaged, so that its event is a gap as before.
      let isEvent = isSound && id > journalState.beforeEvents
      try database.run(
        """
        UPDATE messages SET kind = \(Tombstone.word), sender = NULL, sender_name = NULL, channel = NULL, slot = NULL,
          text_type = ?2, sender_time = NULL, author = NULL, text = x'', snr = NULL, path_length = 0, data_type = NULL,
          waited = NULL, age = NULL, channel_name = NULL, author_name = NULL, event_radio = NULL, ways = NULL,
          checksum = CASE WHEN ?3 THEN ?4 ELSE checksum END
        WHERE id = ?1
        """, .integer(id), .integer(Int64(rest.message.textType.rawValue)), .integer(isEvent ? 1 : 0),
        .integer(rest.checksum))
      if isIndexed { try indexEmptied(id) }
      deleted.messages += 1
      guard event.seq > 0 else { continue }
      try emptyLetters(event.seq)
      try emptyRow(event.seq)
      deleted.entries.append(.init(seq: event.seq, at: event.message.received.milliseconds, message: id))
    }
  }

  private static func emptied(_ message: StoredMessage) -> StoredMessage {
    StoredMessage(
      id: message.id, kind: .deleted, textType: .plain, text: Text(bytes: []), path: ReceivedPath(raw: 0),
      received: message.received, copies: message.copies, radio: message.radio)
  }

  /// False: the index does not have it yet.
  private func unindexMessage(_ id: Int64) throws(SQLiteError) -> Bool {
    guard id <= (try database.meta(Self.indexed)?.integer ?? 0) else { return false }
    try database.run(
      """
      INSERT INTO words(words, rowid, text, sender, place)
        SELECT 'delete', id, spaced(text), spaced(sender), place FROM message_words WHERE id = ?
      """, .integer(id))
    return true
  }

  /// The index has an entry of the empty row, which a later trim removes like any other.
  private func indexEmptied(_ id: Int64) throws(SQLiteError) {
    try database.run(
      """
      INSERT INTO words(rowid, text, sender, place)
        SELECT id, spaced(text), spaced(sender), place FROM message_words WHERE id = ?
      """, .integer(id))
  }

  /// Reactions to a message, and the one that it carries, with their events: a reaction is journaled right behind its own message or the one that it is
  /// for, whichever came later. `number`: negative for a sent message; `sender`: who reacts with it.
  private func emptyReactions(
    of number: Int64, _ text: Text, by sender: String, inChannel: Bool, _ deleted: inout DeletedEvents
  ) throws(SQLiteError) {
    let carried = ReactionText(reading: text, inChannel: inChannel)
    let others = "SELECT message FROM reactions WHERE target = ?1 UNION SELECT target FROM reactions WHERE message = ?1"
    let seqs = try database.rows(
      """
      SELECT seq FROM messages WHERE id = ?1 OR id IN (\(others))
        UNION SELECT seq FROM outgoing WHERE id = -?1 OR id IN (SELECT -message FROM (\(others)))
      """, [.integer(number)]
    ) { $0.integerIfAny(0) }
    for seq in seqs {
      let behind: [(seq: Int64, body: [UInt8])] = try database.rows(
        "SELECT seq, body FROM journal WHERE seq > ?1 AND seq <= ?1 + \(Self.mostBehind) AND kind = 'reaction'",
        [.integer(seq)]
      ) { ($0.integer(0), $0.blob(1)) }
      for one in behind {
        // `try?`: a damaged event is told as a gap.
        guard let body = try? JSONValue(parsing: one.body) else { continue }
        let target = number > 0 ? body["target"]?.integer : body["target_outgoing"]?.integer.map { 0 - $0 }
        let isCarried = carried.map { reaction in
          body["hash"]?.string == reaction.hash && body["emoji"]?.string == reaction.emoji
            && body["sender"]?.string == sender
        }
        if target == number || isCarried == true { try emptyEvent(one.seq, &deleted) }
      }
    }
    try database.run("DELETE FROM reactions WHERE target = ?1 OR message = ?1", .integer(number))
  }

  /// Events that come with a message are so few behind its own.
  private static let mostBehind: Int64 = 100

  // MARK: Sent messages

  /// Within a `write`: empties these sent messages, as far as they have ended.
  func emptyOutgoing(_ ids: [Int64], _ deleted: inout DeletedEvents) throws(SQLiteError) {
    for id in ids {
      let isThere = "id = ? AND ended_at IS NOT NULL AND state <> \(Tombstone.word)"
      guard let message = try readOneOutgoing(isThere, .integer(id)) else { continue }
      try unindexOutgoing(id: id)
      try emptyWays(of: .sent(id), &deleted)
      try emptyEvents(of: message, &deleted)
      try emptyReactions(of: -id, message.text, by: "self", inChannel: message.kind == .channel, &deleted)
      let digest = message.channel.flatMap { channel in
        message.senderTime.map { Tombstone.digest(of: message.text, on: channel, senderTime: $0) }
      }
      try database.run(
        """
        UPDATE outgoing SET state = \(Tombstone.word), recipient = NULL, channel = NULL, text = x'', reason = NULL,
          region = NULL, ways = NULL, codes = ?2 WHERE id = ?1
        """, .integer(id), .blob(digest ?? []))
      deleted.messages += 1
    }
  }

  private func unindexOutgoing(id: Int64) throws(SQLiteError) {
    guard id <= (try database.meta(Self.indexedSent)?.integer ?? 0) else { return }
    try unindexOutgoing("\(id)")
    try database.run("INSERT INTO sent_words(rowid, text) VALUES (?, '')", .integer(id))
  }

  /// Events with a sent message's text, and the command that had it sent.
  private func emptyEvents(
    of message: OutgoingMessage, _ deleted: inout DeletedEvents
  ) throws(SQLiteError) {
    let seqs = try database.first(
      "SELECT seq, newest_seq, ended_seq FROM outgoing WHERE id = ?", [.integer(message.id)]
    ) { ($0.integerIfAny(0), $0.integerIfAny(1), $0.integerIfAny(2)) }
    guard let first = seqs?.0 else { return }
    let (key, last) = (message.key, max(first, seqs?.1 ?? first))
    // Those that the journal has no more are told, too: upstreams may have them.
    var told = [first: message.created.milliseconds]
    if let ended = seqs?.2, let at = message.endedAt { told[ended] = at }
    let found: [(seq: Int64, kind: String, body: [UInt8])] = try database.rows(
      """
      SELECT seq, kind, body FROM journal
        WHERE seq >= ? AND seq <= ? AND kind IN ('outgoing', 'command')
      """, [.integer(first), .integer(last + Self.mostBehind)]
    ) { ($0.integer(0), $0.text(1), $0.blob(2)) }
    for event in found {
      // `try?`: a damaged event is told as a gap.
      guard let body = try? JSONValue(parsing: event.body) else { continue }
      switch EventKind(rawValue: event.kind) {
      case .outgoing where body["id"]?.string == key && body["text"] != nil:
        try emptyLetters(event.seq)
        if let at = try emptyRow(event.seq) { told[event.seq] = at }
      case .command where body["result"]?["messages"]?.array?.contains { $0["id"]?.string == key } == true:
        try emptyEvent(event.seq, &deleted)
        guard let upstream = body["upstream"]?.string, let id = body["id"]?.string else { continue }
        // As of those that are too old to be kept whole: a repetition is refused.
        try database.run(
          "UPDATE commands SET body = x'', answer = x'' WHERE upstream = ? AND id = ? AND answer IS NOT NULL",
          .text(upstream), .text(id))
      default: continue
      }
    }
    for (seq, at) in told.sorted(by: { $0.key < $1.key }) {
      deleted.entries.append(.init(seq: seq, at: at, key: key))
    }
  }

  // MARK: Events

  /// Empties an event that is a row of `journal`, in its place.
  func emptyEvent(_ seq: Int64, _ deleted: inout DeletedEvents) throws(SQLiteError) {
    guard let at = try emptyRow(seq) else { return }
    try emptyLetters(seq)
    deleted.entries.append(.init(seq: seq, at: at))
  }

  /// Returns its time; `nil`: there is none.
  @discardableResult private func emptyRow(_ seq: Int64) throws(SQLiteError) -> Int64? {
    let found: JournalEvent? = try database.first(
      "SELECT at, trusted, kind, body FROM journal WHERE seq = ?", [.integer(seq)]
    ) { row in
      JournalEvent(
        seq: seq, at: row.integer(0), trusted: row.integer(1) != 0, kind: row.text(2), body: row.blob(3))
    }
    guard let found, !found.isDeleted else { return nil }
    let lane = Lane(kind: found.kind)
    var rest = found
    // Of its lane as before.
    if lane == EventKind.deletion.lane { rest.kind = EventKind.deletion.rawValue }
    rest.body = Tombstone.body
    try database.run(
      "UPDATE journal SET kind = ?, body = ?, checksum = ? WHERE seq = ?", .text(rest.kind), .blob(rest.body),
      .integer(rest.checksum), .integer(seq))
    journalState.recount(Int64(rest.body.count - found.body.count), lane)
    return found.at
  }

  /// Dead letters with this event.
  private func emptyLetters(_ seq: Int64) throws(SQLiteError) {
    let kind = EventKind.deletion.rawValue
    try database.run(
      """
      UPDATE dead_letters SET body = ?2, kind = CASE kind WHEN 'ways' THEN kind ELSE ?3 END
        WHERE seq = ?1 AND retry >= 0
      """, .integer(seq), .blob(Tombstone.body), .text(kind))
  }

  /// The events of a message's copies: each refers to its row, and names the one before.
  private func emptyWays(of message: MessageNumber, _ deleted: inout DeletedEvents) throws(SQLiteError) {
    var seq = try newestEventOfCopies(message)
    while seq >= journalState.open.oldest {
      let body = try database.value("SELECT body FROM journal WHERE seq = ? AND kind = 'ways'", .integer(seq))?.blob
      guard let body else { return }
      let previous = WaysReference(decoding: body)?.previous ?? 0
      try emptyEvent(seq, &deleted)
      guard previous < seq else { return }
      seq = previous
    }
  }
}
