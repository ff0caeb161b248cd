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

  /// What a backup has replaced.
  public struct Replaced: Sendable {
    /// Under which name the previous database was saved.
    public let location: String
    /// Upstreams that had not got all of it, with how many events at most; `nil`: it cannot be read.
    public let unsent: [(upstream: String, events: Int64)]?
  }

  /// Replaces the database, which must not be open, with a backup. Returns what became of the previous one; `nil` if there was none. The restored
  /// store gets a new epoch, as the old one may have assigned the same sequence numbers after the backup.
  public static func restore(_ backup: String, settings: Settings, clocks: any Clocks) throws(StoreError) -> Replaced? {
    let lock = try StoreLock(location: settings.location)
    defer { withExtendedLifetime(lock) {} }
    try check(backup)
    let part = settings.location + ".restoring"
    try StoreFiles.copy(backup, to: part)
    try prove(part, of: backup, settings)
    var replaced: Replaced?
    if access(settings.location, F_OK) == 0 {
      let unsent = unsent(settings.location, beyond: part)
      replaced = Replaced(location: try moveAside(settings.location, "replaced", clocks), unsent: unsent)
    }
    for suffix in ["-wal", "-shm"] { unlink(part + suffix) }
    guard rename(part, settings.location) == 0 else {
      throw .file(settings.location)
    }
    return replaced
  }

  /// What stays behind in a database that is replaced, because it is not in `backup`: no upstream gets it any more.
  private static func unsent(_ location: String, beyond backup: String) -> [(upstream: String, events: Int64)]? {
    var unsent: [(upstream: String, events: Int64)] = []
    do throws(SQLiteError) {
      let previous = try Database(location: location, readOnly: true)
      try previous.run("ATTACH ? AS backup", .text(backup))
      // What both have is told by what it says: numbers given out after a backup was put back say nothing of those before.
      let journal = Lane.allCases.map { lane in
        """
        (SELECT count(*) FROM journal AS a WHERE a.seq > \(lane.cursor(of: "cursors")) AND \(lane.condition) AND NOT EXISTS(
          SELECT 1 FROM backup.journal AS b WHERE b.seq = a.seq AND b.at IS a.at AND b.body IS a.body))
        """
      }
      let messages = """
        (SELECT count(*) FROM messages AS a WHERE a.seq > cursors.seq
          AND a.id > (SELECT value FROM meta WHERE name = 'before_events')
          AND a.seq >= (SELECT value FROM meta WHERE name = 'journal_from') AND NOT EXISTS(
            SELECT 1 FROM backup.messages AS b WHERE b.id = a.id AND b.seq = a.seq AND b.identity = a.identity))
        """
      let counts = (journal + [messages]).joined(separator: " + ")
      let statement = "SELECT upstream, \(counts) FROM cursors WHERE removed IS NULL ORDER BY upstream"
      try previous.each(statement, []) { (row) throws(SQLiteError) in
        if row.integer(1) > 0 { unsent.append((row.text(0), row.integer(1))) }
        return true
      }
      return unsent
    } catch {
      // It is replaced because it is damaged, perhaps.
      return nil
    }
  }

  /// What root has made in the folder of another user is that user's from now on: a daemon that is not root could not open its
  /// own store. Only while the store is closed.
  public static func handOver(_ settings: Settings) throws(StoreError) { try StoreFiles.handOver(settings.location) }

  /// The copy is opened and upgraded as the store will be, before what works is moved away, and has all that a new store has.
  private static func prove(_ part: String, of backup: String, _ settings: Settings) throws(StoreError) {
    let fresh = part + ".new"
    func remove(_ location: String) { for suffix in ["", "-wal", "-shm"] { unlink(location + suffix) } }
    remove(fresh)
    defer { remove(fresh) }
    do throws(StoreError) {
      let lacking = try columns(fresh, settings).subtracting(columns(part, settings))
      if let first = lacking.min() { throw .misplaced("it has no \(first)") }
    } catch {
      remove(part)
      throw .misplaced("\(backup) cannot be restored: \(error)")
    }
  }

  /// `TABLE.COLUMN` of a database that is made or upgraded there, and closed again with nothing beside it.
  private static func columns(_ location: String, _ settings: Settings) throws(StoreError) -> Set<String> {
    var settings = settings
    settings.location = location
    let database = try open(settings)
    var columns: Set<String> = []
    do throws(SQLiteError) {
      try database.each(
        "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'",
        []
      ) { (row) throws(SQLiteError) in
        columns.insert(row.text(0))
        return true
      }
      try database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    } catch {
      throw StoreError(error)
    }
    return columns
  }

  /// Whole, sound, and of a version that is known.
  private static func check(_ backup: String) throws(StoreError) {
    var facts = stat()
    guard stat(backup, &facts) == 0, access(backup, R_OK) == 0 else { throw .file(backup) }
    // A pipe would be waited for without end.
    guard facts.st_mode & S_IFMT == S_IFREG else { throw .misplaced("\(backup) is not a file") }
    do throws(SQLiteError) {
      let database = try Database(location: backup, readOnly: true)
      // What lies behind the database is none of it, and may be more than the disk has room for.
      let own =
        (try database.value("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")?.integer) ?? 0
      guard facts.st_size <= own else { throw SQLiteError(code: 11, message: "it is longer than its database") }
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
