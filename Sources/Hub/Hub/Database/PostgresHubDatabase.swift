// SPDX-License-Identifier: MIT

import CPostgres
import Glibc
import SQLite

/// A hub's database on a PostgreSQL server, which several hubs can share. A lost connection is opened again with the next transaction; the one in
/// progress fails as `unavailable`, and the client retries.
final class PostgresHubDatabase: HubDatabase {
  /// The channel on which hubs notify each other of changes.
  static let channel = "meshpost"
  /// The name of the listening connection on the server.
  static let listenerName = "meshpost-hub listener"
  private static let maxPrepared = 200

  let connection: OpaquePointer
  private var prepared: [String: String] = [:]
  var texts = StatementTexts()
  var isInTransaction = false
  /// The connection is unusable, even if libpq says otherwise.
  var isBroken = false
  private let warnings = PostgresWarnings()
  /// Whether a query ends when the task that waits for it is cancelled.
  let endsWithTask: Bool
  /// The longest statement; `nil`: any.
  private let longest: Duration?
  let dialect = HubSchema.Dialect.postgres
  /// Whether transactions check the version of the tables; not while the tables are upgraded.
  private(set) var guardsSchema = false

  /// `address`: a connection URI or string of libpq, without the password. `migrates`: upgrades the tables; otherwise another connection has done so.
  init(
    address: String, password: String?, migrates: Bool = true, endsWithTask: Bool = false, longest: Duration? = nil
  ) throws(HubDatabaseError) {
    (self.endsWithTask, self.longest) = (endsWithTask, longest)
    connection = try Self.connect(address, password)
    warnings.listen(on: connection)
    // If this fails, `deinit` ends the connection: everything is initialised.
    if migrates { try migrate() }
    guardsSchema = true
    try limitStatements()
    // Detects at the start a pool that shares sessions: another session may have prepared statements here.
    _ = try prepare("SELECT 1")
  }

  deinit { PQfinish(connection) }

  /// Parameters of libpq that the address overrides.
  ///
  /// Of several servers only the leader is used; a single standby is an error. A server that is cut off neither answers nor ends the connection: the
  /// next server is tried after some seconds, and idle connections are probed.
  private static let defaults = [
    ("connect_timeout", "5"), ("application_name", "meshpost-hub"), ("tcp_user_timeout", "20000"),
    ("keepalives_idle", "15"), ("keepalives_interval", "5"), ("keepalives_count", "3"),
    ("target_session_attrs", "read-write"),
  ]
  /// Settings of each session, if the server knows them. A transaction waits for a lock no longer than its hub waits for an answer, and ends with its
  /// hub: otherwise abandoned transactions would pile up behind a standby that does not answer.
  private static let settings = ["lock_timeout = '20s'", "client_connection_check_interval = '10s'"]

  /// `name`: the connection's name on the server, instead of the program's.
  static func connect(
    _ address: String, _ password: String?, name: String? = nil
  ) throws(HubDatabaseError) -> OpaquePointer {
    // Later parameters win: the address overrides all except the password and `name`.
    let parameters =
      defaults + [("dbname", address)] + (password.map { [("password", $0)] } ?? [])
      + (name.map { [("application_name", $0)] } ?? [])
    let opened = withStrings(parameters.map(\.0)) { keys in
      withStrings(parameters.map(\.1)) { PQconnectdbParams(keys, $0, 1) }
    }
    guard let opened else { throw HubDatabaseError(kind: .unavailable, message: "libpq is out of memory") }
    guard PQstatus(opened) == CONNECTION_OK else {
      let error = HubDatabaseError(kind: .unavailable, message: words(PQerrorMessage(opened)))
      PQfinish(opened)
      throw error
    }
    // Notices are for people at a terminal.
    PQsetNoticeReceiver(opened, { _, _ in }, nil)
    do {
      try applySettings(opened)
    } catch {
      PQfinish(opened)
      throw error
    }
    return opened
  }

  private static func applySettings(_ connection: OpaquePointer) throws(HubDatabaseError) {
    // An older server works without the settings that it does not know.
    for setting in settings { _ = try execute("SET \(setting)", on: connection) }
  }

