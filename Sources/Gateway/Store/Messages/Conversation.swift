// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import SQLite

/// The position of a message among those of both directions: received messages in order of arrival, each sent one after
/// the messages that had been received when it was accepted.
///
/// It does not depend on clocks, so a page is the same when it is requested again.
public struct MessagePlace: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The received message, or the newest one received before the sent message.
  public var message: Int64
  /// The sent message; 0: the received message itself.
  public var outgoing: Int64

  public init(message: Int64, outgoing: Int64 = 0) {
    self.message = message
    self.outgoing = outgoing
  }

  /// Positions before and after all messages.
  public static let first = MessagePlace(message: 0)
  public static let last = MessagePlace(message: .max, outgoing: .max)

  /// No table has so many rows, so clients cannot name a greater number.
  private static let bound: Int64 = 1 << 53

  /// `12`: received message 12; `12.3`: our message 3, after it.
  public init?(_ text: String) {
    let parts = text.split(separator: ".", omittingEmptySubsequences: false).map { part in
      Int64(part).map { min($0, Self.bound) }
    }
    guard let message = parts.first ?? nil, message >= 0, parts.count <= 2 else { return nil }
    guard parts.count == 2 else {
      self.init(message: message)
      return
    }
    guard let outgoing = parts[1], outgoing > 0 else { return nil }
    self.init(message: message, outgoing: outgoing)
  }

  public var description: String { outgoing == 0 ? "\(message)" : "\(message).\(outgoing)" }

  public static func < (left: Self, right: Self) -> Bool {
    (left.message, left.outgoing) < (right.message, right.outgoing)
  }
}

extension MessagePlace: ExpressibleByIntegerLiteral {
  public init(integerLiteral value: Int64) { self.init(message: value) }
}

/// A message of either direction.
public enum ConversationRow: Equatable, Sendable {
  case received(StoredMessage)
  case sent(OutgoingMessage, MessagePlace)

  public var place: MessagePlace {
    switch self {
    case .received(let message): MessagePlace(message: message.id)
    case .sent(_, let place): place
    }
  }
}

extension Store {
  /// Matching messages of the requested directions, newest first or oldest first; at most `limit`. Return false to
  /// stop.
  public func eachRow(
    _ query: MessageQuery, oldestFirst: Bool = false, limit: Int, _ row: (ConversationRow) -> Bool
  ) throws(SearchError) {
    let (received, sent): (String?, String?)
    do {
      (received, sent) = (try query.expression(), try query.sentExpression())
    } catch {
      throw .words(error)
    }
    do throws(SQLiteError) {
      // Sent messages are few: their positions fit in memory, and received messages are read one by one between them.
      let places = try placesOfSent(query, sent, oldestFirst, limit)
      try merge(places[...], query, received, oldestFirst, limit, row)
    } catch {
      throw .store(StoreError(error))
    }
  }

  private func merge(
    _ places: ArraySlice<MessagePlace>, _ query: MessageQuery, _ expression: String?, _ oldestFirst: Bool, _ limit: Int,
    _ row: (ConversationRow) -> Bool
  ) throws(SQLiteError) {
    var (sent, left) = (places, max(0, limit))
    func pass(_ next: ConversationRow) {
      left -= 1
      if !row(next) { left = 0 }
    }
    func passSent(upTo end: MessagePlace?) throws(SQLiteError) {
      while left > 0, let next = sent.first, end.map({ oldestFirst ? next < $0 : next > $0 }) ?? true {
        sent.removeFirst()
        if let message = try readOneOutgoing("id = ?", .integer(next.outgoing)) { pass(.sent(message, next)) }
      }
    }
    if query.directions.contains(.received), left > 0 {
      try eachReceived(query, expression, oldestFirst, limit) { message throws(SQLiteError) in
        try passSent(upTo: MessagePlace(message: message.id))
        if left > 0 { pass(.received(message)) }
        return left > 0
      }
    }
    try passSent(upTo: nil)
  }

