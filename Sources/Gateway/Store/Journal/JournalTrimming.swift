// SPDX-License-Identifier: MIT

import SQLite
import Timing
import UntrustedText

/// A range of the journal that was deleted.
public struct JournalTrim: Equatable, Sendable {
  public var first: Int64
  public var last: Int64
  /// Why events were given up, `quota` or `age`; `nil`: every upstream had them.
  public var reason: String?
  /// Upstreams that had not received all of the range.
  public var missedBy: [Missed]

  /// The number of events that an upstream had not received.
  public struct Missed: Equatable, Sendable {
    public var upstream: String
    public var events: Int64

    public init(upstream: String, events: Int64) { (self.upstream, self.events) = (upstream, events) }
  }

  public init(first: Int64, last: Int64, reason: String?, missedBy: [Missed] = []) {
    self.first = first
    self.last = last
    self.reason = reason
    self.missedBy = missedBy
  }
}

/// Events of a lane that were deleted before every upstream had them.
public struct LaneTrim: Equatable, Sendable {
  public var lane: Lane
  public var first: Int64
  public var last: Int64
  /// Deleted events of this lane; events of other lanes may lie between them.
  public var count: Int64
  /// `quota` or `age`; `missing`: deleted after all upstreams of that time had received them.
  public var reason: String
}

/// The number of events deleted before every upstream had them, since the store was created, and when that happened
/// last (milliseconds since 1970).
public struct GivenUp: Equatable, Sendable {
  public var events: Int64
  public var at: Int64
}

/// Keeps the journal within its quota and age. The age of a row does not go by its own time, because the clock may have
/// been wrong then or may be wrong now. Marks record how much time had elapsed when which rows existed.
extension Store {
  /// Rows deleted at a time, so that trimming never delays a turn for long.
  static let trimStep: Int64 = 500
  /// Marks within the journal's maximum age; they determine the precision.
  private static let marks: Int64 = 96
  /// When the quota is exceeded, this fraction more is trimmed, so that not every event causes trimming.
  private static let quotaShare: Int64 = 64

  /// Milliseconds that have certainly passed since this store was created. They are stored with the next write.
  public func elapsed(at now: Moment, uptime: Int64? = nil) -> Int64 {
    let uptime = uptime ?? clocks.sinceBoot
    steadyClock.look(trustedWall: now.trusted ? now.milliseconds : nil, uptime: uptime)
    let (elapsed, wall) = (steadyClock.elapsed, steadyClock.wall)
    transactions.writeAlong("elapsed") { store throws(SQLiteError) in
      try store.setMeta("elapsed", .integer(elapsed))
      try store.setMeta("elapsed_wall", .optional(wall))
      try store.setMeta("elapsed_uptime", .integer(uptime))
      try store.setMeta("elapsed_boot", .text(store.clocks.boot))
    }
    return elapsed
  }

  /// The same, as far as the clock since boot shows, for use within a `write`.
  var elapsedNow: Int64 {
    steadyClock.look(trustedWall: nil, uptime: clocks.sinceBoot)
    return steadyClock.elapsed
  }

  func loadElapsed() throws(StoreError) -> SteadyClock {
    let kept = try meta("elapsed_boot")?.text ?? ""
    let isSameBoot = !kept.isEmpty && kept.utf8.elementsEqual(clocks.boot.utf8)
    return SteadyClock(
      elapsed: try meta("elapsed")?.integer ?? 0, wall: try meta("elapsed_wall")?.integer,
      // A third: events from before a long power cut are still sent after it.
      maxAway: journalMaxAge / 3, uptime: isSameBoot ? try meta("elapsed_uptime")?.integer : nil)
  }

  /// Milliseconds.
  private var journalMaxAge: Int64 { min(max(settings.journalMaxAge, 0), 1 << 40) * 1000 }

