// SPDX-License-Identifier: MIT

import Glibc
import Synchronization

/// Tests every few seconds whether the database answers, on a connection of its own; and after a write for which the disk had no room, whether it
/// has room again.
///
/// It makes one query at a time, and callers get the last result at once: a database that hangs delays no caller.
final class DatabaseProbe: Sendable {
  static let interval: Duration = .seconds(2)
  /// The longest time since the last answer: one query and its pause, and as much again for a slow query.
  static let patience: Duration = .seconds(6)

  /// Why a hub is not ready: the words of docs/observability.md.
  enum Problem: String {
    /// The first answer has not come yet.
    case starting
    /// The database cannot be reached, or answers with an error.
    case down = "database_down"
    /// The database does not answer.
    case silent = "database_silent"
    /// The database is a standby.
    case readOnly = "database_read_only"
    /// The database has no tables any more.
    case empty = "database_empty"
    /// A newer hub has upgraded the tables. This is final.
    case outdated = "database_newer"
    /// The file was removed or replaced: it answers, but its new rows are lost when the hub ends.
    case lost = "database_lost"
  }

  struct Census: Equatable {
    var gateways: Int64
    var waitingCommands: Int64
  }

  struct State {
    var answered: ContinuousClock.Instant?
    var failure: Problem?
    var took: Duration?
    var census: Census?
    /// A number of the server's start and of the database; `nil`: unknown, or there is no server.
    var identity: Int64?
    /// The transaction that hides new messages from readers, and since when.
    var hiding: (transaction: Int64, since: ContinuousClock.Instant)?
  }

  private let store: HubStore
  private let readOnlyQuery: String
  private let versionQuery: String
  private let identityQuery: String?
  private let file: OpenedFile?
  private let state = Mutex(State())
  private let disk = Mutex<FullDisk?>(nil)

  /// `readOnlyQuery`: SQL for 1 if nothing can be written, otherwise 0. `versionQuery`: SQL for the version of the tables.
  /// `identityQuery`: SQL for a number that changes when the server was started again or the database replaced. `file`: of an SQLite database.
  init(
    _ store: HubStore, readOnlyQuery: String, versionQuery: String, identityQuery: String? = nil,
    file: OpenedFile? = nil
  ) {
    (self.store, self.readOnlyQuery, self.versionQuery) = (store, readOnlyQuery, versionQuery)
    (self.identityQuery, self.file) = (identityQuery, file)
  }

  /// `write`: writes something small; `free`: the bytes that are free on the disk, `nil`: unknown.
  func tests(
    _ disk: FullDisk, free: @escaping @Sendable () -> Int64? = { nil },
    write: @escaping @Sendable () async throws -> Void
  ) {
    disk.test.withLock { $0 = FullDisk.Test(free: free, write: write) }
    self.disk.withLock { $0 = disk }
  }

  static let lostFile = "the database file was removed or replaced: what the hub takes now is lost when it ends"
  static let lostRemedy =
    "End the hub, put the file or a backup back, and start it: gateways send again what they still have"

  static let noTables =
    "the database has no tables any more: was it dropped, and made anew? To have the old one back, end all hubs and restore a backup. Otherwise "
    + "start the hub again: it makes the tables, and gateways send again what their journals still have."

  var isLost: Bool { file?.isElsewhere ?? false }

  var now: State { state.withLock { $0 } }

  /// A write has failed for want of room, and none has succeeded since then. The hub still serves readers.
  var isDiskFull: Bool { disk.withLock { $0 }?.isFull ?? false }

  /// Whether a transaction has hidden messages for some time that gateways were acknowledged: a short one only delays them.
  func isHiding(at now: ContinuousClock.Instant = .now) -> Bool {
    self.now.hiding.map { now - $0.since > Self.patience } ?? false
  }

  /// `nil`: it answers.
  func problem(at now: ContinuousClock.Instant = .now) -> Problem? {
    let state = self.now
    if let failure = state.failure { return failure }
    guard let answered = state.answered else { return .starting }
    return now - answered > Self.patience ? .silent : nil
  }

  /// Probes until it is cancelled. `true`: it stopped because a newer hub has upgraded the tables. `isAnother`: called when the server was started
  /// again, or another one has its place: it may lack what this hub has acknowledged.
  func run(isAnother: () async -> Void = {}) async -> Bool {
    var counted: (at: ContinuousClock.Instant, pause: Duration)?
    while !Task.isCancelled {
      if await probe() { await isAnother() }
      if now.failure == .outdated { return true }
      if now.failure == nil, counted.map({ .now - $0.at > $0.pause }) ?? true {
        let begun = ContinuousClock.now
        await count()
        // Counting takes at most a hundredth of the time, however many rows there are.
        counted = (.now, max(.seconds(60), (ContinuousClock.now - begun) * 100))
      }
      // `try?`: cancelled while it sleeps.
      try? await Task.sleep(for: Self.interval)
    }
    return false
  }

