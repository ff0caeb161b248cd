// SPDX-License-Identifier: MIT

import Glibc
import SQLite

/// A hub's database in one file with a write-ahead log, which is on disk with each commit.
final class SQLiteHubDatabase: HubDatabase {
  /// The page size of a new file. Each gateway's event changes another page of each index: with small pages a commit writes less.
  private static let pageSize = 1024
  /// The size at which SQLite copies the log into the file: it copies a page once, however often it changed. With 1,000 gateways the copies of a log
  /// of 16 MiB were more than the log itself.
  private static let logBytes = 64 << 20

  private let database: Database
  private let limit: StatementLimit
  private var texts = StatementTexts()
  let dialect = HubSchema.Dialect.sqlite

  /// Opens a file for reading that another connection has open for writing. `longest`: the longest statement.
  init(reading location: String, longest: Duration? = nil) throws(HubDatabaseError) {
    limit = StatementLimit(longest: longest)
    do throws(SQLiteError) {
      // Not opened read-only: the connection that ends last tidies up the log.
      database = try Database(location: location)
      try database.execute("PRAGMA busy_timeout = 2000; PRAGMA query_only = ON")
      database.endWithTask(isLate: { [limit] in limit.isOver })
    } catch {
      throw HubDatabaseError(error)
    }
  }

  /// Opens the file of a hub, which may be serving. It neither creates nor upgrades the file.
  init(existing location: String, writes: Bool) throws(HubDatabaseError) {
    limit = StatementLimit(longest: nil)
    do throws(SQLiteError) {
      guard access(location, F_OK) == 0 else { throw SQLiteError(code: 14, message: "\(location): no such file") }
      database = try Database(location: location)
      try database.execute(
        "PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA query_only = \(writes ? "OFF" : "ON")"
      )
    } catch {
      throw HubDatabaseError(error)
    }
    try HubSchema.require(try number("PRAGMA user_version"))
  }

  /// Opens or creates a hub's file, and upgrades it. `patience`: the wait for another program that has locked the file.
  init(location: String, patience: Duration = .seconds(2)) throws(HubDatabaseError) {
    limit = StatementLimit(longest: nil)
    do throws(SQLiteError) {
      try DatabaseFile.protect(location)
      database = try Database(location: location)
      // The timeout is first: after a crash the mode already reads the log, which another program may be recovering.
      try database.execute(
        """
        PRAGMA busy_timeout = \(patience.components.seconds * 1000); PRAGMA page_size = \(Self.pageSize);
        PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = \(Self.logBytes / Self.pageSize); PRAGMA journal_size_limit = \(Self.logBytes);
        PRAGMA cache_size = -16000; PRAGMA secure_delete = ON
        """)
      try database.migrate(HubSchema.steps(.sqlite).map { Migration(number: $0.number, sql: $0.sql) })
    } catch {
      throw HubDatabaseError(error)
    }
  }

  private func translating<Value>(_ work: () throws(SQLiteError) -> Value) throws(HubDatabaseError) -> Value {
    do throws(SQLiteError) {
      return try work()
    } catch {
      throw HubDatabaseError(error)
    }
  }

  private func execute(_ sql: String) throws(HubDatabaseError) {
    try translating { () throws(SQLiteError) in try database.execute(sql) }
  }

