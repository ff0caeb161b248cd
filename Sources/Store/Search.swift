// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// Messages by their words.
///
/// The index follows behind, some hundred messages at a time: a step for each message would write several times what
/// the message is. Before something is looked for, the rest is taken in.
extension Store {
  /// Messages that are taken into the index in one transaction.
  public static let indexStep: Int64 = 256
  private static let indexed = "search_indexed"

  /// Messages that the index does not have.
  public func unindexedMessages() throws(StoreError) -> Int64 {
    let known = try meta(Self.indexed)?.integer ?? 0
    let first = try translating { () throws(SQLiteError) in
      try database.value("SELECT min(id) FROM messages")?.integer ?? 1
    }
    return max(0, try lastMessageID() - max(known, first - 1))
  }

  /// Within a `write`: takes one step's messages into the index. True: that was the rest.
  public func indexMessages() throws(SQLiteError) -> Bool {
    let known = try database.value("SELECT value FROM meta WHERE name = ?", .text(Self.indexed))?.integer ?? 0
    let first = try database.value("SELECT min(id) FROM messages")?.integer ?? 1
    let newest = try database.value("SELECT max(id) FROM messages")?.integer ?? 0
    let from = max(known, first - 1)
    guard newest > from else { return true }
    let upTo = min(newest, from + Self.indexStep)
    try database.run(
      """
      INSERT INTO words(rowid, text, sender, place)
        SELECT id, text, sender, place FROM message_words WHERE id > ? AND id <= ?
      """, .integer(from), .integer(upTo))
    try setMeta(Self.indexed, .integer(upTo))
    return upTo == newest
  }

  /// Within a `write`, before messages up to this id are removed.
  func unindexMessages(upTo id: Int64) throws(SQLiteError) {
    let known = try database.value("SELECT value FROM meta WHERE name = ?", .text(Self.indexed))?.integer ?? 0
    try database.run(
      """
      INSERT INTO words(words, rowid, text, sender, place)
        SELECT 'delete', id, text, sender, place FROM message_words WHERE id <= ?
      """, .integer(min(id, known)))
  }

  /// Messages that fit, newest first, or oldest first; at most `limit`. Return false to stop.
  public func eachMessage(
    _ query: MessageQuery, oldestFirst: Bool = false, limit: Int, _ row: (StoredMessage) -> Bool
  ) throws(SearchError) {
    let expression: String?
    do {
      expression = try query.expression()
    } catch {
      throw .words(error)
    }
    do throws(SQLiteError) {
      try each(query, expression, oldestFirst, limit, row)
    } catch {
      throw .store(StoreError(error))
    }
  }

  private func each(
    _ query: MessageQuery, _ expression: String?, _ oldestFirst: Bool, _ limit: Int, _ row: (StoredMessage) -> Bool
  ) throws(SQLiteError) {
    let (low, high) = try ids(query)
    let columns = Self.messageColumns.split(separator: ",").map { "m.\($0.drop { $0.isWhitespace })" }
    let source =
      expression == nil
      ? "messages m WHERE ?1 IS NULL AND m.id > ?2 AND m.id < ?3"
      : "words w JOIN messages m ON m.id = w.rowid WHERE words MATCH ?1 AND w.rowid > ?2 AND w.rowid < ?3"
    let order = "\(expression == nil ? "m.id" : "w.rowid") \(oldestFirst ? "ASC" : "DESC")"
    try database.each(
      """
      SELECT \(columns.joined(separator: ", ")) FROM \(source) AND m.at BETWEEN ?4 AND ?5 ORDER BY \(order) LIMIT ?6
      """,
      [
        .optional(expression), .integer(low), .integer(high), .integer(query.since ?? .min),
        .integer(query.until ?? .max), .integer(Int64(clamping: limit)),
      ]
    ) { (statement) throws(SQLiteError) in
      var message = Self.message(statement)
      if let author = message.author { message.authorName = try nameOfAuthor(author) }
      return row(message)
    }
  }

  /// Between which ids messages of that time lie: they come in the order of their ids.
  private func ids(_ query: MessageQuery) throws(SQLiteError) -> (low: Int64, high: Int64) {
    var (low, high) = (query.after, query.before)
    if let since = query.since { low = max(low, try firstMessage(at: since) - 1) }
    if let until = query.until, until < .max { high = min(high, try firstMessage(at: until + 1)) }
    return (low, high)
  }

  /// The first message that came then or later, found by halving; `.max`: there is none.
  private func firstMessage(at milliseconds: Int64) throws(SQLiteError) -> Int64 {
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

/// Why nothing was looked for.
public enum SearchError: Error, Equatable, Sendable {
  case words(MessageQuery.WordsError)
  case store(StoreError)
}