  /// Returns whether another server answers than before, or another database.
  @discardableResult func probe() async -> Bool {
    let begun = ContinuousClock.now
    do {
      let isReadOnly = try await store.number(readOnlyQuery) == 1
      guard try await store.number(versionQuery) <= Int64(HubSchema.newest) else {
        state.withLock { $0.failure = .outdated }
        return false
      }
      let start: Int64? = if let identityQuery { try await store.number(identityQuery) } else { nil }
      let (isLost, took) = (isLost, ContinuousClock.now - begun)
      let hiding = isReadOnly ? nil : try await store.hidingTransaction()
      await disk.withLock { $0 }?.testIfFull()
      let before = state.withLock { state in
        (state.answered, state.took) = (.now, took)
        state.hiding = hiding.map { ($0, state.hiding?.transaction == $0 ? state.hiding?.since ?? begun : begun) }
        defer { state.failure = isLost ? .lost : isReadOnly ? .readOnly : nil }
        return state.failure
      }
      if isLost {
        if before != .lost { HubLog.write(.error, "\(Self.lostFile). \(Self.lostRemedy)") }
        return false
      }
      if before != nil, !isReadOnly { HubLog.write(.notice, "the database answers again") }
      if before != .readOnly, isReadOnly { HubLog.write(.error, "the database takes no writes: it is a standby") }
      // A standby is asked again once it takes writes.
      guard !isReadOnly else { return false }
      let known = state.withLock { state in
        defer { state.identity = start }
        return state.identity
      }
      // Tables that were gone and are there again came from a backup.
      return before == .empty || known != nil && known != start
    } catch {
      // A database without an answer for the whole time is silent, not down.
      let isLate = ContinuousClock.now - begun > Self.patience
      let problem: Problem = error.cause == .noTables ? .empty : isLate ? .silent : .down
      let before = state.withLock { state in
        defer { state.failure = problem }
        return state.failure
      }
      if error.cause == .noTables {
        if before != .empty { HubLog.write(.error, "\(Self.noTables) (\(error))") }
      } else if before == nil {
        HubLog.write(.error, "the database does not answer: \(error)")
      }
      return false
    }
  }

  private func count() async {
    // `try?`: the next query reports the error.
    let census = try? await Census(
      gateways: store.number("SELECT count(*) FROM gateways"),
      waitingCommands: store.number("SELECT count(*) FROM commands WHERE state = 'queued'"))
    state.withLock { $0.census = census }
  }
}

/// Whether the disk of the database has no room for what is written.
final class FullDisk: Sendable {
  fileprivate struct Test: Sendable {
    let free: @Sendable () -> Int64?
    let write: @Sendable () async throws -> Void
  }

  /// A full disk may have room for something small, also in a log that is there already: there is room when nothing has failed for so long, a batch was
  /// stored or the disk has room for some, and a small write succeeds.
  private static let quiet: Duration = .seconds(20)
  private static let leastFree: Int64 = 16 << 20

  private struct Failure {
    let at: ContinuousClock.Instant
    /// A batch was stored after it.
    var isPast = false
  }

  /// `nil`: there is room.
  private let lastFailure = Mutex<Failure?>(nil)
  fileprivate let test = Mutex<Test?>(nil)

  var isFull: Bool { lastFailure.withLock { $0 != nil } }

  static func words(_ error: HubDatabaseError) -> String {
    "the disk is full, and nothing is stored: make room. Gateways keep their events until then. (\(error))"
  }

  /// A write has failed because there is no room.
  func note(_ error: HubDatabaseError) {
    let isNew = lastFailure.withLock { last in
      defer { last = Failure(at: .now) }
      return last == nil
    }
    if isNew { HubLog.write(.error, Self.words(error)) }
  }

  func storedBatch() { lastFailure.withLock { $0?.isPast = true } }

  /// If the disk was full, writes something small after a while.
  func testIfFull(at now: ContinuousClock.Instant = .now) async {
    guard let last = lastFailure.withLock({ $0 }), now - last.at > Self.quiet, let test = test.withLock({ $0 }),
      last.isPast || test.free().map({ $0 >= Self.leastFree }) ?? true
    else { return }
    // `try?`: it is written again after a while.
    guard (try? await test.write()) != nil else { return }
    lastFailure.withLock { $0 = nil }
    HubLog.write(.notice, "the disk has room again")
  }
}

extension FullDisk {
  /// The bytes that are free where the file is; `nil`: unknown.
  static func free(at location: String) -> Int64? {
    var space = statvfs()
    guard statvfs(location, &space) == 0 else { return nil }
    let size = UInt64(space.f_bavail).multipliedReportingOverflow(by: UInt64(space.f_frsize))
    return size.overflow ? .max : Int64(clamping: size.partialValue)
  }
}

/// The identity of the file at a location, at the time of opening.
struct OpenedFile: Sendable {
  private let location: String
  private let facts: stat?

  init(_ location: String) { (self.location, facts) = (location, Self.facts(of: location)) }

  /// Whether the file was removed, moved or replaced: a program that has it open writes into a file without a name. A
  /// file that was written over in place stays the same file, and is not noticed.
  var isElsewhere: Bool {
    let now = Self.facts(of: location)
    return now?.st_ino != facts?.st_ino || now?.st_dev != facts?.st_dev
  }

  private static func facts(of location: String) -> stat? {
    var facts = stat()
    return stat(location, &facts) == 0 ? facts : nil
  }
}
