// SPDX-License-Identifier: MIT

import SQLite
import Timing
import UntrustedText

/// An upstream that is no longer configured, but keeps its position in the journal.
public struct RemovedUpstream: Equatable, Sendable {
  public var name: String
  /// When it was removed (milliseconds since 1970), and the number of events that the journal still has for it.
  public var at: Int64
  public var pending: Int64
  /// Events that were deleted before it had received them, since it was added.
  public var givenUp: Int64
}

extension Store {
  /// The last acknowledged event of each lane; 0 for a new upstream.
  public func cursor(of upstream: String) throws(StoreError) -> ByLane<Int64> {
    try translating { () throws(SQLiteError) in try readCursor(of: upstream) ?? ByLane(all: 0) }
  }

  private func readCursor(of upstream: String) throws(SQLiteError) -> ByLane<Int64>? {
    try database.first(
      "SELECT seq, ifnull(nodes, seq), ifnull(packets, seq) FROM cursors WHERE upstream = ?", [.text(upstream)]
    ) { ByLane(messages: $0.integer(0), nodes: $0.integer(1), packets: $0.integer(2)) }
  }

  /// Within a `write`. `told`: the newest acknowledged events, if `cursor` is behind events that the filter excludes.
  /// `tooOld`: all events so far that were too old for the upstream.
  public func setCursor(
    of upstream: String, to cursor: ByLane<Int64>, told: ByLane<Int64> = ByLane(all: 0), tooOld: Int64 = 0
  ) throws(SQLiteError) {
    try database.run(
      """
      INSERT INTO cursors(upstream, seq, nodes, packets, too_old, told) VALUES (?, ?, ?, ?, ?, ?)
      ON CONFLICT(upstream) DO UPDATE SET seq = excluded.seq, nodes = excluded.nodes, packets = excluded.packets,
      too_old = max(too_old, excluded.too_old), told = excluded.told
      """, .text(upstream), .integer(cursor.messages), .integer(cursor.nodes), .integer(cursor.packets),
      .integer(tooOld), .text(Lane.allCases.map { "\(told[$0])" }.joined(separator: ",")))
    guard journalState.hasTrims, let slowest = try slowestCursor() else { return }
    for lane in Lane.allCases {
      try database.run(
        "DELETE FROM trims WHERE lane = ? AND last <= ?", .text(lane.rawValue), .integer(slowest[lane]))
    }
  }

  /// Sets the same cursor in all lanes.
  public func setCursor(of upstream: String, to seq: Int64) throws(SQLiteError) {
    try setCursor(of: upstream, to: ByLane(all: seq))
  }

  /// The upstream's cursor. A new one starts after the newest event, or at the beginning of the journal. `commits`: false if the caller commits
  /// the new cursor together with others, or rolls all of them back.
  public func openCursor(
    of upstream: String, fromStart: Bool, commits: Bool = true
  ) throws(StoreError) -> (cursor: ByLane<Int64>, beginning: Int64) {
    let known = try translating { () throws(SQLiteError) in try readCursor(of: upstream) }
    if let known { return (known.map(inJournal), try meta("from:\(upstream)")?.integer ?? 0) }
    let beginning = fromStart ? 0 : try newestOrItsLoss()
    write { (store) throws(SQLiteError) in
      if fromStart { try store.rememberForNewcomer() }
      try store.setCursor(of: upstream, to: beginning)
      try store.setMeta("from:\(upstream)", .integer(beginning))
    }
    if commits { try commitNow() }
    return (ByLane(all: beginning), beginning)
  }

  /// Within a `write`: an upstream without a position in this database gets all of it, although it may have asked for
  /// no earlier events.
  func beginAnew(_ upstream: String) throws(SQLiteError) {
    guard try readCursor(of: upstream) == nil else { return }
    try setCursor(of: upstream, to: 0)
  }

