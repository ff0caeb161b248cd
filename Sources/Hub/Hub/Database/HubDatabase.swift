// SPDX-License-Identifier: MIT

import SQLite

/// Why a database operation failed.
public struct HubDatabaseError: Error, Equatable, Sendable, CustomStringConvertible {
  public enum Kind: String, CaseIterable, Sendable {
    /// Two transactions were in each other's way: doing it again helps.
    case conflict
    /// The server is unreachable, the disk is full, and so on: retry later.
    case unavailable
    /// The database can never store this value.
    case unfit
    /// A newer program has changed the tables: only that program helps.
    case outdated
    /// Anything else: our own mistake.
    case other
  }

  public let kind: Kind
  public let message: String

  /// The tables have been upgraded past what this program knows.
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

/// A row of an answer; columns count from 0.
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
/// The SQL has `@rows` where the set stands, as a table `v` with the columns' names: `INSERT INTO t(a) SELECT v.a FROM @rows WHERE true
/// ON CONFLICT …`. Without columns it is an ordinary statement. The values that follow are `@1`, `@2` ….
struct HubCall {
  var sql: String
  /// The same for one row, for a database that is given one at a time: without `@rows`, which it would make into a table first.
  var one: String?
  var columns: [(name: String, column: HubColumn)]
  var values: [SQLiteValue]
  /// Gets each row of the answer.
  var row: ((any HubRow) -> Void)?

  init(
    _ sql: String, one: String? = nil, tells told: [String] = [],
    _ columns: [(name: String, column: HubColumn)] = [], values: [SQLiteValue] = [],
    row: ((any HubRow) -> Void)? = nil
  ) {
    (self.sql, self.one, self.columns, self.values, self.row) = (sql, one, columns, values, row)
    self.told = told
  }

  /// Rows for a table: `fields` are its columns, and SQL for what goes into them. `row` gets `told`, columns of the set that the table has,
  /// of each row that went in.
  init(
    into table: String, _ fields: [(name: String, value: String)], order: String? = nil, _ onConflict: String,
    tells told: [String] = [], _ columns: [(name: String, column: HubColumn)], row: ((any HubRow) -> Void)? = nil
  ) {
    let names = fields.map(\.name).joined(separator: ", ")
    let values = fields.map(\.value).joined(separator: ", ")
    let sorted = order.map { " ORDER BY \($0)" } ?? ""
    let returning = told.isEmpty ? "" : " RETURNING \(told.joined(separator: ", "))"
    self.init(
      "INSERT INTO \(table)(\(names)) SELECT \(values) FROM @rows WHERE true\(sorted) \(onConflict)\(returning)",
      one: "INSERT INTO \(table)(\(names)) VALUES (\(values)) \(onConflict)", tells: told, columns, row: row)
  }

  /// What `row` gets of a row that went in or was changed, where the database itself tells only that it was.
  private(set) var told: [String] = []

  var rows: Int { columns.first?.column.count ?? 1 }

  /// A row that was given, as an answer.
  struct GivenRow: HubRow {
    fileprivate let values: [SQLiteValue]

    func integer(_ column: Int) -> Int64 { values[column].integer ?? 0 }
    func text(_ column: Int) -> String { values[column].text ?? "" }
    func textIfAny(_ column: Int) -> String? { values[column].text }
  }

  func given(_ row: Int) -> GivenRow {
    GivenRow(values: told.compactMap { name in columns.first { $0.name == name }?.column.value(row) })
  }
}

/// The SQL of calls as a database takes it, made once.
struct CallTexts {
  /// Texts nearly all differ in length: to hash a whole one takes longer than to compare it.
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

  /// The SQL for one row, with such parameters.
  mutating func one(of call: HubCall, _ sql: String, mark: String) -> String {
    let key = Key(sql: sql)
    if let text = made[key] { return text }
    var text = sql
    // No name is taken for the beginning of a longer one.
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
  /// Begins a transaction that may write. Fails as `outdated` where the tables are a newer program's, and they stay as they are to its end.
  func begin() throws(HubDatabaseError)
  func commit() throws(HubDatabaseError)
  func rollback()
  /// Within a transaction: an exclusive lock on this name until its end.
  func lock(_ name: String) throws(HubDatabaseError)
  /// As calls: an exclusive lock on each of these names, which are sorted, until the end of the transaction.
  func locking(_ names: [String]) -> [HubCall]
  /// As calls: notifies other hubs on this database after the commit.
  func notifying(_ news: [HubNews]) -> [HubCall]
  /// Within a transaction: notifies other hubs on this database after the commit.
  func notify(_ payload: String) throws(HubDatabaseError)
  /// Does all of them in order, within a transaction; on a server in one round trip. Statements for no rows are left out.
  ///
  /// `begins`: the transaction begins with them; `ends`: it is committed behind them.
  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError)
  /// Reads, outside a transaction of writing: all of one moment, on a server in one round trip.
  func read(_ calls: [HubCall]) throws(HubDatabaseError)
  /// Hubs that listen to notifications on this database, this one too.
  func listeners() throws(HubDatabaseError) -> Int64
  /// SQL for the number that a joined message gets: `v.place` counts the messages of the transaction from 0. Numbers become visible to
  /// readers in their order.
  var nextPosition: String { get }
  /// SQL for the number from which on joined messages are not to be read yet: one that is smaller may still come.
  var unsettledPosition: String? { get }
  /// Whether a table in a join may be a question about the one before it (`LATERAL`).
  var knowsLateral: Bool { get }
  /// SQL for the size of a text in bytes, without reading all of it if possible.
  func bytes(_ column: String) -> String
}

extension HubDatabase {
  var knowsLateral: Bool { false }

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

  /// What `read` makes of each row.
  func rows<Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (any HubRow) -> Value
  ) throws(HubDatabaseError) -> [Value] {
    var found: [Value] = []
    try every(sql, values) { found.append(read($0)) }
    return found
  }

  /// Does `work` in a transaction that it begins and ends itself; conflicts are tried again a few times.
  func retrying<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    for _ in 0..<8 {
      do {
        return try work()
      } catch {
        rollback()
        guard error.kind == .conflict else { throw error }
      }
    }
    do {
      return try work()
    } catch {
      rollback()
      throw error
    }
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
