// SPDX-License-Identifier: MIT

import JSON
import Store

/// Events on their way to an upstream, as the JSON that is sent. Source: docs/hub-protocol.md.
struct Batch {
  struct Limits: Equatable {
    var events: Int
    /// Bytes of a batch as `size` counts them; a single event may exceed it.
    var bytes: Int
  }

  static let maxLeftOut = 2000
  /// Rows that are looked at, those of other lanes among them.
  private static let maxSkipped = 10_000

  /// Beside its body, of each event: about.
  static let envelope = 80

  /// The lane whose events these are; `nil`: all, in the order of the whole journal.
  let lane: Lane?
  private(set) var events: [JournalEvent] = []
  private(set) var bytes = 0
  /// The lane's events up to here are in the batch, in one of its gaps, or filtered out.
  private(set) var last: Int64
  /// Events of the journal that this stands for.
  private(set) var covered = LaneAmount()
  /// Events that are left out because they are too old.
  private(set) var tooOld: [Int64] = []
  /// The event of the lane that the server must have before these; `nil`: it does not matter.
  var after: Int64?
  /// The server has had these before, by this gateway's epoch or by that of a copy of it.
  var isAgain = false

  /// Bytes as sent, about.
  var size: Int { bytes + events.count * Self.envelope }

  /// Reads on from the cursor. What is missing in between (given up by quota or age, or damaged) becomes a `gap` event
  /// in its place, also where nothing of the lane is left behind it: a batch that is read to its end is always up to the lane's
  /// newest event.
  ///
  /// What the filter does not let pass is left out and counts as being in it; `maxLeftOut` of that end the batch, so that
  /// a long stretch of filtered events does not hold up the loop.
  ///
  /// `folding`: the same becomes of old states. The batch ends where that ends. `had`: up to there the upstream has acknowledged the lane, though its
  /// server may lack it now.
  init(
    after cursor: Int64, of store: Store, lane: Lane? = nil, limits: Limits, filter: EventFilter = EventFilter(),
    present: AgeLimit.Present? = nil, folding: Folding? = nil, had: Int64 = 0
  ) throws(StoreError) {
    self.lane = lane
    last = cursor
    var reading = Reading(limits: limits, expected: cursor + 1, lane: lane, folding: folding, had: had)
    var (rows, goesOn) = (0, true)
    let most = limits.events + Self.maxSkipped
    try store.readJournal(after: cursor, limit: most, lane: lane) { event, isSound in
      rows += 1
      do throws(StoreError) {
        goesOn = try reading.take(event, isSound, store, filter, present)
      } catch {
        // Whose it is cannot be told now: the batch is read again.
        reading.failure = error
        goesOn = false
      }
      return goesOn
    }
    if let failure = reading.failure { throw failure }
    if goesOn, rows < most { try reading.end(store) }
    (events, bytes, covered, last) = (reading.collected, reading.size, reading.covered, reading.expected - 1)
    tooOld = reading.tooOld
  }

  init(_ event: JournalEvent, lane: Lane?) {
    self.lane = lane
    events = [event]
    bytes = event.body.count
    last = event.seq
  }

  /// Nothing: a hub that takes it takes what it can take.
  init(empty lane: Lane?) {
    self.lane = lane
    last = 0
  }

  var isEmpty: Bool { events.isEmpty }

  /// The server has these already. They count as being in it.
  mutating func leaveOut(_ seqs: Set<Int64>) {
    guard !seqs.isEmpty else { return }
    events.removeAll { seqs.contains($0.seq) }
    bytes = events.reduce(0) { $0 + $1.body.count }
  }

  /// `naming`: the gateway's id is told, to servers whose address does not say it. `number`: counts batches of a live link. `isShort`: the
  /// server knows the epoch.
  func encode(of store: Store, naming: Bool = false, number: Int? = nil, isShort: Bool = false) -> [UInt8] {
    var json = JSONWriter(reserving: bytes + events.count * 80 + 64)
    json.object { json in
      if naming { json.field("gateway", store.gatewayID) }
      if let number {
        json.field("type", "events")
        json.field("n", number)
      } else if !isShort {
        // A live link was told of it at its beginning.
        json.field("epoch", store.epoch)
      }
      json.field("lane", lane?.rawValue)
      // Readers of a broker have no count of their own.
      if !naming { json.field("after", after) }
      json.field("before", events.first.flatMap { store.epochBefore(of: $0.seq) ?? (isAgain ? store.epoch : nil) })
      json.arrayField("events") { json in
        for event in events {
          json.object { json in
            json.field("seq", event.seq)
            json.field("at", event.at)
            json.field("trusted", event.trusted)
            json.field("kind", event.kind)
            json.field("body", json: event.body)
          }
        }
      }
    }
    return json.bytes
  }
}