  /// A cursor that cannot be is damaged: the upstream gets the journal again, rather than miss the next events.
  private func inJournal(_ cursor: Int64) -> Int64 {
    cursor >= 0 && cursor <= lastSeq ? cursor : max(0, min(journalState.open.oldest - 1, lastSeq))
  }

  /// Whether an operator has paused the upstream.
  public func isPaused(_ upstream: String) throws(StoreError) -> Bool {
    try meta("paused:\(upstream)")?.integer == 1
  }

  /// Within a `write`.
  public func setPaused(_ upstream: String, _ paused: Bool) throws(SQLiteError) {
    try setMeta("paused:\(upstream)", .integer(paused ? 1 : 0))
  }

  /// The stored use of an upstream's allowance; `nil`: nothing is stored.
  public func allowance(of upstream: String) throws(StoreError) -> String? {
    try meta("allowance:\(upstream)").flatMap(\.text)
  }

  /// Within a `write`.
  public func setAllowance(of upstream: String, _ text: String) throws(SQLiteError) {
    try setMeta("allowance:\(upstream)", .text(text))
  }

  /// The events of the batch that the upstream has sent, or was about to send, without knowing the answer; empty: none is stored.
  public func namedBatch(of upstream: String) throws(StoreError) -> [Int64] {
    (try meta("batch:\(upstream)")?.text ?? "").split(separator: ",").compactMap { Int64($0) }
  }

  /// Within a `write`.
  public func setNamedBatch(of upstream: String, _ seqs: [Int64]) throws(SQLiteError) {
    try setMeta("batch:\(upstream)", .text(seqs.map { "\($0)" }.joined(separator: ",")))
  }

  /// The number of removed upstreams that are remembered, the latest ones.
  private static let maxRemoved = 16

  /// Notes which upstreams are no longer configured. They keep their positions: if one with the same name is configured
  /// again, it continues there. Returns those that were configured until now.
  @discardableResult
  public func keepOnlyCursors(of upstreams: [String]) throws(StoreError) -> [RemovedUpstream] {
    let gone = try translating { () throws(SQLiteError) in
      try names("removed IS NULL").filter { name in !upstreams.contains { $0.isExactly(name) } }
    }
    var removed: [RemovedUpstream] = []
    for name in gone {
      let (pending, givenUp) = (try waiting(for: name), try leftOut(of: name).givenUp)
      removed.append(
        RemovedUpstream(name: name, at: WallClock(clocks).milliseconds, pending: pending, givenUp: givenUp))
    }
    var forgotten: [String] = []
    write { (store) throws(SQLiteError) in
      for one in removed {
        try store.database.run(
          """
          UPDATE cursors SET removed = (SELECT ifnull(max(removed), 0) + 1 FROM cursors), removed_at = ?
          WHERE upstream = ?
          """, .integer(one.at), .text(one.name))
      }
      for upstream in upstreams {
        try store.database.run(
          "INSERT INTO cursors(upstream, seq) VALUES (?, 0) ON CONFLICT(upstream) DO UPDATE SET removed = NULL",
          .text(upstream))
      }
      for name in try store.names("removed IS NOT NULL ORDER BY removed DESC LIMIT -1 OFFSET \(Self.maxRemoved)") {
        let letters = try store.database.value("SELECT count(*) FROM dead_letters WHERE upstream = ?", .text(name))
        forgotten.append("\(name), with dead letters: \(letters?.integer ?? 0)")
        try store.forget(name)
      }
    }
    try commitNow()
    if !forgotten.isEmpty {
      transactions.tell(
        "forgotten, because \(Self.maxRemoved) upstreams were removed later: the position of "
          + "\(forgotten.joined(separator: "; of ")). An upstream of this name begins as a new one")
    }
    return removed
  }

  /// Counted on request, because the journal deletes events without regard to removed upstreams.
  private func waiting(for upstream: String) throws(StoreError) -> Int64 {
    let cursor = try cursor(of: upstream)
    var pending: Int64 = 0
    for lane in Lane.allCases { pending &+= try amounts(after: cursor[lane])[lane].events }
    return pending
  }

