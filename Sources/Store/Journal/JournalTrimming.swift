// SPDX-License-Identifier: MIT

import SQLite
import Timing

/// A range of the journal that was deleted.
public struct JournalTrim: Equatable, Sendable {
  public var first: Int64
  public var last: Int64
  /// Why it was given up, `quota` or `age`; `nil`: every upstream had it.
  public var reason: String?
  /// Upstreams that had not had all of it.
  public var missedBy: [String]

  public init(first: Int64, last: Int64, reason: String?, missedBy: [String] = []) {
    self.first = first
    self.last = last
    self.reason = reason
    self.missedBy = missedBy
  }
}

/// Events deleted before every upstream had them, since the store was created, and when this last happened (milliseconds since 1970).
public struct GivenUp: Equatable, Sendable {
  public var events: Int64
  public var at: Int64
}

/// Keeps the journal within its quota and age. The age of a row is not determined by its own time, as the clock may have been
/// wrong when it was written, or may be wrong now. Marks record which rows existed when how much time had elapsed.
extension Store {
  /// Maximum rows deleted at a time, so that trimming never delays a turn for long.
  static let trimStep: Int64 = 500
  /// Number of marks within the journal's age, which determines its precision.
  private static let marks: Int64 = 96
  /// Beyond its quota the journal is trimmed by this fraction more, so that it is not trimmed again for each event.
  private static let quotaShare: Int64 = 64

  /// Milliseconds that have surely passed since this store was made. They are kept along with the next thing that is
  /// written.
  public func elapsed(at now: Moment, uptime: Int64? = nil) -> Int64 {
    steadyClock.look(trustedWall: now.trusted ? now.milliseconds : nil, uptime: uptime ?? clocks.sinceBoot)
    let (elapsed, wall) = (steadyClock.elapsed, steadyClock.wall)
    writeAlong("elapsed") { store throws(SQLiteError) in
      try store.setMeta("elapsed", .integer(elapsed))
      try store.setMeta("elapsed_wall", .optional(wall))
    }
    return elapsed
  }

  func loadElapsed() throws(StoreError) -> SteadyClock {
    SteadyClock(
      elapsed: try meta("elapsed")?.integer ?? 0, wall: try meta("elapsed_wall")?.integer,
      // A third: events from just before a long power cut are still sent after it.
      maxAway: journalMaxAge / 3)
  }

  /// Milliseconds.
  private var journalMaxAge: Int64 { min(max(settings.journalMaxAge, 0), 1 << 40) * 1000 }

  /// Keeps the journal within its quota and age. Deletes events that every upstream has first, then, if necessary, others, which
  /// leaves a recorded gap. Never deletes the newest row. To be called regularly; the returned events are deleted once the
  /// transaction is committed.
  @discardableResult
  public func trimJournal(now: Moment, uptime: Int64? = nil) -> (trim: JournalTrim, commit: Commit)? {
    let elapsed = elapsed(at: now, uptime: uptime)
    let isMarkDue = isMarkDue(elapsed)
    let isOver = journalState.bytes > settings.journalMaxSize
    let old = lastOlder(than: elapsed - journalMaxAge)
    guard journalState.oldest < journalState.durable, isOver || old >= journalState.oldest else {
      if isMarkDue { write(when: .soon) { store throws(SQLiteError) in try store.mark(elapsed) } }
      return nil
    }
    var trim: JournalTrim?
    let commit = write { (store) throws(SQLiteError) in
      if isMarkDue { try store.mark(elapsed) }
      let (first, acknowledged) = (store.journalState.oldest, store.slowestCursor() ?? store.journalState.durable)
      let most = min(first + Self.trimStep, store.journalState.durable) - 1
      let last = isOver ? max(min(old, most), try store.lastOverQuota(most)) : min(old, most)
      let free = min(last, acknowledged)
      let isFree = free >= first
      var found = JournalTrim(
        first: first, last: isFree ? free : last, reason: isFree ? nil : last <= old ? "age" : "quota")
      try store.delete(&found, at: now.milliseconds)
      trim = found
    }
    return trim.map { ($0, commit) }
  }

