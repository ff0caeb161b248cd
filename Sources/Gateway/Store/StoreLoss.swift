// SPDX-License-Identifier: MIT

import JSON
import SQLite
import Timing
import UntrustedText

/// Events that were stored, are no longer here, and may not have reached every upstream.
public struct StoreLoss: Equatable, Sendable, CustomStringConvertible {
  /// The cause of a loss. The names are part of the hub protocol.
  public enum Cause: String, Sendable {
    /// The database was damaged and set aside, or removed; a new one was created.
    case damaged, removed
    /// Transactions in the middle of the database's log were damaged, or the log was removed or emptied.
    case log
    /// In its place is an older copy of the database, a different database, or a backup that somebody restored.
    case older, replaced, restored
    /// A server has events with this gateway's numbers that the database does not have.
    case conflict
  }

  public var cause: Cause
  /// The epoch of the lost events, and its last known event; there may have been more.
  public var epoch: String?
  public var last: Int64?
  /// The last event of that epoch that the database still has; `nil`: none, or unknown.
  public var kept: Int64?
  /// No upstream lacks more events than this; `nil`: unknown.
  public var atMost: Int64?
  /// The name under which the file with these events was saved.
  public var saved: String?

  public var description: String {
    let what =
      switch cause {
      case .damaged: "the database was damaged, and a new one begun"
      case .removed: "the database was gone, and a new one begun"
      case .log: saved == nil ? "the database's log was removed or emptied" : "the database's log was damaged"
      case .older: "the database is an older copy of itself"
      case .replaced: "another database replaced this gateway's"
      case .restored: "a backup replaced the database"
      case .conflict:
        "a server has events of this gateway that its database does not have: that is new, or an older copy of itself, or somebody else writes "
          + "under its id"
      }
    let it = cause == .removed ? "its log" : "it"
    let known = [saved.map { "\(it) was saved as \($0)" }, extent]
    return
      "\(([what] + [known.compactMap(\.self).joined(separator: "; ")].filter { !$0.utf8.isEmpty }).joined(separator: ": "))"
      + (atMost == 0
        ? ". Every upstream had all of it"
        : ". \(cause == .conflict ? "If it is a copy, what" : "What") it had not sent to upstreams is lost: \(amount)")
  }

  /// The database lacks at least so many events, which upstreams may have; `nil`: unknown.
  public var atLeast: Int64? {
    guard let kept, let last, last > kept else { return nil }
    return last - kept
  }

  /// How far the database and the lost events reach, in words; `nil`: unknown.
  public var extent: String? {
    // A hub that has an epoch only from a broker knows no position in it.
    let most = last.flatMap { $0 > 0 ? "there had been \($0) events or more" : nil }
    guard let kept else { return most }
    let end = "the database ends with event \(kept)"
    guard let atLeast, let most else { return end }
    return "\(end), and \(most), so it lacks at least \(atLeast)"
  }

  /// How many events upstreams lack, in words.
  public var amount: String { atMost.map { "\($0) events at most" } ?? "nobody knows how many events" }

  var body: [UInt8] {
    JSONWriter.object { json in
      json.field("reason", cause.rawValue)
      json.field("epoch", epoch)
      json.field("last", last)
      json.field("kept", kept)
      json.field("at_least", atLeast)
      json.field("at_most", atMost)
      json.field("saved", saved)
    }
  }
}

/// The form in the file beside the database.
extension StoreLoss {
  var mark: String? { epoch.map { "\($0):\(last ?? 0):\(cause.rawValue)" } }

  init?(mark: Substring) {
    let parts = mark.split(separator: ":")
    guard parts.count == 3, let last = Int64(parts[1]), let cause = Cause(rawValue: String(parts[2])) else {
      return nil
    }
    self.init(cause: cause, epoch: String(parts[0]), last: last == 0 ? nil : last)
  }
}

extension Store.Replaced {
  fileprivate func loss(epoch: String?, last: Int64?) -> StoreLoss {
    StoreLoss(
      cause: .restored, epoch: epoch, last: last, atMost: unsent.map { $0.map(\.events).max() ?? 0 },
      saved: location)
  }
}