  /// Whether the gateway has, or had, an upstream other than these: events at a server may have come from that one.
  public func hasUpstream(besides known: [String]) throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in
      try names("true").contains { name in !known.contains { $0.isExactly(name) } }
    }
  }

  /// Whether the gateway has, or had, an upstream with this name.
  public func hasUpstream(_ name: String) throws(StoreError) -> Bool {
    try translating { () throws(SQLiteError) in try names("true").contains { $0.isExactly(name) } }
  }

  private func names(_ condition: String) throws(SQLiteError) -> [String] {
    try database.rows("SELECT upstream FROM cursors WHERE \(condition)") { $0.text(0) }
  }

  /// Deletes the position and the dead letters of a removed upstream. Returns when that is on disk.
  public func forgetUpstream(_ name: String) throws(StoreError) {
    write { store throws(SQLiteError) in try store.forget(name) }
    try commitNow()
  }

  private func forget(_ upstream: String) throws(SQLiteError) {
    deadLetterChanges &+= 1
    for table in ["cursors", "buckets", "commands", "dead_letters"] {
      try database.run("DELETE FROM \(table) WHERE upstream = ?", .text(upstream))
    }
    try database.run(
      "DELETE FROM meta WHERE name IN (?, ?, ?, ?, ?)", .text("from:\(upstream)"), .text("paused:\(upstream)"),
      .text("missed:\(upstream)"), .text("allowance:\(upstream)"), .text("batch:\(upstream)"))
  }

  /// Removed upstreams, latest first.
  public func removedUpstreams() throws(StoreError) -> [RemovedUpstream] {
    var found = try rows(
      "SELECT upstream, removed_at, given_up FROM cursors WHERE removed IS NOT NULL ORDER BY removed DESC"
    ) { RemovedUpstream(name: $0.text(0), at: $0.integer(1), pending: 0, givenUp: $0.integer(2)) }
    for index in found.indices { found[index].pending = try waiting(for: found[index].name) }
    return found
  }

  /// The newest event of each lane that an upstream has acknowledged, in this epoch or (`beforeEpoch`) before it; 0:
  /// none, or unknown.
  public func told(_ upstream: String, beforeEpoch: Bool = false) throws(StoreError) -> ByLane<Int64> {
    let column = beforeEpoch ? "told_before" : "told"
    let text = try value("SELECT \(column) FROM cursors WHERE upstream = ?", .text(upstream))?.text
    let seqs = text?.split(separator: ",").map { Int64($0) ?? 0 } ?? []
    return seqs.count == 3 ? ByLane(messages: seqs[0], nodes: seqs[1], packets: seqs[2]) : ByLane(all: 0)
  }

  /// Within a `write`.
  public func addGivenUp(_ events: Int64, of upstream: String) throws(SQLiteError) {
    try database.run("UPDATE cursors SET given_up = given_up + ? WHERE upstream = ?", .integer(events), .text(upstream))
  }

  /// Events that an upstream did not get since it was added: those deleted before it had them, and those too old for
  /// it.
  public func leftOut(of upstream: String) throws(StoreError) -> (givenUp: Int64, tooOld: Int64) {
    let found: (givenUp: Int64, tooOld: Int64)? = try first(
      "SELECT given_up, too_old FROM cursors WHERE upstream = ?", [.text(upstream)]
    ) { ($0.integer(0), $0.integer(1)) }
    return found ?? (0, 0)
  }

  /// The position up to which every upstream has received the events of each lane; `nil` without upstreams.
  func slowestCursor() throws(SQLiteError) -> ByLane<Int64>? {
    try database.first(
      "SELECT min(seq), min(ifnull(nodes, seq)), min(ifnull(packets, seq)) FROM cursors HAVING count(*) > 0"
    ) { ByLane(messages: $0.integer(0), nodes: $0.integer(1), packets: $0.integer(2)) }
  }
}
