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
  /// A cause with a remedy that the operator has to know.
  enum Cause: Sendable {
    /// The disk of the database is full: it still answers queries.
    case fullDisk
    /// Somebody has dropped the tables, or the whole database, and made an empty one.
    case noTables
    /// Another program has locked the SQLite file.
    case locked
    /// Another session of the server has not released a lock in time.
    case heldLock
  }

  let cause: Cause?

  /// The disk of the database has no room.
  public var isDiskFull: Bool { cause == .fullDisk }

  /// Another program has locked the SQLite file.
  public var isLocked: Bool { cause == .locked }

  /// A database that cannot be opened for this reason can be opened later, without a change of the configuration: a start waits for that.
  public var passesByItself: Bool { isDiskFull || isLocked }

  /// What a start waits for, for its log and the service manager.
  public var wanted: String { isLocked ? "another program to unlock the database" : "room on the disk" }

  /// A newer program has upgraded the tables.
  static var outdated: HubDatabaseError {
    HubDatabaseError(
      kind: .outdated,
      message: """
        a newer version has upgraded the tables, and this one knows those up to \(HubSchema.newest): \
        start the newer one here, too
        """)
  }

  init(kind: Kind, message: String, cause: Cause? = nil) {
    (self.kind, self.message, self.cause) = (kind, message, cause)
  }

  public var description: String { message }

  /// The reason for clients. `message` is for the log: it may name the database's server and user.
  var reason: String {
    switch (cause, kind) {
    case (.fullDisk, _): "the hub's disk is full: it stores nothing until there is room"
    case (.noTables, _): "the hub's database is empty; the hub's log has the remedy"
    case (.locked, _): "another program has locked the hub's database; the hub waits until it is unlocked"
    case (_, .unfit), (_, .outdated): message
    case (_, .conflict), (_, .unavailable), (_, .other): "the database does not answer; the hub's log has the reason"
    }
  }

  /// The reason of any failure, for clients.
  static func reason(of failure: any Error) -> String { (failure as? Self)?.reason ?? "\(failure)" }
}

/// A row of a result; columns count from 0.
protocol HubRow {
  func integer(_ column: Int) -> Int64
  func text(_ column: Int) -> String
  func textIfAny(_ column: Int) -> String?
}

/// A value of a statement, or of a column.
protocol SQLBindable {
  static var isText: Bool { get }
  var sql: SQLiteValue { get }
}

extension SQLBindable { static var isText: Bool { false } }
extension Bool: SQLBindable { var sql: SQLiteValue { .integer(self ? 1 : 0) } }
extension Int: SQLBindable { var sql: SQLiteValue { .integer(Int64(self)) } }
extension Int64: SQLBindable { var sql: SQLiteValue { .integer(self) } }
extension SQLiteValue: SQLBindable { var sql: SQLiteValue { self } }

extension String: SQLBindable {
  static var isText: Bool { true }
  var sql: SQLiteValue { .text(self) }
}

extension Optional: SQLBindable where Wrapped: SQLBindable {
  static var isText: Bool { Wrapped.isText }
  var sql: SQLiteValue { map(\.sql) ?? .null }
}

/// A column of a set of rows: an array of values.
protocol HubColumn {
  var isText: Bool { get }
  var values: [SQLiteValue] { get }
}

extension Array: HubColumn where Element: SQLBindable {
  var isText: Bool { Element.isText }
  var values: [SQLiteValue] {
    // Unspecialised, as an existential calls it, this was a third of a small transaction.
    @_specialize(where Element == String)
    @_specialize(where Element == String?)
    @_specialize(where Element == Int64)
    @_specialize(where Element == Int64?)
    @_specialize(where Element == Bool)
    get { map { $0.sql } }
  }
}

/// SQL that sets each of these columns to the value of the row that conflicts.
func excluded(_ columns: String...) -> String { columns.map { "\($0) = excluded.\($0)" }.joined(separator: ", ") }

/// A statement for a whole set of rows.
///
/// In the SQL, `@rows` is the set, as a table `v` with the columns' names: `INSERT INTO t(a) SELECT v.a FROM @rows WHERE true ON CONFLICT …`. Without
/// columns it is an ordinary statement. Further values are `@1`, `@2` ….
struct HubCall {
  var sql: String
  var columns: [(name: String, isText: Bool, values: [SQLiteValue])]
  var values: [SQLiteValue]
  /// The columns of each inserted row that `row` gets; empty: `row` gets the statement's result.
  private(set) var returned: [String] = []
  var row: ((any HubRow) -> Void)?

  init(
    _ sql: String, _ columns: KeyValuePairs<String, any HubColumn> = [:], values: [any SQLBindable] = [],
    row: ((any HubRow) -> Void)? = nil
  ) {
    (self.sql, self.row) = (sql, row)
    self.columns = columns.map { ($0, $1.isText, $1.values) }
    self.values = values.map(\.sql)
  }

