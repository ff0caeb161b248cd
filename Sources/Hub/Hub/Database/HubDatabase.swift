// SPDX-License-Identifier: MIT

import SQLite

/// Why a database operation failed.
public struct HubDatabaseError: Error, Equatable, Sendable, CustomStringConvertible {
  public enum Kind: String, CaseIterable, Sendable {
    /// Two transactions collided: a retry helps.
    case conflict
    /// The server is unreachable, the disk is full, and so on: retry later.
    case unavailable
    /// The database can never store this value.
    case unfit
    /// A newer program has upgraded the tables: only that program helps.
    case outdated
    /// Any other error: a mistake of this program.
    case other
  }

  public let kind: Kind
  public let message: String

  /// A newer program has upgraded the tables.
  static var outdated: HubDatabaseError {
    HubDatabaseError(
      kind: .outdated,
      message: """
        a newer version has upgraded the tables, and this one knows those up to \(HubSchema.newest): \
        start the newer one here, too
        """)
  }

  public var description: String { message }
}

/// A row of a result; columns count from 0.
protocol HubRow {
  func integer(_ column: Int) -> Int64
  func text(_ column: Int) -> String
  func textIfAny(_ column: Int) -> String?
}

/// A column of a set of rows.
enum HubColumn {
  case texts([String?])
  case integers([Int64?])

  var count: Int {
    switch self {
    case .texts(let values): values.count
    case .integers(let values): values.count
    }
  }

  func value(_ row: Int) -> SQLiteValue {
    switch self {
    case .texts(let values): .optional(values[row])
    case .integers(let values): values[row].map(SQLiteValue.integer) ?? .null
    }
  }
}

/// A statement for a whole set of rows.
///
/// In the SQL, `@rows` is the set, as a table `v` with the columns' names: `INSERT INTO t(a) SELECT v.a FROM @rows WHERE true ON CONFLICT …`. Without
/// columns it is an ordinary statement. Further values are `@1`, `@2` ….
struct HubCall {
  var sql: String
  /// The statement for one row, without `@rows`, for a database that gets one row at a time: `@rows` would become a table there.
  var one: String?
  var columns: [(name: String, column: HubColumn)]
  var values: [SQLiteValue]
  /// Gets each row of the result.
  var row: ((any HubRow) -> Void)?

  init(
    _ sql: String, one: String? = nil, returning returned: [String] = [],
    _ columns: [(name: String, column: HubColumn)] = [], values: [SQLiteValue] = [],
    row: ((any HubRow) -> Void)? = nil
  ) {
    (self.sql, self.one, self.columns, self.values, self.row) = (sql, one, columns, values, row)
    self.returned = returned
  }

  /// Inserts rows into a table: `fields` are its columns, each with the SQL for its value. `row` gets the columns `returned` of each inserted row. The
  /// set and the table both have them.
  init(
    into table: String, _ fields: [(name: String, value: String)], order: String? = nil, _ onConflict: String,
    returning returned: [String] = [], _ columns: [(name: String, column: HubColumn)],
    row: ((any HubRow) -> Void)? = nil
  ) {
    let names = fields.map(\.name).joined(separator: ", ")
    let values = fields.map(\.value).joined(separator: ", ")
    let sorted = order.map { " ORDER BY \($0)" } ?? ""
    let returning = returned.isEmpty ? "" : " RETURNING \(returned.joined(separator: ", "))"
    self.init(
      "INSERT INTO \(table)(\(names)) SELECT \(values) FROM @rows WHERE true\(sorted) \(onConflict)\(returning)",
      one: "INSERT INTO \(table)(\(names)) VALUES (\(values)) \(onConflict)", returning: returned, columns, row: row)
  }

  /// The columns that `row` gets of an inserted or changed row. They are from the set if the database itself returns no row.
  private(set) var returned: [String] = []

  var rows: Int { columns.first?.column.count ?? 1 }

  /// A row of the set in the form of a result.
  struct InsertedRow: HubRow {
    fileprivate let values: [SQLiteValue]

    func integer(_ column: Int) -> Int64 { values[column].integer ?? 0 }
    func text(_ column: Int) -> String { values[column].text ?? "" }
    func textIfAny(_ column: Int) -> String? { values[column].text }
  }

  func insertedRow(_ row: Int) -> InsertedRow {
    InsertedRow(values: returned.compactMap { name in columns.first { $0.name == name }?.column.value(row) })
  }
}

/// The SQL of calls in a database's own form. Each text is made once.
struct StatementCache {
  /// Nearly all texts differ in length: hashing a whole one takes longer than comparing it.
  private struct Key: Hashable {
    let sql: String

    func hash(into hasher: inout Hasher) { hasher.combine(sql.utf8.count) }
  }

  private var made: [Key: String] = [:]

  /// The SQL with parameters `MARK1`, `MARK2` …: one for each column, then the values. `source`: the table `v`.
  mutating func text(of call: HubCall, mark: String, source: () -> String) -> String {
    let key = Key(sql: call.sql)
    if let text = made[key] { return text }
    var text = call.sql.replacing("@rows", with: source())
    return keep(&text, of: call, mark, key)
  }

