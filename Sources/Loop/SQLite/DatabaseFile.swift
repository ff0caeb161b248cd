// SPDX-License-Identifier: MIT

import CSQLite
import Glibc

/// A database's files, before SQLite opens them.
public enum DatabaseFile {
  /// Creates the database for its owner only, regardless of the umask, before SQLite does; the log and a rollback journal get the
  /// same mode. Removes access of others that an older version allowed; a group keeps read access.
  public static func protect(_ location: String) throws(SQLiteError) {
    // Open it only when it is new: closing a file that SQLite has open would release its locks.
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
    SQLiteError(code: SQLITE_CANTOPEN, message: "\(file): \(String(cString: strerror(errno)))")
  }
}
