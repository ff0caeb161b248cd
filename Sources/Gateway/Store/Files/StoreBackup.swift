// SPDX-License-Identifier: MIT

import Glibc
import SQLite
import Timing
import UntrustedText

extension Store {
  /// Begins a copy beside the database; it is complete when `step` has returned true.
  public func beginBackup(to location: String) throws(StoreError) -> OnlineBackup {
    unlink(location)
    // Create it readable by the owner only: SQLite opens the existing file.
    let file = Glibc.open(location, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard file >= 0 else { throw .file(location) }
    close(file)
    return try translating { () throws(SQLiteError) in try OnlineBackup(of: database, to: location) }
  }

  /// Where to copy a database whose file is no longer in its place.
  public var lostLocation: String { Self.freeName(location, "lost", clocks) }

  /// The result of a restoration.
  public struct Replaced: Sendable {
    /// The name under which the previous database was saved.
    public let location: String
    /// The upstreams, with the maximum number of events that each had not received and gets no more; `nil`: it cannot be
    /// read.
    public let unsent: [(upstream: String, events: Int64)]?
    /// The id of the gateway that made the backup, if it is another one; `nil`: it is this one, or that is unknown.
    public let otherGateway: String?
  }

  /// Replaces the database, which must not be open, with a backup. Returns facts about the previous database; `nil` if
  /// there was none. The restored store gets a new epoch, because the previous database may have used the same numbers
  /// after the backup. Wherever this ends, the next start has the previous database or the restored one, as a whole.
  /// `backup`: not a symbolic link, because its log is beside the file. `beforeMoving`: called once, when all is prepared and the files get other names.
  public static func restore(
    _ backup: String, settings: Settings, clocks: any Clocks, beforeMoving: () -> Void = {}
  ) throws(StoreError) -> Replaced? {
    try settleEarlier(backup, settings, clocks)
    let lock = try StoreLock(location: settings.location)
    defer { withExtendedLifetime(lock) {} }
    // Of a restored database that could not be opened: beside another copy, the note would look like one of a restoration that is to be undone.
    MoveNote.remove(settings.location)
    let epoch = try check(backup)
    let part = MoveNote.part(settings.location)
    // SQLite would read the log of an attempt that was cut off into this copy.
    MoveNote.removeParts(settings.location)
    do throws(StoreError) {
      try StoreFiles.copy(backup, to: part)
      // A database that was set aside after a kill has its newest data in its log alone. The check above has read both.
      if StoreFiles.number(of: backup + "-wal") != nil { try StoreFiles.copy(backup + "-wal", to: part + "-wal") }
    } catch {
      // The gateway may need the room.
      MoveNote.removeParts(settings.location)
      throw error
    }
    try prove(part, of: backup, settings)
    var replaced: Replaced?
    let (isThere, trouble) = (access(settings.location, F_OK) == 0, StoreFiles.logTrouble(settings.location))
    // SQLite would read the log of a database that is missing into the restored one.
    if isThere || trouble == .databaseIsGone {
      let (counted, other) = compare(settings.location, with: part)
      // What SQLite does not read of a damaged log cannot be counted.
      let unsent = trouble == nil ? counted : nil
      beforeMoving()
      let most = unsent.map { $0.map(\.events).max() ?? 0 }
      let saved = try moveAside(
        settings.location, "replaced", clocks, for: MoveNote.Restored(epoch: epoch, atMost: most))
      replaced = Replaced(location: isThere ? saved : saved + "-wal", unsent: unsent, otherGateway: other)
    } else {
      beforeMoving()
    }
    for suffix in ["-wal", "-shm"] { unlink(part + suffix) }
    guard rename(part, settings.location) == 0 else {
      let failure = StoreError.file(settings.location)
      // `try?`: otherwise the next start undoes it.
      _ = try? MoveNote.settle(settings.location)
      throw failure
    }
    syncFolder(of: settings.location)
    return replaced
  }

  /// Whether a backup is the database itself, by whatever name.
  public static func isItself(_ backup: String, _ settings: Settings) -> Bool {
    let file = StoreFiles.number(of: backup)
    return file != nil && file == StoreFiles.number(of: settings.location)
  }

  /// Undoes or ends an earlier restoration that was cut off: its note must not be written over.
  private static func settleEarlier(_ backup: String, _ settings: Settings, _ clocks: any Clocks) throws(StoreError) {
    let file = StoreFiles.number(of: backup)
    switch try settleMove(settings) {
    case .nothing: break
    case .undone(let words):
      guard file != nil, file == StoreFiles.number(of: settings.location) else { break }
      throw .misplaced("\(backup) is \(settings.location) again, with all that it had: \(words)")
    case .restored:
      // It tells what it replaced. `try?`: perhaps it is to be replaced because it cannot be opened.
      _ = try? Store(settings, clocks: clocks)
    }
  }

  private static func settleMove(_ settings: Settings) throws(StoreError) -> MoveNote.Found {
    let lock = try StoreLock(location: settings.location)
    defer { withExtendedLifetime(lock) {} }
    return try MoveNote.settle(settings.location)
  }

  /// At least so many transactions in the log of a backup come after a damaged one, so that SQLite does not read them and `restore` does not restore
  /// them; `nil`: none, or it has no log.
  public static func lostTransactions(of backup: String) -> Int? {
    guard case .breaksOff(let lost)? = StoreFiles.logTrouble(backup) else { return nil }
    return lost
  }

  /// Whether a backup has a log without a transaction. SQLite removes a log whose content is in the database, so something has probably emptied this one.
  public static func isLogEmptied(of backup: String) -> Bool {
    StoreFiles.number(of: backup + "-wal") != nil && StoreFiles.lacksTransactions(backup)
  }

  /// Opens a database that nobody writes. One without a log is read as a file alone: for a reader, too, SQLite makes an empty log beside it, and after a
  /// kill that would look like one that somebody has emptied.
  static func openToRead(_ location: String) throws(SQLiteError) -> Database {
    let hasLog = StoreFiles.number(of: location + "-wal") != nil
    return try hasLog ? Database(location: location, readOnly: true) : Database(unwritten: location)
  }

  /// Events of the replaced database that an upstream does not get any more, because they are not in `backup`, and whose
  /// backup it is.
  private static func compare(
    _ location: String, with backup: String
  ) -> (unsent: [(upstream: String, events: Int64)]?, otherGateway: String?) {
    // SQLite deletes the log of an empty database, even if it may only read.
    guard StoreFiles.logTrouble(location) != .databaseIsGone else { return (nil, nil) }
    do throws(SQLiteError) {
      let previous = try openToRead(location)
      try previous.run("ATTACH ? AS backup", .text(backup))
      let other = try otherGateway(previous)
      // Another gateway may have heard the same messages, under the same numbers: they are its own events.
      let isOwn = other == nil ? "1" : "0"
      // Events are compared by content: after an earlier restoration, equal numbers may belong to different events.
      let journal = Lane.allCases.map { lane in
        """
        (SELECT count(*) FROM journal AS a WHERE a.seq > \(lane.cursor(of: "cursors")) AND \(lane.condition) AND NOT EXISTS(
          SELECT 1 FROM backup.journal AS b WHERE \(isOwn) AND b.seq = a.seq AND b.at IS a.at AND b.body IS a.body))
        """
      }
      let messages = """
        (SELECT count(*) FROM messages AS a WHERE a.seq > cursors.seq
          AND a.id > (SELECT value FROM meta WHERE name = 'before_events')
          AND a.seq >= (SELECT value FROM meta WHERE name = 'journal_from') AND NOT EXISTS(
            SELECT 1 FROM backup.messages AS b
            WHERE \(isOwn) AND b.id = a.id AND b.seq = a.seq AND b.identity = a.identity))
        """
      // An operator could have sent them again.
      let letters = """
        (SELECT count(*) FROM dead_letters AS a WHERE a.upstream = cursors.upstream AND a.retry >= 0 AND NOT EXISTS(
          SELECT 1 FROM backup.dead_letters AS b
          WHERE \(isOwn) AND b.upstream = a.upstream AND b.seq = a.seq AND b.body IS a.body))
        """
      let counts = (journal + [messages, letters]).joined(separator: " + ")
      let statement = "SELECT upstream, \(counts) FROM cursors WHERE removed IS NULL ORDER BY upstream"
      let unsent: [(upstream: String, events: Int64)] = try previous.rows(statement) { ($0.text(0), $0.integer(1)) }
      return (unsent, other)
    } catch {
      // The previous database may be replaced because it is damaged.
      return (nil, nil)
    }
  }

  /// The id of the gateway that made the attached backup, unless it is this one: an id can be changed in the
  /// configuration, and then both databases know an epoch of the other.
  private static func otherGateway(_ previous: Database) throws(SQLiteError) -> String? {
    let theirs = try previous.value("SELECT value FROM backup.meta WHERE name = 'gateway_id'")?.text
    let ours = try previous.meta("gateway_id")?.text
    guard let theirs, let ours, !theirs.isExactly(ours) else { return nil }
    func epochs(_ schema: String) throws(SQLiteError) -> String {
      let names = "'epoch', 'epoch_before', 'known_epochs'"
      return try previous.value("SELECT group_concat(value) FROM \(schema).meta WHERE name IN (\(names))")?.text ?? ""
    }
    let theirEpoch = try previous.value("SELECT value FROM backup.meta WHERE name = 'epoch'")?.text
    let ourEpoch = try previous.meta("epoch")?.text
    let (ourEpochs, theirEpochs) = (try epochs("main"), try epochs("backup"))
    guard let theirEpoch, let ourEpoch else { return nil }
    return ourEpochs.mentions(theirEpoch) || theirEpochs.mentions(ourEpoch) ? nil : theirs
  }

  /// Gives files that root has made to the owner of the folder, because a daemon without root's rights could not open
  /// them. Only while the store is closed.
  public static func handOver(_ settings: Settings) throws(StoreError) { try StoreFiles.handOver(settings.location) }

  /// Opens and upgrades the copy as the store will, and checks its tables and columns, before the working database is
  /// moved away.
  private static func prove(_ part: String, of backup: String, _ settings: Settings) throws(StoreError) {
    let fresh = MoveNote.fresh(settings.location)
    defer { for suffix in ["", "-wal", "-shm"] { unlink(fresh + suffix) } }
    do throws(StoreError) {
      let lacking = try columns(fresh, settings).subtracting(columns(part, settings))
      if let first = lacking.min() { throw .misplaced("it has no \(first)") }
    } catch {
      MoveNote.removeParts(settings.location)
      throw error.isOfDisk ? error : .misplaced("\(backup) cannot be restored: \(error)")
    }
  }

  /// The columns, as `TABLE.COLUMN`, of a database that is made or upgraded there and closed again, leaving no other
  /// files.
  private static func columns(_ location: String, _ settings: Settings) throws(StoreError) -> Set<String> {
    var settings = settings
    settings.location = location
    let database = try open(settings)
    do throws(SQLiteError) {
      let columns = try database.rows(
        "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'"
      ) { $0.text(0) }
      try database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
      return Set(columns)
    } catch {
      throw StoreError(error)
    }
  }

  /// Throws unless the backup is complete, undamaged and of a known version. Returns its epoch.
  private static func check(_ backup: String) throws(StoreError) -> String {
    var facts = stat()
    guard stat(backup, &facts) == 0, access(backup, R_OK) == 0 else { throw .file(backup) }
    // Opening a pipe would wait without end.
    guard facts.st_mode & S_IFMT == S_IFREG else { throw .misplaced("\(backup) is not a file") }
    // SQLite would delete that log, even if it may only read.
    guard StoreFiles.logTrouble(backup) != .databaseIsGone else {
      throw .misplaced("\(backup) is not a valid backup: it is empty, and its log (-wal) is no database by itself")
    }
    let newest = Schema.migrations.last?.number ?? 0
    var version = 0
    do throws(SQLiteError) {
      let database = try openToRead(backup)
      // Bytes after the end of the database do not belong to it, and may be more than the disk has room for.
      let own =
        (try database.value("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")?.integer) ?? 0
      guard facts.st_size <= own else { throw SQLiteError(code: 11, message: "it is longer than its database") }
      let verdict = try database.value("PRAGMA integrity_check(1)")?.text
      guard verdict == "ok" else { throw SQLiteError(code: 11, message: verdict ?? "it cannot be read") }
      version = try database.schemaVersion()
      guard version >= 1, let epoch = try database.meta("epoch")?.text else {
        throw SQLiteError(code: 1, message: "not a store of this program")
      }
      guard version <= newest else { throw SQLiteError(code: 1, message: "of a newer version") }
      // A store has no triggers: a foreign one would run with this program's rights.
      if let trigger = try database.value("SELECT name FROM sqlite_schema WHERE type = 'trigger' LIMIT 1")?.text {
        throw SQLiteError(code: 1, message: "it has a trigger, \(trigger), which a store of this program has not")
      }
      return epoch
    } catch {
      // Sound, as far as anybody here can tell.
      guard version <= newest else {
        throw .newer("\(backup): schema \(version), and this program knows up to \(newest)")
      }
      throw .misplaced("\(backup) is not a valid backup: \(error.message)")
    }
  }

  /// Renames the database's files and keeps them. Returns the database's new name. The database is renamed on disk before
  /// its log: without the log, it would be an older copy of itself. If it is cut off, the next start has both in their
  /// place. `restored`: a backup takes the free place next, and until then this can be undone, too.
  static func moveAside(
    _ location: String, _ reason: String, _ clocks: any Clocks, for restored: MoveNote.Restored? = nil
  ) throws(StoreError) -> String {
    // An earlier attempt of this run may have been refused in the middle.
    _ = try MoveNote.settle(location)
    let target = freeName(location, reason, clocks)
    let hasBoth = ["", "-wal"].allSatisfy { access(location + $0, F_OK) == 0 }
    do throws(StoreError) {
      if restored != nil || hasBoth {
        try MoveNote(target: target, of: location, for: restored).write(location)
        // A daemon without root's rights ends what root has begun.
        if restored != nil { try StoreFiles.handOver(location) }
      } else {
        MoveNote.remove(location)
      }
      try MoveNote.rename(location, to: target, ["", "-wal", "-shm"])
    } catch {
      // `try?`: otherwise the next attempt, or the next start, undoes it.
      let isSettled = (try? MoveNote.settle(location)) != nil
      // The gateway may need the room, perhaps because the disk had none left for the note.
      if restored != nil, isSettled { MoveNote.removeParts(location) }
      throw error
    }
    if restored == nil { MoveNote.remove(location) }
    return target
  }

  static func freeName(_ location: String, _ reason: String, _ clocks: any Clocks) -> String {
    var target = "\(location).\(reason)-\(WallClock(clocks).seconds)"
    while ["", "-wal"].contains(where: { access(target + $0, F_OK) == 0 }) { target += "x" }
    return target
  }
}
