// SPDX-License-Identifier: MIT

import CLinux
import Companion
import Glibc
import SQLite
import Timing

/// The gateway's data: contacts, channels, messages, the journal, cursors, its identity.
///
/// All writes of one turn of the event loop share a transaction: `write` does its work in it, and who wrote awaits the `commit` at the
/// end of the turn. Nothing is acknowledged before it is durable (WAL, `synchronous=FULL`).
///
/// Single-threaded. A second process cannot open the same store.
public final class Store {
  public struct Settings: Sendable {
    public var location: String
    /// Maximum size of the database in bytes; beyond it writes fail with `StoreError.full`.
    public var maxSize: Int64
    /// Maximum size of the journal in bytes, and maximum age of its events in seconds, for upstreams that are unreachable.
    public var journalMaxSize: Int64
    public var journalMaxAge: Int64
    /// Number of messages that are kept, independent of the journal. Duplicates are recognised among these.
    public var messagesMax: Int64
    /// Number of nodes that are kept, of those that nobody here has to do with.
    public var nodesMax: Int64
    /// The gateway's id; `nil`: a random id, created once.
    public var gatewayID: String?
    public var profile: StoreProfile

    public init(
      location: String, maxSize: Int64 = 1 << 30, journalMaxSize: Int64 = 256 << 20,
      journalMaxAge: Int64 = 90 * 86400, messagesMax: Int64 = 500_000, nodesMax: Int64 = 5000, gatewayID: String? = nil,
      profile: StoreProfile = .durable
    ) {
      self.location = location
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
  /// The transaction that is open, and how many writes it has.
  private var current = Commit()
  private var writes = 0
  /// Deferred writes for the next transaction, and those of the current one, by name.
  private var alongside: [String: Work] = [:]
  private var taken: [String: Work] = [:]
  /// A write needs a commit at the end of this turn.
  private var isUrgent = false
  /// A later commit is scheduled, and when the last one of these was.
  private var isPromised = false
  private var gathered: MonotonicTime?
  private var doomed: StoreError?
  private var news = News()
  /// Names of the posted writes in this transaction.
  private var posted: [String] = []
  private var toldLoss: StoreError?
  private var unreadable: Set<String> = []
  var journalState = JournalState()
  /// By upstream, how far each lane is on its way there: what is deleted of that may arrive.
  public var underWay: [[UInt8]: () -> ByLane<Int64>?] = [:]
  var steadyClock = SteadyClock(maxAway: 0)
  /// Grows when a node leaves the radio's table.
  public internal(set) var contactsRemoved: UInt64 = 0
  /// Called when something was received that only this node can have sent, with its time in milliseconds since 1970: each time, while contacts
  /// have a time that lags by up to ten minutes.
  public var nodeWasHeard: (KeyPrefix, Int64) -> Void = { _, _ in }
  /// Nodes that were added since it was looked how many there are; at the start nobody has looked.
  var nodesAdded = Int64.max
  /// Nodes that were forgotten to keep `Settings.nodesMax`, since the start.
  public internal(set) var nodesForgotten: Int64 = 0
  var radioState = RadioState()
  /// What alerts say that are open, by rule and subject, and whether the disk may have something else.
  var (alertWords, hasNewAlertWords): ([[UInt8]: AlertWords], Bool) = ([:], false)
  /// `nil`: not read yet.
  var (identities, documentCount): (RecentIdentities?, Int64?) = (nil, nil)
  /// Reactions may wait for their messages; `nil`: not known yet.
  var mayHaveWaitingReactions: Bool?
  /// Grows whenever dead letters may have become more or fewer.
  public internal(set) var deadLetterChanges: UInt64 = 0

  /// The gateway's id: 16 hex digits, created once, kept when the database is recreated.
  public internal(set) var gatewayID = ""
  /// Created with the database, and changed when that is recreated or restored: makes each seq unique.
  public internal(set) var epoch = ""
  /// The first seq that belongs to this epoch.
  public internal(set) var epochFirst: Int64 = 1
  var epochBefore: String?
  /// The database had nothing at opening.
  var isNew = false
  /// When this epoch began, in milliseconds since 1970; 0: no clock could tell. What a newer copy did before that is not known here.
  public internal(set) var epochBegan: Int64 = 0
  /// Where a damaged database was saved at opening; `nil` if it was intact.
  public private(set) var setAside: String?
  /// What the database had that is not here any more; `nil`: nothing is known to be lost.
  public internal(set) var loss: StoreLoss?
  /// What the database has lost since it was last open, in words: transactions of its log, or all since it was copied; `nil`: nothing.
  /// Starts a new epoch.
  public private(set) var lostFromLog: String?
  /// The database is an older copy of itself: how that shows, in words. Starts a new epoch.
  public internal(set) var putBack: String?
  /// The database was found to be damaged, and no other has taken its place yet.
  public private(set) var isDamaged = false
  /// The file that is open, whatever has its name by now.
  private var openFile: StoreFiles.Number?
  var ownFile: OwnFile?
  /// The database was removed, moved or replaced: what is stored from now on is lost when the gateway ends.
  public var isElsewhere: Bool { StoreFiles.number(of: location) != openFile }
  /// Why the last write failed; `nil` if it succeeded.
  public private(set) var failure: StoreError?

  /// Opens or creates the store. A damaged file is renamed to `….corrupt-TIME` and a new one created. `replaced`: a backup was put here just now.
  public init(_ settings: Settings, clocks: any Clocks, replaced: Replaced? = nil) throws(StoreError) {
    self.settings = settings
    self.clocks = clocks
    lock = try StoreLock(location: settings.location)
    let trouble = StoreFiles.logTrouble(settings.location)
    if trouble == .databaseIsGone { setAside = try Self.moveAside(settings.location, "corrupt", clocks) }
    var savedLog: String?
    if case .breaksOff(let lost) = trouble {
      let kept = Self.freeName(settings.location, "corrupt", clocks) + "-wal"
      try StoreFiles.copy(settings.location + "-wal", to: kept)
      lostFromLog = "the store's log is damaged: \(lost) transactions or more are lost. It was saved as \(kept)"
      savedLog = kept
    }
    do {
      database = try Self.open(settings)
      try load()
    } catch {
      guard case .corrupt = error else { throw error }
      setAside = try Self.moveAside(settings.location, "corrupt", clocks)
      database = try Self.open(settings)
      try load()
    }
    (isDamaged, news, openFile) = (false, News(), StoreFiles.number(of: settings.location))
    // Do not find the transactions behind the damage again, or report them as lost after a power cut.
    try checkpoint()
    try beginBehindLoss(log: savedLog, replaced)
  }

  private func load() throws(StoreError) {
    (alongside, taken, identities, documentCount, alertWords) = ([:], [:], nil, nil, [:])
    try loadIdentity()
    journalState = try translating { () throws(SQLiteError) in try JournalState(database) }
    steadyClock = try loadElapsed()
    journalState.times = try loadTimes()
    radioState = try translating { () throws(SQLiteError) in try readRadios() }
    try translating { () throws(SQLiteError) in try loadMessageEvents() }
    try translating { () throws(SQLiteError) in try placeOutgoing() }
  }

  /// Exclusive: the index of the write-ahead log is then in memory, and not in a file whose pages the kernel writes to disk after
  /// each single message.
  static func open(_ settings: Settings) throws(StoreError) -> Database {
    do {
      try DatabaseFile.protect(settings.location)
      let database = try Database(location: settings.location)
      // Another program usually has it open only briefly.
      try database.execute("PRAGMA busy_timeout = \(patienceWithReaders)")
      try database.execute(
        """
        PRAGMA page_size = \(pageSize); PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = \(settings.profile.pagesToCheckpoint); PRAGMA cache_size = -512; PRAGMA foreign_keys = ON;
        PRAGMA journal_size_limit = 1048576
        """)
      try database.addTextFunction("spaced") { SearchWords.spaced($0) }
      try database.migrate(Schema.migrations)
      try database.execute("PRAGMA max_page_count = \(max(64, settings.maxSize / pageSize))")
      try database.execute("PRAGMA busy_timeout = 0")
      return database
    } catch {
      guard error.kind == .busy else { throw StoreError(error) }
      throw .locked(by: FileHolder.name(of: settings.location))
    }
  }

  /// Milliseconds.
  private static let patienceWithReaders = 3000

  /// Replaces a database that was found to be damaged in use with a new one, which has a new epoch. Returns where the damaged one
  /// was saved. `unsent`: so many events no upstream lacked, or fewer; `nil`: nobody knows.
  public func replaceDamaged(unsent: Int64? = nil) throws(StoreError) -> String {
    let target = try Self.moveAside(settings.location, "corrupt", clocks)
    loss = StoreLoss(cause: .damaged, epoch: epoch, last: lastSeq, atMost: unsent, saved: target)
    database = try Self.open(settings)
    try load()
    setAside = target
    (failure, isDamaged, openFile) = (nil, false, StoreFiles.number(of: settings.location))
    ownFile = nil
    noteOwnFile()
    // Before anything else, also where the disk does not take it yet.
    writeAlong("loss") { store throws(SQLiteError) in try store.tell(store.loss) }
    settle()
    return target
  }

  // MARK: Transactions

  /// Does `work` in this turn's transaction, at once. The result is known at the end of the turn; await it where it matters.
  ///
  /// A failure rolls back the whole turn: every write in it gets the error.
  @discardableResult
  public func write(when: When = .now, _ work: Work) -> Commit {
    writes += 1
    hasten(when)
    guard doomed == nil else { return current }
    do {
      try begin()
      try work(self)
    } catch {
      doomed = StoreError(error)
    }
    return current
  }

  /// Within a `write`: it is to be on disk so soon, whatever was said when it began.
  public func hasten(_ when: When) { if settings.profile.isUrgent(when) { isUrgent = true } }

  /// As `write`, but returns when the transaction is on disk.
  public func save(when: When = .now, _ work: Work) async throws(StoreError) {
    try await write(when: when, work).durable()
  }

  /// As `write`, without a caller that waits: a loss is in the `News`. `what`: its name in the log.
  public func post(when: When = .now, _ what: @autoclosure () -> String, _ work: Work) {
    write(when: when, work)
    if posted.count < Self.maxNamed { posted.append(what()) }
  }

  private func begin() throws(SQLiteError) {
    if !database.isInTransaction { try database.run("BEGIN IMMEDIATE") }
    try takeAlong()
  }

  /// What goes along is done before what is written after it, and at the end: a transaction may have been open for a minute.
  private func takeAlong() throws(SQLiteError) {
    let works = alongside
    alongside = [:]
    taken.merge(works) { _, newer in newer }
    for work in works.values { try work(self) }
  }

  /// Defers `work` to the end of the next transaction, or of the one that is open, because it is not worth its own commit; a power cut before
  /// that loses it. Of several with the same `name` only the last is done. `settle` writes all of them.
  public func writeAlong(_ name: String, _ work: @escaping Work) { alongside[name] = work }

  /// Writes and commits everything that is deferred.
  public func settle() {
    if !alongside.isEmpty { write { _ in } }
    commit(everything: true)
  }

  /// Something was written and is not on disk yet.
  public var hasUncommitted: Bool { writes > 0 }

  /// What commits have brought that the owner of the store sees to at the end of the turn.
  public struct News: Equatable, Sendable {
    /// New data is on disk: who forwards it looks.
    public var hasGrown = false
    /// What was not kept or not read, and why. A write that keeps failing is reported once, until a write succeeds again.
    public var loss: String?
    /// The database was found to be damaged: `replaceDamaged` begins another.
    public var isDamaged = false
    /// What was written may wait so long for company; then `commitGathered` is due.
    public var pause: Duration?
  }

  public func takeNews() -> News {
    defer { news = News() }
    return news
  }

  /// Ends a turn: commits its writes. Who awaits that is resumed; what they then write is committed in the next round of the turn.
  ///
  /// Writes that may wait (`When`) stay in the open transaction until another write is committed or their time is over.
  public func commit(everything: Bool = false) {
    if everything { isUrgent = true }
    for _ in 0..<Self.maxRounds where writes > 0 {
      guard isUrgent || doomed != nil || writes >= Self.maxDeferred else { return promise() }
      commitOnce()
    }
    isUrgent = false
  }

  /// What waits has waited long enough.
  public func commitGathered() {
    guard isPromised else { return }
    gathered = clocks.now
    commit(everything: true)
  }

  /// Writes that wait at most.
  private static let maxDeferred = 500

  private func promise() {
    guard !isPromised else { return }
    isPromised = true
    news.pause = settings.profile.pause(since: gathered.map { clocks.now - $0 })
  }

  /// Names in the log for one transaction.
  private static let maxNamed = 8

  private func tellLoss(_ failure: StoreError?) {
    defer { posted = [] }
    guard let failure else { return toldLoss = nil }
    guard !posted.isEmpty, toldLoss != failure else { return }
    toldLoss = failure
    var names: [String] = []
    for name in posted where !names.contains(name) { names.append(name) }
    let loss = "not kept: \(names.joined(separator: ", ")). \(failure)"
    news.loss = news.loss.map { "\($0); \(loss)" } ?? loss
  }

  /// Different failures of `ifReadable` that are logged, of one store.
  private static let maxUnreadable = 16

  func noteUnreadable(_ error: any Error) {
    let failure = (error as? SQLiteError).map(StoreError.init) ?? error as? StoreError
    if case .corrupt = failure { noteDamage() }
    noteUnreadable(failure.map { "\($0)" } ?? "\(error)")
  }

  /// A read finds damage as a write does, and may be the only one to meet it.
  private func noteDamage() { (isDamaged, news.isDamaged) = (true, true) }

  private func noteUnreadable(_ failure: String) {
    guard unreadable.count < Self.maxUnreadable, unreadable.insert(failure).inserted else { return }
    news.loss = [news.loss, "a read failed: \(failure)"].compactMap { $0 }.joined(separator: "; ")
  }

  /// Rounds of one turn at most: more would mean that two parts of the program feed each other.
  private static let maxRounds = 64

  private func commitOnce() {
    (isUrgent, isPromised) = (false, false)
    if doomed == nil, database.isInTransaction {
      do {
        try takeAlong()
        try checkOwnFile()
        try database.run("COMMIT")
      } catch {
        doomed = StoreError(error)
      }
    }
    let (ended, failed) = (current, doomed)
    (current, writes, doomed) = (Commit(), 0, nil)
    failure = failed
    if let failed {
      // Fails if SQLite has already rolled back by itself (disk full, I/O error), which is fine.
      if database.isInTransaction { try? database.execute("ROLLBACK") }
      journalState.undo()
      (identities, documentCount) = (nil, nil)
      alongside.merge(taken) { newer, _ in newer }
      if case .corrupt = failed { noteDamage() }
    } else {
      journalState.keep()
      news.hasGrown = true
      noteOwnFile()
    }
    taken = [:]
    tellLoss(failed)
    ended.end(failed)
  }

  /// Commits at once, for the few places that need the result immediately.
  public func commitNow() throws(StoreError) {
    commit(everything: true)
    if let failure { throw failure }
  }

  func translating<Result>(_ work: () throws(SQLiteError) -> Result) throws(StoreError) -> Result {
    do {
      return try work()
    } catch {
      let failure = StoreError(error)
      if case .corrupt = failure { noteDamage() }
      throw failure
    }
  }
}
