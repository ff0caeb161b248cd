// SPDX-License-Identifier: MIT

import SQLite

/// Full-text search of messages, with one index for received and one for sent messages.
///
/// The indexes lag behind the messages and are extended by some hundred at a time: extending them with each message
/// would write several times the message's size. A search first completes them.
extension Store {
  /// Messages added to an index in one transaction.
  public static let indexStep: Int64 = 256
  static let indexed = "search_indexed"
  static let indexedSent = "search_indexed_sent"

  /// The number of messages that the indexes lack.
  public func unindexedMessages() throws(StoreError) -> Int64 {
    try translating { () throws(SQLiteError) in
      let (received, sent) = (try unindexed("messages", Self.indexed), try unindexed("outgoing", Self.indexedSent))
      return received.upTo - received.from + sent.upTo - sent.from
    }
  }

  /// The ids that an index lacks: above `from`, up to `upTo`.
  func unindexed(_ table: String, _ mark: String) throws(SQLiteError) -> (from: Int64, upTo: Int64) {
    let known = try database.meta(mark)?.integer ?? 0
    let first = try database.value("SELECT min(id) FROM \(table)")?.integer ?? 1
    let newest = try database.value("SELECT max(id) FROM \(table)")?.integer ?? 0
    let from = max(known, first - 1)
    return (from, max(from, newest))
  }

  /// Within a `write`: adds the messages of one step to the indexes. True: the indexes are complete.
  public func indexMessages() throws(SQLiteError) -> Bool {
    let isAll = try index(
      "messages", Self.indexed,
      """
      INSERT INTO words(rowid, text, sender, place)
        SELECT id, spaced(text), spaced(sender), place FROM message_words WHERE id > ? AND id <= ?
      """)
    let isAllSent = try index(
      "outgoing", Self.indexedSent,
      "INSERT INTO sent_words(rowid, text) SELECT id, spaced(text) FROM sent_texts WHERE id > ? AND id <= ?")
    return isAll && isAllSent
  }

  private func index(_ table: String, _ mark: String, _ sql: String) throws(SQLiteError) -> Bool {
    let (from, newest) = try unindexed(table, mark)
    guard newest > from else { return true }
    let upTo = min(newest, from + Self.indexStep)
    try database.run(sql, .integer(from), .integer(upTo))
    try setMeta(mark, .integer(upTo))
    return upTo == newest
  }

  /// Call it within a `write`, before the sent messages of this query are removed.
  func unindexOutgoing(_ leaving: String) throws(SQLiteError) {
    let known = try database.meta(Self.indexedSent)?.integer ?? 0
    try database.run(
      """
      INSERT INTO sent_words(sent_words, rowid, text)
        SELECT 'delete', id, spaced(text) FROM sent_texts WHERE id IN (\(leaving)) AND id <= ?
      """, .integer(known))
  }

  /// Call it within a `write`, before messages up to this id are removed.
  func unindexMessages(upTo id: Int64) throws(SQLiteError) {
    let known = try database.meta(Self.indexed)?.integer ?? 0
    try database.run(
      """
      INSERT INTO words(words, rowid, text, sender, place)
        SELECT 'delete', id, spaced(text), spaced(sender), place FROM message_words WHERE id <= ?
      """, .integer(min(id, known)))
  }

  /// Matching received messages, newest first or oldest first; at most `limit`. Return false to stop.
  func eachReceived(
    _ query: MessageQuery, _ expression: String?, _ oldestFirst: Bool, _ limit: Int,
    _ row: (StoredMessage) throws(SQLiteError) -> Bool
  ) throws(SQLiteError) {
    let (low, high) = try ids(query)
    let columns = Self.messageColumns.split(separator: ",").map { "m.\($0.drop { $0.isWhitespace })" }
    let source =
      expression == nil
      ? "messages m WHERE ?1 IS NULL AND m.kind <> \(Tombstone.word) AND m.id > ?2 AND m.id < ?3"
      : "words w JOIN messages m ON m.id = w.rowid WHERE words MATCH ?1 AND w.rowid > ?2 AND w.rowid < ?3"
    let order = "\(expression == nil ? "m.id" : "w.rowid") \(oldestFirst ? "ASC" : "DESC")"
    try database.each(
      """
      SELECT \(columns.joined(separator: ", ")) FROM \(source) AND m.at BETWEEN ?4 AND ?5
        AND (?7 IS NULL OR m.radio IN (?7, \(Self.everyRadio))) ORDER BY \(order) LIMIT ?6
      """,
      [
        .optional(expression), .integer(low), .integer(high), .integer(query.since ?? .min),
        .integer(query.until ?? .max), .integer(Int64(clamping: limit)), .optional(query.radio),
      ]
    ) { (statement) throws(SQLiteError) in
      var message = Self.message(statement)
      if let author = message.author { message.authorName = try nameOfAuthor(author) }
      return try row(message)
    }
  }

  /// The range of ids of messages in the query's time and of its radio: ids grow with time.
  func ids(_ query: MessageQuery) throws(SQLiteError) -> (low: Int64, high: Int64) {
    var (low, high) = (query.after.message, query.before.message)
    // If the upper position is after a received message, that message is included.
    if query.before.outgoing > 0, high < .max { high += 1 }
    if let radio = query.radio.flatMap({ self.radio($0) }) {
      low = max(low, radio.firstMessage - 1)
      if let last = radio.lastMessage, last < .max { high = min(high, last + 1) }
    }
    if let since = query.since { low = max(low, try firstMessage(at: since) - 1) }
    if let until = query.until, until < .max { high = min(high, try firstMessage(at: until + 1)) }
    return (low, high)
  }

  /// The first message received at that time or later, by binary search; `.max`: none.
  func firstMessage(at milliseconds: Int64) throws(SQLiteError) -> Int64 {
    var low = try database.value("SELECT min(id) FROM messages")?.integer ?? 0
    let newest = try database.value("SELECT max(id) FROM messages")?.integer ?? 0
    var high = newest + 1
    while low < high {
      let middle = low + (high - low) / 2
      let at = try database.value("SELECT at FROM messages WHERE id >= ? ORDER BY id LIMIT 1", .integer(middle))
      if let at = at?.integer, at < milliseconds { low = middle + 1 } else { high = middle }
    }
    return low > newest ? .max : low
  }
}

/// Why a search was not made.
public enum SearchError: Error, Equatable, Sendable {
  case words(MessageQuery.WordsError)
  case store(StoreError)
}
