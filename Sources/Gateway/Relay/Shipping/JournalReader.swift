// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// The journal as one upstream reads it: the position of each lane, the next batch, and the events to leave out.
final class JournalReader {
  let name: String
  let store: Store
  private let clock: WallClock
  let log: Log
  let filter: EventFilter
  /// Whether only the newest of a node's waiting states is sent.
  let folds: Bool
  /// The server reports which events it has.
  let serverKeepsCount: Bool
  /// False: the server gets the whole journal in order, and the first lane keeps all progress.
  var knowsLanes = true
  var lanes: ByLane<LaneProgress>
  var folding: Folding?
  /// The server gets no events up to this one.
  let beginning: Int64
  /// Events that were too old for the upstream: all, and those that the log has not reported yet.
  var tooOld: (all: Int64, unreported: Int64) = (0, 0)
  private var tooOldLines = Ration(most: 1, oneIn: .seconds(60))
  var deadLetters = DeadLetterRetries()

  init(_ settings: Upstream.Settings, serverKeepsCount: Bool, store: Store, clock: WallClock, log: Log)
    throws(StoreError)
  {
    (name, self.store, self.clock, self.log, folds) = (settings.name, store, clock, log, settings.folds)
    self.serverKeepsCount = serverKeepsCount
    var filter = settings.filter
    filter.upstream = name
    filter.exchangesDocuments = !settings.allowed.isDisjoint(with: ["documents", "settings"])
    if serverKeepsCount { filter.own = name }
    self.filter = filter
    let cursor: ByLane<Int64>
    (cursor, beginning) = try store.openCursor(of: name, fromStart: settings.fromStart, commits: false)
    lanes = cursor.map(LaneProgress.init)
    if filter.age != nil { store.keepJournalTimes() }
    tooOld.all = try store.leftOut(of: name).tooOld
    let told = try store.told(name)
    for lane in Lane.allCases { lanes[lane].told.seq = told[lane] }
    let named = try store.namedBatch(of: name)
    (lanes.messages.keptName, lanes.messages.named) = (named, NamedBatch(seqs: named, isSent: true))
  }

  /// Its events under way count from now on, and no longer those of the reader before it.
  func begins() { store.underWay[Array(name.utf8)] = { [weak self] in self?.lanes.map(\.underWay) } }

  // MARK: Lanes

  /// The lanes that are sent: a server that knows no lanes gets everything in the first.
  var activeLanes: [Lane] { knowsLanes ? Lane.allCases : [.messages] }

  /// The lane as `Batch` names it.
  func laneSent(_ lane: Lane) -> Lane? { knowsLanes ? lane : nil }

  /// Lanes with events that were not sent yet.
  var waiting: ByLane<Bool> {
    ByLane { activeLanes.contains($0) && newest($0) > lanes[$0].readThrough }
  }

  private func newest(_ lane: Lane) -> Int64 { knowsLanes ? store.newestSeq[lane] : store.lastSeq }

  /// Moves each lane that is acknowledged to its newest event up to the journal's end, so that idle lanes do not fall behind.
  func advanceIdleLanes() {
    guard knowsLanes else { return }
    for lane in Lane.allCases {
      let taken = lanes[lane].taken
      guard newest(lane) <= taken, lanes[lane].underWay == 0, taken < store.lastSeq else { continue }
      lanes[lane].taken = store.lastSeq
      lanes[lane].passed = store.journaled[lane]
    }
  }

  /// Notes the server's acknowledgement. A server that knows no lanes acknowledges all of them: if an older copy of that server did know lanes, a
  /// lane whose number had stayed behind would seem to have lost nothing.
  func serverHas(_ seq: Int64, in lane: Lane) {
    for lane in knowsLanes ? [lane] : Lane.allCases { lanes[lane].serverHas = max(lanes[lane].serverHas, seq) }
  }