  /// The SQL for one row, with the same parameters.
  mutating func one(of call: HubCall, _ sql: String, mark: String) -> String {
    let key = Key(sql: sql)
    if let text = made[key] { return text }
    var text = sql
    // The longest name first: a name may be the beginning of another one.
    for (number, column) in call.columns.enumerated().sorted(by: { $0.element.name.count > $1.element.name.count }) {
      text = text.replacing("v.\(column.name)", with: "\(mark)\(number + 1)")
    }
    return keep(&text, of: call, mark, key)
  }

  private mutating func keep(_ text: inout String, of call: HubCall, _ mark: String, _ key: Key) -> String {
    for number in stride(from: call.values.count, through: 1, by: -1) {
      text = text.replacing("@\(number)", with: "\(mark)\(call.columns.count + number)")
    }
    made[key] = text
    return text
  }
}

/// A connection to the hub's database: the common interface of SQLite and PostgreSQL. One task uses it at a time.
///
/// SQL is written once: parameters are `?1`, `?2` …, upserts are `ON CONFLICT`, and columns in them are qualified.
protocol HubDatabase: AnyObject {
  /// Runs several statements without parameters.
  func execute(_ sql: String) throws(HubDatabaseError)
  /// Returns the number of changed rows.
  @discardableResult
  func run(_ sql: String, _ values: [SQLiteValue]) throws(HubDatabaseError) -> Int
  /// Calls `row` for each row, until it returns `false`.
  func each(
    _ sql: String, _ values: [SQLiteValue], _ row: (any HubRow) throws(HubDatabaseError) -> Bool
  ) throws(HubDatabaseError)
  /// Begins a transaction that may write. Fails as `outdated` if a newer program has upgraded the tables; until its end nobody can upgrade them.
  func begin() throws(HubDatabaseError)
  func commit() throws(HubDatabaseError)
  func rollback()
  /// Within a transaction: takes an exclusive lock on this name until its end.
  func lock(_ name: String) throws(HubDatabaseError)
  /// The calls that take an exclusive lock on each of these names, which are sorted, until the transaction's end.
  func locking(_ names: [String]) -> [HubCall]
  /// The calls that notify other hubs on this database after the commit.
  func notifying(_ changes: [HubChange]) -> [HubCall]
  /// Performs the calls in order, within a transaction; on a server in one round trip. A call with an empty set is left out.
  ///
  /// `begins`: begins the transaction first; `ends`: commits it at the end.
  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError)
  /// Performs reading calls, outside a writing transaction: from one snapshot, and on a server in one round trip.
  func read(_ calls: [HubCall]) throws(HubDatabaseError)
  /// The number of hubs that listen to notifications on this database, including this one.
  func listeners() throws(HubDatabaseError) -> Int64
  /// SQL for the position of a new message: `v.place` counts the messages of the transaction from 0. Positions become visible to readers in their
  /// order.
  var nextPosition: String { get }
  /// SQL for the first position that readers must not read yet: smaller positions may still appear.
  var unsettledPosition: String? { get }
  /// Whether a table in a join may be a query that uses the table before it (`LATERAL`).
  var supportsLateral: Bool { get }
  /// SQL for the size of a text in bytes, if possible without reading all of it.
  func bytes(_ column: String) -> String
}

extension HubDatabase {
  var supportsLateral: Bool { false }

  @discardableResult
  func run(_ sql: String, _ values: SQLiteValue...) throws(HubDatabaseError) -> Int { try run(sql, values) }

  /// Reads the first row, if there is one.
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

  /// Calls `row` for each row.
  func every(
    _ sql: String, _ values: [SQLiteValue] = [], _ row: (any HubRow) -> Void
  ) throws(HubDatabaseError) {
    try each(sql, values) { (found) throws(HubDatabaseError) in
      row(found)
      return true
    }
  }

  /// The rows, each converted by `read`.
  func rows<Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (any HubRow) -> Value
  ) throws(HubDatabaseError) -> [Value] {
    var found: [Value] = []
    try every(sql, values) { found.append(read($0)) }
    return found
  }

  /// The rows as a dictionary, each converted by `read`; the later one of two equal keys counts.
  func dictionary<Key, Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (any HubRow) -> (Key, Value)
  ) throws(HubDatabaseError) -> [Key: Value] {
    Dictionary(try rows(sql, values, read: read)) { $1 }
  }

  /// The first column of the first row; 0 without a row.
  func number(_ sql: String, _ values: SQLiteValue...) throws(HubDatabaseError) -> Int64 {
    var found: Int64 = 0
    try each(sql, values) { (row) throws(HubDatabaseError) in
      found = row.integer(0)
      return false
    }
    return found
  }

  /// Runs `work`, which begins and ends a transaction itself; retries a few times after conflicts.
  func retrying<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    var retries = 8
    while true {
      do {
        return try work()
      } catch {
        rollback()
        guard error.kind == .conflict, retries > 0 else { throw error }
        retries -= 1
      }
    }
  }

  /// Runs `work` in a transaction; retries a few times after conflicts.
  func transaction<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    try retrying { () throws(HubDatabaseError) in
      try begin()
      let value = try work()
      try commit()
      return value
    }
  }

  /// Performs the calls in one transaction; retries a few times after conflicts.
  func write(_ calls: [HubCall]) throws(HubDatabaseError) {
    try retrying { () throws(HubDatabaseError) in try perform(calls, begins: true, ends: true) }
  }
}
