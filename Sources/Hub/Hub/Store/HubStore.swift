// SPDX-License-Identifier: MIT

import JSON

/// A change of which connected gateways, or waiting requests, are notified.
public struct HubNews: Equatable, Sendable {
  /// Empty: any gateway.
  public var gateway: String
  /// A bucket; `result/ID` when a command has ended.
  public var bucket: String
  public var seq: Int64
}

/// One connection to the hub's data: every gateway's events, once each, and data derived from them.
///
/// The identity of an event is (gateway, epoch, seq): duplicates are stored once. A batch is one transaction, on disk
/// before it is acknowledged.
public actor HubStore {
  /// A gateway as the hub knows it.
  public struct Gateway: Sendable, Equatable {
    public var id: String
    public var epoch: String
    /// How much the hub has of that epoch.
    public var progress: Progress
    public var events: Int64
    /// Milliseconds since 1970 when it last sent something.
    public var lastSeen: Int64
    public var radio: String?
  }

  /// The result of a batch: the highest seq of its lane that is here.
  public enum IngestAnswer: Equatable, Sendable {
    case acknowledged(Int64)
    /// Something before it is missing.
    case outOfOrder(Int64)
    /// That number stands for another event here: nothing of the batch is acknowledged.
    case conflict(Int64)
  }

  let database: any HubDatabase
  private let executor = DatabaseExecutor()
  private(set) var news: [HubNews] = []
  /// How many documents gateways have, counted once in a transaction.
  var documents: [String: Int64] = [:]
  /// Commands that have ended, and alerts told of, by gateway: every so many, its old ones are forgotten.
  var ended = EachSoMany(100)
  var alertsTold = EachSoMany(64)
  /// A gateway's batches all come by one store of a hub.
  var tellers = TellerRates()
  /// `nil`: nobody has asked how old anything is.
  var passed: PassedTime?
  private var listener: @Sendable (HubNews) -> Void = { _ in }

  /// Databases block: that is done on a thread of its own.
  public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

  /// Whether events that are here with other content are alerts.
  let tellsConflicts: Bool

  init(_ database: sending any HubDatabase, tellsConflicts: Bool = true) {
    (self.database, self.tellsConflicts) = (database, tellsConflicts)
  }

  /// A store in an SQLite file, or, with an address `postgresql://…`, on a PostgreSQL server.
  public init(location: String, password: String? = nil, tellsConflicts: Bool = true) throws {
    if Self.isServer(location) {
      self.init(try PostgresHubDatabase(address: location, password: password), tellsConflicts: tellsConflicts)
    } else {
      self.init(try SQLiteHubDatabase(location: location), tellsConflicts: tellsConflicts)
    }
  }

  static func isServer(_ location: String) -> Bool {
    location.hasPrefix("postgresql://") || location.hasPrefix("postgres://")
  }

  /// Called with changes once they are on disk.
  public func listen(_ listener: @escaping @Sendable (HubNews) -> Void) { self.listener = listener }

  func transaction<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    let value = try database.transaction { () throws(HubDatabaseError) in
      beginAnew()
      let value = try work()
      for item in news { try database.notify(item.payload) }
      return value
    }
    tellNews()
    return value
  }

  /// Of an SQLite file.
  func copyLog(whole: Bool) throws(HubDatabaseError) {
    try database.execute("PRAGMA wal_checkpoint(\(whole ? "TRUNCATE" : "PASSIVE"))")
  }

  /// Notifies all hubs on this database, and nobody here.
  func tellOthers(_ news: [HubNews]) throws(HubDatabaseError) {
    guard !news.isEmpty else { return }
    try database.transaction { () throws(HubDatabaseError) in
      for item in news { try database.notify(item.payload) }
    }
  }

  /// Whether other hubs listen on this database.
  func hasOtherHubs() throws(HubDatabaseError) -> Bool { try database.listeners() > 1 }

  /// Of a transaction that is tried again nothing is left.
  func beginAnew() { (news, documents) = ([], [:]) }

  /// After the commit.
  func tellNews() { for item in news { listener(item) } }

  /// Within a transaction.
  func announce(_ item: HubNews) { news.append(item) }
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