/// Whether the database is the one of the last run, and complete: found when it is opened, and when it is replaced.
public struct StoreProvenance: Equatable, Sendable {
  /// Where a damaged database was saved; `nil` if it was intact.
  public internal(set) var setAside: String?
  /// A read that the disk refused once as the database was opened, in words: nothing is lost; `nil`: none.
  public internal(set) var refusedRead: String?
  /// A restoration, or the renaming of a damaged database, that was cut off and is undone, in words: nothing is lost; `nil`: none.
  public internal(set) var undoneMove: String?
  /// Events of the previous database that are lost; `nil`: no loss is known.
  public internal(set) var loss: StoreLoss?
  /// Losses before it: those that not every upstream had received, and that are told again with it, and others of this run.
  public internal(set) var earlierLosses: [StoreLoss] = []
  /// All of these losses, the newest first.
  var losses: [StoreLoss] { [loss].compactMap(\.self) + earlierLosses }
  /// The newest events of lost epochs at servers.
  fileprivate var reaches: [Reach] = []
  /// All of these losses, the newest first, and what servers have of them; `nil`: no loss is known.
  public var lossWords: String? {
    guard loss != nil else { return nil }
    let told = losses.map { "\($0)" }.joined(separator: ". Before that, ")
    return ([told] + reaches.map(\.words)).joined(separator: ". ")
  }

  fileprivate static let mostEarlier = 8
  fileprivate static let mostReaches = 16

  /// A server's newest event of an epoch of which events are lost.
  fileprivate struct Reach: Equatable {
    let upstream: String
    let epoch: String
    let last: Int64

    var words: String { "The newest event of epoch \(epoch) that \(upstream) has is \(last)" }
  }

  /// A loss that is found in use, in addition to others of this run.
  fileprivate mutating func add(_ found: StoreLoss) {
    earlierLosses = Array(losses.filter { $0 != found }.prefix(Self.mostEarlier))
    loss = found
  }

  /// The lost transactions of the database's log, in words; `nil`: none. Starts a new epoch.
  public fileprivate(set) var lostFromLog: String?
  /// Where the damaged log was saved, or that of a removed database.
  fileprivate var savedLog: String?
  /// Why the database is considered an older copy of itself, in words. Starts a new epoch.
  public internal(set) var putBack: String?

  /// Whether there was no log before SQLite made one.
  let lacksLog: Bool
  /// Whether it had no transaction, or was missing.
  let lacksTransactions: Bool

  /// Saves the files that SQLite would delete, or read only in part.
  init(beforeOpening location: String, _ clocks: any Clocks) throws(StoreError) {
    lacksLog = StoreFiles.number(of: location + "-wal") == nil
    lacksTransactions = StoreFiles.lacksTransactions(location)
    switch StoreFiles.logTrouble(location) {
    case .databaseIsGone:
      let isRemoved = StoreFiles.number(of: location) == nil
      let kept = try Store.moveAside(location, "corrupt", clocks)
      if isRemoved { savedLog = kept + "-wal" } else { setAside = kept }
    case .breaksOff(let lost):
      let kept = Store.freeName(location, "corrupt", clocks) + "-wal"
      try StoreFiles.copy(location + "-wal", to: kept)
      lostFromLog = "the store's log is damaged: \(lost) transactions or more are lost. It was saved as \(kept)"
      savedLog = kept
    case nil: break
    }
  }
}

extension Store {
  /// When the store is opened: the first event after the loss reports it, and no lost number is used again.
  func beginBehindLoss(_ replaced: Replaced?) throws(StoreError) {
    // What a lost log had makes the database end earlier: that it is a copy does not follow.
    let lacksLogged = replaced == nil && (provenance.lostFromLog != nil || isLogMissing)
    provenance.putBack = lacksLogged ? nil : olderThanMark
    let loss = if let replaced { replaced.loss(epoch: mark?.epoch, last: lastMarked) } else { try foundLoss() }
    provenance.loss = loss
    if !identity.isNew, loss != nil || provenance.putBack != nil {
      try renewEpoch(telling: loss)
    } else if let loss {
      write { store throws(SQLiteError) in try store.tell(loss) }
      try commitNow()
      markLoss()
    }
    // Another alert says that it is an older copy, which nobody has put there by this program.
    if let loss, replaced != nil || provenance.putBack == nil { try keepForAlert(loss) }
  }

