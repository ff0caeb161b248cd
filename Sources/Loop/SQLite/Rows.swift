// SPDX-License-Identifier: MIT

/// The rows of a query, one at a time, so that two queries can be read side by side. Its statement is in use as long as
/// it exists.
public struct Rows: ~Copyable {
  /// The row that `next` has read.
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
  /// As `each`, but the caller asks for each row.
  public func rows(_ sql: String, _ values: [SQLiteValue]) throws(SQLiteError) -> Rows {
    let statement = try statement(sql)
    try statement.bind(values)
    return Rows(statement)
  }
}
