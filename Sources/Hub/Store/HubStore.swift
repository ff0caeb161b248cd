// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// A change of which connected gateways, or waiting requests, are notified.
public struct HubNews: Equatable, Sendable {
  /// Empty: any gateway.
  public var gateway: String
  /// A bucket; `result/ID` when a command has ended.
  public var bucket: String
  public var seq: Int64
}

/// The hub's data: every gateway's events, once each, and data derived from them.
///
/// The identity of an event is (gateway, epoch, seq): duplicates are stored once. A batch is one transaction, on disk
/// before it is acknowledged.
public actor HubStore {
  /// A gateway as the hub knows it.
  public struct Gateway: Sendable, Equatable {
    public var id: String
    public var epoch: String
    /// Of that epoch.
    public var progress: Progress
    public var events: Int64
    /// Milliseconds since 1970 when it last sent something.
    public var lastSeen: Int64
    public var radio: String?
  }

  /// The result of a batch: the highest seq of its lane that is here.
  public enum Taken: Equatable, Sendable {
    case acknowledged(Int64)
    /// Something before it is missing.
    case outOfOrder(Int64)
  }

  let database: any HubDatabase
  private let executor = DatabaseExecutor()
  private var news: [HubNews] = []
  /// Commands that have ended since the start: every so many, old ones are forgotten.
  var ended = 0
  private var listener: @Sendable (HubNews) -> Void = { _ in }

  /// Databases block: that is done on a thread of its own.
  public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

  init(_ database: sending any HubDatabase) { self.database = database }

  /// A store in an SQLite file, or, with an address `postgresql://…`, on a PostgreSQL server.
  public init(location: String, password: String? = nil) throws {
    if Self.isServer(location) {
      self.init(try PostgresHubDatabase(address: location, password: password))
    } else {
      self.init(try SQLiteHubDatabase(location: location))
    }
  }

  static func isServer(_ location: String) -> Bool {
    location.hasPrefix("postgresql://") || location.hasPrefix("postgres://")
  }

  /// Called with changes once they are on disk.
  public func listen(_ listener: @escaping @Sendable (HubNews) -> Void) { self.listener = listener }

  func transaction<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    let value = try database.transaction { () throws(HubDatabaseError) in
      news = []
      let value = try work()
      for item in news { try database.notify("\(item.gateway) \(item.bucket) \(item.seq)") }
      return value
    }
    for item in news { listener(item) }
    return value
  }

  /// Within a transaction.
  func announce(_ item: HubNews) { news.append(item) }

  // MARK: Taking events

  /// Stores the new events of a batch. `after`: the event of its lane before it that the sender assumes acknowledged; a gap in
  /// between is refused.
  public func take(
    _ batch: EventBatch, from gateway: String, after: Int64? = nil, at now: Int64
  ) throws(HubDatabaseError) -> Taken {
    try transaction { () throws(HubDatabaseError) in
      try database.lock(gateway)
      // First, with nothing added: an event may speak of the gateway's own row.
      try remember(gateway: gateway, epoch: batch.epoch, added: 0, at: now)
      let known = try progress(gateway: gateway, epoch: batch.epoch) ?? Progress()
      let before = known.position(of: batch.lane)
      if let after, after > before { return .outOfOrder(before) }
      var added: Int64 = 0
      for event in batch.events { added += try insert(event, gateway: gateway, epoch: batch.epoch, now: now) }
      if added > 0 { try remember(gateway: gateway, epoch: batch.epoch, added: added, at: now) }
      var progress = known
      progress.took(batch)
      if progress != known { try keep(progress, gateway: gateway, epoch: batch.epoch) }
      // A lane that begins with an old event lowers the smallest; what was acknowledged stays so.
      return .acknowledged(max(before, progress.position(of: batch.lane)))
    }
  }

  private func insert(
    _ event: HubEvent, gateway: String, epoch: String, now: Int64
  ) throws(HubDatabaseError) -> Int64 {
    let body = JSONWriterText.text(event.body)
    let added = try database.run(
      """
      INSERT INTO events(gateway, epoch, seq, at, trusted, kind, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
      ON CONFLICT(gateway, epoch, seq) DO NOTHING
      """, .text(gateway), .text(epoch), .integer(event.seq), .integer(event.at), .integer(event.trusted ? 1 : 0),
      .text(event.kind), .text(body))
    guard added > 0 else { return 0 }
    switch event.kind {
    case "contact", "advert": try keepContact(event, body, gateway)
    case "contact_removed": try removeContact(event, gateway)
    case "radio":
      try database.run(
        "UPDATE gateways SET radio = ?2 WHERE id = ?1", .text(gateway),
        .optional(HubBounds.cut(event.body["name"]?.string, HubBounds.nameBytes)))
    case "message": try join(event, from: gateway, epoch: epoch, now: now)
    case "command": try endCommand(event, of: gateway, now: now)
    case "document": try mergeDocument(event, from: gateway, now: now)
    default: break
    }
    return 1
  }

  private func keepContact(_ event: HubEvent, _ body: String, _ gateway: String) throws(HubDatabaseError) {
    guard let key = event.body["key"]?.string, key.utf8.count <= HubBounds.keyBytes else { return }
    try database.run(
      """
      INSERT INTO contacts(gateway, key, body, at) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT(gateway, key) DO UPDATE SET body = excluded.body, at = excluded.at
      """, .text(gateway), .text(key), .text(body), .integer(event.at))
  }

  private func removeContact(_ event: HubEvent, _ gateway: String) throws(HubDatabaseError) {
    guard let key = event.body["key"]?.string else { return }
    let known = try database.first(
      "SELECT body FROM contacts WHERE gateway = ?1 AND key = ?2", .text(gateway), .text(key)
    ) { $0.text(0) }
    // `try?`: stored values were valid JSON when they arrived.
    guard let known, let fields = (try? JSONValue(parsing: known))?.fields else { return }
    let body = JSONValue.object(fields.filter { $0.0 != "on_radio" } + [("on_radio", .bool(false))])
    try database.run(
      "UPDATE contacts SET body = ?3, at = ?4 WHERE gateway = ?1 AND key = ?2", .text(gateway), .text(key),
      .text(JSONWriterText.text(body)), .integer(event.at))
  }

  private func remember(
    gateway: String, epoch: String, added: Int64, at now: Int64
  ) throws(HubDatabaseError) {
    try database.run(
      """
      INSERT INTO gateways(id, epoch, events, last_seen) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT(id) DO UPDATE SET epoch = excluded.epoch, events = gateways.events + excluded.events,
      last_seen = excluded.last_seen
      """, .text(gateway), .text(epoch), .integer(added), .integer(now))
    try database.run(
      "INSERT INTO epochs(gateway, epoch, messages) VALUES (?1, ?2, 0) ON CONFLICT(gateway, epoch) DO NOTHING",
      .text(gateway), .text(epoch))
  }
}

enum JSONWriterText {
  static func text(_ value: JSONValue) -> String {
    var writer = JSONWriter()
    writer.value(value)
    return writer.string
  }

  static func object(_ body: (inout JSONWriter) -> Void) -> String {
    String(decoding: JSONWriter.object(body), as: UTF8.self)
  }
}
