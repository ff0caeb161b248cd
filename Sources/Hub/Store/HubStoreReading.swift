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
    let filter =
      "FROM messages m WHERE position > ?1 AND (CAST(?2 AS TEXT) IS NULL OR channel = ?2) ORDER BY position LIMIT ?3"
    let values: [SQLiteValue] = [.integer(after), .optional(channel)]
    let heard = "(SELECT sum(\(bytes("h.body"))) FROM heard h WHERE h.message = m.position)"
    let fit = try fitting(
      "SELECT \(bytes("m.body")) + coalesce(\(heard), 0) \(filter)", values + [.integer(Int64(limit))])
    var found: [(position: Int64, body: String)] = []
    try database.each("SELECT position, body \(filter)", values + [.integer(Int64(fit.rows))]) {
      (row) throws(HubDatabaseError) in
      found.append((row.integer(0), row.text(1)))
      return true
    }
    var list = JSONWriter()
    try list.array { (json) throws(HubDatabaseError) in
      for message in found {
        var heard = JSONWriter()
        try heard.array { (json) throws(HubDatabaseError) in
          try database.each(
            "SELECT gateway, at, body FROM heard WHERE message = ?1 ORDER BY at, gateway LIMIT \(Self.maxHeard)",
            [.integer(message.position)]
          ) { (row) throws(HubDatabaseError) in
            json.raw(Array(row.text(2).utf8))
            return true
          }
        }
        json.object { json in
          json.field("position", message.position)
          json.field("body", json: Array(message.body.utf8))
          json.field("heard", json: heard.bytes)
        }
      }
    }
    return Self.page("messages", list) { json in
      if fit.isCut || fit.rows == limit { json.field("next", found.last?.position) }
    }
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

  // MARK: States

  /// Stores the latest state of a name from the gateway. False: too large, or too many names.
  @discardableResult
  func setState(_ name: String, _ body: JSONValue, of gateway: String, at now: Int64) throws(HubDatabaseError) -> Bool {
    let text = JSONWriterText.text(body)
    guard text.utf8.count <= HubBounds.stateBytes else { return false }
    return try transaction { () throws(HubDatabaseError) -> Bool in
      try database.lock(gateway)
      let others = try database.first(
        "SELECT count(*) FROM states WHERE gateway = ?1 AND name <> ?2", .text(gateway), .text(name)
      ) { $0.integer(0) }
      guard (others ?? 0) < HubBounds.states else { return false }
      try database.run(
        """
        INSERT INTO states(gateway, name, at, body) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT(gateway, name) DO UPDATE SET at = excluded.at, body = excluded.body
        """, .text(gateway), .text(name), .integer(now), .text(text))
      return true
    }
  }

  /// `{"NAME": {"at": …, "body": {…}}, …}`
  public func states(of gateway: String) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM states WHERE gateway = ?1 ORDER BY name LIMIT ?2"
    let fit = try fitting("SELECT \(bytes("body")) \(filter)", [.text(gateway), .integer(HubBounds.states)])
    var found: [(String, Int64, String)] = []
    try database.each("SELECT name, at, body \(filter)", [.text(gateway), .integer(Int64(fit.rows))]) {
      (row) throws(HubDatabaseError) in
      found.append((row.text(0), row.integer(1), row.text(2)))
      return true
    }
    return JSONWriter.object { json in
      for (name, at, body) in found {
        json.objectField(name) { json in
          json.field("at", at)
          json.field("body", json: Array(body.utf8))
        }
      }
    }
  }
}
