// SPDX-License-Identifier: MIT

import CLinux
import Companion
import Glibc
import OwnFiles
import SQLite
import Timing
import UntrustedText

/// The gateway's data: contacts, channels, messages, the journal, cursors, its identity.
///
/// All writes of one turn of the event loop share a transaction: `write` does its work in it, and the writer awaits the
/// `commit` at the end of the turn. Nothing is acknowledged before it is durable (WAL, `synchronous=FULL`).
///
/// Single-threaded. A second process cannot open the same store.
public final class Store {
  public struct Settings: Sendable {
    /// The database; behind a symbolic link, the link's target, because SQLite keeps the log beside that.
    public var location: String
    /// Maximum size of the database in bytes; beyond it writes fail with `StoreError.full`.
    public var maxSize: Int64
    /// Maximum size of the journal in bytes, and maximum age of its events in seconds, for upstreams that are unreachable.
    public var journalMaxSize: Int64
    public var journalMaxAge: Int64
    /// The number of messages that are kept, independent of the journal; more are deleted once an hour. Duplicates are recognised among these.
    public var messagesMax: Int64
    /// The number of nodes that are kept, not counting those that `forgetNodes` never deletes.
    public var nodesMax: Int64
    /// The gateway's id; `nil`: a random id, created once.
    public var gatewayID: String?
    public var profile: StoreProfile

    public init(
      location: String, maxSize: Int64 = 1 << 30, journalMaxSize: Int64 = 256 << 20,
      journalMaxAge: Int64 = 90 * 86400, messagesMax: Int64 = 500_000, nodesMax: Int64 = 5000, gatewayID: String? = nil,
      profile: StoreProfile = .durable
    ) {
      self.location = DatabaseFile.behindLinks(location)
      self.maxSize = maxSize
      self.journalMaxSize = journalMaxSize
      self.journalMaxAge = journalMaxAge
      self.messagesMax = messagesMax
      self.nodesMax = nodesMax
      self.gatewayID = gatewayID
      self.profile = profile
    }
  }

  public typealias Work = (Store) throws(SQLiteError) -> Void

  static let pageSize: Int64 = 1024

  let settings: Settings
  let clocks: any Clocks
  public var location: String { settings.location }
  /// Maximum size of the database.
  public var maxBytes: Int64 { settings.maxSize }
  private(set) var database: Database
  private let lock: StoreLock
  var reserved: ReservedFile
  /// Writes on their way to the disk.
  public let transactions: Transactions
  var unreadable: Set<String> = []
  var journalState = JournalState()
  /// For each upstream, how far each lane is in transit: events up to there may arrive although they were deleted.
  public var underWay: [[UInt8]: () -> ByLane<Int64>?] = [:]
  var steadyClock = SteadyClock(maxAway: 0)
  /// Nodes that were started anew to set their clocks, which is not done yet.
  public internal(set) var clocksUnderWay: [PublicKey] = []
  /// Whether the machine was started since the store was written.
  public private(set) var isNewBoot = false
  /// The elapsed time when the database was opened.
  var openedElapsed: Int64 = 0
  /// Whether the wall clock may judge others, and the form on disk.
  var (clockProof, keptClockProof): (ClockProof, [Int64]) = (ClockProof(), [])
  /// The clocks of others on disk were compared with a time that is no longer believed.
  var hasStaleOffsets = false
  /// Grows when a node leaves the radio's table.
  public internal(set) var contactsRemoved: UInt64 = 0
  /// Counts changes of the known regions.
  public internal(set) var regionChanges: UInt64 = 0
  /// Called each time that something was received that only this node can have sent, with the time in milliseconds
  /// since 1970; the stored time may lag by up to ten minutes.
  public var nodeWasHeard: (KeyPrefix, Int64) -> Void = { _, _ in }
  /// Called within a `write` when an advert showed a node's clock while ours counted as synchronised, with the seconds that it is ahead.
  public var clockWasHeard: (PublicKey, Int64) -> Void = { _, _ in }
  public internal(set) var nodeCounts = NodeCounts()
  var radioState = RadioState()
  /// The words of open alerts by rule and subject, and whether the disk may have older ones.
  var (alertWords, hasNewAlertWords): ([[UInt8]: AlertWords], Bool) = ([:], false)
  /// `nil`: not read yet.
  var (identities, documentCount): (RecentIdentities?, Int64?) = (nil, nil)
  /// Whether reactions may wait for their messages; `nil`: unknown.
  var mayHaveWaitingReactions: Bool?
  /// Grows whenever the number of dead letters may have changed.
  public internal(set) var deadLetterChanges: UInt64 = 0
  /// By an upstream's name: at least the number of its dead letters.
  var deadLetterTotals: [[UInt8]: Int64] = [:]

