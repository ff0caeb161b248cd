// SPDX-License-Identifier: MIT

import SQLite

/// Why a database operation failed.
public struct HubDatabaseError: Error, Equatable, Sendable, CustomStringConvertible {
  public enum Kind: Equatable, Sendable {
    /// Two transactions were in each other's way: doing it again helps.
    case conflict
    /// The server is unreachable, the disk is full, and so on: retry later.
    case unavailable
    /// The database can never store this value.
    case unfit
    /// Anything else: our own mistake.
    case other
  }

  public let kind: Kind
  public let words: String

  public var description: String { words }
}

/// A row of an answer; columns count from 0.
protocol HubRow {
  func integer(_ column: Int) -> Int64
  func text(_ column: Int) -> String
  func textIfAny(_ column: Int) -> String?
}

/// The hub's database: the common interface of SQLite and PostgreSQL. One connection, one user at a time.
///
/// SQL is written once: parameters are `?1`, `?2` …, upserts are `ON CONFLICT`, columns in them are qualified.
protocol HubDatabase: AnyObject {
  /// Several statements, without parameters.
  func execute(_ sql: String) throws(HubDatabaseError)
  /// Returns how many rows changed.
  @discardableResult
  func run(_ sql: String, _ values: [SQLiteValue]) throws(HubDatabaseError) -> Int
  /// Calls `row` for each row; it returns false to stop.
  func each(
    _ sql: String, _ values: [SQLiteValue], _ row: (any HubRow) throws(HubDatabaseError) -> Bool
  ) throws(HubDatabaseError)
  /// Begins a transaction that may write.
  func begin() throws(HubDatabaseError)
  func commit() throws(HubDatabaseError)
  func rollback()
  /// Within a transaction: an exclusive lock on this name until its end.
  func lock(_ name: String) throws(HubDatabaseError)
  /// Within a transaction: notifies other hubs on this database after the commit.
  func notify(_ payload: String) throws(HubDatabaseError)
  /// SQL for the size of a text in bytes, without reading all of it if possible.
  func bytes(_ column: String) -> String
}

extension HubDatabase {
  @discardableResult
  func run(_ sql: String, _ values: SQLiteValue...) throws(HubDatabaseError) -> Int { try run(sql, values) }

  /// One row, or none.
  func first<Value>(
    _ sql: String, _ values: SQLiteValue..., read: (any HubRow) -> Value
  ) throws(HubDatabaseError) -> Value? {
    var found: Value?
    try each(sql, values) { (row) throws(HubDatabaseError) in
      found = read(row)
      return false
    }
    return found
  }

  /// Does `work` in a transaction; conflicts are tried again a few times.
  func transaction<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    for _ in 0..<8 {
      do {
        return try attempt(work)
      } catch  where error.kind == .conflict {
        continue
      }
    }
    return try attempt(work)
  }

  private func attempt<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    try begin()
    do {
      let value = try work()
      try commit()
      return value
    } catch {
      rollback()
      throw error
    }
  }
}
