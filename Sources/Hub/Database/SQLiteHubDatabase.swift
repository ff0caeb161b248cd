// SPDX-License-Identifier: MIT

import SQLite

/// A hub's database in one file: WAL, on disk with each commit.
final class SQLiteHubDatabase: HubDatabase {
  private let database: Database

  init(location: String) throws(HubDatabaseError) {
    do throws(SQLiteError) {
      try DatabaseFile.protect(location)
      database = try Database(location: location)
      try database.execute(
        """
        PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000;
        PRAGMA busy_timeout = 2000
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

  func execute(_ sql: String) throws(HubDatabaseError) {
    try translating { () throws(SQLiteError) in try database.execute(sql) }
  }

  func run(_ sql: String, _ values: [SQLiteValue]) throws(HubDatabaseError) -> Int {
    try translating { () throws(SQLiteError) in try database.run(sql, values) }
  }

  func each(
    _ sql: String, _ values: [SQLiteValue], _ row: (any HubRow) throws(HubDatabaseError) -> Bool
  ) throws(HubDatabaseError) {
    var failure: HubDatabaseError?
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

  func begin() throws(HubDatabaseError) { try execute("BEGIN IMMEDIATE") }
  func commit() throws(HubDatabaseError) { try execute("COMMIT") }

  func rollback() {
    // `try?`: fails if SQLite has already rolled back by itself because the disk is full, which is fine.
    if database.isInTransaction { try? database.execute("ROLLBACK") }
  }

  /// A transaction that writes is alone.
  func lock(_ name: String) {}

  /// One process has this file.
  func notify(_ payload: String) {}

  func bytes(_ column: String) -> String { "length(CAST(\(column) AS BLOB))" }
}

extension Statement: HubRow {}

extension HubDatabaseError {
  init(_ error: SQLiteError) {
    let kind: Kind =
      switch error.kind {
      case .busy: .conflict
      case .full, .unavailable, .corrupt: .unavailable
      // SQLITE_TOOBIG
      case .other where error.code & 0xFF == 18: .unfit
      case .constraint, .other: .other
      }
    self.init(kind: kind, words: error.description)
  }
}
