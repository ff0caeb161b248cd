// SPDX-License-Identifier: MIT

import JSON
import Store

/// Events for an upstream, and their JSON. Source: docs/hub-protocol.md.
struct Batch {
  struct Limits: Equatable {
    var events: Int
    /// Bytes of a batch as `size` counts them; a single event may exceed it.
    var bytes: Int
  }

  static let maxLeftOut = 2000
  /// Rows that may be read beyond the batch's events, such as those of other lanes.
  private static let maxSkipped = 10_000

  /// Bytes of an event besides its body, about.
  static let envelope = 80

  /// The lane of the events; `nil`: all lanes, in the journal's order.
  let lane: Lane?
  private(set) var events: [JournalEvent] = []
  private(set) var bytes = 0
  /// The lane's events up to here are in the batch, in one of its gaps, or filtered out.
  private(set) var last: Int64
  /// The amount of journal events that the batch covers, including those that it leaves out.
  private(set) var covered = LaneAmount()
  /// The same up to its last event, which is what a hub names as its position; `nil`: not known.
  private(set) var coveredByEvents: LaneAmount?
  /// Events that the batch leaves out because they are too old.
  private(set) var tooOld: [Int64] = []
  /// The lane's last event that the server must already have; `nil`: it needs none.
  var after: Int64?
  /// The server has acknowledged these events before, perhaps to another copy of this database.
  var isAgain = false

  /// The approximate size of the JSON.
  var size: Int { bytes + events.count * Self.envelope }

  /// Reads from the cursor on. A missing range (trimmed by quota or age, or damaged) becomes a `gap` event in its place, also at the lane's end: a
  /// batch that reads the journal to its end always reaches the lane's newest event.
  ///
  /// Excluded events count as part of the batch. After `maxLeftOut` of them the batch ends, so that a long range of them does not hold up the loop.
  ///
  /// `folding`: leaves out old states of nodes; the batch ends at the end of its stretch. `had`: the upstream has acknowledged the lane up to this
  /// event, even if its server lacks it now. `only`: exactly these events, whatever their age, as far as the journal has them and the filter permits
  /// them.
  init(
    after cursor: Int64, of store: Store, lane: Lane? = nil, limits: Limits, filter: EventFilter = EventFilter(),
    present: AgeLimit.Present? = nil, folding: Folding? = nil, had: Int64 = 0, only: [Int64]? = nil
  ) throws(StoreError) {
    self.lane = lane
    last = cursor
    var reading = Reading(
      limits: limits, expected: cursor + 1, lane: lane, folding: folding, had: had, only: only.map { Set($0) },
      limit: only?.last ?? .max)
    var (rows, goesOn) = (0, true)
    let most = limits.events + Self.maxSkipped
    try store.readJournal(after: cursor, limit: most, lane: lane, withWays: filter.takesWays) { event, isSound in
      rows += 1
      do throws(StoreError) {
        goesOn = try reading.take(event, isSound, store, filter, present)
      } catch {
        // The filter cannot decide on this event: the batch is read again.
        reading.failure = error
        goesOn = false
      }
      return goesOn
    }
    if let failure = reading.failure { throw failure }
    if goesOn, rows < most { try reading.end(store) }
    (events, bytes, covered, last) = (reading.collected, reading.size, reading.covered, reading.expected - 1)
    (tooOld, coveredByEvents) = (reading.tooOld, reading.coveredByEvents)
  }

  init(_ event: JournalEvent, lane: Lane?) {
    self.lane = lane
    events = [event]
    bytes = event.body.count
    last = event.seq
  }

  /// An event of a kind that the journal does not have, with number 0: it tests a server.
  init(testOf store: Store, at moment: Moment) {
    let body = JSONWriter.object { $0.field("text", "Meshpost gateway \(store.gatewayID) says hello") }
    let (at, trusted) = (moment.milliseconds, moment.trusted)
    self.init(JournalEvent(seq: 0, at: at, trusted: trusted, kind: "test", body: body), lane: nil)
  }

  /// An empty batch: a hub that acknowledges it proves that it takes batches.
  init(empty lane: Lane?) {
    self.lane = lane
    last = 0
  }

  /// Removes events that the server has already. The batch still covers them. A gap has the number of the last event that it stands for, and the server
  /// may lack those before.
  mutating func leaveOut(_ seqs: Set<Int64>) {
    guard !seqs.isEmpty else { return }
    coveredByEvents = nil
    events.removeAll { seqs.contains($0.seq) && $0.kind != EventKind.gap.rawValue }
    bytes = events.reduce(0) { $0 + $1.body.count }
  }

