// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// What a hub keeps: every gateway's events, once each, and what follows from them.
///
/// The identity of an event is (gateway, epoch, seq): what comes twice is kept once. A batch is one transaction, on disk
/// (WAL, `synchronous=FULL`) before it is acknowledged.
public actor HubStore {
  /// A gateway as the hub knows it.
  public struct Gateway: Sendable, Equatable {
    public var id: String
    public var epoch: String
    /// Highest seq of that epoch.
    public var acknowledged: Int64
    public var events: Int64
    /// Milliseconds since 1970 when it last sent something.
    public var lastSeen: Int64
    public var radio: String?
  }

  private static let migrations = [
    Migration(
      number: 1,
      sql: """
        CREATE TABLE gateways(
          id TEXT PRIMARY KEY, epoch TEXT NOT NULL, events INTEGER NOT NULL DEFAULT 0, last_seen INTEGER NOT NULL,
          radio TEXT) WITHOUT ROWID;
        CREATE TABLE epochs(
          gateway TEXT NOT NULL, epoch TEXT NOT NULL, acknowledged INTEGER NOT NULL,
          PRIMARY KEY(gateway, epoch)) WITHOUT ROWID;
        CREATE TABLE events(
          id INTEGER PRIMARY KEY AUTOINCREMENT, gateway TEXT NOT NULL, epoch TEXT NOT NULL, seq INTEGER NOT NULL,
          at INTEGER NOT NULL, trusted INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
          UNIQUE(gateway, epoch, seq));
        CREATE INDEX events_by_kind ON events(gateway, kind, id);
        CREATE TABLE contacts(
          gateway TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, at INTEGER NOT NULL,
          PRIMARY KEY(gateway, key)) WITHOUT ROWID;
        """)
  ]

  private let database: Database

  public init(location: String) throws(SQLiteError) {
    database = try Database(location: location)
    try database.execute(
      """
      PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000;
      PRAGMA busy_timeout = 2000
      """)
    try database.migrate(Self.migrations)
  }

  /// The highest durable seq of an epoch; `nil` for a gateway or an epoch that is not known.
  public func acknowledged(gateway: String, epoch: String) throws(SQLiteError) -> Int64? {
    try database.value(
      "SELECT acknowledged FROM epochs WHERE gateway = ? AND epoch = ?", .text(gateway), .text(epoch))?.integer
  }

  public func knows(gateway: String) throws(SQLiteError) -> Bool {
    try database.value("SELECT 1 FROM gateways WHERE id = ?", .text(gateway)) != nil
  }

  /// Keeps what is new of a batch; returns the highest seq of its epoch that is durable now.
  public func take(_ batch: EventBatch, from gateway: String, at now: Int64) throws(SQLiteError) -> Int64 {
    try database.execute("BEGIN IMMEDIATE")
    do {
      var added: Int64 = 0
      var highest = try acknowledged(gateway: gateway, epoch: batch.epoch) ?? 0
      // First, with nothing added: an event may speak of the gateway's own row.
      try remember(gateway: gateway, epoch: batch.epoch, acknowledged: highest, added: 0, at: now)
      for event in batch.events {
        added += try insert(event, gateway: gateway, epoch: batch.epoch)
        highest = max(highest, event.seq)
      }
      try remember(gateway: gateway, epoch: batch.epoch, acknowledged: highest, added: added, at: now)
      try database.execute("COMMIT")
      return highest
    } catch {
      if database.isInTransaction { try database.execute("ROLLBACK") }
      throw error
    }
  }

  private func insert(_ event: HubEvent, gateway: String, epoch: String) throws(SQLiteError) -> Int64 {
    let body = JSONWriterText.text(event.body)
    let added = try database.run(
      """
      INSERT INTO events(gateway, epoch, seq, at, trusted, kind, body) VALUES (?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT(gateway, epoch, seq) DO NOTHING
      """, .text(gateway), .text(epoch), .integer(event.seq), .integer(event.at), .integer(event.trusted ? 1 : 0),
      .text(event.kind), .text(body))
    guard added > 0 else { return 0 }
    switch event.kind {
    case "contact", "advert": try keepContact(event, body, gateway)
    case "contact_removed":
      try database.run(
        "UPDATE contacts SET body = json_set(body, '$.on_radio', json('false')), at = ? WHERE gateway = ? AND key = ?",
        .integer(event.at), .text(gateway), .optional(event.body["key"]?.string))
    case "radio":
      try database.run(
        "UPDATE gateways SET radio = ? WHERE id = ?", .optional(event.body["name"]?.string), .text(gateway))
    default: break
    }
    return 1
  }

  private func keepContact(_ event: HubEvent, _ body: String, _ gateway: String) throws(SQLiteError) {
    guard let key = event.body["key"]?.string else { return }
    try database.run(
      """
      INSERT INTO contacts(gateway, key, body, at) VALUES (?, ?, ?, ?)
      ON CONFLICT(gateway, key) DO UPDATE SET body = excluded.body, at = excluded.at
      """, .text(gateway), .text(key), .text(body), .integer(event.at))
  }

  private func remember(
    gateway: String, epoch: String, acknowledged: Int64, added: Int64, at now: Int64
  ) throws(SQLiteError) {
    try database.run(
      """
      INSERT INTO gateways(id, epoch, events, last_seen) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT(id) DO UPDATE SET epoch = ?2, events = events + ?3, last_seen = ?4
      """, .text(gateway), .text(epoch), .integer(added), .integer(now))
    try database.run(
      """
      INSERT INTO epochs(gateway, epoch, acknowledged) VALUES (?1, ?2, ?3)
      ON CONFLICT(gateway, epoch) DO UPDATE SET acknowledged = max(acknowledged, ?3)
      """, .text(gateway), .text(epoch), .integer(acknowledged))
  }

  // MARK: Reading

  /// A page of rows as a JSON object: `{"NAME": […], "next": …}`; `next` is what to pass as `after` for the next page,
  /// absent at the end.
  public func events(
    gateway: String, kind: String?, after: Int64, limit: Int
  ) throws(SQLiteError) -> [UInt8] {
    var rows = 0
    var last: Int64 = after
    var page = JSONWriter()
    var failure: SQLiteError?
    page.object { json in
      json.arrayField(kind == "message" ? "messages" : "events") { json in
        do throws(SQLiteError) {
          try database.each(
            """
            SELECT id, epoch, seq, at, trusted, kind, body FROM events
            WHERE gateway = ?1 AND (?2 IS NULL OR kind = ?2) AND id > ?3 ORDER BY id LIMIT ?4
            """, [.text(gateway), .optional(kind), .integer(after), .integer(Int64(limit))]
          ) { (row) throws(SQLiteError) in
            rows += 1
            last = row.integer(0)
            Self.write(row, to: &json)
            return true
          }
        } catch { failure = error }
      }
      if rows == limit { json.field("next", last) }
    }
    if let failure { throw failure }
    return page.bytes
  }

  private static func write(_ row: Statement, to json: inout JSONWriter) {
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

  public func contacts(gateway: String, after: String, limit: Int) throws(SQLiteError) -> [UInt8] {
    var rows = 0
    var last = after
    var page = JSONWriter()
    var failure: SQLiteError?
    page.object { json in
      json.arrayField("contacts") { json in
        do throws(SQLiteError) {
          try database.each(
            "SELECT key, body FROM contacts WHERE gateway = ? AND key > ? ORDER BY key LIMIT ?",
            [.text(gateway), .text(after), .integer(Int64(limit))]
          ) { (row) throws(SQLiteError) in
            rows += 1
            last = row.text(0)
            json.raw(Array(row.text(1).utf8))
            return true
          }
        } catch { failure = error }
      }
      if rows == limit { json.field("next", last) }
    }
    if let failure { throw failure }
    return page.bytes
  }

  /// All gateways, or the one asked for.
  public func gateways(_ only: String? = nil, after: String = "", limit: Int = 1000) throws(SQLiteError) -> [Gateway] {
    var found: [Gateway] = []
    try database.each(
      """
      SELECT id, g.epoch, coalesce(e.acknowledged, 0), events, last_seen, radio FROM gateways g
      LEFT JOIN epochs e ON e.gateway = g.id AND e.epoch = g.epoch
      WHERE (?1 IS NULL OR id = ?1) AND id > ?2 ORDER BY id LIMIT ?3
      """, [.optional(only), .text(after), .integer(Int64(limit))]
    ) { (row) throws(SQLiteError) in
      found.append(
        Gateway(
          id: row.text(0), epoch: row.text(1), acknowledged: row.integer(2), events: row.integer(3),
          lastSeen: row.integer(4), radio: row.textIfAny(5)))
      return true
    }
    return found
  }
}

enum JSONWriterText {
  static func text(_ value: JSONValue) -> String {
    var writer = JSONWriter()
    writer.value(value)
    return writer.string
  }
}