  func setTaken(_ seqs: ByLane<Int64>) {
    for lane in Lane.allCases where lanes[lane].taken != seqs[lane] {
      // In a copy of the database, our position may be older than the last sent event, too.
      let reached = seqs[lane] < lanes[lane].taken ? store.lastSeq : lanes[lane].taken
      lanes[lane].wasTaken = max(lanes[lane].wasTaken, reached)
      (lanes[lane].taken, lanes[lane].isMiscounted) = (seqs[lane], true)
    }
  }

  /// The last acknowledged event of each lane.
  var taken: ByLane<Int64> { lanes.map(\.taken) }
  /// The last acknowledged event of each lane that is on disk.
  var cursor: ByLane<Int64> { lanes.map(\.cursor) }
  /// The newest event that the server has acknowledged, in each lane.
  var told: ByLane<Int64> { lanes.map(\.told.seq) }

  // MARK: The backlog

  /// Counts the backlog again if the count is outdated.
  private func count(_ lane: Lane) {
    let deleted = store.deletedThrough[lane]
    // Deleted events no longer wait.
    guard lanes[lane].isMiscounted || deleted > max(lanes[lane].taken, lanes[lane].countedFrom) else { return }
    // Only people read the count: without a readable store, the old one remains.
    guard let rest = store.ifReadable({ try store.amounts(after: lanes[lane].taken)[lane] }) else { return }
    let all = store.journaled[lane]
    lanes[lane].passed = LaneAmount(events: all.events - rest.events, bytes: all.bytes - rest.bytes)
    (lanes[lane].isMiscounted, lanes[lane].countedFrom) = (false, deleted)
  }

  /// The lane's events that are not acknowledged.
  func pending(_ lane: Lane) -> LaneAmount {
    guard store.newestSeq[lane] > lanes[lane].taken else { return LaneAmount() }
    count(lane)
    let (all, passed) = (store.journaled[lane], lanes[lane].passed)
    return LaneAmount(events: max(1, all.events - passed.events), bytes: max(0, all.bytes - passed.bytes))
  }

  /// Asked for at each turn of the loop, at which mostly nothing waits.
  var pendingEvents: Int64 {
    guard knowsLanes else { return max(0, store.lastSeq - lanes.messages.taken) }
    let newest = store.newestSeq
    guard
      newest.messages > lanes.messages.taken || newest.nodes > lanes.nodes.taken || newest.packets > lanes.packets.taken
    else { return 0 }
    return Lane.allCases.reduce(0) { $0 + pending($1).events }
  }

  // MARK: Reading

  /// The time against which ages of events are judged; `nil`: there is no age limit.
  var present: AgeLimit.Present? {
    guard filter.age != nil else { return nil }
    let (times, now) = store.journalTimes
    return AgeLimit.Present(wall: Moment(clock), now: now, times: times)
  }

  /// Reads a lane's next batch. `isPast`: for events that were sent before, whose age does not matter. `only`: as for `Batch`.
  func read(
    _ lane: Lane, after cursor: Int64, limits: Batch.Limits, isPast: Bool = false, only: [Int64]? = nil
  ) throws(StoreError) -> Batch {
    let present = isPast ? nil : self.present
    var filter = self.filter
    // The server may have them: without those of a sender who is blocked meanwhile, the others would be another batch.
    if only != nil { filter.onlyConcerning = false }
    var batch = try Batch(
      after: cursor, of: store, lane: laneSent(lane), limits: limits, filter: filter, present: present,
      folding: lane == Folding.lane ? foldingAhead(of: cursor, present) : nil, had: isPast ? 0 : lanes[lane].told.seq,
      only: only)
    if !isPast { batch.leaveOut(ahead(lane)) }
    return batch
  }

