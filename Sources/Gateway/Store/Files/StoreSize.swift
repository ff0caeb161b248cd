// SPDX-License-Identifier: MIT

import SQLite

/// The store's use of disk and memory.
extension Store {
  /// Bytes of the database file, by SQLite's count of pages.
  public func size() throws(StoreError) -> Int64 {
    (try value("PRAGMA page_count")?.integer ?? 0) * Self.pageSize
  }

  /// Bytes of the pages that are in use. A file never shrinks by itself: pages of deleted rows are used again first,
  /// and count as room below `maxBytes`.
  public func usedSize() throws(StoreError) -> Int64 {
    let free = try value("PRAGMA freelist_count")?.integer ?? 0
    return max(0, try size() - free * Self.pageSize)
  }

  /// Moves the log's content into the database, at a regular end, so that the next start need not do it. A log that the mark expects is not emptied: its
  /// next write begins it anew.
  public func checkpoint() throws(StoreError) {
    try translating { () throws(SQLiteError) in
      try checkOwnFile()
      try database.execute("PRAGMA wal_checkpoint(\(marksLog || isLogExpected ? "RESTART" : "TRUNCATE"))")
    }
    noteOwnFile()
  }

  /// Throws if the disk accepts no writes. It needs no new page, so a database at its maximum size passes.
  public func proveWritable() throws(StoreError) {
    try translating { () throws(SQLiteError) in try database.execute("PRAGMA application_id = \(Self.applicationID)") }
  }

  /// `mpst`, the application id in the file's header.
  private static let applicationID = 0x6D70_7374

  /// Releases unused memory of SQLite's cache.
  public func releaseMemory() { database.releaseMemory() }
}
