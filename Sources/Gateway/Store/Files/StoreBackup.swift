// SPDX-License-Identifier: MIT

import Glibc
import SQLite
import Timing

extension Store {
  /// Begins a copy beside the database, which is there when `step` has returned true.
  public func beginBackup(to location: String) throws(StoreError) -> OnlineBackup {
    unlink(location)
    // Create it readable by the owner only: SQLite opens the existing file.
    let file = Glibc.open(location, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard file >= 0 else { throw .file(location) }
    close(file)
    return try translating { () throws(SQLiteError) in try OnlineBackup(of: database, to: location) }
  }

  /// Where a copy goes of a database whose file is not at its place any more.
  public var lostLocation: String { Self.freeName(location, "lost", clocks) }

  /// Replaces the database, which must not be open, with a backup. Returns the name under which the previous one was saved;
  /// `nil` if there was none. The restored store gets a new epoch, as the old one may have assigned the same sequence numbers
  /// after the backup.
  public static func restore(_ backup: String, settings: Settings, clocks: any Clocks) throws(StoreError) -> String? {
    let lock = try StoreLock(location: settings.location)
    defer { withExtendedLifetime(lock) {} }
    try check(backup)
    let part = settings.location + ".restoring"
    try StoreFiles.copy(backup, to: part)
    var kept: String?
    if access(settings.location, F_OK) == 0 { kept = try moveAside(settings.location, "replaced", clocks) }
    guard rename(part, settings.location) == 0 else {
      throw .file(settings.location)
    }
    return kept
  }

  /// What root has made in the folder of another user is that user's from now on: a daemon that is not root could not open its
  /// own store. Only while the store is closed.
  public static func handOver(_ settings: Settings) throws(StoreError) { try StoreFiles.handOver(settings.location) }

  /// Whole, sound, and of a version that is known.
  private static func check(_ backup: String) throws(StoreError) {
    guard access(backup, R_OK) == 0 else { throw .file(backup) }
    do throws(SQLiteError) {
      let database = try Database(location: backup, readOnly: true)
      let verdict = try database.value("PRAGMA integrity_check(1)")?.text
      guard verdict == "ok" else { throw SQLiteError(code: 11, message: verdict ?? "it cannot be read") }
      let version = try database.schemaVersion()
      guard (1...(Schema.migrations.last?.number ?? 0)).contains(version),
        try database.value("SELECT value FROM meta WHERE name = 'epoch'") != nil
      else { throw SQLiteError(code: 1, message: "not a store of this program, or of a newer version") }
      // A store has none: somebody else's would write what this program does not.
      if let trigger = try database.value("SELECT name FROM sqlite_schema WHERE type = 'trigger' LIMIT 1")?.text {
        throw SQLiteError(code: 1, message: "it has a trigger, \(trigger), which a store of this program has not")
      }
    } catch {
      throw .misplaced("\(backup) is not a valid backup: \(error.message)")
    }
  }

  /// Renames the database's files, which are kept. Returns the database's new name.
  static func moveAside(_ location: String, _ reason: String, _ clocks: any Clocks) throws(StoreError) -> String {
    let target = freeName(location, reason, clocks)
    for suffix in ["", "-wal", "-shm"] where access(location + suffix, F_OK) == 0 {
      guard rename(location + suffix, target + suffix) == 0 else {
        throw .unavailable("\(location + suffix) cannot be renamed: \(String(cString: strerror(errno)))")
      }
    }
    return target
  }

  static func freeName(_ location: String, _ reason: String, _ clocks: any Clocks) -> String {
    var target = "\(location).\(reason)-\(WallClock(clocks).seconds)"
    while ["", "-wal"].contains(where: { access(target + $0, F_OK) == 0 }) { target += "x" }
    return target
  }
}
