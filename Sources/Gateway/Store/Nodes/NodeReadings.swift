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
    try keepReading(of: key, named: kind.rawValue, body: body, at: moment)
    if isJournaled { try append(kind, at: moment, body: body) }
  }

  /// Within a `write`: stores a reading that is no event.
  public func keepReading(
    of key: PublicKey, named kind: String, body: [UInt8], at moment: Moment
  ) throws(SQLiteError) {
    try database.run(
      "INSERT INTO readings(node, kind, at, trusted, body, radio) VALUES (?, ?, ?, ?, ?, ?)", .blob(key.bytes),
      .text(kind), .integer(moment.milliseconds), .integer(moment.trusted ? 1 : 0), .blob(body),
      .integer(radio))
    try database.run(
      "DELETE FROM readings WHERE id <= (SELECT max(id) FROM readings) - \(Self.maxReadings)")
    try noteHeard(key.prefix, at: moment.milliseconds)
  }

  /// Readings of a node (or all) received by this radio (or any), oldest first; the newest `limit`.
  public func eachReading(
    of key: PublicKey?, byRadio radio: Int64? = nil, limit: Int,
    _ row: (_ at: Int64, _ kind: String, _ body: [UInt8]) -> Void
  ) throws(StoreError) {
    try every(
      """
      SELECT at, kind, body FROM (SELECT id, at, kind, body FROM readings WHERE (?1 IS NULL OR node = ?1)
        AND (?3 IS NULL OR radio = ?3)
        ORDER BY id DESC LIMIT ?2) ORDER BY id
      """, [.optional(key?.bytes), .integer(Int64(clamping: limit)), .optional(radio)]
    ) { statement in
      row(statement.integer(0), statement.text(1), statement.blob(2))
    }
  }
}
