// SPDX-License-Identifier: MIT

import SQLite

/// What a store takes on the disk and in memory.
extension Store {
  /// Bytes of the database file as SQLite counts them.
  public func size() throws(StoreError) -> Int64 {
    try translating { () throws(SQLiteError) in
      (try database.value("PRAGMA page_count")?.integer ?? 0) * Self.pageSize
    }
  }

  /// Folds the log into the database: at a clean end, so that the next start has nothing to do.
  public func checkpoint() throws(StoreError) {
    try translating { () throws(SQLiteError) in
      try checkOwnFile()
      try database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    }
    noteOwnFile()
  }

  /// Fails where the disk takes no writes. It needs no page that the database does not have, so a database at its bound passes.
  public func proveWritable() throws(StoreError) {
    try translating { () throws(SQLiteError) in try database.execute("PRAGMA application_id = \(Self.applicationID)") }
  }

  /// `mpst`, in the header of the file.
  private static let applicationID = 0x6D70_7374

  /// Frees memory of caches that is not in use.
  public func releaseMemory() { database.releaseMemory() }
}