  /// A server has events with this gateway's numbers that are not here: a new epoch begins. `last`: its last one;
  /// `wasInStep`: it had none of them earlier in this run of the program. Returns the loss that is reported to
  /// upstreams.
  ///
  /// A copy that is older than the mark beside it is noticed at the start; a newer copy is only noticed here. Whether
  /// anything is lost with it is unknown: upstreams are told, once for the epoch with which the database was opened.
  public func renewEpoch(afterConflict last: Int64?, wasInStep: Bool) throws(StoreError) -> StoreLoss? {
    let isPerhapsCopy = !identity.isNew && !identity.beganInThisRun && !wasInStep
    let found = isPerhapsCopy ? StoreLoss(cause: .conflict, epoch: epoch, last: last) : nil
    try renewEpoch(telling: found, isCopy: found != nil)
    if let found { provenance.add(found) }
    return found
  }

  /// What `restore` has not read of a backup's log, for the first event of the restored database's new epoch. `log`: that log; `nil`: it is empty.
  public func lossOfBackup(log: String?) -> StoreLoss {
    StoreLoss(cause: .log, epoch: epoch, kept: lastSeq, saved: log)
  }

  /// If several checks find the same loss, the most specific one counts.
  private func foundLoss() throws(StoreError) -> StoreLoss? {
    if let saved = provenance.setAside {
      return StoreLoss(cause: .damaged, epoch: mark?.epoch, last: lastMarked, saved: saved)
    }
    if identity.isNew {
      guard mark != nil || provenance.savedLog != nil else { return nil }
      return StoreLoss(cause: .removed, epoch: mark?.epoch, last: lastMarked, saved: provenance.savedLog)
    }
    let known = mark?.epoch == epoch ? lastMarked : nil
    if let savedLog = provenance.savedLog {
      return StoreLoss(cause: .log, epoch: epoch, last: known, kept: lastSeq, saved: savedLog)
    }
    if provenance.putBack != nil { return StoreLoss(cause: .older, epoch: epoch, last: known, kept: lastSeq) }
    if isLogMissing {
      provenance.lostFromLog = "the store's log, \(logLocation), was removed or emptied"
      return StoreLoss(cause: .log, epoch: epoch, last: known, kept: lastSeq)
    }
    // One that has never had an event was begun by a start that ended before it could tell that there was none.
    let cause: StoreLoss.Cause = lastSeq == 0 ? .removed : .replaced
    return try replacedEpoch().map { StoreLoss(cause: cause, epoch: $0, last: lastMarked) }
  }

  /// The last event that the mark knows of; `nil`: of none.
  private var lastMarked: Int64? { mark.flatMap { $0.seq > 0 ? $0.seq : nil } }

  /// The epoch of a mark whose loss was reported to upstreams.
  private static let toldEpoch = "lost_epoch"

  /// The epoch of this gateway's database if a different database is in its place; `nil`: it is the same, or that is
  /// unknown.
  private func replacedEpoch() throws(StoreError) -> String? {
    guard let mark else { return nil }
    let known: [String?] = [epoch, identity.epochBefore, try meta(Self.toldEpoch)?.text]
    return known.contains(mark.epoch) ? nil : mark.epoch
  }

  /// The server's newest events are of an epoch that this database has never had, up to `last`: reports the loss of what the database of that epoch had
  /// not sent.
  public func tellForeign(_ epoch: String, last: Int64) throws(StoreError) -> StoreLoss {
    let loss = StoreLoss(cause: .conflict, epoch: epoch, last: last)
    var begun = identity
    begun.beginAgain(clocks)
    write { [begun] store throws(SQLiteError) in
      try begun.write(to: store.database)
      try store.doubtWaiting()
      try store.tell(loss)
    }
    try commitNow()
    identity = begun
    markLoss()
    provenance.add(loss)
    return loss
  }

  /// A server's newest event of an epoch is `last`. Returns that in words, once for each server, if events of the epoch are lost here: what came
  /// later, that server never had.
  public func reaches(_ epoch: String, _ last: Int64, at upstream: String) -> String? {
    let lost = provenance.losses.contains { $0.epoch == epoch && $0.cause != .conflict }
    let isTold = provenance.reaches.contains { $0.epoch == epoch && $0.upstream.isExactly(upstream) }
    guard lost, !isTold, provenance.reaches.count < StoreProvenance.mostReaches else { return nil }
    let reach = StoreProvenance.Reach(upstream: upstream, epoch: epoch, last: last)
    provenance.reaches.append(reach)
    return reach.words
  }

