// SPDX-License-Identifier: MIT

import Dispatch
import Glibc
import JSON
import Synchronization

/// A change, of which hubs notify each other for gateways, waiting requests and live readers.
public struct HubChange: Equatable, Sendable {
  /// Empty: any gateway.
  public var gateway: String
  /// A bucket; `result/ID` for a command that has ended, `alert/ID` for an alert.
  public var bucket: String
  public var seq: Int64
}

/// One connection to the hub's data: every gateway's events, once each, and the data derived from them.
///
/// The identity of an event is (gateway, epoch, seq): duplicates are stored once. A batch is on disk before it is acknowledged.
public actor HubStore {
  /// A gateway as the hub knows it.
  public struct Gateway: Sendable, Equatable {
    public var id: String
    public var epoch: String
    /// How much of that epoch is stored.
    public var progress: Progress
    public var events: Int64
    /// When it last sent something, milliseconds since 1970.
    public var lastSeen: Int64
    public var radio: String?

    var json: JSONObject { ["gateway": id, "radio": radio, "events": events, "last_seen": lastSeen] }
  }

  /// The answer to a batch, with the highest stored seq of its lane.
  public enum IngestAnswer: Equatable, Sendable {
    case acknowledged(Int64)
    /// Events before the batch are missing.
    case outOfOrder(Int64)
    /// The event of this number conflicts with a stored one: nothing of the batch is acknowledged.
    case conflict(Int64)
  }

  let database: any HubDatabase
  private let executor = DatabaseExecutor()
  private(set) var changes: [HubChange] = []
  /// The number of each gateway's documents, counted once in a transaction.
  var documents: [String: Int64] = [:]
  /// Count ended commands and received alerts of each gateway: at each interval, the store deletes the gateway's old ones.
  var ended = RowInterval(100, startsDue: true)
  var alertInterval = RowInterval(64, startsDue: true)
  /// For each gateway the names of what it has deleted, and how many more come before they are counted again.
  var deletedNames: [String: (count: Int64, left: Int64)] = [:]
  /// Counts stored contacts of each gateway, for the limit of their number.
  var contactInterval = RowInterval(HubStore.contactsUnchecked)
  /// All batches of a gateway go through one store.
  var reporterRates = ReporterRates()
  /// `nil`: nobody has used the clock.
  var passed: PassedTime?
  private var listener: @Sendable (HubChange) -> Void = { _ in }

  /// Databases block, so each store has its own queue.
  public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

  /// Whether conflicting events raise alerts.
  let alertsOnConflicts: Bool

  init(_ database: sending any HubDatabase, alertsOnConflicts: Bool = true) {
    (self.database, self.alertsOnConflicts) = (database, alertsOnConflicts)
  }

  /// A store in an SQLite file, or, with an address `postgresql://…`, on a PostgreSQL server.
  public init(location: String, password: String? = nil, alertsOnConflicts: Bool = true) throws {
    if Self.isServer(location) {
      self.init(try PostgresHubDatabase(address: location, password: password), alertsOnConflicts: alertsOnConflicts)
    } else {
      self.init(try SQLiteHubDatabase(location: location), alertsOnConflicts: alertsOnConflicts)
    }
  }

  static func isServer(_ location: String) -> Bool {
    location.hasPrefix("postgresql://") || location.hasPrefix("postgres://")
  }

  /// Sets the listener. It gets changes once they are on disk.
  public func listen(_ listener: @escaping @Sendable (HubChange) -> Void) { self.listener = listener }

  func transaction<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    let value = try database.transaction { () throws(HubDatabaseError) in
      resetChanges()
      let value = try work()
      if !changes.isEmpty { try database.perform(database.notifying(changes), begins: false, ends: false) }
      return value
    }
    notifyListener()
    return value
  }

  /// The first column of the first row; 0 without a row.
  func number(_ sql: String) throws(HubDatabaseError) -> Int64 { try database.number(sql) }

  /// Copies an SQLite file's write-ahead log into it.
  func copyLog(whole: Bool) throws(HubDatabaseError) {
    _ = try number("PRAGMA wal_checkpoint(\(whole ? "TRUNCATE" : "PASSIVE"))")
  }

  /// Notifies all hubs on this database, without calling this store's listener.
  func notifyOtherHubs(_ changes: [HubChange]) throws(HubDatabaseError) {
    guard !changes.isEmpty else { return }
    try database.write(database.notifying(changes))
  }

  /// Whether other hubs listen on this database.
  func hasOtherHubs() throws(HubDatabaseError) -> Bool { try database.listeners() > 1 }

  /// Discards the changes of a failed attempt.
  func resetChanges() { (changes, documents) = ([], [:]) }

  /// Passes the changes to the listener, after the commit.
  func notifyListener() { for item in changes { listener(item) } }

  /// Within a transaction: notes a change.
  func announce(_ item: HubChange) { changes.append(item) }
}

/// Runs an actor's work in order on a queue of its own, so that waiting for a disk or a server delays no other work.
final class DatabaseExecutor: SerialExecutor {
  private let queue = DispatchQueue(label: "meshpost.hub.database")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let work: @Sendable () -> Void = { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    guard CallingThread.hasDatabases.load(ordering: .relaxed) else { return queue.async(execute: work) }
    CallingThread.add(work)
  }

  func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
}

/// Triggers work for a gateway once in a number of its rows. It counts the rows itself: row numbers have gaps.
struct RowInterval {
  /// Most gateways with counts. At this limit all counts begin again.
  private static let mostGateways = 10_000

  private let rows: Int
  private let start: Int
  private var counts: [String: Int] = [:]

  /// `startsDue`: a gateway's first row is due, too. Otherwise a hub that starts often would never come to the work.
  init(_ rows: Int, startsDue: Bool = false) { (self.rows, start) = (rows, startsDue ? rows - 1 : 0) }

  /// Counts a row; true once in `rows` calls.
  mutating func isDue(_ gateway: String) -> Bool {
    if counts[gateway] == nil, counts.count >= Self.mostGateways { counts = [:] }
    let count = (counts[gateway] ?? start) + 1
    counts[gateway] = count % rows
    return count == rows
  }
}

extension HubStore {
  /// Opens a hub's database for a command, also while the hub serves. It neither creates nor upgrades tables.
  public static func existing(_ configuration: HubConfiguration, writes: Bool) throws -> HubStore {
    if isServer(configuration.location) {
      let database = try PostgresHubDatabase(
        address: configuration.location, password: configuration.password, migrates: false)
      try database.requireVersion()
      return HubStore(database)
    }
    return HubStore(try SQLiteHubDatabase(existing: configuration.location, writes: writes))
  }
}

extension PostgresHubDatabase {
  fileprivate func requireVersion() throws(HubDatabaseError) {
    let exists = try first("SELECT to_regclass('schema_version')::text") { $0.textIfAny(0) } ?? nil
    try HubSchema.require(exists == nil ? 0 : try number("SELECT coalesce(max(version), 0) FROM schema_version"))
  }
}

extension HubSchema {
  /// Throws unless the tables have this program's version.
  static func require(_ version: Int64) throws(HubDatabaseError) {
    let own = Int64(newest)
    guard version != own else { return }
    let message =
      version == 0
      ? "it has no tables of a hub yet: the hub makes them when it starts, and waits for that while its disk is full"
      : "its tables have version \(version), this program's \(own): use the program of the hub that serves, or restart it"
    throw HubDatabaseError(kind: .other, message: message)
  }
}