  /// Keeps the journal within its quota and age. Deletes events that every upstream has received first, then, if
  /// necessary, others, which leaves a recorded gap. Never deletes the newest row. Call it regularly; the returned
  /// events are gone once the transaction is committed.
  @discardableResult
  public func trimJournal(now: Moment, uptime: Int64? = nil) -> (trim: JournalTrim, commit: Commit)? {
    let elapsed = elapsed(at: now, uptime: uptime)
    let isMarkDue = isMarkDue(elapsed)
    let isOver = journalState.open.bytes > settings.journalMaxSize
    let old = lastOlder(than: elapsed - journalMaxAge)
    guard journalState.open.oldest < lastSeq, isOver || old >= journalState.open.oldest else {
      if isMarkDue { write(when: .soon) { store throws(SQLiteError) in try store.mark(elapsed) } }
      return nil
    }
    var trim: JournalTrim?
    let commit = write { (store) throws(SQLiteError) in
      if isMarkDue { try store.mark(elapsed) }
      let first = store.journalState.open.oldest
      let most = min(first + Self.trimStep, store.lastSeq) - 1
      let wanted = isOver ? max(min(old, most), try store.lastOverQuota(most)) : min(old, most)
      // The deleted part of a lane is missing completely at an upstream, or not at all, so that the exact number can be
      // reported.
      let last = try store.firstCursor(from: first, before: wanted) ?? wanted
      trim = try store.delete(first, through: last, reason: last <= old ? "age" : "quota", at: now)
    }
    return trim.map { ($0, commit) }
  }

  // MARK: Age

  private func isMarkDue(_ elapsed: Int64) -> Bool {
    // If this fails, the mark is made later.
    let newest = ifReadable { try database.value("SELECT max(elapsed) FROM marks") }
    let marked = ifReadable { try database.value("SELECT max(seq) FROM marks") }
    guard let newest = newest?.integer, let marked = marked?.integer else { return lastSeq > 0 }
    return lastSeq > marked && elapsed - newest >= journalMaxAge / Self.marks
  }

  private func mark(_ elapsed: Int64) throws(SQLiteError) {
    try database.run(
      "INSERT OR IGNORE INTO marks(seq, elapsed) VALUES (?, ?)", .integer(lastSeq), .integer(elapsed))
  }

  /// The last row that existed at that time; 0: unknown.
  private func lastOlder(than elapsed: Int64) -> Int64 {
    // If this fails, trimming waits.
    let seq = ifReadable { try database.value("SELECT max(seq) FROM marks WHERE elapsed < ?", .integer(elapsed)) }
    return seq?.integer ?? 0
  }

  // MARK: Quota

  /// The last event that must be deleted, at most `most`.
  private func lastOverQuota(_ most: Int64) throws(SQLiteError) -> Int64 {
    let over = journalState.open.bytes - settings.journalMaxSize + settings.journalMaxSize / Self.quotaShare
    // A binary search for the first seq with enough bytes before it; their sum only grows.
    var (low, high) = (journalState.open.oldest, max(journalState.open.oldest, most))
    while low < high {
      let middle = low + (high - low) / 2
      if try bytes(through: middle) >= over { high = middle } else { low = middle + 1 }
    }
    return low
  }

  /// Bytes of the journal's events up to this seq.
  private func bytes(through last: Int64) throws(SQLiteError) -> Int64 {
    let rows = try database.value(
      "SELECT sum(length(body) + \(JournalState.rowOverhead)) FROM journal WHERE seq <= ?", .integer(last))
    let messages = try messageAmount(after: 0, through: last)
    return (rows?.integer ?? 0) &+ messages.bytes &+ messages.events &* JournalState.rowOverhead
  }

  // MARK: Deleting

  private func firstCursor(from first: Int64, before last: Int64) throws(SQLiteError) -> Int64? {
    let cursor = try database.value(
      """
      SELECT min(seq) FROM (SELECT seq FROM cursors UNION ALL SELECT nodes FROM cursors UNION ALL SELECT packets FROM cursors)
      WHERE seq >= ? AND seq < ?
      """, .integer(first), .integer(last))?.integer
    let sent = underWay.values.compactMap { $0() }.flatMap { sent in Lane.allCases.map { sent[$0] } }
    return ([cursor].compactMap(\.self) + sent.filter { (first..<last).contains($0) }).min()
  }