/// A batch that is being read.
private struct Reading {
  let limits: Batch.Limits
  var expected: Int64
  let lane: Lane?
  let folding: Folding?
  var collected: [JournalEvent] = []
  var size = 0
  var covered = LaneAmount()
  var leftOut = 0
  var tooOld: [Int64] = []
  /// When the event was written that was read last.
  private var at: Int64 = 0
  private let had: Int64
  var failure: StoreError?

  init(limits: Batch.Limits, expected: Int64, lane: Lane?, folding: Folding?, had: Int64) {
    (self.limits, self.expected, self.lane, self.folding, self.had) = (limits, expected, lane, folding, had)
  }

  /// False: enough.
  mutating func take(
    _ event: JournalEvent, _ isSound: Bool, _ store: Store, _ filter: EventFilter, _ present: AgeLimit.Present?
  ) throws(StoreError) -> Bool {
    at = event.at
    if let folding, event.seq > folding.through {
      try pass(through: folding.through, store)
      return false
    }
    guard try pass(through: event.seq - 1, store) else { return false }
    if let lane, Lane(kind: event.kind) != lane {
      expected = event.seq + 1
      return true
    }
    guard collected.count < limits.events, leftOut < Batch.maxLeftOut else { return false }
    // What is under way is counted so, too: a batch that came out larger than its portion would keep the next one waiting.
    let sent = size + event.body.count + (collected.count + 1) * Batch.envelope
    guard collected.isEmpty || sent <= limits.bytes else { return false }
    let place = isSound ? folding?.place(of: event) : nil
    var passes = place != .folded
    if passes, isSound {
      passes = try filter.passes(event, store)
      if passes, filter.isTooOld(event, present) {
        passes = false
        tooOld.append(event.seq)
      }
    }
    expected = event.seq + 1
    covered.events += 1
    covered.bytes += Int64(event.size)
    guard passes else {
      leftOut += 1
      return true
    }
    var told = event
    if !isSound {
      told.kind = EventKind.gap.rawValue
      told.body = EventBody.gap(first: event.seq, last: event.seq, count: 1, reason: "corrupt", lane: lane)
    }
    if case .newest(let folded)? = place { told.body = Folding.body(event.body, standingFor: folded) }
    collected.append(told)
    size += told.body.count
    return true
  }

  /// The journal has no more. What the lane has had up to its newest event, and is not there, was given up.
  mutating func end(_ store: Store) throws(StoreError) {
    try pass(through: lane.map { store.newestSeq[$0] } ?? store.lastSeq, store)
  }

  /// Takes the gaps for what is missing up to there. False: no more fits.
  @discardableResult
  private mutating func pass(through end: Int64, _ store: Store) throws(StoreError) -> Bool {
    guard end >= expected else { return true }
    for gap in try gaps(through: end, store) {
      guard collected.count < limits.events else { return false }
      collected.append(gap)
      expected = gap.seq + 1
    }
    expected = end + 1
    return true
  }

  /// The gaps that stand for missing rows.
  private func gaps(through end: Int64, _ store: Store) throws(StoreError) -> [JournalEvent] {
    let gap = { (first: Int64, last: Int64, count: Int64, reason: String) in
      JournalEvent(
        seq: last, at: at, trusted: false, kind: EventKind.gap.rawValue,
        body: EventBody.gap(first: first, last: last, count: count, reason: reason, lane: lane))
    }
    guard let lane else {
      var reason: String?
      for lane in Lane.allCases where reason == nil {
        reason = try store.trims(of: lane, after: expected - 1, before: end + 1).last?.reason
      }
      return [gap(expected, end, end - expected + 1, reason ?? "missing")]
    }
    let trims = try store.trims(of: lane, after: expected - 1, before: end + 1)
    // Every upstream has had what was deleted and is no trim. This one asks for it again: its server is an older copy.
    let deleted = min(store.deletedThrough[lane], end)
    if trims.isEmpty, deleted >= expected { return [gap(expected, deleted, deleted - expected + 1, "missing")] }
    guard trims.isEmpty else {
      var (gaps, next) = ([JournalEvent](), expected)
      for trim in trims {
        // Told with the trim, whose last number is one of this lane.
        let more = max(0, min(had, trim.first - 1) - next + 1)
        gaps.append(gap(more > 0 ? next : trim.first, trim.last, trim.count + more, trim.reason))
        next = trim.last + 1
      }
      let rest = min(had, deleted)
      if rest >= next { gaps.append(gap(next, rest, rest - next + 1, "missing")) }
      return gaps
    }
    // In the middle of the journal nothing is ever deleted.
    let isInside = lane == .messages && expected > store.deletedThrough.highest
    return isInside ? [gap(expected, end, end - expected + 1, "missing")] : []
  }
}