  public internal(set) var identity: StoreIdentity
  public internal(set) var provenance: StoreProvenance
  /// The database was found to be damaged, and is not replaced yet.
  public internal(set) var isDamaged = false
  /// The loss of a damaged database that is set aside while none has its place yet, and losses not reported before.
  private var replacing: (StoreLoss, [StoreLoss])?
  /// Counts databases that were replaced in this run: numbers of rows belong to one of them.
  public private(set) var replacements = 0
  /// The open file, whatever file has its name by now.
  private(set) var openFile: StoreFiles.Number?
  /// The same of its log.
  private(set) var openLog: StoreFiles.Number?
  /// Whether marks say that the log belongs beside the database.
  var marksLog = false
  /// What was found of an earlier change of the files' names.
  private let earlierMove: MoveNote.Found
  /// Whether this run has written into the log.
  var isLogWritten = false
  var ownFile: OwnFile?
  /// Whether the database was removed, moved or replaced: then everything that is stored is lost when the gateway ends.
  public var isElsewhere: Bool { StoreFiles.number(of: location) != openFile }

  /// Opens or creates the store. A damaged file is renamed to `….corrupt-TIME` and a new one created; one that the disk does not return stays where it
  /// is, and `StoreError.unavailable` is thrown. `replaced`: a backup was just restored.
  public init(_ settings: Settings, clocks: any Clocks, replaced: Replaced? = nil) throws(StoreError) {
    self.settings = settings
    self.clocks = clocks
    transactions = Transactions(profile: settings.profile)
    lock = try StoreLock(location: settings.location)
    // Before anything looks at the files: they may have other names.
    earlierMove = try MoveNote.settle(settings.location)
    // A restoration that was cut off before its note has left them.
    MoveNote.removeParts(settings.location)
    reserved = ReservedFile(OwnSuffix.held.of(settings.location))
    provenance = try StoreProvenance(beforeOpening: settings.location, clocks)
    if case .undone(let words) = earlierMove { provenance.undoneMove = words }
    do {
      (database, identity) = try Self.open(settings, clocks)
      try begin(behind: replaced)
    } catch {
      guard case .corrupt = error else { throw error }
      // Releases the file: closing another descriptor of it would release SQLite's locks.
      database = try Self.emptyInMemory()
      try StoreFiles.proveReadable(settings.location)
      let words = "the disk refused a read as the store was opened, which looked like damage: \(error)"
      do {
        // What is damaged is damaged again, unlike what the disk refused once.
        (database, identity) = try Self.open(settings, clocks)
        try begin(behind: replaced)
        provenance.refusedRead = words
      } catch {
        guard case .corrupt = error else { throw error }
        provenance.setAside = try Self.moveAside(settings.location, "corrupt", clocks)
        (database, identity) = try Self.open(settings, clocks)
        try begin(behind: replaced)
      }
    }
  }

  private static func emptyInMemory() throws(StoreError) -> Database {
    do throws(SQLiteError) { return try Database(location: ":memory:") } catch { throw StoreError(error) }
  }

  // `try?`: a log whose end cannot be marked stays in its place, and no start misses it.
  deinit { try? markEnd() }