  /// Inserts rows into a table's columns of the same names. `row` gets the columns `returned` of each inserted row. `position`: SQL for a further
  /// column of this name, which uses the set's column `place` in its stead.
  init(
    into table: String, _ columns: KeyValuePairs<String, any HubColumn>, _ onConflict: String = "",
    order: String? = nil, position: String? = nil, returning returned: [String] = [], row: ((any HubRow) -> Void)? = nil
  ) {
    let own = columns.map(\.key).filter { position == nil || $0 != "place" }
    let names = ((position == nil ? [] : ["position"]) + own).joined(separator: ", ")
    let values = ([position].compactMap { $0 } + own.map { "v.\($0)" }).joined(separator: ", ")
    let sorted = order.map { " ORDER BY \($0)" } ?? ""
    self.init(
      "INSERT INTO \(table)(\(names)) SELECT \(values) FROM @rows WHERE true\(sorted) \(onConflict)", columns, row: row)
    self.returned = returned
  }

  var rows: Int { columns.first?.values.count ?? 1 }

  var returning: String { returned.isEmpty ? "" : " RETURNING \(returned.joined(separator: ", "))" }

  /// The values of one row of the set, for each parameter.
  func parameters(_ row: Int) -> [SQLiteValue] { columns.map { $0.values[row] } + values }

  /// A row of the set in the form of a result.
  struct InsertedRow: HubRow {
    fileprivate let values: [SQLiteValue]

    func integer(_ column: Int) -> Int64 { values[column].integer ?? 0 }
    func text(_ column: Int) -> String { values[column].text ?? "" }
    func textIfAny(_ column: Int) -> String? { values[column].text }
  }

  func insertedRow(_ row: Int) -> InsertedRow {
    InsertedRow(values: returned.compactMap { name in columns.first { $0.name == name }?.values[row] })
  }
}

/// The SQL of calls in a database's own form. It makes each text once: searching a statement takes longer than inserting a row.
struct StatementTexts {
  private static let most = 1000
  private var made: [String: String] = [:]

  /// The SQL with parameters `MARK1`, `MARK2` …: one for each column, then the values. `resolve` puts the columns into it.
  mutating func text(of call: HubCall, mark: String, resolve: (String) -> String) -> String {
    if let text = made[call.sql] { return text }
    let text = call.values.indices.reversed().reduce(resolve(call.sql)) { text, index in
      text.replacing("@\(index + 1)", with: "\(mark)\(call.columns.count + index + 1)")
    }
    if made.count >= Self.most { made = [:] }
    made[call.sql] = text
    return text
  }
}

/// A connection to the hub's database: the common interface of SQLite and PostgreSQL. One task uses it at a time.
///
/// SQL is written once: parameters are `?1`, `?2` …, upserts are `ON CONFLICT`, and columns in them are qualified.
protocol HubDatabase: AnyObject {
  /// Returns the number of changed rows.
  @discardableResult
  func run(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> Int
  /// Calls `row` for each row, until it returns `false`.
  func each(_ sql: String, _ values: [any SQLBindable], _ row: (any HubRow) throws(HubDatabaseError) -> Bool)
    throws(HubDatabaseError)
  func rollback()
  /// Performs the calls in order, within a transaction; on a server in one round trip. A call with an empty set is left out.
  ///
  /// `begins`: begins the transaction first, which fails as `outdated` if a newer program has upgraded the tables; until its end nobody can upgrade
  /// them. `ends`: commits it at the end.
  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError)
  /// Performs reading calls, outside a writing transaction: all from one snapshot, and on a server in one round trip.
  func read(_ calls: [HubCall]) throws(HubDatabaseError)
  /// The differences between SQLite and PostgreSQL.
  var dialect: HubSchema.Dialect { get }
}

extension HubDatabase {
  private var isServer: Bool { dialect == .postgres }

  /// The calls that take an exclusive lock on each of these names, which are sorted, until the transaction's end.
  func locking(_ names: [String]) -> [HubCall] {
    let sql =
      "SELECT pg_advisory_xact_lock(l.key) FROM (SELECT DISTINCT hashtext(v.name) AS key FROM @rows ORDER BY 1) l"
    return isServer ? [HubCall(sql, ["name": names])] : []
  }

  /// The calls after which no other transaction stores messages or hearers until this one's end; others read them. Batches hold back these calls from
  /// their first message to their end: `longest`, in milliseconds. Only names are locked before, as in each batch, so that no two transactions wait for
  /// each other.
  /// On SQLite there is one writer.
  func stoppingMessages(_ longest: Int) -> [HubCall] {
    guard isServer else { return [] }
    return [
      HubCall("SET LOCAL lock_timeout = \(longest)"),
      HubCall("LOCK TABLE messages IN SHARE ROW EXCLUSIVE MODE"),
    ]
  }

  /// The calls that notify other hubs on this database after the commit.
  func notifying(_ changes: [HubChange]) -> [HubCall] {
    let sql = "SELECT pg_notify('\(PostgresHubDatabase.channel)', v.payload) FROM @rows"
    return isServer && !changes.isEmpty ? [HubCall(sql, ["payload": changes.map(\.payload)])] : []
  }

