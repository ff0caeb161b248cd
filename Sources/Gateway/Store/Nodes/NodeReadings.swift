// SPDX-License-Identifier: MIT

import Companion
import SQLite

extension Store {
  /// The number of readings that are kept, of all nodes and kinds together.
  public static let maxReadings: Int64 = 10_000

  /// Within a `write`: stores and journals a node's reading as JSON. `isJournaled`: false for our own radio, whose
  /// readings upstreams get in other events.
  public func keepReading(
    of key: PublicKey, kind: EventKind, body: [UInt8], at moment: Moment, isJournaled: Bool = true
  ) throws(SQLiteError) {
    try database.run(
      "INSERT INTO readings(node, kind, at, trusted, body, radio) VALUES (?, ?, ?, ?, ?, ?)", .blob(key.bytes),
      .text(kind.rawValue), .integer(moment.milliseconds), .integer(moment.trusted ? 1 : 0), .blob(body),
      .integer(radio))
    try database.run(
      "DELETE FROM readings WHERE id <= (SELECT max(id) FROM readings) - \(Self.maxReadings)")
    try noteHeard(key.prefix, at: moment.milliseconds)
    if isJournaled { try append(kind, at: moment, body: body) }
  }

  /// Readings of a node (or all) and of a kind (or all) received by this radio (or any), oldest first: of the newest `limit`, the first `page` with a
  /// greater id than `after`. `isNewest`: only the newest of each node and kind; as all readings are few, it looks through them.
  public func eachReading(
    of key: PublicKey?, kind: String? = nil, byRadio radio: Int64? = nil, isNewest: Bool = false, limit: Int,
    after: Int64 = 0, page: Int = .max, _ row: (_ id: Int64, _ at: Int64, _ kind: String, _ body: [UInt8]) -> Void
  ) throws(StoreError) {
    try every(
      """
      SELECT id, at, kind, body FROM (SELECT id, at, kind, body FROM readings WHERE (?1 IS NULL OR node = ?1)
        AND (?3 IS NULL OR radio = ?3) AND (?4 IS NULL OR kind = ?4)
        AND (?7 = 0 OR id IN (SELECT max(id) FROM readings WHERE ?3 IS NULL OR radio = ?3 GROUP BY node, kind))
        ORDER BY id DESC LIMIT ?2) WHERE id > ?5 ORDER BY id LIMIT ?6
      """,
      [
        .optional(key?.bytes), .integer(Int64(clamping: limit)), .optional(radio), .optional(kind), .integer(after),
        .integer(Int64(clamping: page)), .integer(isNewest ? 1 : 0),
      ]
    ) { statement in
      row(statement.integer(0), statement.integer(1), statement.text(2), statement.blob(3))
    }
  }
}
