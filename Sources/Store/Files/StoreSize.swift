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
    try translating { () throws(SQLiteError) in try database.execute("PRAGMA wal_checkpoint(TRUNCATE)") }
  }

  /// Frees memory of caches that is not in use.
  public func releaseMemory() { database.releaseMemory() }
}
