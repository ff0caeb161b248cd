// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// Pages of rows as JSON objects: `{"NAME": […], "next": …}`; `next` is the `after` of the next page, absent at the end. A page ends early when it
/// has `pageBytes`.
extension HubStore {
  /// Gateways that are named as hearers of one message: the first ones.
  private static let maxHeard = 100

  static func write(_ row: any HubRow, to json: inout JSONWriter) {
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
    let rows = try database.rows("SELECT key, body \(filter)", values + [.integer(Int64(fit.rows))]) {
      (key: $0.text(0), body: Array($0.text(1).utf8))
    }
    return JSONWriter.object { json in
      json.arrayField("contacts") { json in for row in rows { json.raw(row.body) } }
      if fit.isCut || fit.rows == limit { json.field("next", rows.last?.key ?? after) }
    }
  }

  /// The reports of each message, the earliest first.
  func hearers(of positions: [Int64]) throws(HubDatabaseError) -> [Int64: [String]] {
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
    let lanes = Progress.columns.map { "e.\($0)" }.joined(separator: ", ")
    return try database.rows(
      """
      SELECT g.id, g.epoch, g.events, g.last_seen, g.radio, \(lanes) FROM gateways g
      LEFT JOIN epochs e ON e.gateway = g.id AND e.epoch = g.epoch
      WHERE g.id \(only == nil ? ">" : "=") ?1 ORDER BY g.id LIMIT ?2
      """, [.text(only ?? after), .integer(Int64(limit))]
    ) { row in
      Gateway(
        id: row.text(0), epoch: row.text(1), progress: Progress(row, from: 5), events: row.integer(2),
        lastSeen: row.integer(3), radio: row.textIfAny(4))
    }
  }
}
