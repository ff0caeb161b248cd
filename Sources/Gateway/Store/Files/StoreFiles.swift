// SPDX-License-Identifier: MIT

import Glibc
import OwnFiles
import SQLite

/// Checks the store's files before SQLite opens them: permissions, and damage that SQLite would ignore silently.
enum StoreFiles {
  /// A problem with the write-ahead log of a database.
  enum LogTrouble: Equatable {
    /// The database is empty, or missing (it was removed, and the gateway killed): SQLite would delete the log with all its content.
    case databaseIsGone
    /// The log is broken in its middle: whole transactions follow, which were on disk and which SQLite would drop.
    case breaksOff(lost: Int)
  }

  /// `nil`: there is no log, it is intact, or it ends as after a power cut.
  static func logTrouble(_ location: String) -> LogTrouble? {
    guard let log = size(location + "-wal"), log > WriteAheadLog.headerSize else { return nil }
    guard let database = size(location), database > 0 else { return .databaseIsGone }
    return WriteAheadLog.lostTransactions(location + "-wal").map { .breaksOff(lost: $0) }
  }

  /// Whether the log is missing, or has no transaction.
  static func lacksTransactions(_ location: String) -> Bool {
    (size(location + "-wal") ?? 0) < WriteAheadLog.leastSize
  }

  /// Identifies a file, even if another one has taken its name.
  struct Number: Equatable {
    let device: dev_t
    let inode: ino_t
  }

  static func number(of location: String) -> Number? { OwnFile.Stamp(location)?.number }

  private static func size(_ location: String) -> Int? { OwnFile.Stamp(location).map { Int($0.size) } }

  /// Throws unless the disk returns all of the database and of its log: SQLite takes a read that fails with EIO for damage. Only while they are closed.
  static func proveReadable(_ location: String) throws(StoreError) {
    var buffer = [UInt8](repeating: 0, count: 65536)
    for file in [location, location + "-wal"] where size(file) != nil {
      let descriptor = open(file, O_RDONLY | O_CLOEXEC)
      guard descriptor >= 0 else { throw .file(file) }
      defer { close(descriptor) }
      var count = buffer.count
      while count > 0 { count = read(descriptor, &buffer, buffer.count) }
      guard count == 0 else { throw .unavailable("the disk does not return all of \(file)") }
    }
  }

  /// The files of the store itself.
  private static let ofStore: [OwnSuffix] = [
    .database, .log, .sharedMemory, .lock, .identity, .mark, .held, .moving, .restoring,
  ]

  /// Gives files of the store that root has made to the owner of their folder.
  static func handOver(_ location: String) throws(StoreError) {
    let folder = location.lastIndex(of: "/").map { location[...$0] } ?? "."
    var owner = stat()
    guard geteuid() == 0, stat(String(folder), &owner) == 0, owner.st_uid != 0 else { return }
    for suffix in ofStore {
      let file = open(suffix.of(location), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
      guard file >= 0 else { continue }
      defer { close(file) }
      var facts = stat()
      // A file of root that somebody has hard-linked here must not change its owner.
      guard fstat(file, &facts) == 0, facts.st_mode & S_IFMT == S_IFREG, facts.st_uid == 0, facts.st_nlink == 1 else {
        continue
      }
      guard fchown(file, owner.st_uid, owner.st_gid) == 0 else {
        throw .file(suffix.of(location))
      }
    }
  }

  /// Makes a copy for its owner only, which is on disk when this returns.
  static func copy(_ source: String, to target: String) throws(StoreError) {
    // Do not write through a file left by an earlier attempt, or through a link.
    unlink(target)
    let input = open(source, O_RDONLY | O_CLOEXEC)
    guard input >= 0 else { throw .file(source) }
    defer { close(input) }
    let output = open(target, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard output >= 0 else { throw .file(target) }
    defer { close(output) }
    var failed: String?
    var buffer = [UInt8](repeating: 0, count: 65536)
    while failed == nil {
      let count = read(input, &buffer, buffer.count)
      if count == 0 { break }
      if count < 0 {
        failed = source
      } else if !WholeFile.writeAll(buffer[..<count], to: output) {
        failed = target
      }
    }
    if failed == nil, fsync(output) != 0 { failed = target }
    if let failed {
      let failure = StoreError.file(failed)
      unlink(target)
      throw failure
    }
    Store.syncFolder(of: target)
  }
}

extension Store {
  /// Makes a new, changed or removed name survive a power cut.
  public static func syncFolder(of location: String) { WholeFile.syncFolder(of: location) }
}
