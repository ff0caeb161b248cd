// SPDX-License-Identifier: MIT

import CSQLite
import Glibc

/// A database's files, before SQLite opens them.
public enum DatabaseFile {
  /// Makes the database for its owner alone, whatever the umask, before SQLite does; the log and a rollback's journal get the
  /// same mode from it. Others lose what an older version has let them do; a group may go on reading.
  public static func protect(_ location: String) throws(SQLiteError) {
    // Opened for nothing else: to close a file that SQLite has open would take its locks.
    let fresh = open(location, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    if fresh >= 0 {
      close(fresh)
      return
    }
    guard errno == EEXIST else { throw cannotOpen(location) }
    for suffix in ["", "-wal", "-shm"] {
      var facts = stat()
      guard stat(location + suffix, &facts) == 0, facts.st_mode & 0o137 != 0, facts.st_uid == geteuid() else {
        continue
      }
      guard chmod(location + suffix, facts.st_mode & 0o640) == 0 else {
        throw cannotOpen(location + suffix)
      }
    }
  }

  private static func cannotOpen(_ file: String) -> SQLiteError {
    SQLiteError(code: SQLITE_CANTOPEN, words: "\(file): \(String(cString: strerror(errno)))")
  }
}
