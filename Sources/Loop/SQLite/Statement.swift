// SPDX-License-Identifier: MIT

import CSQLite

/// A value that SQLite stores.
///
/// Not expressible by `nil` on purpose: a comparison of an optional value with `nil` would then compare it with NULL.
public enum SQLiteValue: Equatable, Sendable, ExpressibleByIntegerLiteral, ExpressibleByStringLiteral {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case blob([UInt8])

  public init(integerLiteral value: Int64) { self = .integer(value) }
  public init(stringLiteral value: String) { self = .text(value) }

  /// `nil` becomes NULL; integers beyond 63 bits keep their bit pattern.
  @inlinable
  public static func optional(_ value: (some BinaryInteger)?) -> SQLiteValue {
    value.map { .integer(Int64(truncatingIfNeeded: $0)) } ?? .null
  }

  public static func optional(_ value: String?) -> SQLiteValue { value.map { .text($0) } ?? .null }
  public static func optional(_ value: [UInt8]?) -> SQLiteValue { value.map { .blob($0) } ?? .null }

  public var integer: Int64? { if case .integer(let value) = self { value } else { nil } }
  public var text: String? { if case .text(let value) = self { value } else { nil } }
  public var blob: [UInt8]? { if case .blob(let value) = self { value } else { nil } }
}

/// A prepared statement: bind, step, read columns, reset.
public final class Statement {
  private let handle: OpaquePointer
  private unowned let database: Database
  var isInUse = false

  init(_ handle: OpaquePointer, of database: Database) {
    self.handle = handle
    self.database = database
  }

  deinit { sqlite3_finalize(handle) }

  func bind(_ values: [SQLiteValue]) throws(SQLiteError) {
    // SQLITE_TRANSIENT: SQLite makes its own copy.
    let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
    for (index, value) in values.enumerated() {
      let column = Int32(index + 1)
      let code =
        switch value {
        case .null: sqlite3_bind_null(handle, column)
        case .integer(let integer): sqlite3_bind_int64(handle, column, integer)
        case .real(let real): sqlite3_bind_double(handle, column, real)
        case .text(let text): Self.bind(text, handle, column)
        case .blob(let bytes):
          bytes.isEmpty
            ? sqlite3_bind_zeroblob(handle, column, 0)
            : sqlite3_bind_blob64(handle, column, bytes, UInt64(bytes.count), copied)
        }
      guard code == SQLITE_OK else { throw database.error(code) }
    }
  }

  /// A NUL, at which SQLite would cut the text, becomes U+FFFD: texts that differ after a NUL stay different.
  private static func bind(_ text: String, _ handle: OpaquePointer, _ column: Int32) -> Int32 {
    let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
    let hasNul = text.utf8.withContiguousStorageIfAvailable { $0.contains(0) } ?? text.utf8.contains(0)
    guard hasNul else { return sqlite3_bind_text(handle, column, text, -1, copied) }
    let whole = String(String.UnicodeScalarView(text.unicodeScalars.map { $0 == "\0" ? "\u{FFFD}" : $0 }))
    return sqlite3_bind_text(handle, column, whole, -1, copied)
  }

  /// True when there is a row.
  func step() throws(SQLiteError) -> Bool {
    let code = sqlite3_step(handle)
    switch code {
    case SQLITE_ROW: return true
    case SQLITE_DONE: return false
    default:
      let failure = database.error(code)
      sqlite3_reset(handle)
      throw failure
    }
  }

  func reset() {
    sqlite3_reset(handle)
    sqlite3_clear_bindings(handle)
  }

  /// Within ±2⁵³, the range of all our numbers: larger ones, from a damaged file, are clamped, so that no sum with them
  /// overflows.
  public func integer(_ column: Int) -> Int64 { min(max(bits(column), -Self.bound), Self.bound) }

  /// All 64 bits, for values that are not numbers: a checksum.
  public func bits(_ column: Int) -> Int64 { sqlite3_column_int64(handle, Int32(column)) }

  public static let bound: Int64 = 1 << 53

  public func real(_ column: Int) -> Double { sqlite3_column_double(handle, Int32(column)) }
  public func isNull(_ column: Int) -> Bool { sqlite3_column_type(handle, Int32(column)) == SQLITE_NULL }
  public func integerIfAny(_ column: Int) -> Int64? { isNull(column) ? nil : integer(column) }

  public func text(_ column: Int) -> String {
    sqlite3_column_text(handle, Int32(column)).map { String(cString: $0) } ?? ""
  }

  public func textIfAny(_ column: Int) -> String? { isNull(column) ? nil : text(column) }

  public func blob(_ column: Int) -> [UInt8] {
    let count = Int(sqlite3_column_bytes(handle, Int32(column)))
    guard count > 0, let start = sqlite3_column_blob(handle, Int32(column)) else { return [] }
    return Array(UnsafeRawBufferPointer(start: start, count: count))
  }

  public func blobIfAny(_ column: Int) -> [UInt8]? { isNull(column) ? nil : blob(column) }

  public func value(_ column: Int) -> SQLiteValue {
    switch sqlite3_column_type(handle, Int32(column)) {
    case SQLITE_INTEGER: .integer(integer(column))
    case SQLITE_FLOAT: .real(real(column))
    case SQLITE_TEXT: .text(text(column))
    case SQLITE_BLOB: .blob(blob(column))
    default: .null
    }
  }
}