  /// Within a `write`, before any other event of the epoch: reports the loss to every upstream, whatever its filter,
  /// and also unreported losses of earlier databases: `untold` and those of the mark.
  func tell(_ loss: StoreLoss?, after untold: [StoreLoss] = []) throws(SQLiteError) {
    let mark = mark
    if let epoch = mark?.epoch { try setMeta(Self.toldEpoch, .text(epoch)) }
    // A server shows how far it is; a mark beside the database is up to an hour old.
    if let loss, let epoch = loss.epoch {
      try know(epoch, through: loss.cause == .conflict ? loss.last ?? Self.unknownEnd : Self.unknownEnd)
    }
    guard let loss else { return }
    let here = try untoldHere()
    // What this database has reported itself, the mark may still have as unreported. That it knows an epoch is no report: an older copy knows its own.
    let reported = try toldNames()
    let marked = (mark?.untold ?? []).filter { lost in
      !untold.contains { $0.epoch == lost.epoch } && !reported.contains { $0 == lost.epoch }
    }
    let before = (marked + untold).filter { lost in
      lost.epoch != loss.epoch && !here.contains { $0.epoch == lost.epoch }
    }
    // These are told here, or were told by the databases before: a server that names their epochs brings no news.
    let toldBefore: [KnownEpoch] = mark?.told ?? []
    for other in toldBefore { try adopt(other.epoch, through: other.last) }
    for epoch in before.compactMap(\.epoch) { try adopt(epoch, through: Self.unknownEnd) }
    let toldNow = (before + [loss]).compactMap(\.epoch)
    try keepTold(toldBefore.map { $0.epoch } + toldNow)
    // Those of another loss stay with that one.
    if provenance.loss == nil || provenance.loss == loss { provenance.earlierLosses = before }
    // Of this database every upstream may have all, and still lack those of earlier ones.
    let missing = loss.atMost == 0 ? before : before + [loss]
    guard !missing.isEmpty else { return }
    var told: Int64 = 0
    for loss in missing { told = try append(.gap, at: Moment(WallClock(clocks)), body: loss.body) }
    let all = (missing + here).compactMap(\.mark).prefix(Self.maxUntold)
    try setMeta(Self.untoldLosses, .text((["\(told)"] + all).joined(separator: ",")))
  }

  /// The epochs whose loss was told here or by the databases before this one, the newest last.
  private static let toldLosses = "told_losses"
  private static let maxTold = 8

  private func toldNames() throws(SQLiteError) -> [String] {
    (try database.meta(Self.toldLosses)?.text ?? "").split(separator: ",").map { String($0) }
  }

  private func keepTold(_ epochs: [String]) throws(SQLiteError) {
    let names = try toldNames().filter { !epochs.contains($0) } + epochs
    try setMeta(Self.toldLosses, .text(names.suffix(Self.maxTold).joined(separator: ",")))
  }

  /// Whether upstreams were told that events of this epoch are lost.
  public func isLossTold(of epoch: String) throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in try toldNames().contains(epoch) }
  }

  /// The epochs whose loss every upstream has, and how far servers had them.
  func toldEpochs() throws(StoreError) -> [KnownEpoch] {
    try translating { () throws(SQLiteError) -> [KnownEpoch] in
      let names = try toldNames()
      let waiting = try untoldHere().compactMap { $0.epoch }
      return try known().filter { names.contains($0.epoch) && !waiting.contains($0.epoch) }
    }
  }

  /// The seq of the last event that reports losses, and the losses.
  private static let untoldLosses = "untold_losses"
  private static let maxUntold = 8

  /// Losses of this database and earlier ones whose event has not reached every upstream.
  func untold() throws(StoreError) -> [StoreLoss] {
    try translating { () throws(SQLiteError) in try untoldHere() }
  }

  private func untoldHere() throws(SQLiteError) -> [StoreLoss] {
    let kept = try database.meta(Self.untoldLosses)?.text ?? ""
    let marks = kept.split(separator: ",")
    guard let told = marks.first.flatMap({ Int64($0) }) else { return [] }
    guard try slowestCursor().map({ $0.messages < told }) ?? true else { return [] }
    return marks.dropFirst().compactMap { StoreLoss(mark: $0) }
  }

  /// Where an upstream begins that wants no earlier events: it still gets the event of a loss at the beginning of this
  /// database.
  func newestOrItsLoss() throws(StoreError) -> Int64 {
    var seq = lastSeq
    while seq > 0 {
      let kind = try value("SELECT kind FROM journal WHERE seq = ?", .integer(seq))?.text
      guard kind == EventKind.gap.rawValue else { break }
      seq -= 1
    }
    return seq
  }
}
