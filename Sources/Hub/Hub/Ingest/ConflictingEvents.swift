// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// The identity of an event. If an event comes with other content than the stored event of this identity, then the gateway's database is an older
/// copy, two gateways have one id, or somebody else wrote in the gateway's name.
struct EventKey: Hashable, Sendable {
  let gateway: String
  let epoch: String
  let seq: Int64

  private static let conflictLog = ThrottledLog(HubLog.write)

  func logConflict() {
    Self.conflictLog.say(
      "gateway \(gateway): event \(seq) of epoch \(epoch) is here with other content. Its database is an older copy, another gateway has the same id, "
        + "or somebody else has written with its token. Both are kept; see docs/hub.md, \"One identity, two histories\""
    )
  }
}

extension HubStore {
  struct StoredEvent {
    let at: Int64
    let kind: String
    let body: String

    /// `first`: the column of the time; kind and body follow.
    init(_ row: any HubRow, from first: Int) {
      (at, kind, body) = (row.integer(first), row.text(first + 1), row.text(first + 2))
    }

    init(_ event: PreparedEvent) {
      (at, kind, body) = (event.event.at, event.event.kind, PostgresHubDatabase.withoutNul(event.body))
    }

    /// Whether both events are the same. A gap counts as the same as any stored event, which is better than a gap.
    func isSame(as event: PreparedEvent) -> Bool {
      if event.event.kind == EventContent.gap { return true }
      let other = StoredEvent(event)
      // What was deleted at one end is the same event at the other.
      if body == EmptiedEvent.body || other.body == EmptiedEvent.body { return at == other.at }
      guard kind == other.kind, at == other.at else { return false }
      return body == other.body || canonical == other.canonical
    }

    /// Like `isSame`, across epochs. Here a gap is the same as a gap that reports the same events only: its number may belong to an event of
    /// another history, and every loss of a database is the first event of its epoch.
    func isMoved(as event: PreparedEvent) -> Bool {
      guard event.event.kind == EventContent.gap else { return isSame(as: event) }
      return kind == EventContent.gap && reported == StoredEvent(event).reported
    }

    /// The events that a gap reports.
    private var reported: [JSONValue?] {
      // `try?`: as in `canonical`.
      let gap = try? JSONValue(parsing: Array(body.utf8))
      // A database that was lost without its mark has no epoch; the file that was saved tells it from others.
      let known = gap?["epoch"] == nil ? "saved" : "epoch"
      return ["reason", known, "lane", "first", "last"].map { gap?[$0] }
    }

    private var canonical: [UInt8]? {
      // `try?`: stored values were valid JSON when they arrived; an invalid one equals nothing.
      (try? JSONValue(parsing: Array(body.utf8))).map { EventContent.canonical(at: at, kind: kind, body: $0) }
    }

    var digest: String? {
      // `try?`: as above.
      guard kind != EventContent.gap, body != EmptiedEvent.body, let value = try? JSONValue(parsing: Array(body.utf8))
      else { return nil }
      return EventContent.digest(at: at, kind: kind, body: value)
    }
  }

  // MARK: Within a transaction of batches

  /// Raises an alert for each gateway whose events conflict with stored ones. A conflicting event that comes again raises no alert.
  func reportConflicts(_ work: IngestWork) throws(HubDatabaseError) {
    guard !work.conflicting.isEmpty else { return }
    var found: [String: (seqs: Set<Int64>, epoch: String, at: Int64)] = [:]
    for batch in work.accepted {
      let isKept = !batch.handlesConflicts
      for event in batch.events where work.conflicts(event, of: batch) {
        if isKept, !work.added.contains(work.keyInHistory(event, of: batch)) { continue }
        found[batch.gateway, default: ([], batch.epoch, batch.at)].seqs.insert(event.event.seq)
      }
    }
    for (gateway, conflict) in found.sorted(by: { $0.key < $1.key }) {
      guard let first = conflict.seqs.min() else { continue }
      try reportConflict(
        of: gateway,
        "event \(first) of epoch \(conflict.epoch) of \(gateway) came with other content than is here: its database is an older copy, "
          + "another gateway has its id, or somebody else writes in its name", conflict.seqs.count, at: conflict.at)
    }
  }

  /// The stored events in conflict with those of senders that handle conflicts.
  func refusals(_ work: IngestWork) -> [EventKey: StoredEvent] {
    let keys = Set(work.accepted.filter(\.handlesConflicts).flatMap { batch in batch.events.map(batch.key) })
    return work.conflicting.filter { keys.contains($0.key) }
  }