  /// Reads what is needed, and writes for the first time: some damage is only found then, as that of an older copy beside the present log.
  private func begin(behind replaced: Replaced?) throws(StoreError) {
    try load()
    (isDamaged, ownFile) = (false, nil)
    noteOpenFiles()
    try noteMissingLog()
    let replaced = replaced ?? replacedEarlier
    // Before the damaged log is gone: if the start ends in between, the loss is found and told again, not forgotten.
    try beginBehindLoss(replaced)
    // Without it, the loss of a database before its first mark would be told without its epoch, and again when a server names that.
    if mark == nil { markLoss() }
    // So that the transactions after the damage are not found again, or reported as lost after a power cut.
    try checkpoint()
    try markLog()
    MoveNote.remove(location)
  }

  /// What a restoration replaced that was cut off before the restored database could tell it. Afterwards that has another epoch.
  private var replacedEarlier: Replaced? {
    guard case .restored(let replaced, let epoch) = earlierMove, epoch == identity.epoch else { return nil }
    return replaced
  }

  private func noteOpenFiles() {
    openFile = StoreFiles.number(of: location)
    openLog = StoreFiles.number(of: logLocation)
  }

  /// `proof`: what is known about the clock, if this database replaces another, which makes no clock right.
  private func load(keeping proof: ClockProof? = nil) throws(StoreError) {
    transactions.forgetDeferred()
    (identities, documentCount, alertWords) = (nil, nil, [:])
    journalState = try translating { () throws(SQLiteError) in try JournalState(database) }
    steadyClock = try loadElapsed()
    openedElapsed = steadyClock.elapsed
    clockProof = if let proof { proof } else { try loadClockProof() }
    (keptClockProof, hasStaleOffsets) = (proof == nil ? clockProof.kept : [], false)
    isNewBoot = clockProof.kept.count < 2
    clocksUnderWay = try loadClocksUnderWay()
    journalState.times = try loadTimes()
    radioState = try translating { () throws(SQLiteError) in try readRadios() }
    try translating { () throws(SQLiteError) in try loadMessageEvents() }
    try translating { () throws(SQLiteError) in try placeOutgoing() }
  }

  private static func open(
    _ settings: Settings, _ clocks: any Clocks
  ) throws(StoreError) -> (Database, StoreIdentity) {
    let database = try open(settings)
    return (database, try StoreIdentity(of: database, settings, clocks))
  }

  /// Exclusive: then the index of the write-ahead log is in memory, not in a file whose pages the kernel would write to
  /// disk after every message.
  static func open(_ settings: Settings) throws(StoreError) -> Database {
    do {
      try DatabaseFile.protect(settings.location)
      let hadLog = StoreFiles.number(of: settings.location + "-wal") != nil
      let database = try Database(location: settings.location)
      // A start that fails leaves the log of the last run, which the mark may still expect.
      database.keepsLog = hadLog
      // Other programs usually have it open only briefly.
      try database.execute("PRAGMA busy_timeout = \(patienceWithReaders)")
      try database.execute(
        """
        PRAGMA page_size = \(pageSize); PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = \(settings.profile.pagesToCheckpoint); PRAGMA cache_size = -512; PRAGMA foreign_keys = ON;
        PRAGMA journal_size_limit = 1048576; PRAGMA secure_delete = ON
        """)
      try database.addTextFunction("spaced") { SearchWords.spaced($0) }
      try database.migrate(Schema.migrations)
      try database.execute("PRAGMA max_page_count = \(mostPages(settings))")
      try database.execute("PRAGMA busy_timeout = 0")
      return database
    } catch {
      guard error.kind == .busy else { throw StoreError(error) }
      throw .locked(by: FileHolder.name(of: settings.location))
    }
  }

  private static func mostPages(_ settings: Settings) -> Int64 { max(64, settings.maxSize / pageSize) }

  /// Pages beyond `maxSize` for work that deletes more than it writes, but writes first: 1 MiB. Without them a full database would stay full.
  private static let sparePages: Int64 = (1 << 20) / pageSize

