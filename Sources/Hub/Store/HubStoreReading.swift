// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// Pages of rows as JSON objects: `{"NAME": […], "next": …}`; `next` is what to pass as `after` for the next page, absent at
/// the end. A page ends early when it has `pageBytes`.
extension HubStore {
  /// Gateways that are named as hearers of one message: the first that heard it.
  private static let maxHeard = 100

  public func events(
    gateway: String, kind: String?, after: Int64, limit: Int
  ) throws(HubDatabaseError) -> [UInt8] {
    let (filter, size) = (
      "WHERE gateway = ?1 AND (CAST(?2 AS TEXT) IS NULL OR kind = ?2) AND id > ?3 ORDER BY id LIMIT ?4", bytes("body")
    )
    let values: [SQLiteValue] = [.text(gateway), .optional(kind), .integer(after)]
    let fit = try fitting("SELECT \(size) FROM events \(filter)", values + [.integer(Int64(limit))])
    var last = after
    var list = JSONWriter()
    try list.array { (json) throws(HubDatabaseError) in
      try database.each(
        "SELECT id, epoch, seq, at, trusted, kind, body FROM events \(filter)", values + [.integer(Int64(fit.rows))]
      ) { (row) throws(HubDatabaseError) in
        last = row.integer(0)
        Self.write(row, to: &json)
        return true
      }
    }
    return Self.page(kind == "message" ? "messages" : "events", list) { json in
      if fit.isCut || fit.rows == limit { json.field("next", last) }
    }
  }

  private static func page(
    _ name: String, _ list: JSONWriter, _ more: (inout JSONWriter) -> Void
  ) -> [UInt8] {
    JSONWriter.object { json in
      json.field(name, json: list.bytes)
      more(&json)
    }
  }

  private static func write(_ row: any HubRow, to json: inout JSONWriter) {
    json.object { json in
      json.field("id", row.integer(0))
      json.field("epoch", row.text(1))
      json.field("seq", row.integer(2))
      json.field("at", row.integer(3))
      json.field("trusted", row.integer(4) != 0)
      json.field("kind", row.text(5))
      json.field("body", json: Array(row.text(6).utf8))
    }
  }

  public func contacts(gateway: String, after: String, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM contacts WHERE gateway = ?1 AND key > ?2 ORDER BY key LIMIT ?3"
    let values: [SQLiteValue] = [.text(gateway), .text(after)]
    let fit = try fitting("SELECT \(bytes("body")) \(filter)", values + [.integer(Int64(limit))])
    var last = after
    var list = JSONWriter()
    try list.array { (json) throws(HubDatabaseError) in
      try database.each("SELECT key, body \(filter)", values + [.integer(Int64(fit.rows))]) {
        (row) throws(HubDatabaseError) in
        last = row.text(0)
        json.raw(Array(row.text(1).utf8))
        return true
      }
    }
    return Self.page("contacts", list) { json in
      if fit.isCut || fit.rows == limit { json.field("next", last) }
    }
  }

  /// Messages of all gateways, each once, in order of first arrival, with the gateways that received it and their signal.
  public func joinedMessages(channel: String?, after: Int64, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    let page = try messages("position > ?1", "position", after, channel, limit)
    return Self.page("messages", try joined(page.found)) { json in
      if page.hasMore { json.field("next", page.found.last?.position) }
    }
  }

  /// The same from the newest on, those before a position. `next` is the next `before`.
  ///
  /// At most `HubBounds.scanned` messages are looked at for those that `filter` lets through: a page may have few, or none, and still a `next`.
  func joinedMessages(before: Int64, _ filter: MessageFilter, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    var chosen: [Joined] = []
    var (place, scanned, hasMore) = (before, 0, true)
    while hasMore, chosen.count < limit, scanned < HubBounds.scanned {
      let wanted = filter.isEmpty ? limit : HubBounds.scannedAtOnce
      let page = try messages("position < ?1", "position DESC", place, filter.channel, wanted)
      let allowed = try allowed(page.found, by: filter)
      for message in page.found {
        place = message.position
        scanned += 1
        if allowed.contains(message.position) { chosen.append(message) }
        if chosen.count == limit { break }
      }
      // Newest first: what follows is older still.
      hasMore = (page.hasMore || place != page.found.last?.position) && filter.goesOn(page.found.last)
    }
    return Self.page("messages", try joined(chosen)) { json in if hasMore { json.field("next", place) } }
  }

  /// One, if it is there.
  func joinedMessage(at position: Int64) throws(HubDatabaseError) -> [UInt8]? {
    let page = try messages("position >= ?1", "position", position, nil, 1)
    guard let message = page.found.first, message.position == position else { return nil }
    return try joined([message]).bytes.dropFirst().dropLast().map { $0 }
  }