  func run(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> Int {
    try translating { () throws(SQLiteError) in try database.run(sql, values.map(\.sql)) }
  }

  func each(_ sql: String, _ values: [any SQLBindable], _ row: (any HubRow) throws(HubDatabaseError) -> Bool)
    throws(HubDatabaseError)
  {
    try each(sql, values.map(\.sql), row)
  }

  private func each(_ sql: String, _ values: [SQLiteValue], _ row: (any HubRow) throws(HubDatabaseError) -> Bool)
    throws(HubDatabaseError)
  {
    var failure: HubDatabaseError?
    limit.begin()
    try translating { () throws(SQLiteError) in
      try database.each(sql, values) { (statement) throws(SQLiteError) in
        do throws(HubDatabaseError) {
          return try row(statement)
        } catch {
          failure = error
          return false
        }
      }
    }
    if let failure { throw failure }
  }

  /// The statements that were prepared here, as SQL.
  var statements: [String] { database.statements }

  private func begin() throws(HubDatabaseError) {
    try execute("BEGIN IMMEDIATE")
    guard try number("PRAGMA user_version") <= Int64(HubSchema.newest) else {
      rollback()
      throw .outdated
    }
  }

  func rollback() {
    // `try?`: SQLite may have rolled back by itself because the disk is full.
    if database.isInTransaction { try? database.execute("ROLLBACK") }
  }

  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError) {
    if begins { try begin() }
    try performEach(calls)
    if ends { try execute("COMMIT") }
  }

  /// The SQL for one row: its parameters in place of the set's columns. As a table, even of one row, the set would be sorted, or stored for an UPDATE.
  private static func ofOneRow(_ sql: String, _ names: [String]) -> String {
    let plain = sql.replacing(" FROM @rows WHERE", with: " WHERE").replacing("@rows", with: "(SELECT 1)")
    // Of two names with one beginning the longer comes first.
    return names.enumerated().sorted { $0.element.utf8.count > $1.element.utf8.count }.reduce(plain) { text, name in
      text.replacing("v.\(name.element)", with: "?\(name.offset + 1)")
    }
  }

  func read(_ calls: [HubCall]) throws(HubDatabaseError) {
    // One statement has a snapshot of its own.
    guard !database.isInTransaction, calls.reduce(0, { $0 + $1.rows }) > 1 else { return try performEach(calls) }
    try execute("BEGIN")
    do throws(HubDatabaseError) {
      try performEach(calls)
      try execute("COMMIT")
    } catch {
      rollback()
      throw error
    }
  }

  private func performEach(_ calls: [HubCall]) throws(HubDatabaseError) {
    for call in calls {
      let sql = texts.text(of: call, mark: "?") { Self.ofOneRow($0, call.columns.map(\.name)) }
      for row in 0..<call.rows {
        let parameters = call.parameters(row)
        guard let take = call.row, call.returned.isEmpty else {
          // RETURNING would cost more than the row itself.
          let changed = try translating { () throws(SQLiteError) in try database.run(sql, parameters) }
          if changed > 0 { call.row?(call.insertedRow(row)) }
          continue
        }
        try each(sql, parameters) { (row) throws(HubDatabaseError) in
          take(row)
          return true
        }
      }
    }
  }
}

/// The longest statement.
private final class StatementLimit {
  /// `nil`: any.
  private let longest: Duration?
  private var end: ContinuousClock.Instant?

  init(longest: Duration?) { self.longest = longest }

  func begin() { end = longest.map { .now + $0 } }

  var isOver: Bool { end.map { ContinuousClock.now > $0 } ?? false }
}

extension Statement: HubRow {}

extension HubDatabaseError {
  /// SQLITE_IOERR_SHMSIZE: the disk has no room for the file `-shm`, with which each use of the database begins.
  private static let noRoomToBegin: Int32 = 4874

  init(_ error: SQLiteError) {
    let cannotBegin = error.code == Self.noRoomToBegin
    let kind: Kind =
      switch error.kind {
      case .busy: .conflict
      case .full, .unavailable, .corrupt: .unavailable
      // SQLITE_TOOBIG
      case .other where error.code & 0xFF == 18: .unfit
      case .constraint, .newer, .other: .other
      }
    let cause: Cause? =
      switch error.kind {
      case .full: .fullDisk
      case .unavailable where cannotBegin: .fullDisk
      case .busy: .locked
      case .unavailable, .corrupt, .constraint, .newer, .other: nil
      }
    let words = cannotBegin ? "the disk is full: make room (\(error))" : error.description
    self.init(kind: kind, message: words, cause: cause)
  }
}