  /// No cursor is within the range. Events that only removed upstreams lack are recorded for them, and do not count as
  /// a loss.
  private func delete(
    _ first: Int64, through last: Int64, reason: String, at now: Moment
  ) throws(SQLiteError) -> JournalTrim {
    var (trim, lacked) = (JournalTrim(first: first, last: last, reason: nil), ByLane<LaneTrim?>(all: nil))
    let behind: [(name: String, isRemoved: Bool, lanes: [Lane])] = try database.rows(
      "SELECT upstream, removed IS NOT NULL, seq, ifnull(nodes, seq), ifnull(packets, seq) FROM cursors ORDER BY upstream"
    ) { row in
      let seqs = ByLane(messages: row.integer(2), nodes: row.integer(3), packets: row.integer(4))
      return (row.text(0), row.integer(1) != 0, Lane.allCases.filter { seqs[$0] < first })
    }
    for lane in Lane.allCases where behind.contains(where: { $0.lanes.contains(lane) }) {
      lacked[lane] = try range(lane, first, through: last, reason)
    }
    var lost = ByLane<Int64>(all: 0)
    for (name, isRemoved, lanes) in behind {
      let events = lanes.reduce(0) { $0 + (lacked[$1]?.count ?? 0) }
      guard events > 0 else { continue }
      try database.run(
        "UPDATE cursors SET given_up = given_up + ? WHERE upstream = ?", .integer(events), .text(name))
      if lanes.contains(.messages), lacked.messages != nil { try setMeta("missed:\(name)", .integer(last)) }
      guard !isRemoved else { continue }
      trim.missedBy.append(JournalTrim.Missed(upstream: name, events: events))
      for lane in lanes { lost[lane] = lacked[lane]?.count ?? 0 }
    }
    let alerts = lost.messages > 0 ? try openAlerts(toldAfter: first - 1, through: last) : []
    try noteDeleted(through: last)
    let freed = try bytes(through: last)
    try database.run("DELETE FROM journal WHERE seq <= ?", .integer(last))
    try database.run("DELETE FROM marks WHERE seq < ?", .integer(last))
    for lane in Lane.allCases { if let found = lacked[lane] { try remember(found) } }
    if !trim.missedBy.isEmpty {
      trim.reason = reason
      try giveUp(Lane.allCases.reduce(0) { $0 + lost[$1] }, at: now.milliseconds)
    }
    journalState.open.bytes &-= freed
    journalState.open.oldest = last + 1
    // Messages stay as rows, but are no longer events.
    try setMeta("journal_from", .integer(last + 1))
    for alert in alerts { try tellAgain(alert, at: now) }
    return trim
  }

  private func noteDeleted(through last: Int64) throws(SQLiteError) {
    for lane in Lane.allCases {
      let newest = try database.value(
        "SELECT max(seq) FROM journal WHERE seq <= ? AND \(lane.condition)", .integer(last))
      let message = lane == EventKind.message.lane ? try messageSeqs(after: 0, through: last)?.last : nil
      if let seq = [newest?.integer, message].compactMap({ $0 }).max() { journalState.open.deleted[lane] = seq }
      try setMeta(lane.deletedName, .integer(journalState.open.deleted[lane]))
    }
  }

  /// The events of a lane in a range that will be deleted; `nil`: none.
  private func range(
    _ lane: Lane, _ first: Int64, through last: Int64, _ reason: String
  ) throws(SQLiteError) -> LaneTrim? {
    let found: LaneTrim? = try database.first(
      "SELECT min(seq), max(seq), count(*) FROM journal WHERE seq >= ? AND seq <= ? AND \(lane.condition)",
      [.integer(first), .integer(last)]
    ) { row in
      guard row.integer(2) > 0 else { return nil }
      return LaneTrim(lane: lane, first: row.integer(0), last: row.integer(1), count: row.integer(2), reason: reason)
    }
    guard lane == EventKind.message.lane, let seqs = try messageSeqs(after: first - 1, through: last) else {
      return found
    }
    let count = try messageAmount(after: first - 1, through: last).events
    return LaneTrim(
      lane: lane, first: min(found?.first ?? .max, seqs.first), last: max(found?.last ?? 0, seqs.last),
      count: (found?.count ?? 0) + count, reason: reason)
  }

