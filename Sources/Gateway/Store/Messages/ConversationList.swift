// SPDX-License-Identifier: MIT

import Companion
import SQLite
import UntrustedText

/// A conversation in a list of conversations.
public struct Conversation: Equatable, Sendable {
  public var name: ConversationName
  /// The position of its newest message in either direction; `.first`: there is none.
  public var newest: MessagePlace
  /// Received messages after `read` that concern somebody (`Concern`).
  public var unread: Int64
  /// Whether one of them mentions us.
  public var isMentioned: Bool
  /// The position up to which it was read.
  public var read: MessagePlace
  /// Which of its messages concern somebody.
  public var level: ConversationLevel

  public init(
    name: ConversationName, newest: MessagePlace, unread: Int64, isMentioned: Bool, read: MessagePlace,
    level: ConversationLevel = .all
  ) {
    (self.name, self.newest, self.unread) = (name, newest, unread)
    (self.isMentioned, self.read, self.level) = (isMentioned, read, level)
  }
}

/// The list of conversations with unread counts.
///
/// It lags behind the messages, like the search indexes (`Search.swift`), and is updated on request: without readers of
/// the pages, the gateway writes nothing for it.
extension Store {
  /// Messages added to the list in one transaction.
  public static let listStep: Int64 = 2048
  static let listed = "conversations_listed"
  static let listedSent = "conversations_listed_sent"
  /// So many of the newest messages are counted again: more unread ones count as so many, and an older mention is not found.
  private static let maxCounted: Int64 = 10_000