  func withSparePages<Result>(_ work: () throws(SQLiteError) -> Result) throws(SQLiteError) -> Result {
    func limit(_ pages: Int64) throws(SQLiteError) { try database.execute("PRAGMA max_page_count = \(pages)") }
    let most = Self.mostPages(settings)
    try limit(most + Self.sparePages)
    let result: Result
    do throws(SQLiteError) { result = try work() } catch {
      try limit(most)
      throw error
    }
    // What is larger now keeps its size, and reuses the pages that have become free.
    try limit(most)
    return result
  }

  /// Milliseconds.
  private static let patienceWithReaders = 3000

  /// Replaces a database that was found to be damaged in use with a new one, which has a new epoch. Returns where the
  /// damaged one was saved. `unsent`: no upstream lacked more than this many events; `nil`: unknown. `upstreams`: these
  /// get the new database from its beginning, whenever they are opened.
  public func replaceDamaged(unsent: Int64? = nil, upstreams: [String] = []) throws(StoreError) -> String {
    let begun = if let replacing { replacing } else { try setAside(unsent) }
    replacing = begun
    let (lost, untold) = begun
    do throws(StoreError) {
      (database, identity) = try Self.open(settings, clocks)
      try load(keeping: clockProof)
    } catch {
      guard case .corrupt = error else { throw error }
      // An earlier attempt has left a part of a database.
      _ = try Self.moveAside(settings.location, "corrupt", clocks)
      (database, identity) = try Self.open(settings, clocks)
      try load(keeping: clockProof)
    }
    replacements += 1
    let target = lost.saved ?? ""
    (provenance.loss, provenance.earlierLosses, provenance.setAside, replacing) = (lost, untold, target, nil)
    (isDamaged, ownFile) = (false, nil)
    noteOpenFiles()
    database.keepsLog = marksLog
    noteOwnFile()
    // Written before anything else, even if the disk does not accept it yet.
    transactions.writeAlong(Self.lossWork) { store throws(SQLiteError) in
      try store.tell(lost, after: untold)
      for upstream in upstreams { try store.beginAnew(upstream) }
    }
    keepClockProof()
    settle()
    markLoss()
    return target
  }

  /// The name of the deferred work that stores the loss.
  private static let lossWork = "loss"

  /// Whether the damaged database is renamed, and no other has its place yet.
  public var isSetAside: Bool { replacing != nil }

  /// Renames the damaged database. Whatever fails next, this is the file with the lost events.
  private func setAside(_ unsent: Int64?) throws(StoreError) -> (StoreLoss, [StoreLoss]) {
    let known = provenance.losses
    let missing = known.filter { $0.atMost != 0 }
    // The short form in the database has no amounts. `try?`: what cannot be read may not have been reported.
    let stored = (try? untold())?.map { loss in known.first { $0.epoch == loss.epoch } ?? loss }
    // This database may itself have replaced one, and not have the loss yet.
    let untold = transactions.defers(Self.lossWork) ? missing : stored ?? missing
    let target = try Self.moveAside(settings.location, "corrupt", clocks)
    let lost = StoreLoss(cause: .damaged, epoch: epoch, last: lastSeq, atMost: unsent, saved: target)
    return (lost, untold)
  }

  /// Reads the whole database, as reads that the disk refuses can look like damage. `false`: SQLite finds none, and
  /// `isDamaged` is taken back. Throws if the disk still refuses reads.
  public func confirmDamage() throws(StoreError) -> Bool {
    guard replacing == nil, !isOverwritten else { return true }
    guard database.isFileReadable else { throw .unavailable("the disk does not return all of \(settings.location)") }
    let verdict: String
    do throws(SQLiteError) {
      verdict = try database.value("PRAGMA quick_check(1)")?.text ?? ""
    } catch {
      guard error.kind == .corrupt else { throw StoreError(error) }
      return true
    }
    // A page that the disk does not return: SQLITE_IOERR_READ, or SQLITE_IOERR_CORRUPTFS, which SQLite makes of EIO.
    if verdict.ends(with: "error code=266") || verdict.ends(with: "error code=8458") { throw .unavailable(verdict) }
    isDamaged = !verdict.isExactly("ok")
    return isDamaged
  }
}
