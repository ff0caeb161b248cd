// SPDX-License-Identifier: MIT

import CSQLite
import Glibc

/// A database's files, before SQLite opens them.
public enum DatabaseFile {
  /// Creates the database file for its owner only, regardless of the umask, before SQLite opens it; the log and a
  /// rollback journal get the same mode. Removes write access of the group and all access of others, which an older
  /// version allowed.
  public static func protect(_ location: String) throws(SQLiteError) {
    // Opens the file only if it is new: closing a file that SQLite has open would release its locks.
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

  /// As many symbolic links in a row as the system follows.
  private static let mostLinks = 40

  /// The file behind symbolic links, which may be missing: SQLite keeps the log there, not beside the link. A link of another user in a folder for all,
  /// which the system follows for nobody, is returned as it is, and so is one to a file without a name that this program can write down: a pipe in
  /// `/dev/fd`, a removed file, a name that is not UTF-8.
  public static func behindLinks(_ location: String) -> String {
    var facts = stat()
    let isThere = stat(location, &facts) == 0
    guard isThere || errno == ENOENT else { return location }
    var name = location
    for _ in 0..<mostLinks {
      var buffer = [CChar](repeating: 0, count: 4096)
      let count = readlink(name, &buffer, buffer.count)
      guard count > 0 else { return !isThere || isFile(name, facts) ? name : location }
      let bytes = buffer.prefix(count).map { UInt8(bitPattern: $0) }
      guard let target = String(validating: bytes, as: UTF8.self) else { return location }
      // By scalars: a name may begin with an accent.
      let folder = name.unicodeScalars.lastIndex(of: "/").map { String(name.unicodeScalars[...$0]) } ?? ""
      name = target.utf8.first == UInt8(ascii: "/") ? target : folder + target
    }
    return location
  }

  /// Whether `name` is the file with these facts.
  private static func isFile(_ name: String, _ facts: stat) -> Bool {
    var found = stat()
    return stat(name, &found) == 0 && found.st_dev == facts.st_dev && found.st_ino == facts.st_ino
  }

  private static func cannotOpen(_ file: String) -> SQLiteError {
    SQLiteError(code: SQLITE_CANTOPEN, message: "\(file): \(String(cString: strerror(errno)))")
  }
}
