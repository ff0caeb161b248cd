// SPDX-License-Identifier: MIT

import CSQLite

/// An error of SQLite, classified by what the caller can do about it.
public struct SQLiteError: Error, Equatable, Sendable, CustomStringConvertible {
  public enum Kind: Equatable, Sendable {
    /// No space is left, or the configured size is reached: wait.
    case full
    /// The file system is read-only, or the medium fails: wait.
    case unavailable
    /// The file is damaged: set it aside.
    case corrupt
    /// Another process holds a lock.
    case busy
    /// A constraint of the schema was violated.
    case constraint
    /// The file is of a newer version of the program.
    case newer
    /// Any other error: a mistake of this program.
    case other
  }

  public let code: Int32
  public let message: String
  public let kind: Kind

  /// The file's schema has steps that this program does not know.
  init(newer version: Int, than newest: Int) {
    code = SQLITE_ERROR
    message = "its schema is of version \(version), and this program knows versions up to \(newest)"
    kind = .newer
  }

  public init(code: Int32, message: String) {
    self.code = code
    self.message = message
    kind =
      switch code & 0xFF {
      case SQLITE_FULL: .full
      case SQLITE_IOERR, SQLITE_READONLY, SQLITE_CANTOPEN, SQLITE_PERM: .unavailable
      case SQLITE_CORRUPT, SQLITE_NOTADB: .corrupt
      case SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL: .busy
      case SQLITE_CONSTRAINT: .constraint
      default: .other
      }
  }

  public var description: String { kind == .newer ? message : "SQLite \(code): \(message)" }
}

/// A connection. Not `Sendable`: one owner, one thread at a time.
public final class Database {
  let handle: OpaquePointer
  private var cache: [Key: Statement] = [:]
  private var isLate: (() -> Bool)?

  /// A key that is quick to hash: nearly all SQL texts differ in length, and to hash a whole text takes longer than to
  /// run it.
  private struct Key: Hashable {
    let sql: String

    func hash(into hasher: inout Hasher) { hasher.combine(sql.utf8.count) }
  }

  /// Opens or creates the file.
  public init(location: String, readOnly: Bool = false) throws(SQLiteError) {
    let flags = readOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
    handle = try Self.open(location, flags, location)
  }

  /// Opens a file that nobody writes: it is read without its log and without locks, and no file is made beside it.
  public init(unwritten location: String) throws(SQLiteError) {
    let path = location.utf8.map { byte -> String in
      let isPlain = byte > 0x20 && byte < 0x7F && !"%?#".utf8.contains(byte)
      return isPlain ? String(Unicode.Scalar(byte)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
    }.joined()
    let scheme = path.hasPrefix("/") ? "file://" : "file:"
    handle = try Self.open("\(scheme)\(path)?immutable=1", SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, location)
  }

  private static func open(_ name: String, _ flags: Int32, _ location: String) throws(SQLiteError) -> OpaquePointer {
    var opened: OpaquePointer?
    let code = sqlite3_open_v2(name, &opened, flags | SQLITE_OPEN_NOMUTEX, nil)
    guard code == SQLITE_OK, let opened else {
      let message = opened.map { String(cString: sqlite3_errmsg($0)) } ?? "no memory"
      sqlite3_close_v2(opened)
      throw SQLiteError(code: code, message: "\(location): \(message)")
    }
    sqlite3_extended_result_codes(opened, 1)
    return opened
  }

  deinit {
    cache.removeAll()
    // With a limit, SQLite would empty the log that stays. That it has none cannot fail.
    if keepsLog { sqlite3_exec(handle, "PRAGMA journal_size_limit = -1", nil, nil, nil) }
    sqlite3_close_v2(handle)
  }

  /// Runs SQL without results: schema, pragmas, transactions.
  public func execute(_ sql: String) throws(SQLiteError) {
    let code = sqlite3_exec(handle, sql, nil, nil, nil)
    guard code == SQLITE_OK else { throw error(code) }
  }

  /// The prepared statement for `sql`, from a cache.
  public func statement(_ sql: String) throws(SQLiteError) -> Statement {
    let key = Key(sql: sql)
    if let kept = cache[key], !kept.isInUse { return kept }
    let made = try prepare(sql)
    if cache[key] == nil { cache[key] = made }
    return made
  }

  private func prepare(_ sql: String) throws(SQLiteError) -> Statement {
    var prepared: OpaquePointer?
    let code = sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &prepared, nil)
    guard code == SQLITE_OK, let prepared else { throw error(code) }
    return Statement(prepared, of: self)
  }

  /// Runs a statement that changes rows; returns their number.
  @discardableResult
  public func run(_ sql: String, _ values: SQLiteValue...) throws(SQLiteError) -> Int { try run(sql, values) }

  @discardableResult
  public func run(_ sql: String, _ values: [SQLiteValue]) throws(SQLiteError) -> Int {
    guard !isWithinWrite || isInTransaction else {
      throw SQLiteError(code: SQLITE_IOERR, message: "a failed read rolled the transaction back")
    }
    let statement = try statement(sql)
    try statement.bind(values)
    defer { statement.reset() }
    while try statement.step() {}
    return Int(sqlite3_changes64(handle))
  }