  /// Positions of matching sent messages; none with `from`, because other nodes did not send them.
  private func placesOfSent(
    _ query: MessageQuery, _ expression: String?, _ oldestFirst: Bool, _ limit: Int
  ) throws(SQLiteError) -> [MessagePlace] {
    guard query.directions.contains(.sent), query.from == nil else { return [] }
    let order = oldestFirst ? "ASC" : "DESC"
    let words = expression == nil ? "?1 IS NULL" : "o.id IN (SELECT rowid FROM sent_words WHERE sent_words MATCH ?1)"
    return try database.rows(
      """
      SELECT o.place, o.id FROM outgoing o WHERE \(words) AND o.state <> \(Tombstone.word) AND (o.place, o.id) > (?2, ?3) AND (o.place, o.id) < (?4, ?5)
        AND o.created_at BETWEEN ?6 AND ?7 AND (?8 IS NULL OR o.radio = ?8) AND (?9 IS NULL OR o.recipient = ?9)
        AND (?10 IS NULL OR o.channel = ?10) AND (?11 IS NULL OR substr(o.recipient, 1, 6) = ?11)
        ORDER BY o.place \(order), o.id \(order) LIMIT ?12
      """,
      [
        .optional(expression), .integer(query.after.message), .integer(query.after.outgoing),
        .integer(query.before.message), .integer(query.before.outgoing), .integer(query.since ?? .min),
        .integer(query.until ?? .max), .optional(query.radio), .optional(query.with?.key.bytes),
        .optional(query.channel?.digest ?? query.conversation?.channel), .optional(query.conversation?.node?.bytes),
        .integer(Int64(clamping: limit)),
      ]
    ) { MessagePlace(message: $0.integer(0), outgoing: $0.integer(1)) }
  }

  /// The position of a sent message.
  public func place(ofOutgoing id: Int64) throws(StoreError) -> MessagePlace? {
    try value("SELECT place FROM outgoing WHERE id = ?", .integer(id))?.integer
      .map { MessagePlace(message: $0, outgoing: id) }
  }

  /// The position after all messages.
  public func endOfMessages() throws(StoreError) -> MessagePlace {
    let outgoing = try value("SELECT max(id) FROM outgoing")?.integer ?? 0
    return MessagePlace(message: try lastMessageID(), outgoing: outgoing)
  }

  /// Assigns positions, by time, to sent messages from before positions existed.
  func placeOutgoing() throws(SQLiteError) {
    let times: [(id: Int64, at: Int64)] = try database.rows(
      "SELECT id, created_at FROM outgoing WHERE place IS NULL ORDER BY id"
    ) { ($0.integer(0), $0.integer(1)) }
    guard !times.isEmpty else { return }
    try database.execute("BEGIN IMMEDIATE")
    do {
      let newest = try database.value("SELECT max(id) FROM messages")?.integer ?? 0
      var last: Int64 = 0
      for (id, at) in times {
        let next = try firstMessage(at: min(at, .max - 1) + 1)
        last = max(last, next == .max ? newest : max(0, next - 1))
        try database.run("UPDATE outgoing SET place = ? WHERE id = ?", .integer(last), .integer(id))
      }
      try database.execute("COMMIT")
    } catch {
      if database.isInTransaction { try database.execute("ROLLBACK") }
      throw error
    }
  }

  // MARK: As rows

  /// A sent message in the form of `outgoing`.
  public func write(_ message: OutgoingMessage, to json: inout JSONWriter) {
    EventBody.write(message, radio: mark(ofRadio: message.radio), to: &json)
    if !message.hasEnded, message.radio != radio {
      json.field(Shape.Outgoing().heldFor, self.radio(message.radio)?.name.string ?? "another radio")
    }
  }

  /// The names of its recipient and its channel. If they cannot be read, the key and the digest remain.
  public func names(of message: OutgoingMessage) -> (recipient: String?, channel: String?) {
    let recipient = message.recipient.flatMap { key in ifReadable { try contact(key) } }
    let channel = message.channel.flatMap { digest in ifReadable { try nameOfChannel(digest) } }
    return (recipient?.contact.name.string, channel?.string)
  }

  /// A sent message among received ones, with the fields of both.
  public func write(_ message: OutgoingMessage, at place: MessagePlace, asRow json: inout JSONWriter) {
    let row = Shape.Message()
    let (from, names) = (self.radio(message.radio), self.names(of: message))
    // Sent messages have negative numbers, as in the target of a reaction.
    json.field(row.id, 0 &- message.id)
    json.field(row.kind, message.kind.rawValue)
    json.field(row.sender, from?.mark)
    json.field(row.senderName, from?.name.string)
    json.field(row.recipient, message.recipient?.hex)
    json.field(row.recipientName, names.recipient)
    json.field(row.channel, message.channel)
    json.field(row.channelName, names.channel)
    json.field(row.text, message.text.string)
    json.field(row.mentions, Mention.names(in: message.text))
    json.field(row.direct, message.attempts.accepted > 0 && message.attempts.floods == 0 && message.kind != .channel)
    json.field(row.radio, from?.mark)
    json.field(row.direction, "sent")
    json.field(row.cursor, place.description)
    json.field(row.outgoing, message.key)
    json.field(row.origin, message.origin)
    json.field(row.region, message.region)
    EventBody.writeState(message, to: &json)
    json.field(row.ended, message.hasEnded)
    json.field(row.receivedAt, message.created.milliseconds)
    json.field(row.clockTrusted, message.created.trusted)
    json.field(row.copies, 1)
  }
}
