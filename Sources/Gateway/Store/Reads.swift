// SPDX-License-Identifier: MIT

import SQLite

extension Store {
  /// The result of a read that the caller can do without. `nil`: the store cannot be read; then `News`, and so the log,
  /// reports each different failure once, at most `maxUnreadable`.
  ///
  /// For names in a listing, counts in a status, and decisions that can wait. The essential parts of an answer are read
  /// with `try`.
  @discardableResult
  public func ifReadable<Result>(_ read: () throws -> Result?) -> Result? {
    do {
      return try read()
    } catch {
      let failure = (error as? SQLiteError).map(StoreError.init) ?? error as? StoreError
      noteDamage(failure)
      let words = failure.map { "\($0)" } ?? "\(error)"
      if unreadable.count < Self.maxUnreadable, unreadable.insert(words).inserted {
        transactions.tell("a read failed: \(words)")
      }
      return nil
    }
  }

  /// Different failures of `ifReadable` that a store logs.
  private static let maxUnreadable = 16

  /// A read can find damage as well as a write, and may be the only one to do so.
  func noteDamage(_ failure: StoreError?) { if case .corrupt = failure { isDamaged = true } }

  func translating<Result>(_ work: () throws(SQLiteError) -> Result) throws(StoreError) -> Result {
    do {
      return try work()
    } catch {
      let failure = StoreError(error)
      noteDamage(failure)
      throw failure
    }
  }

  /// Calls `row` for each row.
  func every(_ sql: String, _ values: [SQLiteValue] = [], _ row: (Statement) -> Void) throws(StoreError) {
    try translating { () throws(SQLiteError) in try database.every(sql, values, row) }
  }

  /// The value that `read` makes of each row, without `nil`.
  func rows<Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (Statement) -> Value?
  ) throws(StoreError) -> [Value] {
    try translating { () throws(SQLiteError) in try database.rows(sql, values, read: read) }
  }

  /// The value that `read` makes of the first row; `nil` without a row.
  func first<Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (Statement) -> Value?
  ) throws(StoreError) -> Value? {
    try translating { () throws(SQLiteError) in try database.first(sql, values, read: read) }
  }

  /// The first column of the first row; `nil` without a row.
  func value(_ sql: String, _ values: SQLiteValue...) throws(StoreError) -> SQLiteValue? {
    try translating { () throws(SQLiteError) in try database.value(sql, values) }
  }
}
