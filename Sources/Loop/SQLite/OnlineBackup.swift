// SPDX-License-Identifier: MIT

import CSQLite

/// Copies a database in use, some pages at a time. Writes through the same connection are included, so that the copy is a
/// snapshot of the moment when it is complete.
public final class OnlineBackup {
  private let source: Database
  private let target: Database
  private let handle: OpaquePointer

  public init(of source: Database, to location: String) throws(SQLiteError) {
    self.source = source
    target = try Database(location: location)
    // With less, a power cut can bring the rollback journal back, and with it the state before the copy.
    try target.execute("PRAGMA synchronous = EXTRA")
    guard let handle = sqlite3_backup_init(target.handle, "main", source.handle, "main") else {
      throw target.error(SQLITE_ERROR)
    }
    self.handle = handle
  }

  deinit { sqlite3_backup_finish(handle) }

  /// Copies some pages. True: the copy is complete.
  public func step(pages: Int32) throws(SQLiteError) -> Bool {
    switch sqlite3_backup_step(handle, pages) {
    case SQLITE_DONE: return true
    // Another connection is writing; the next step continues.
    case SQLITE_OK, SQLITE_BUSY, SQLITE_LOCKED: return false
    case let code: throw SQLiteError(code: code, message: String(cString: sqlite3_errstr(code)))
    }
  }
}