  private func remember(_ trim: LaneTrim) throws(SQLiteError) {
    journalState.hasTrims = true
    // Trims are merged into one range, unless an upstream has passed a part of it or a part is in transit: the journal
    // is deleted from its beginning.
    let sent = underWay.values.compactMap { $0()?[trim.lane] }.map { " AND NOT \($0) BETWEEN first AND ?1 - 1" }
      .joined()
    let extended = try database.run(
      """
      UPDATE trims SET last = ?1, count = count + ?2 WHERE lane = ?3 AND reason = ?4
      AND last = (SELECT max(last) FROM trims WHERE lane = ?3)
      AND NOT EXISTS(SELECT 1 FROM cursors WHERE \(trim.lane.cursorColumn) BETWEEN first AND ?1 - 1)\(sent)
      """, .integer(trim.last), .integer(trim.count), .text(trim.lane.rawValue), .text(trim.reason))
    guard extended == 0 else { return }
    try database.run(
      "INSERT OR REPLACE INTO trims(lane, first, last, count, reason) VALUES (?, ?, ?, ?, ?)",
      .text(trim.lane.rawValue), .integer(trim.first), .integer(trim.last), .integer(trim.count), .text(trim.reason))
  }

  /// Within a `write`: a new upstream wants the whole journal, but events that others had received are deleted. Their
  /// lane is no longer known, so the number is a maximum for each.
  func rememberForNewcomer() throws(SQLiteError) {
    let known = try database.value("SELECT sum(count) FROM trims")?.integer ?? 0
    let unknown = journalState.open.oldest - 1 - known
    guard unknown > 0 else { return }
    for lane in Lane.allCases {
      let told = try database.value("SELECT min(first) FROM trims WHERE lane = ?", .text(lane.rawValue))?.integer
      let last = min(journalState.open.deleted[lane], told.map { $0 - 1 } ?? .max)
      guard last > 0 else { continue }
      try remember(LaneTrim(lane: lane, first: 1, last: last, count: min(unknown, last), reason: "missing"))
    }
  }

  /// The trims of a lane after a seq, in order.
  public func trims(of lane: Lane, after seq: Int64, before end: Int64 = .max) throws(StoreError) -> [LaneTrim] {
    guard journalState.hasTrims else { return [] }
    return try rows(
      "SELECT first, last, count, reason FROM trims WHERE lane = ? AND last > ? AND last < ? ORDER BY first",
      [.text(lane.rawValue), .integer(seq), .integer(end)]
    ) { row in
      let (first, last) = (max(row.integer(0), seq + 1), row.integer(1))
      return LaneTrim(
        lane: lane, first: first, last: last, count: min(max(row.integer(2), 1), last - first + 1), reason: row.text(3))
    }
  }

  /// The number of deleted events of these lanes after a seq, except those beyond `end`, which a gap reports.
  public func deleted(of lane: Lane, after seq: Int64, through end: Int64) throws(StoreError) -> Int64 {
    try trims(of: lane, after: seq).filter { $0.first <= end && $0.reason != "missing" }.reduce(0) {
      $0 + $1.count - max(0, min($1.count, $1.last - end))
    }
  }

  /// Within a `write`: an upstream has received events of a lane after `seq` that were counted as given up.
  public func tookDeleted(
    _ events: Int64, of lane: Lane, after seq: Int64, by upstream: String
  ) throws(SQLiteError) {
    try database.run(
      "UPDATE cursors SET given_up = max(0, given_up - ?) WHERE upstream = ?", .integer(events), .text(upstream))
    // Events that another upstream lacks still count as given up.
    let other = try database.value(
      "SELECT 1 FROM cursors WHERE upstream <> ? AND removed IS NULL AND \(lane.cursorColumn) <= ? LIMIT 1",
      .text(upstream), .integer(seq))
    guard other == nil, let all = try database.meta("given_up")?.integer else {
      return
    }
    try setMeta("given_up", .integer(max(0, all - events)))
  }

  private func giveUp(_ count: Int64, at now: Int64) throws(SQLiteError) {
    let before = try database.meta("given_up")?.integer ?? 0
    try setMeta("given_up", .integer(before.addingReportingOverflow(count).partialValue))
    try setMeta("given_up_at", .integer(now))
  }

  /// Up to this seq, messages may have been given up before the upstream had them; 0: none.
  public func missedThrough(_ upstream: String) throws(StoreError) -> Int64 {
    try meta("missed:\(upstream)")?.integer ?? 0
  }

  /// `nil`: none were ever given up.
  public func givenUp() throws(StoreError) -> GivenUp? {
    guard let events = try meta("given_up")?.integer, events > 0 else { return nil }
    return GivenUp(events: events, at: try meta("given_up_at")?.integer ?? 0)
  }
}