  /// The folding for the lane after `cursor`, read further ahead; `nil`: nothing is folded. For a server that knows no lanes nothing is folded: its
  /// readers may need a node's record before its messages.
  private func foldingAhead(of cursor: Int64, _ present: AgeLimit.Present?) throws(StoreError) -> Folding? {
    let newest = store.newestSeq[Folding.lane]
    guard folds, knowsLanes else { return nil }
    if folding?.isUsable(after: cursor, epoch: store.epoch) != true {
      folding = nil
      // A single event begins no stretch. The last event of an old stretch still belongs to that one, and keeps its count.
      guard newest > cursor + 1 else { return nil }
      folding = Folding(after: cursor, end: newest, epoch: store.epoch)
    }
    try folding?.lookAhead(in: store, from: cursor) { [filter, store] event throws(StoreError) in
      try filter.passes(event, store, present)
    }
    return folding
  }

  /// A stretch must begin after a cursor that is on disk. Otherwise the next start could begin earlier, and fold a stretch with another end; a server
  /// that keeps no count, and drops duplicates, could then get an event that a newer one has replaced already, and keep that. With a small backlog, a
  /// stretch always ends where the backlog does.
  var wantsCursorKeptFirst: Bool {
    let (lane, start) = (Folding.lane, lanes[Folding.lane].readThrough)
    guard folds, knowsLanes, !serverKeepsCount, folding?.isUsable(after: start, epoch: store.epoch) != true else {
      return false
    }
    let kept = lanes[lane].cursor
    return start > kept && store.newestSeq[lane] - kept > Int64(Folding.maxKeys)
  }

  /// Frees the memory of a stretch that is acknowledged.
  func forgetFolding() {
    if let folding, folding.isComplete, lanes[Folding.lane].taken >= folding.through { self.folding = nil }
  }

  /// A dead letter that an operator wants sent again, if it is the next to be sent. Those of other lanes stay marked, and so do
  /// those that the filter leaves out: it may have changed since the operator asked.
  func nextDeadLetter(
    of permitted: ByLane<Bool>, eventsWait: Bool, now: MonotonicTime
  ) throws(StoreError) -> DeadLetter? {
    let lanes = Lane.allCases.filter { permitted[$0] }
    while deadLetters.isNext(eventsWait: eventsWait, now: now) {
      if let found = try firstLetter(after: deadLetters.after, lanes) { return found }
      if deadLetters.after == 0, lanes != Lane.allCases { return nil }
      deadLetters.reachedEnd()
    }
    return nil
  }

  /// The first such letter that passes the filter. Its age does not matter: an operator asks for it.
  private func firstLetter(after id: Int64, _ lanes: [Lane]) throws(StoreError) -> DeadLetter? {
    var (found, failure): (DeadLetter?, StoreError?) = (nil, nil)
    try store.eachDeadLetter(of: name, after: id, marked: true, lanes: lanes) { letter in
      do throws(StoreError) {
        guard try filter.passes(letter.event, store) else { return true }
        found = letter
      } catch {
        failure = error
      }
      return false
    }
    if let failure { throw failure }
    return found
  }

  /// The dead letters that the filter leaves out now, by their seqs. `seq`: only that event.
  func lettersLeftOut(_ seq: Int64?) throws(StoreError) -> [Int64] {
    var (seqs, failure): ([Int64], StoreError?) = ([], nil)
    try store.eachDeadLetter(of: name) { letter in
      guard seq == nil || letter.event.seq == seq else { return true }
      do throws(StoreError) {
        if try !filter.passes(letter.event, store) { seqs.append(letter.event.seq) }
      } catch {
        failure = error
      }
      return failure == nil && seq == nil
    }
    if let failure { throw failure }
    return seqs
  }

  func count(tooOld batch: Batch, through seq: Int64) {
    let count = Int64(batch.tooOld.count { $0 <= seq })
    tooOld = (tooOld.all + count, tooOld.unreported + count)
  }

  /// Logs events that were too old: at most once a minute, or at the upstream's end (`now` is `nil`).
  func reportTooOld(at now: MonotonicTime? = nil) {
    guard tooOld.unreported > 0, now.map({ tooOldLines.take(at: $0) }) ?? true else { return }
    log.notice(
      "\(name): events that were left out as too old, or of an unknown age (max_age_s, waited): \(tooOld.unreported)")
    tooOld.unreported = 0
  }
}