  /// The position of the newest that can be read.
  func newestPosition() throws(HubDatabaseError) -> Int64 {
    let settled = database.unsettledPosition.map { "WHERE position < \($0)" } ?? ""
    return try database.first("SELECT coalesce(max(position), 0) FROM messages \(settled)") { $0.integer(0) } ?? 0
  }

  struct Joined {
    let position: Int64
    let at: Int64
    let body: String
  }

  /// `place`: SQL on which side of `?1`. `hasMore`: there may be.
  private func messages(
    _ place: String, _ order: String, _ from: Int64, _ channel: String?, _ limit: Int
  ) throws(HubDatabaseError) -> (found: [Joined], hasMore: Bool) {
    let settled = database.unsettledPosition.map { "AND position < \($0)" } ?? ""
    let filter =
      "FROM messages m WHERE \(place) \(settled) AND (CAST(?2 AS TEXT) IS NULL OR channel = ?2) "
      + "ORDER BY \(order) LIMIT ?3"
    let values: [SQLiteValue] = [.integer(from), .optional(channel)]
    let heard = "(SELECT sum(\(bytes("h.body"))) FROM heard h WHERE h.message = m.position)"
    let fit = try fitting(
      "SELECT \(bytes("m.body")) + coalesce(\(heard), 0) \(filter)", values + [.integer(Int64(limit))])
    var found: [Joined] = []
    try database.each("SELECT position, at, body \(filter)", values + [.integer(Int64(fit.rows))]) {
      (row) throws(HubDatabaseError) in
      found.append(Joined(position: row.integer(0), at: row.integer(1), body: row.text(2)))
      return true
    }
    return (found, fit.isCut || fit.rows == limit)
  }

  private func allowed(_ messages: [Joined], by filter: MessageFilter) throws(HubDatabaseError) -> Set<Int64> {
    var allowed = Set(messages.filter(filter.lets).map(\.position))
    guard let gateway = filter.gateway, !allowed.isEmpty else { return allowed }
    var heard: Set<Int64> = []
    try database.read([
      HubCall(
        "SELECT v.position FROM @rows JOIN heard h ON h.message = v.position AND h.gateway = @1",
        [("position", .integers(allowed.sorted()))], values: [.text(gateway)]
      ) { heard.insert($0.integer(0)) }
    ])
    allowed.formIntersection(heard)
    return allowed
  }

  private func joined(_ found: [Joined]) throws(HubDatabaseError) -> JSONWriter {
    let hearers = try hearers(of: found.map(\.position))
    var list = JSONWriter()
    list.array { json in
      for message in found {
        json.object { json in
          json.field("position", message.position)
          json.field("at", message.at)
          json.field("body", json: Array(message.body.utf8))
          json.arrayField("heard") { json in
            for report in hearers[message.position] ?? [] { json.raw(Array(report.utf8)) }
          }
        }
      }
    }
    return list
  }

  /// The reports of those that heard each of the messages, the first that did so first.
  private func hearers(of positions: [Int64]) throws(HubDatabaseError) -> [Int64: [String]] {
    var found: [Int64: [String]] = [:]
    try database.read([
      HubCall(
        """
        SELECT position, body FROM (SELECT v.position, h.body,
        row_number() OVER (PARTITION BY v.position ORDER BY h.at, h.gateway) AS number
        FROM @rows JOIN heard h ON h.message = v.position) r
        WHERE number <= \(Self.maxHeard) ORDER BY position, number
        """, [("position", .integers(positions))]
      ) { found[$0.integer(0), default: []].append($0.text(1)) }
    ])
    return found
  }

  /// All gateways, or the one asked for.
  public func gateways(
    _ only: String? = nil, after: String = "", limit: Int = 1000
  ) throws(HubDatabaseError) -> [Gateway] {
    var found: [Gateway] = []
    let lanes = Progress.columns.map { "e.\($0)" }.joined(separator: ", ")
    try database.each(
      """
      SELECT g.id, g.epoch, g.events, g.last_seen, g.radio, \(lanes) FROM gateways g
      LEFT JOIN epochs e ON e.gateway = g.id AND e.epoch = g.epoch
      WHERE (CAST(?1 AS TEXT) IS NULL OR g.id = ?1) AND g.id > ?2 ORDER BY g.id LIMIT ?3
      """, [.optional(only), .text(after), .integer(Int64(limit))]
    ) { (row) throws(HubDatabaseError) in
      found.append(
        Gateway(
          id: row.text(0), epoch: row.text(1), progress: Progress(row, from: 5), events: row.integer(2),
          lastSeen: row.integer(3), radio: row.textIfAny(4)))
      return true
    }
    return found
  }
}