  /// Withdraws the acknowledgements of conflicting events, and of the batches behind them.
  func withdraw(_ known: [GatewayEpoch: Progress], _ work: inout IngestWork) {
    var broken: Set<GatewayEpoch> = []
    work.progress = known
    for (batch, place) in zip(work.accepted, work.indices) {
      let epoch = batch.gatewayEpoch
      var progress = work.progress[epoch] ?? Progress()
      let before = progress.position(of: batch.lane)
      if batch.handlesConflicts, let event = batch.events.first(where: { work.conflicts($0, of: batch) }) {
        broken.insert(epoch)
        work.answers[place] = .conflict(event.event.seq)
      } else if broken.contains(epoch) || batch.events.contains(where: { work.expected.contains(batch.key($0)) }) {
        // The event that this one repeats may be one that is not stored.
        work.answers[place] = .outOfOrder(before)
      } else {
        if batch.isOrdered { progress.took(batch) }
        work.progress[epoch] = progress
      }
    }
    // The search for repeated events needs a row of each epoch.
    for batch in work.storedBatches {
      let epoch = batch.gatewayEpoch
      if work.progress[epoch] == nil { work.progress[epoch] = Progress() }
    }
  }

  /// Finds the events whose number another event has: a stored one, or one of the same transaction. A conflicting event is not stored under its
  /// number.
  func findConflicting(_ work: inout IngestWork) throws(HubDatabaseError) {
    var counts: [EventKey: Int] = [:]
    for batch in work.accepted { for event in batch.events { counts[batch.key(event), default: 0] += 1 } }
    let suspects = counts.filter { key, count in
      (count > 1 || !work.added.contains(key)) && !work.moved.contains(key)
    }.keys
    guard !suspects.isEmpty else { return }
    let stored = try stored(Array(suspects))
    for batch in work.accepted {
      for event in batch.events {
        let key = batch.key(event)
        if let other = stored[key], !other.isSame(as: event) { work.conflicting[key] = other }
      }
    }
  }

  private func stored(_ keys: [EventKey]) throws(HubDatabaseError) -> [EventKey: StoredEvent] {
    var stored: [EventKey: StoredEvent] = [:]
    let call = HubCall(
      """
      SELECT e.gateway, e.epoch, e.seq, e.at, e.kind, e.body FROM @rows
      JOIN events e ON e.gateway = v.gateway AND e.epoch = v.epoch AND e.seq = v.seq
      """, ["gateway": keys.map(\.gateway), "epoch": keys.map(\.epoch), "seq": keys.map(\.seq)]
    ) { row in
      let key = EventKey(gateway: row.text(0), epoch: row.text(1), seq: row.integer(2))
      stored[key] = StoredEvent(row, from: 3)
    }
    try database.perform([call], begins: false, ends: false)
    return stored
  }

  /// Finds the events that are stored under another epoch. A gateway that begins a new epoch sends events again that the hub may have of earlier
  /// epochs, and events of an old epoch may arrive late. The stored events stay as they are.
  func findMoved(_ work: inout IngestWork) throws(HubDatabaseError) {
    let found = work.accepted.filter(work.mayBeInOtherEpochs)
    // The first epoch of an event counts.
    let renewed = found.filter { $0.before == nil } + found.filter { $0.before != nil }
    guard !renewed.isEmpty else { return }
    var stored: [EventNumber: [StoredEvent]] = [:]
    let events = renewed.flatMap { batch in batch.events.map { EventNumber(batch.gateway, $0.event.seq) } }
    // CROSS JOIN fixes the order for SQLite, which would otherwise walk all events of the gateway.
    let call = HubCall(
      """
      SELECT e.gateway, e.seq, e.at, e.kind, e.body FROM @rows CROSS JOIN epochs p CROSS JOIN events e
      WHERE p.gateway = v.gateway AND e.gateway = p.gateway AND e.epoch = p.epoch AND e.seq = v.seq
      """, ["gateway": events.map(\.gateway), "seq": events.map(\.seq)]
    ) { row in
      stored[EventNumber(row.text(0), row.integer(1)), default: []].append(StoredEvent(row, from: 2))
    }
    try database.perform([call], begins: false, ends: false)
    // Events of the same transaction are not stored yet. An event that comes twice in one epoch is one event.
    var coming: [EventNumber: [(epoch: String, event: StoredEvent)]] = [:]
    for batch in work.accepted where !work.mayBeInOtherEpochs(batch) {
      for event in batch.events {
        coming[EventNumber(batch.gateway, event.event.seq), default: []].append((batch.epoch, StoredEvent(event)))
      }
    }
    for batch in renewed {
      for event in batch.events {
        let place = EventNumber(batch.gateway, event.event.seq)
        let isHere = stored[place]?.contains { $0.isMoved(as: event) } == true
        let comes = coming[place]?.contains { $0.epoch != batch.epoch && $0.event.isMoved(as: event) } == true
        if isHere || comes {
          work.moved.insert(batch.key(event))
          if !isHere { work.expected.insert(batch.key(event)) }
        } else {
          coming[place, default: []].append((batch.epoch, StoredEvent(event)))
        }
      }
    }
  }

  /// A gateway's number, in any epoch.
  private struct EventNumber: Hashable {
    let gateway: String
    let seq: Int64

    init(_ gateway: String, _ seq: Int64) { (self.gateway, self.seq) = (gateway, seq) }
  }