  /// The first column of the first row; `nil` without a row.
  public func value(_ sql: String, _ values: SQLiteValue...) throws(SQLiteError) -> SQLiteValue? {
    try value(sql, values)
  }

  public func value(_ sql: String, _ values: [SQLiteValue]) throws(SQLiteError) -> SQLiteValue? {
    let statement = try statement(sql)
    try statement.bind(values)
    defer { statement.reset() }
    return try statement.step() ? statement.value(0) : nil
  }

  /// Calls `row` for each row, one at a time, without collecting them. Return false to stop.
  public func each(
    _ sql: String, _ values: [SQLiteValue], _ row: (Statement) throws(SQLiteError) -> Bool
  ) throws(SQLiteError) {
    let statement = try statement(sql)
    try statement.bind(values)
    statement.isInUse = true
    defer {
      statement.isInUse = false
      statement.reset()
    }
    while try statement.step() {
      guard try row(statement) else { return }
    }
  }

  /// Calls `row` for each row.
  public func every(_ sql: String, _ values: [SQLiteValue] = [], _ row: (Statement) -> Void) throws(SQLiteError) {
    try each(sql, values) { (statement) throws(SQLiteError) in
      row(statement)
      return true
    }
  }

  /// The value that `read` makes of each row, without `nil`.
  public func rows<Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (Statement) -> Value?
  ) throws(SQLiteError) -> [Value] {
    var found: [Value] = []
    try every(sql, values) { row in if let value = read(row) { found.append(value) } }
    return found
  }

  /// The value that `read` makes of the first row; `nil` without a row.
  public func first<Value>(
    _ sql: String, _ values: [SQLiteValue] = [], read: (Statement) -> Value?
  ) throws(SQLiteError) -> Value? {
    var found: Value?
    try each(sql, values) { (row) throws(SQLiteError) in
      found = read(row)
      return false
    }
    return found
  }

  /// Makes every later query fail when the task that runs it is cancelled, or when `isLate` says so, which is asked while a query runs.
  public func endWithTask(isLate: (() -> Bool)? = nil) {
    self.isLate = isLate
    sqlite3_progress_handler(
      handle, 20_000,
      { database in
        if Task<Never, Never>.isCancelled { return 1 }
        guard let database else { return 0 }
        return Unmanaged<Database>.fromOpaque(database).takeUnretainedValue().isLate?() ?? false ? 1 : 0
      }, Unmanaged.passUnretained(self).toOpaque())
  }

  /// The SQL of all cached statements.
  public var statements: [String] { cache.keys.map(\.sql) }
  public var lastInsertedRow: Int64 { sqlite3_last_insert_rowid(handle) }
  /// The rows that were inserted, changed or deleted through this connection.
  public var changes: Int64 { sqlite3_total_changes64(handle) }
  public var isInTransaction: Bool { sqlite3_get_autocommit(handle) == 0 }
  /// Rows are changed in the open transaction or not at all: SQLite ends one by itself when a read fails, and each change after that would stay on disk
  /// alone.
  public var isWithinWrite = false

  /// Whether the write-ahead log stays, with its content, when the database is closed. Otherwise SQLite removes it then.
  public var keepsLog = false {
    didSet {
      var value: Int32 = keepsLog ? 1 : 0
      sqlite3_file_control(handle, "main", SQLITE_FCNTL_PERSIST_WAL, &value)
    }
  }

  /// Releases unused memory of SQLite's cache.
  public func releaseMemory() { sqlite3_db_release_memory(handle) }

  /// The first bytes of the database file, not of the log or the cache; `nil`: they cannot be read. After the file's end they are zeros.
  public func fileBytes(_ count: Int32) -> [UInt8]? {
    var bytes = [UInt8](repeating: 0, count: Int(count))
    let code = read(&bytes, at: 0)
    return code == SQLITE_OK || code == Self.shortRead ? bytes : nil
  }

  /// Whether the disk returns the whole database file. SQLite takes a read that fails with EIO for damage.
  public var isFileReadable: Bool {
    var (piece, offset) = ([UInt8](repeating: 0, count: 65536), Int64(0))
    while true {
      let code = read(&piece, at: offset)
      guard code == SQLITE_OK else { return code == Self.shortRead }
      offset += Int64(piece.count)
    }
  }

  /// SQLITE_IOERR_SHORT_READ
  private static let shortRead: Int32 = SQLITE_IOERR | 2 << 8

  /// Uses SQLite's own descriptor, because closing another one would release SQLite's locks.
  private func read(_ bytes: inout [UInt8], at offset: Int64) -> Int32 {
    var file: UnsafeMutablePointer<sqlite3_file>?
    guard sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK, let file,
      let read = file.pointee.pMethods?.pointee.xRead
    else { return SQLITE_IOERR }
    return read(file, &bytes, Int32(bytes.count), offset)
  }

  func error(_ code: Int32) -> SQLiteError {
    SQLiteError(code: sqlite3_extended_errcode(handle), message: String(cString: sqlite3_errmsg(handle)))
  }
}
