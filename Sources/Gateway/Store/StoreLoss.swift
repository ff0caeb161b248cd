// SPDX-License-Identifier: MIT

import JSON
import SQLite
import Timing

/// Events that were stored, are not here any more, and may not have come to every upstream.
public struct StoreLoss: Equatable, Sendable, CustomStringConvertible {
  /// What became of them. The names are part of the hub protocol.
  public enum Cause: String, Sendable {
    /// The database was damaged and set aside, or removed; a new one was begun.
    case damaged, removed
    /// Transactions in the middle of the database's log were damaged.
    case log
    /// An older copy of the database is in its place, another database, or a backup that somebody put there.
    case older, replaced, restored
    /// A server has events under this gateway's numbers that the database does not have.
    case conflict
  }

  public var cause: Cause
  /// The epoch that they had, and its last event that is known of: there may have been more.
  public var epoch: String?
  public var last: Int64?
  /// No upstream lacks more than so many; `nil`: nobody knows.
  public var atMost: Int64?
  /// Under which name what has them was saved.
  public var saved: String?

  public var description: String {
    let what =
      switch cause {
      case .damaged: "the database was damaged, and a new one begun"
      case .removed: "the database was gone, and a new one begun"
      case .log: "the database's log was damaged"
      case .older: "the database is an older copy of itself"
      case .replaced: "another database was put in the place of this gateway's"
      case .restored: "a backup was put in the place of the database"
      case .conflict:
        "a server has events under this gateway's numbers that its database does not have: that is an older copy of itself, or somebody else "
          + "writes under its id"
      }
    let known = [saved.map { "it was saved as \($0)" }, last.map { "there had been \($0) events or more" }]
    let much = atMost.map { "\($0) events at most" } ?? "nobody knows how many events"
    return
      "\(([what] + [known.compactMap(\.self).joined(separator: "; ")].filter { !$0.utf8.isEmpty }).joined(separator: ": "))"
      + (atMost == 0
        ? ". Every upstream had all of it"
        : ". \(cause == .conflict ? "If it is a copy, what" : "What") it had not sent to upstreams is lost: \(much)")
  }

  var body: [UInt8] {
    JSONWriter.object { json in
      json.field("reason", cause.rawValue)
      json.field("epoch", epoch)
      json.field("last", last)
      json.field("at_most", atMost)
      json.field("saved", saved)
    }
  }
}

/// As the file beside the database keeps it.
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

extension Store {
  /// How many events the database had that is not here any more, at least; `nil`: nobody knows.
  public var hadBefore: Int64? { loss?.last }

  /// At opening: the first event behind what is lost tells of it, and no number of it is given out again.
  func beginBehindLoss(log savedLog: String?, _ replaced: Replaced?) throws(StoreError) {
    putBack = olderThanMark
    if let replaced {
      loss = replaced.loss(epoch: mark?.epoch, last: mark?.seq)
    } else {
      loss = try foundLoss(savedLog)
    }
    if !isNew, loss != nil || putBack != nil {
      try renewEpoch(telling: loss)
    } else if let loss {
      write { store throws(SQLiteError) in try store.tell(loss) }
      try commitNow()
    }
  }

  /// A server has events under this gateway's numbers that are not here: a new epoch begins. `last`: its last one; `wasInStep`: it had none of them earlier
  /// in this run of the program. Returns what upstreams are told.
  ///
  /// A copy that is older than the mark beside it is noticed at the start; a newer one shows only so. Whether anything is lost with it, nobody knows: the
  /// first time in a run, upstreams are told.
  public func renewEpoch(afterConflict last: Int64?, wasInStep: Bool) throws(StoreError) -> StoreLoss? {
    let isPerhapsCopy = !isNew && loss == nil && !wasInStep
    let found = isPerhapsCopy ? StoreLoss(cause: .conflict, epoch: epoch, last: last) : nil
    try renewEpoch(telling: found)
    loss = loss ?? found
    return found
  }

  /// Where the same is found in several ways, what says the most.
  private func foundLoss(_ savedLog: String?) throws(StoreError) -> StoreLoss? {
    if setAside != nil { return StoreLoss(cause: .damaged, epoch: mark?.epoch, last: mark?.seq, saved: setAside) }
    if isNew { return mark.map { StoreLoss(cause: .removed, epoch: $0.epoch, last: $0.seq) } }
    let known = mark.flatMap { $0.epoch == epoch ? $0.seq : nil }
    if let savedLog { return StoreLoss(cause: .log, epoch: epoch, last: known, saved: savedLog) }
    if putBack != nil { return StoreLoss(cause: .older, epoch: epoch, last: known) }
    return try replacedMark().map { StoreLoss(cause: .replaced, epoch: $0.epoch, last: $0.seq) }
  }

  /// Of the mark of this epoch upstreams have been told that what it stood for is lost.
  private static let toldEpoch = "lost_epoch"

  /// Another database stands where this gateway's was, which had come as far as that; `nil`: it is the same, or nobody can tell.
  func replacedMark() throws(StoreError) -> (epoch: String, seq: Int64)? {
    guard let mark else { return nil }
    let known: [String?] = [epoch, epochBefore, try meta(Self.toldEpoch)?.text]
    return known.contains(mark.epoch) ? nil : (mark.epoch, mark.seq)
  }

  /// Within a `write`, before any other event of the epoch: every upstream is told, whatever its filter; also of what a database had to tell that is lost
  /// in turn.
  func tell(_ loss: StoreLoss?) throws(SQLiteError) {
    let mark = mark
    if let epoch = mark?.epoch { try setMeta(Self.toldEpoch, .text(epoch)) }
    guard let loss, loss.atMost != 0 else { return }
    let here = try untoldHere()
    let before = (mark?.untold ?? []).filter { lost in
      lost.epoch != loss.epoch && !here.contains { $0.epoch == lost.epoch }
    }
    var told: Int64 = 0
    for loss in before + [loss] { told = try append(.gap, at: Moment(WallClock(clocks)), body: loss.body) }
    let all = (before + [loss] + here).compactMap(\.mark).prefix(Self.maxUntold)
    try setMeta(Self.untoldLosses, .text((["\(told)"] + all).joined(separator: ",")))
  }

  /// The number of the last event that tells of them, and the losses.
  private static let untoldLosses = "untold_losses"
  private static let maxUntold = 8

  /// What this database lost or those before it, as long as an upstream has not got the event that tells it.
  func untold() throws(StoreError) -> [StoreLoss] {
    try translating { () throws(SQLiteError) in try untoldHere() }
  }

  private func untoldHere() throws(SQLiteError) -> [StoreLoss] {
    let kept = try database.value("SELECT value FROM meta WHERE name = ?", .text(Self.untoldLosses))?.text ?? ""
    let marks = kept.split(separator: ",")
    guard let told = marks.first.flatMap({ Int64($0) }) else { return [] }
    guard try slowestCursor().map({ $0.messages < told }) ?? true else { return [] }
    return marks.dropFirst().compactMap { StoreLoss(mark: $0) }
  }

  /// Where an upstream begins that wants nothing of what was before it: what the database lost at its own beginning it has lost, too.
  func newestOrItsLoss() throws(StoreError) -> Int64 {
    var seq = lastSeq
    while seq > 0 {
      let kind = try translating { () throws(SQLiteError) in
        try database.value("SELECT kind FROM journal WHERE seq = ?", .integer(seq))?.text
      }
      guard kind == EventKind.gap.rawValue else { break }
      seq -= 1
    }
    return seq
  }
}