  // MARK: Age

  private func isMarkDue(_ elapsed: Int64) -> Bool {
    // `try?`: writes report an unreadable database; the mark can be made later.
    let newest = (try? database.value("SELECT max(elapsed) FROM marks")) ?? nil
    let marked = (try? database.value("SELECT max(seq) FROM marks")) ?? nil
    guard let newest = newest?.integer, let marked = marked?.integer else { return journalState.durable > 0 }
    return journalState.durable > marked && elapsed - newest >= journalMaxAge / Self.marks
  }

  private func mark(_ elapsed: Int64) throws(SQLiteError) {
    try database.run(
      "INSERT OR IGNORE INTO marks(seq, elapsed) VALUES (?, ?)", .integer(journalState.durable), .integer(elapsed))
  }

  /// The last row that was there at that time; 0: none is known.
  private func lastOlder(than elapsed: Int64) -> Int64 {
    // `try?`: writes report an unreadable database; trimming waits.
    let seq = try? database.value("SELECT max(seq) FROM marks WHERE elapsed < ?", .integer(elapsed))
    return (seq ?? nil)?.integer ?? 0
  }

  // MARK: Quota

  /// The last row that has to go, `most` at most.
  private func lastOverQuota(_ most: Int64) throws(SQLiteError) -> Int64 {
    var over = journalState.bytes - settings.journalMaxSize + settings.journalMaxSize / Self.quotaShare
    var last = journalState.oldest - 1
    try database.each("SELECT seq, length(body) FROM journal WHERE seq <= ? ORDER BY seq", [.integer(most)]) {
      (row) throws(SQLiteError) in
      last = row.integer(0)
      over -= row.integer(1) + JournalState.rowOverhead
      return over > 0
    }
    return max(last, journalState.oldest)
  }

  // MARK: Deleting

  private func delete(_ trim: inout JournalTrim, at now: Int64) throws(SQLiteError) {
    let (first, last) = (trim.first, trim.last)
    let freed = try database.value(
      "SELECT sum(length(body) + \(JournalState.rowOverhead)) FROM journal WHERE seq <= ?", .integer(last))
    let count = try database.run("DELETE FROM journal WHERE seq <= ?", .integer(last))
    try database.run("DELETE FROM marks WHERE seq < ?", .integer(last))
    if let reason = trim.reason {
      try remember(first, last, reason)
      try giveUp(Int64(count), at: now)
      trim.missedBy = try upstreams(before: last)
    }
    journalState.bytes -= freed?.integer ?? 0
    journalState.oldest = last + 1
  }

  private func remember(_ first: Int64, _ last: Int64, _ reason: String) throws(SQLiteError) {
    // Ranges that touch become one.
    let extended = try database.run(
      "UPDATE trims SET last = ? WHERE last = ? AND reason = ?", .integer(last), .integer(first - 1), .text(reason))
    guard extended == 0 else { return }
    try database.run(
      "INSERT OR REPLACE INTO trims(first, last, reason) VALUES (?, ?, ?)", .integer(first), .integer(last),
      .text(reason))
  }

  private func upstreams(before seq: Int64) throws(SQLiteError) -> [String] {
    var names: [String] = []
    try database.each("SELECT upstream FROM cursors WHERE seq < ? ORDER BY upstream", [.integer(seq)]) {
      (row) throws(SQLiteError) in
      names.append(row.text(0))
      return true
    }
    return names
  }

  private func giveUp(_ count: Int64, at now: Int64) throws(SQLiteError) {
    let before = try database.value("SELECT value FROM meta WHERE name = 'given_up'")?.integer ?? 0
    try setMeta("given_up", .integer(before.addingReportingOverflow(count).partialValue))
    try setMeta("given_up_at", .integer(now))
  }

  /// `nil`: nothing ever was.
  public func givenUp() throws(StoreError) -> GivenUp? {
    guard let events = try meta("given_up")?.integer, events > 0 else { return nil }
    return GivenUp(events: events, at: try meta("given_up_at")?.integer ?? 0)
  }
}