  /// Whether the list includes all messages.
  public func isListUpToDate() throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in
      guard try database.value("SELECT 1 FROM meta WHERE name = ?", .text(Self.listed)) != nil else { return false }
      let (received, sent) = (try unindexed("messages", Self.listed), try unindexed("outgoing", Self.listedSent))
      return received.upTo == received.from && sent.upTo == sent.from
    }
  }

  /// Within a `write`: adds the messages of one step to the list. True: the list is complete.
  public func listConversations() throws(SQLiteError) -> Bool {
    let isFirstTime = try database.value("SELECT 1 FROM meta WHERE name = ?", .text(Self.listed)) == nil
    let isAll = try listReceived()
    let isAllSent = try listSent()
    // Messages from before the list existed count as read.
    if isFirstTime { try setMeta("conversations_from", .integer(try unindexed("messages", Self.listed).upTo)) }
    let from = try database.meta("conversations_from")?.integer ?? 0
    let upTo = try database.meta(Self.listed)?.integer ?? 0
    if upTo <= from {
      try database.run(
        """
        UPDATE conversations SET read_message = message, read_sent = 0, read_received = received WHERE read_message < message
        """)
    }
    return isAll && isAllSent
  }

  private struct Addition {
    var (newest, count, mention): (Int64, Int64, Int64) = (0, 0, 0)
    /// Those that concern nobody, too.
    var looked: Int64 = 0

    mutating func add(_ message: StoredMessage, _ concern: Concern) {
      looked += 1
      newest = max(newest, message.id)
      let said = Said(message)
      guard concern.filtered(said) == nil else { return }
      count += ReactionText(reading: message.text, inChannel: message.kind == .channel) == nil ? 1 : 0
      if concern.mentionsUs(said) { mention = max(mention, message.id) }
    }
  }

  private struct Place: Hashable {
    let radio: Int64
    let name: ConversationName
  }

  private func listReceived() throws(SQLiteError) -> Bool {
    let (from, newest) = try unindexed("messages", Self.listed)
    let first = try database.meta("conversations_from")?.integer
    // A step ends at the position after which messages count as unread.
    var upTo = min(newest, from + Self.listStep)
    if let first, from < first { upTo = min(upTo, first) }
    var additions: [Place: Addition] = [:]
    let (columns, blocks, levels) = (Self.messageColumns, try readBlocks(), try readLevels())
    try database.every(
      "SELECT \(columns) FROM messages WHERE id > ? AND id <= ? AND kind IN ('direct', 'room', 'channel') ORDER BY id",
      [.integer(from), .integer(upTo)]
    ) { row in
      let message = Self.message(row)
      guard let name = ConversationName(of: message) else { return }
      let place = Place(radio: message.radio == Self.everyRadio ? radio : message.radio, name: name)
      let ourName = self.radio(place.radio)?.name.string
      let concern = Concern(blocks: blocks, level: levels[place] ?? .all, ourName: ourName)
      additions[place, default: Addition()].add(message, concern)
    }
    for (place, addition) in additions {
      try database.run(
        """
        INSERT INTO conversations(radio, name, message, received, mention) VALUES (?1, ?2, ?3, ?4, ?5)
          ON CONFLICT(radio, name) DO UPDATE SET message = ?3, received = received + ?4, mention = max(mention, ?5)
        """, .integer(place.radio), .text(place.name.description), .integer(addition.newest), .integer(addition.count),
        .integer(addition.mention))
    }
    if upTo > from || first == nil { try setMeta(Self.listed, .integer(upTo)) }
    return upTo >= newest
  }

  private func listSent() throws(SQLiteError) -> Bool {
    let (from, newest) = try unindexed("outgoing", Self.listedSent)
    guard newest > from else { return true }
    let upTo = min(newest, from + Self.listStep)
    var places: [(Place, MessagePlace)] = []
    try database.every(
      "SELECT id, place, recipient, channel, radio FROM outgoing WHERE id > ? AND id <= ? ORDER BY id",
      [.integer(from), .integer(upTo)]
    ) { row in
      let channel = row.isNull(3) ? nil : row.text(3)
      let recipient = row.isNull(2) ? nil : KeyPrefix(bytes: Array(row.blob(2).prefix(6)))
      guard let name = channel.map(ConversationName.channel) ?? recipient.map(ConversationName.node) else {
        return
      }
      places.append(
        (Place(radio: row.integer(4), name: name), MessagePlace(message: row.integer(1), outgoing: row.integer(0))))
    }
    for (place, newest) in places {
      try database.run(
        """
        INSERT INTO conversations(radio, name, sent_place, sent) VALUES (?1, ?2, ?3, ?4)
          ON CONFLICT(radio, name) DO UPDATE SET sent_place = ?3, sent = ?4
        """, .integer(place.radio), .text(place.name.description), .integer(newest.message), .integer(newest.outgoing))
    }
    try setMeta(Self.listedSent, .integer(upTo))
    return upTo == newest
  }

  /// The levels of conversations that have another than `all`.
  private func readLevels() throws(SQLiteError) -> [Place: ConversationLevel] {
    var levels: [Place: ConversationLevel] = [:]
    try database.every("SELECT radio, name, level FROM conversations WHERE level != 0") { row in
      guard let name = ConversationName(row.text(1)) else { return }
      levels[Place(radio: row.integer(0), name: name)] = ConversationLevel(column: row.integer(2))
    }
    return levels
  }

  /// The conversations of a radio, newest first; those that have only a level come last.
  public func conversations(ofRadio radio: Int64) throws(StoreError) -> [Conversation] {
    try translating { () throws(SQLiteError) in try readConversations("radio = ?", .integer(radio)) }
  }

  public func conversation(_ name: ConversationName, ofRadio radio: Int64) throws(StoreError) -> Conversation? {
    try translating { () throws(SQLiteError) in
      try readConversations("radio = ? AND name = ?", .integer(radio), .text(name.description)).first
    }
  }

  private func readConversations(_ condition: String, _ values: SQLiteValue...) throws(SQLiteError) -> [Conversation] {
    let found: [Conversation] = try database.rows(
      """
      SELECT name, message, sent_place, sent, received, mention, read_message, read_sent, read_received, level
      FROM conversations WHERE \(condition)
      """, values
    ) { row in
      guard let name = ConversationName(row.text(0)) else { return nil }
      let received = MessagePlace(message: row.integer(1))
      let sent = MessagePlace(message: row.integer(2), outgoing: row.integer(3))
      let read = MessagePlace(message: row.integer(6), outgoing: row.integer(7))
      return Conversation(
        name: name, newest: sent.outgoing == 0 ? received : max(received, sent),
        unread: max(0, row.integer(4) - row.integer(8)), isMentioned: row.integer(5) > read.message, read: read,
        level: ConversationLevel(column: row.integer(9)))
    }
    return found.sorted { $0.newest > $1.newest }
  }

  /// Within a `write`, when the list is complete: marks the conversation as read up to this position. An earlier position
  /// than the stored one changes nothing. True: the position has changed.
  public func markRead(
    _ name: ConversationName, upTo place: MessagePlace, ofRadio radio: Int64
  ) throws(SQLiteError) -> Bool {
    guard let known = try readConversations("radio = ? AND name = ?", .integer(radio), .text(name.description)).first,
      place > known.read
    else { return false }
    let place = min(place, known.newest)
    var left: Int64 = 0
    if try canCount { left = try unreadMessages(of: name, behind: place.message, ofRadio: radio).count }
    try database.run(
      """
      UPDATE conversations SET read_message = ?3, read_sent = ?4, read_received = max(0, received - ?5)
        WHERE radio = ?1 AND name = ?2
      """, .integer(radio), .text(name.description), .integer(place.message), .integer(place.outgoing), .integer(left))
    if try !canCount { try recountLater(name.description) }
    return true
  }

  /// Within a `write`. The conversation may be empty. The caller counts again what is unread.
  public func setLevel(
    _ level: ConversationLevel, of name: ConversationName, ofRadio radio: Int64
  ) throws(SQLiteError) {
    try database.run(
      """
      INSERT INTO conversations(radio, name, level) VALUES (?1, ?2, ?3)
        ON CONFLICT(radio, name) DO UPDATE SET level = ?3
      """, .integer(radio), .text(name.description), .integer(level.column))
  }

  // MARK: Counting again

  public typealias Counted = (radio: Int64, name: ConversationName)

  /// Within a `write`, when the list is complete: counts again what is unread, because other messages concern somebody now. `name`: only in this conversation;
  /// otherwise in all with nodes, which `recountNext` does step by step. It also does what the search index does not allow yet. Returns those that were
  /// counted.
  public func recountUnread(in name: ConversationName?) throws(SQLiteError) -> [Counted] {
    guard let name, try canCount else {
      try recountLater(name?.description ?? "node:*")
      return []
    }
    let step = try recount(name.description, after: "-1 -")
    // Of another radio.
    if step.last != nil { try recountLater(name.description) }
    return step.counted
  }

  /// Whether conversations are to be counted again.
  public func isRecountDue() throws(StoreError) -> Bool { try meta(Self.recounting) != nil }

  /// Within a `write`: counts the next conversations again, until so many messages were read as a step of the list has. Returns those that were counted;
  /// none as long as the search index lacks messages of the list.
  public func recountNext() throws(SQLiteError) -> [Counted] {
    let due = (try database.meta(Self.recounting)?.text ?? "").split(separator: " ", maxSplits: 1)
    var step: (counted: [Counted], last: String?) = ([], nil)
    if due.count == 2 {
      guard try canCount else { return [] }
      step = try recount(String(due[0]), after: String(due[1]))
    }
    if let last = step.last {
      try setMeta(Self.recounting, .text("\(due[0]) \(last)"))
    } else {
      try database.run("DELETE FROM meta WHERE name = ?", .text(Self.recounting))
    }
    return step.counted
  }

  /// The conversations that are still to be counted again, over restarts: `PATTERN RADIO NAME`, those of the pattern after that one.
  private static let recounting = "conversations_recounting"
  private static let mostRecounted = 256

  private func recountLater(_ pattern: String) throws(SQLiteError) {
    let before = try database.meta(Self.recounting)?.text?.split(separator: " ").first
    let isWithin = before.map { $0.elementsEqual(pattern) } ?? true
    try setMeta(Self.recounting, .text("\(isWithin ? pattern : "*") -1 -"))
  }

  /// Whether the search index, by which messages of a conversation are found, has all that the list has.
  private var canCount: Bool {
    get throws(SQLiteError) {
      let (from, newest) = try unindexed("messages", Self.indexed)
      let listed = try database.meta(Self.listed)?.integer ?? 0
      return from >= min(newest, listed)
    }
  }

  /// `place`: `RADIO NAME`. `last`: where the next step begins; `nil`: there is none.
  private func recount(
    _ pattern: String, after place: String
  ) throws(SQLiteError) -> (counted: [Counted], last: String?) {
    let from = place.split(separator: " ")
    let found: [(radio: Int64, name: String, read: Int64)] = try database.rows(
      """
      SELECT radio, name, read_message FROM conversations WHERE message > read_message AND name GLOB ?1
        AND (radio, name) > (?2, ?3) ORDER BY radio, name LIMIT \(Self.mostRecounted)
      """, [.text(pattern), .integer(from.first.flatMap { Int64($0) } ?? -1), .text(String(from.last ?? "-"))]
    ) { ($0.integer(0), $0.text(1), $0.integer(2)) }
    var (counted, looked): ([Counted], Int64) = ([], 0)
    for (radio, text, read) in found {
      guard looked < Self.listStep else { break }
      guard let name = ConversationName(text) else { continue }
      let unread = try unreadMessages(of: name, behind: read, ofRadio: radio)
      try database.run(
        "UPDATE conversations SET received = read_received + ?3, mention = ?4 WHERE radio = ?1 AND name = ?2",
        .integer(radio), .text(text), .integer(unread.count), .integer(unread.mention))
      looked += unread.looked
      counted.append((radio, name))
    }
    guard counted.count == found.count, found.count < Self.mostRecounted else {
      return (counted, counted.last.map { "\($0.radio) \($0.name)" })
    }
    return (counted, nil)
  }

  /// Of those in the list: later ones are counted when it gets them.
  private func unreadMessages(
    of name: ConversationName, behind place: Int64, ofRadio radio: Int64
  ) throws(SQLiteError) -> Addition {
    let listed = try database.meta(Self.listed)?.integer ?? 0
    let concern = try self.concern(in: name, ofRadio: radio, readBlocks())
    var found = Addition()
    try database.every(
      """
      SELECT \(Self.messageColumns) FROM messages
        WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?1 AND rowid > ?2 AND rowid <= ?5)
        AND kind IN ('direct', 'room', 'channel') AND radio IN (?3, \(Self.everyRadio)) ORDER BY id DESC LIMIT ?4
      """,
      [
        .text("place : \(name.indexWord)"), .integer(place), .integer(radio), .integer(Self.maxCounted),
        .integer(listed),
      ]
    ) { row in found.add(Self.message(row), concern) }
    return found
  }
}
