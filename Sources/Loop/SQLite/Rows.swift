// SPDX-License-Identifier: MIT

/// The rows of a query, one at a time: for two queries that are read side by side. While it lives, its statement is in use.
public struct Rows: ~Copyable {
  /// The row that `next` has found.
  public let row: Statement

  init(_ statement: Statement) {
    row = statement
    row.isInUse = true
  }

  /// False: there are no more.
  public func next() throws(SQLiteError) -> Bool { try row.step() }

  deinit {
    row.isInUse = false
    row.reset()
  }
}

extension Database {
  /// As `each`, for who asks for each row.
  public func rows(_ sql: String, _ values: [SQLiteValue]) throws(SQLiteError) -> Rows {
    let statement = try statement(sql)
    try statement.bind(values)
    return Rows(statement)
  }
}