  /// Moves conflicting events to another history if their sender does not handle conflicts. A repeated event is moved once. The order within the
  /// batch stays.
  func moveConflicting(_ work: inout IngestWork) throws(HubDatabaseError) {
    work.storedBatches = work.accepted
    let unaware = work.accepted.filter { !$0.handlesConflicts }
    guard !unaware.isEmpty else { return }
    let keys = unaware.flatMap { batch in batch.events.map(batch.key) }.filter { !work.moved.contains($0) }
    var first = try stored(keys)
    for batch in work.accepted {
      for event in batch.events {
        let key = batch.key(event)
        if work.moved.contains(key) { continue }
        guard let other = first[key] else {
          first[key] = StoredEvent(event)
          continue
        }
        if !batch.handlesConflicts, !other.isSame(as: event) { work.conflicting[key] = other }
      }
    }
    guard !work.conflicting.isEmpty else { return }
    try findHistories(&work)
    work.storedBatches = work.accepted.flatMap { batch in batch.handlesConflicts ? [batch] : parts(batch, work) }
  }

  /// Splits a batch where its events belong to different epochs.
  private func parts(_ batch: PreparedBatch, _ work: IngestWork) -> [PreparedBatch] {
    var parts: [PreparedBatch] = []
    for event in batch.events {
      let epoch = work.conflicts(event, of: batch) ? work.keyInHistory(event, of: batch).epoch : batch.epoch
      if parts.last?.epoch != epoch {
        var part = batch
        (part.epoch, part.events) = (epoch, [])
        parts.append(part)
      }
      parts[parts.count - 1].events.append(event)
    }
    return parts
  }
}

/// Further histories of an epoch, of senders that do not handle conflicts. Each has an epoch of its own, named by the first epoch, a dot, and the
/// digest of its first event.
extension HubStore {
  /// Most further histories of an epoch; an event of one more is refused.
  static let mostHistories = 16

  private struct History {
    let name: String
    var last: Int64
    /// Its events under the numbers in question.
    var events: [Int64: StoredEvent] = [:]
  }

  /// Chooses the history of each conflicting event: the history that has the event; otherwise, of those without its number, the history whose last
  /// event is nearest below it; otherwise a new history. So two clones on one broker make two epochs, and not an epoch for each event.
  func findHistories(_ work: inout IngestWork) throws(HubDatabaseError) {
    let found = work.accepted.filter { !$0.handlesConflicts }.flatMap { batch in
      batch.events.filter { work.conflicts($0, of: batch) }.map { (batch: batch, event: $0) }
    }
    var histories: [GatewayEpoch: [History]] = [:]
    let call = HubCall(
      """
      SELECT v.gateway, v.stem, v.seq, p.epoch,
      (SELECT max(m.seq) FROM events m WHERE m.gateway = p.gateway AND m.epoch = p.epoch), e.at, e.kind, e.body
      FROM @rows JOIN epochs p ON p.gateway = v.gateway AND substr(p.epoch, 1, length(v.stem)) = v.stem
      LEFT JOIN events e ON e.gateway = p.gateway AND e.epoch = p.epoch AND e.seq = v.seq
      """,
      [
        "gateway": found.map(\.batch.gateway), "stem": found.map { IngestWork.historyPrefix($0.batch) },
        "seq": found.map(\.event.event.seq),
      ]
    ) { row in
      var known = histories[GatewayEpoch(gateway: row.text(0), epoch: row.text(1)), default: []]
      let name = row.text(3)
      if !known.contains(where: { $0.name == name }) { known.append(History(name: name, last: row.integer(4))) }
      if row.textIfAny(6) != nil, let place = known.firstIndex(where: { $0.name == name }) {
        known[place].events[row.integer(2)] = StoredEvent(row, from: 5)
      }
      histories[GatewayEpoch(gateway: row.text(0), epoch: row.text(1))] = known
    }
    try database.perform([call], begins: false, ends: false)
    var new: Set<GatewayEpoch> = []
    for (batch, event) in found {
      let beside = GatewayEpoch(gateway: batch.gateway, epoch: IngestWork.historyPrefix(batch))
      var known = histories[beside] ?? []
      let (own, seq) = (IngestWork.newHistoryKey(event, of: batch), event.event.seq)
      let place: Int
      if let here = known.firstIndex(where: { $0.events[seq]?.isSame(as: event) == true }) {
        place = here
      } else if let next = Self.next(known, for: seq) {
        place = next
      } else {
        guard known.count < Self.mostHistories else {
          throw HubDatabaseError(
            kind: .unfit,
            message:
              "event \(seq) of epoch \(batch.epoch) belongs to none of \(known.count + 1) histories that are here of it"
          )
        }
        place = known.count
        known.append(History(name: own.epoch, last: 0))
        new.insert(GatewayEpoch(gateway: own.gateway, epoch: own.epoch))
      }
      known[place].events[seq] = known[place].events[seq] ?? StoredEvent(event)
      known[place].last = max(known[place].last, seq)
      histories[beside] = known
      work.historyEpochs[own] = known[place].name
    }
    try limitEpochs(new, work)
  }

  private static func next(_ known: [History], for seq: Int64) -> Int? {
    let free = known.indices.filter { known[$0].events[seq] == nil }
    let below = free.filter { known[$0].last < seq }
    return below.max { known[$0].last < known[$1].last } ?? free.min { known[$0].last < known[$1].last }
  }
}
