// SPDX-License-Identifier: MIT

import SQLite

extension Store {
  /// The result of a read that the caller can do without; `nil` if the store cannot be read, which the `News` and so the log
  /// report: each failure once, `maxUnreadable` at most.
  ///
  /// For names in a listing, counts in a status, and decisions that can wait. What an answer consists of is read with `try`.
  @discardableResult
  public func ifReadable<Result>(_ read: () throws -> Result?) -> Result? {
    do {
      return try read()
    } catch {
      noteUnreadable(error)
      return nil
    }
  }

  /// Calls `row` for each row.
  func every(_ sql: String, _ values: [SQLiteValue] = [], _ row: (Statement) -> Void) throws(StoreError) {
    try translating { () throws(SQLiteError) in try database.every(sql, values, row) }
  }

  /// What `read` makes of each row; rows of which it makes nothing are left out.
  func rows<Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (Statement) -> Value?
  ) throws(StoreError) -> [Value] {
    try translating { () throws(SQLiteError) in try database.rows(sql, values, read: read) }
  }
}