  /// The number of hubs that listen to notifications on this database, including this one.
  func listeners() throws(HubDatabaseError) -> Int64 {
    guard isServer else { return 1 }
    return try number(
      "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = ?1",
      PostgresHubDatabase.listenerName)
  }

  /// SQL for the position of a new message: `v.place` counts the messages of the transaction from 0. Positions become visible to readers in their
  /// order. On a server it is the transaction's number and the place in it: transactions do not wait for a common counter. Source: decision 0018.
  var nextPosition: String {
    isServer
      ? "((SELECT base FROM positions) + pg_current_xact_id()::text::bigint) * 1048576 + v.place"
      : "(SELECT coalesce(max(position), 0) + 1 FROM messages)"
  }

  /// SQL for the first position that readers must not read yet: smaller positions may still appear, until all transactions before the oldest running
  /// one have ended.
  var unsettledPosition: String? {
    isServer ? "((SELECT base FROM positions) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint) * 1048576" : nil
  }

  /// Whether a table in a join may be a query that uses the table before it (`LATERAL`).
  var supportsLateral: Bool { isServer }

  /// SQL for the size of a text in bytes, if possible without reading all of it.
  func bytes(_ column: String) -> String { isServer ? "octet_length(\(column))" : "length(CAST(\(column) AS BLOB))" }
}

extension HubDatabase {
  @discardableResult
  func run(_ sql: String, _ values: any SQLBindable...) throws(HubDatabaseError) -> Int { try run(sql, values) }

  /// Inserts a row, with its columns' names.
  @discardableResult
  func insert(into table: String, _ row: KeyValuePairs<String, any SQLBindable>, _ onConflict: String = "")
    throws(HubDatabaseError) -> Int
  {
    let names = row.map(\.key).joined(separator: ", ")
    let places = row.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
    return try run("INSERT INTO \(table)(\(names)) VALUES (\(places)) \(onConflict)", row.map(\.value))
  }

  func first<Value>(_ sql: String, _ values: any SQLBindable..., read: (any HubRow) -> Value) throws(HubDatabaseError)
    -> Value?
  {
    try first(sql, values, read: read)
  }

  func first<Value>(_ sql: String, _ values: [any SQLBindable], read: (any HubRow) -> Value) throws(HubDatabaseError)
    -> Value?
  {
    var found: Value?
    try each(sql, values) { (row) throws(HubDatabaseError) in
      found = read(row)
      return false
    }
    return found
  }

  func every(_ sql: String, _ values: [any SQLBindable] = [], _ row: (any HubRow) -> Void) throws(HubDatabaseError) {
    try each(sql, values) { (found) throws(HubDatabaseError) in
      row(found)
      return true
    }
  }

  func rows<Value>(_ sql: String, _ values: [any SQLBindable] = [], read: (any HubRow) -> Value)
    throws(HubDatabaseError) -> [Value]
  {
    var found: [Value] = []
    try every(sql, values) { found.append(read($0)) }
    return found
  }

  /// The rows as a dictionary, each converted by `read`; the later one of two equal keys counts.
  func dictionary<Key, Value>(_ sql: String, _ values: [any SQLBindable] = [], read: (any HubRow) -> (Key, Value))
    throws(HubDatabaseError) -> [Key: Value]
  {
    Dictionary(try rows(sql, values, read: read)) { $1 }
  }

  /// The first column of the first row; 0 without a row.
  func number(_ sql: String, _ values: any SQLBindable...) throws(HubDatabaseError) -> Int64 {
    try first(sql, values) { $0.integer(0) } ?? 0
  }

  /// Runs `work`, which begins and ends a transaction itself; retries a few times after conflicts. A file that stays
  /// locked is unavailable, whatever is to be stored.
  func retrying<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    var retries = 8
    while true {
      do {
        return try work()
      } catch {
        rollback()
        guard error.kind == .conflict else { throw error }
        guard retries > 0 else {
          throw error.cause == .locked
            ? HubDatabaseError(kind: .unavailable, message: error.message, cause: .locked) : error
        }
        retries -= 1
      }
    }
  }

  /// Runs `work` in a transaction; retries a few times after conflicts.
  func transaction<Value>(_ work: () throws(HubDatabaseError) -> Value) throws(HubDatabaseError) -> Value {
    try retrying { () throws(HubDatabaseError) in
      try perform([], begins: true, ends: false)
      let value = try work()
      try perform([], begins: false, ends: true)
      return value
    }
  }

  /// Within a transaction: takes an exclusive lock on this name until its end.
  func lock(_ name: String) throws(HubDatabaseError) { try perform(locking([name]), begins: false, ends: false) }

  /// Performs the calls in one transaction; retries a few times after conflicts.
  func write(_ calls: [HubCall]) throws(HubDatabaseError) {
    try retrying { () throws(HubDatabaseError) in try perform(calls, begins: true, ends: true) }
  }
}
