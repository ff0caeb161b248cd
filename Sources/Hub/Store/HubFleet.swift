// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// What a hub knows of each gateway, for people who look after them.
extension HubStore {
  /// A row of the fleet: everything but what is linked just now.
  struct FleetRow: Sendable {
    let gateway: String
    let lastSeen: Int64
    /// Fields of a JSON object.
    let fields: JSONValue
  }

  /// A page of them by id, in a fixed number of questions.
  func fleet(after: String, limit: Int) throws(HubDatabaseError) -> [FleetRow] {
    var found: [(id: String, radio: String?, events: Int64, lastSeen: Int64, message: String?, at: Int64?)] = []
    func newest(_ kind: String, _ alias: String) -> String {
      "LEFT JOIN events \(alias) ON \(alias).id = (SELECT max(x.id) FROM events x WHERE x.gateway = g.id AND x.kind = '\(kind)')"
    }
    var told: [String: [String]] = [:]
    try database.each(
      """
      SELECT g.id, g.radio, g.events, g.last_seen, m.body, m.at, r.body, p.body FROM gateways g
      \(newest("message", "m")) \(newest("radio", "r")) \(newest("power", "p"))
      WHERE g.id > ?1 ORDER BY g.id LIMIT ?2
      """, [.text(after), .integer(Int64(limit))]
    ) { (row) throws(HubDatabaseError) in
      found.append(
        (
          row.text(0), row.textIfAny(1), row.integer(2), row.integer(3), row.textIfAny(4),
          row.textIfAny(5).flatMap { Int64($0) }
        ))
      told[row.text(0)] = (6...7).compactMap { row.textIfAny($0) }
      return true
    }
    let last = found.last?.id ?? after
    let range: [SQLiteValue] = [.text(after), .text(last)]
    var states: [String: (at: Int64, body: String)] = [:]
    try database.each(
      "SELECT gateway, at, body FROM states WHERE name = 'gateway' AND gateway > ?1 AND gateway <= ?2", range
    ) { (row) throws(HubDatabaseError) in
      states[row.text(0)] = (row.integer(1), row.text(2))
      return true
    }
    var nodes: [String: Int64] = [:]
    try database.each(
      "SELECT gateway, count(*) FROM contacts WHERE gateway > ?1 AND gateway <= ?2 GROUP BY gateway", range
    ) { (row) throws(HubDatabaseError) in
      nodes[row.text(0)] = row.integer(1)
      return true
    }
    return found.map { row in
      FleetRow(
        gateway: row.id, lastSeen: row.lastSeen,
        fields: Self.fields(
          row.radio, row.events, states[row.id], nodes[row.id] ?? 0, told[row.id] ?? [],
          row.message.map { ($0, row.at ?? 0) }))
    }
  }

  private static func fields(
    _ radio: String?, _ events: Int64, _ state: (at: Int64, body: String)?, _ nodes: Int64, _ told: [String],
    _ message: (body: String, at: Int64)?
  ) -> JSONValue {
    // `try?`: stored values were valid JSON when they arrived.
    func parsed(_ text: String?) -> JSONValue { text.flatMap { try? JSONValue(parsing: $0) } ?? .null }
    var fields: [(String, JSONValue)] = []
    func put(_ name: String, _ value: JSONValue?) { if let value, value != .null { fields.append((name, value)) } }
    put("radio", radio.map { .string($0) })
    put("events", .integer(events))
    put("nodes", .integer(nodes))
    let said = parsed(state?.body)
    for name in ["version", "link", "name", "sync", "clock_trusted", "error", "store_error", "battery_mv", "pending"] {
      put(name, said[name])
    }
    put("radio_state", said["radio"])
    put("state_at", state.map { .integer($0.at) })
    for text in told {
      let body = parsed(text)
      for name in ["model", "frequency_khz"] { put(name, body[name]) }
      if let lat = body["lat"], let lon = body["lon"], lat != .null, lon != .null {
        put("position", .object([("lat", lat), ("lon", lon)]))
      }
      if body["source"]?.string == "battery" { put("power", body["state"]) }
    }
    if let message {
      let body = parsed(message.body)
      var last: [(String, JSONValue)] = [("at", .integer(message.at))]
      for name in ["text", "sender_name", "channel_name"] {
        if let value = body[name], value != .null { last.append((name, value)) }
      }
      put("last_message", .object(last))
    }
    return .object(fields)
  }

  /// Messages in which channels are looked for.
  private static let recent = 10_000

  /// Channels that had one of the last ten thousand messages, the one that had the last first.
  func channels() throws(HubDatabaseError) -> [UInt8] {
    var list = JSONWriter()
    try list.array { (json) throws(HubDatabaseError) in
      try database.each(
        """
        SELECT m.channel, m.at, m.body FROM messages m
        JOIN (
        SELECT max(position) AS position FROM (
        SELECT position, channel FROM messages WHERE channel IS NOT NULL ORDER BY position DESC LIMIT ?1) c
        GROUP BY channel) n ON n.position = m.position ORDER BY m.position DESC LIMIT 500
        """, [.integer(Int64(Self.recent))]
      ) { (row) throws(HubDatabaseError) in
        let body = try? JSONValue(parsing: row.text(2))  // `try?`: it was valid JSON when it arrived
        json.object { json in
          json.field("channel", row.text(0))
          json.field("name", body?["channel_name"]?.string)
          json.field("newest_at", row.integer(1))
        }
        return true
      }
    }
    return JSONWriter.object { $0.field("channels", json: list.bytes) }
  }

  /// Commands of all gateways, the newest first. `before`: milliseconds since 1970 of when one was made.
  func commands(before: Int64, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM commands WHERE created_at < ?1 ORDER BY created_at DESC, gateway, id LIMIT ?2"
    let fit = try fitting(
      "SELECT \(bytes("body")) + \(bytes("answer")) \(filter)", [.integer(before), .integer(Int64(limit))])
    var list = JSONWriter()
    var last: Int64?
    try list.array { (json) throws(HubDatabaseError) in
      try database.each(
        "SELECT gateway, id, state, body, answer, author, created_at, ended_at \(filter)",
        [.integer(before), .integer(Int64(fit.rows))]
      ) { (row) throws(HubDatabaseError) in
        last = row.integer(6)
        json.object { json in
          json.field("gateway", row.text(0))
          json.field("id", row.text(1))
          json.field("state", row.text(2))
          json.field("command", json: Array(row.text(3).utf8))
          if let answer = row.textIfAny(4) { json.field("answer", json: Array(answer.utf8)) }
          json.field("by", row.text(5))
          json.field("created_at", row.integer(6))
          json.field("ended_at", row.textIfAny(7).flatMap { Int64($0) })
        }
        return true
      }
    }
    return JSONWriter.object { json in
      json.field("commands", json: list.bytes)
      if fit.isCut || fit.rows == limit { json.field("next", last) }
    }
  }
}