  private func limitStatements() throws(HubDatabaseError) {
    guard let longest else { return }
    _ = try Self.execute("SET statement_timeout = '\(longest.components.seconds)s'", on: connection)
  }

  private static func withStrings<Result>(
    _ strings: [String], _ body: (UnsafePointer<UnsafePointer<CChar>?>) -> Result
  ) -> Result {
    let copies = strings.map { strdup($0) }
    defer { for copy in copies { free(copy) } }
    return body(copies.map { UnsafePointer($0) } + [nil])
  }

  /// An error message of libpq in one line.
  static func words(_ text: UnsafePointer<CChar>?) -> String {
    let whole = text.map { String(cString: $0) } ?? "?"
    return whole.split(whereSeparator: \.isNewline).joined(separator: "; ")
  }

  var isLost: Bool { isBroken || PQstatus(connection) != CONNECTION_OK }

  // MARK: Statements

  func execute(_ sql: String) throws(HubDatabaseError) { try finish(answer(to: PQsendQuery(connection, sql))) { _ in } }

  func run(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> Int {
    var count = 0
    try finish(try ask(sql, values)) { result in
      count = PQcmdTuples(result).flatMap { Int(String(cString: $0)) } ?? 0
    }
    return count
  }

  func each(_ sql: String, _ values: [any SQLBindable], _ row: (any HubRow) throws(HubDatabaseError) -> Bool)
    throws(HubDatabaseError)
  {
    // Pages are bounded: the whole result at once is small.
    let answer = try ask(sql, values)
    defer { PQclear(answer) }
    try check(answer)
    for index in 0..<PQntuples(answer) {
      guard try row(PostgresRow(result: answer, row: index)) else { return }
    }
  }

  private func ask(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> OpaquePointer? {
    guard !isInTransaction else { return try askOnce(sql, values) }
    return try reconnecting { () throws(HubDatabaseError) in
      let answer = try askOnce(sql, values)
      guard isLost else { return answer }
      PQclear(answer)
      throw lost()
    }
  }

  private func askOnce(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> OpaquePointer? {
    try send(HubCall(sql, values: values), as: try prepare(sql))
    return try answer()
  }

  func prepare(_ sql: String) throws(HubDatabaseError) -> String {
    if let name = prepared[sql] { return name }
    if prepared.count >= Self.maxPrepared, !isInTransaction {
      prepared = [:]
      try execute("DEALLOCATE ALL")
    }
    let name = "s\(prepared.count)"
    try finish(answer(to: PQsendPrepare(connection, name, sql.replacing("?", with: "$"), 0, nil))) { _ in }
    prepared[sql] = name
    return name
  }

  /// PostgreSQL's texts have no NUL.
  static func text(_ value: SQLiteValue) -> String? {
    switch value {
    case .null: nil
    case .integer(let value): String(value)
    case .real(let value): String(value)
    case .text(let value): withoutNul(value)
    case .blob(let bytes): String(decoding: bytes, as: UTF8.self)
    }
  }

  static func withoutNul(_ text: String) -> String {
    // By scalar: a NUL followed by a combining character is not a separate character.
    text.utf8.contains(0)
      ? String(String.UnicodeScalarView(text.unicodeScalars.map { $0 == "\0" ? "\u{FFFD}" : $0 })) : text
  }

  private func finish(_ result: OpaquePointer?, _ read: (OpaquePointer?) -> Void) throws(HubDatabaseError) {
    defer { PQclear(result) }
    try check(result)
    read(result)
  }

  func check(_ result: OpaquePointer?) throws(HubDatabaseError) {
    switch PQresultStatus(result) {
    case PGRES_COMMAND_OK, PGRES_TUPLES_OK, PGRES_EMPTY_QUERY: return
    default: break
    }
    let state = PQresultErrorField(result, Int32(UInt8(ascii: "C"))).map { String(cString: $0) } ?? ""
    // The leader has become a standby: the next connection looks for the leader.
    if state == Self.readOnly { isBroken = true }
    let hint = Self.ofOtherSessions.contains(state) ? "; \(Self.poolHint)" : ""
    throw HubDatabaseError(
      kind: Self.kind(of: state), message: "PostgreSQL \(state): \(Self.words(PQerrorMessage(connection)))\(hint)",
      cause: Self.causes[state])
  }

  /// `disk_full`, `undefined_table`, `lock_not_available`.
  private static let causes: [String: HubDatabaseError.Cause] = [
    "53100": .fullDisk, "42P01": .noTables, "55P03": .heldLock,
  ]

  /// The state of a write where nothing can be written.
  private static let readOnly = "25006"

  /// A prepared statement exists already, or is gone: another client used the session.
  private static let ofOtherSessions: Set = ["42P05", "26000"]
  private static let poolHint =
    "a pool that gives each transaction another session does not work (PgBouncer: pool_mode = session)"

  /// Source: PostgreSQL, "Error Codes".
  static func kind(of state: String) -> HubDatabaseError.Kind {
    switch state {
    // Serialisation failures, deadlocks, and rows that another hub has just inserted.
    case "40001", "40P01", "23505": .conflict
    // Connection, resources (disk, memory, connections), an operator's action, and no answer at all.
    case _ where state.isEmpty || ["08", "53", "57", "58"].contains(state.prefix(2)): .unavailable
    // A standby; and a lock that another session holds.
    case readOnly, "55P03": .unavailable
    // Data that the database cannot represent, or that exceeds its limits.
    case _ where ["22", "54"].contains(state.prefix(2)): .unfit
    default: .other
    }
  }

  // MARK: Transactions

  func reconnectIfLost() throws(HubDatabaseError) {
    guard isLost else { return }
    (prepared, isBroken) = ([:], false)
    PQreset(connection)
    guard PQstatus(connection) == CONNECTION_OK else {
      throw HubDatabaseError(kind: .unavailable, message: Self.words(PQerrorMessage(connection)))
    }
    do {
      try Self.applySettings(connection)
      try limitStatements()
    } catch {
      isBroken = true
      throw error
    }
  }

  /// Does work again on a new connection if this one was lost before, which shows only in its failure.
  func reconnecting<Value>(if mayRepeat: Bool = true, _ work: () throws(HubDatabaseError) -> Value)
    throws(HubDatabaseError) -> Value
  {
    try reconnectIfLost()
    do {
      return try work()
    } catch  where isLost && mayRepeat {
      try reconnectIfLost()
      return try work()
    }
  }

  /// Checks a commit. A commit with a warning may be on the leader's disk only: somebody cancelled the wait for the synchronous standby. The hub does
  /// not acknowledge it; the gateway sends the batch again, and the hub finds it stored.
  func checkCommit() throws(HubDatabaseError) {
    guard let words = warnings.last else {
      isInTransaction = false
      return
    }
    isBroken = true
    throw HubDatabaseError(kind: .unavailable, message: "PostgreSQL: \(words)")
  }

  func willCommit() { warnings.last = nil }

  func rollback() {
    guard isInTransaction else { return }
    isInTransaction = false
    // `try?`: a lost connection has rolled back.
    if !isBroken { try? execute("ROLLBACK") }
  }

}

/// The server's last warning. libpq calls the receiver on the thread that reads answers.
private final class PostgresWarnings {
  var last: String?

  /// Collects the connection's notices as long as this object exists.
  func listen(on connection: OpaquePointer) {
    PQsetNoticeReceiver(
      connection,
      { warnings, result in
        guard let warnings, let result else { return }
        let field = { (code: Unicode.Scalar) in
          PQresultErrorField(result, Int32(code.value)).map { String(cString: $0) } ?? ""
        }
        // The severity in English, and the message. Notices are for people at a terminal.
        guard field("V") == "WARNING" else { return }
        Unmanaged<PostgresWarnings>.fromOpaque(warnings).takeUnretainedValue().last = field("M")
      }, Unmanaged.passUnretained(self).toOpaque())
  }
}

struct PostgresRow: HubRow {
  let result: OpaquePointer?
  let row: Int32

  func integer(_ column: Int) -> Int64 { min(max(Int64(text(column)) ?? 0, -Statement.bound), Statement.bound) }
  func text(_ column: Int) -> String { textIfAny(column) ?? "" }

  func textIfAny(_ column: Int) -> String? {
    guard PQgetisnull(result, row, Int32(column)) == 0 else { return nil }
    return PQgetvalue(result, row, Int32(column)).map { String(cString: $0) }
  }
}