  /// `naming`: adds the gateway's id, for servers whose address does not contain it. `number`: the batch's number on a live link. `isShort`: the
  /// server knows the epoch.
  func encode(of store: Store, naming: Bool = false, number: Int? = nil, isShort: Bool = false) -> [UInt8] {
    var json = JSONWriter(reserving: bytes + events.count * 80 + 64)
    json.object { json in
      if naming { json.field("gateway", store.gatewayID) }
      if let number {
        json.field("type", "events")
        json.field("n", number)
      } else if !isShort {
        // A live link states the epoch once, when it opens.
        json.field("epoch", store.epoch)
      }
      json.field("lane", lane?.rawValue)
      // Readers of a broker cannot check it: they do not count events.
      if !naming { json.field("after", after) }
      json.field(
        "before", events.first.flatMap { store.identity.epochBefore(of: $0.seq) ?? (isAgain ? store.epoch : nil) })
      json.arrayField("events") { json in
        for event in events { json.object { event.write(to: &$0) } }
      }
    }
    return json.bytes
  }
}

/// Collects the events of a batch.
private struct Reading {
  let limits: Batch.Limits
  var expected: Int64
  let lane: Lane?
  let folding: Folding?
  var collected: [JournalEvent] = []
  var size = 0
  var covered = LaneAmount()
  var coveredByEvents: LaneAmount?
  var leftOut = 0
  var tooOld: [Int64] = []
  /// The time of the last row, which a gap after it gets.
  var at: Int64 = 0
  let had: Int64
  /// Only these events are taken, and nothing behind the last of them is read; `nil`: all.
  let only: Set<Int64>?
  let limit: Int64
  var failure: StoreError?

  /// False: the batch is complete.
  mutating func take(
    _ event: JournalEvent, _ isSound: Bool, _ store: Store, _ filter: EventFilter, _ present: AgeLimit.Present?
  ) throws(StoreError) -> Bool {
    at = event.at
    if event.seq > limit {
      try pass(through: limit, store)
      return false
    }
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
    // Bytes under way include envelopes, too: a batch larger than its portion would delay the next one.
    let sent = size + event.body.count + (collected.count + 1) * Batch.envelope
    guard collected.isEmpty || sent <= limits.bytes else { return false }
    let place = isSound ? folding?.place(of: event) : nil
    let isNamed = only?.contains(event.seq) ?? false
    var passes = place != .folded
    if passes, isSound {
      passes = try filter.passes(event, store)
      if passes, !isNamed, filter.isTooOld(event, present) {
        passes = false
        tooOld.append(event.seq)
      }
    }
    if only != nil, !isNamed { passes = false }
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
    coveredByEvents = covered
    size += told.body.count
    return true
  }

  /// The journal has no more rows: events that are missing up to the lane's newest one become gaps.
  mutating func end(_ store: Store) throws(StoreError) {
    try pass(through: min(limit, lane.map { store.newestSeq[$0] } ?? store.lastSeq), store)
  }

  /// Adds gaps for missing events up to `end`. False: the batch is full.
  @discardableResult
  private mutating func pass(through end: Int64, _ store: Store) throws(StoreError) -> Bool {
    guard end >= expected else { return true }
    for gap in try gaps(through: end, store) {
      guard collected.count < limits.events else { return false }
      collected.append(gap)
      coveredByEvents = covered
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
    // Without a trim, the journal deletes only events that every upstream has acknowledged. This server lacks them again: it is an older copy.
    let deleted = min(store.deletedThrough[lane], end)
    if trims.isEmpty, deleted >= expected { return [gap(expected, deleted, deleted - expected + 1, "missing")] }
    guard trims.isEmpty else {
      var (gaps, next) = ([JournalEvent](), expected)
      for trim in trims {
        // The trim's gap also covers acknowledged, deleted events before the trim: its number must be one of this lane's.
        let more = max(0, min(had, trim.first - 1) - next + 1)
        gaps.append(gap(more > 0 ? next : trim.first, trim.last, trim.count + more, trim.reason))
        next = trim.last + 1
      }
      let rest = min(had, deleted)
      if rest >= next { gaps.append(gap(next, rest, rest - next + 1, "missing")) }
      return gaps
    }
    // Nothing deletes rows in the middle of the journal: a hole there is damage.
    let isInside = lane == .messages && expected > store.deletedThrough.highest
    return isInside ? [gap(expected, end, end - expected + 1, "missing")] : []
  }
}
