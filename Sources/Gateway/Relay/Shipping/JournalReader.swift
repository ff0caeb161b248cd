// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import SQLite
import Store
import Timing

/// The journal as one upstream reads it: how far each lane is there, what comes next, and what is left out.
final class JournalReader {
  let name: String
  let store: Store
  private let clock: WallClock
  let log: Log
  let filter: EventFilter
  /// Whether only the newest of a node's waiting states is sent.
  let folds: Bool
  /// The server says itself what it has.
  let serverKeepsCount: Bool
  /// A server that knows no lanes gets the whole journal in order: then all is in the first.
  var knowsLanes = true
  var lanes: ByLane<LaneProgress>
  var folding: Folding?
  /// Nothing before it is this server's.
  let beginning: Int64
  /// Events that were too old for it: all, and those that the log has not reported yet.
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
    (cursor, beginning) = try store.openCursor(of: name, fromStart: settings.fromStart)
    lanes = ByLane(
      messages: LaneProgress(cursor: cursor.messages), nodes: LaneProgress(cursor: cursor.nodes),
      packets: LaneProgress(cursor: cursor.packets))
    if filter.age != nil { store.keepJournalTimes() }
    tooOld.all = try store.leftOut(of: name).tooOld
    let told = try store.told(name)
    for lane in Lane.allCases { lanes[lane].told.seq = told[lane] }
    store.underWay[Array(name.utf8)] = { [weak self] in self?.lanes.map(\.underWay) }
  }

  // MARK: Lanes

  /// The lanes that are sent: a server that knows none gets everything in the first.
  var activeLanes: [Lane] { knowsLanes ? Lane.allCases : [.messages] }

  /// The lane as `Batch` names it.
  func laneSent(_ lane: Lane) -> Lane? { knowsLanes ? lane : nil }

  /// Lanes that have events which were not sent yet.
  var waiting: ByLane<Bool> {
    var waiting = ByLane(all: false)
    for lane in activeLanes { waiting[lane] = newest(lane) > lanes[lane].readThrough }
    return waiting
  }

  private func newest(_ lane: Lane) -> Int64 { knowsLanes ? store.newestSeq[lane] : store.lastSeq }

  /// Nothing of a lane that has had its newest event is before what others have now.
  func advanceIdleLanes() {
    guard knowsLanes else { return }
    for lane in Lane.allCases {
      let taken = lanes[lane].taken
      guard newest(lane) <= taken, lanes[lane].underWay == 0, taken < store.lastSeq else { continue }
      lanes[lane].taken = store.lastSeq
      lanes[lane].passed = store.journaled[lane]
    }
  }

  /// The server acknowledged that much. Of one that knows no lanes it is the whole: a lane whose number stayed behind would be taken for
  /// one that has lost nothing, should an older copy of that server know lanes.
  func serverHas(_ seq: Int64, in lane: Lane) {
    for lane in knowsLanes ? [lane] : Lane.allCases { lanes[lane].serverHas = max(lanes[lane].serverHas, seq) }
  }

  func setTaken(_ seqs: ByLane<Int64>) {
    for lane in Lane.allCases where lanes[lane].taken != seqs[lane] {
      // Our position may be from before what was sent last, too, where this database is a copy.
      let reached = seqs[lane] < lanes[lane].taken ? store.lastSeq : lanes[lane].taken
      lanes[lane].wasTaken = max(lanes[lane].wasTaken, reached)
      (lanes[lane].taken, lanes[lane].isMiscounted) = (seqs[lane], true)
    }
  }

  /// Acknowledged, in each lane.
  var taken: ByLane<Int64> { lanes.map(\.taken) }
  /// On disk, in each lane.
  var cursor: ByLane<Int64> { lanes.map(\.cursor) }
  /// The newest event that the server has acknowledged, in each lane.
  var told: ByLane<Int64> { lanes.map(\.told.seq) }

  // MARK: What waits

  /// Counts what waits, where that is not known any more.
  private func count(_ lane: Lane) {
    let deleted = store.deletedThrough[lane]
    // What was deleted before it was acknowledged waits no more.
    guard lanes[lane].isMiscounted || deleted > max(lanes[lane].taken, lanes[lane].countedFrom) else { return }
    // The count is for people.
    guard let rest = store.ifReadable({ try store.amounts(after: lanes[lane].taken)[lane] }) else { return }
    let all = store.journaled[lane]
    lanes[lane].passed = LaneAmount(events: all.events - rest.events, bytes: all.bytes - rest.bytes)
    (lanes[lane].isMiscounted, lanes[lane].countedFrom) = (false, deleted)
  }

  /// What a lane has that is not acknowledged.
  func pending(_ lane: Lane) -> LaneAmount {
    guard store.newestSeq[lane] > lanes[lane].taken else { return LaneAmount() }
    count(lane)
    let (all, passed) = (store.journaled[lane], lanes[lane].passed)
    return LaneAmount(events: max(1, all.events - passed.events), bytes: max(0, all.bytes - passed.bytes))
  }

  var pendingEvents: Int64 {
    knowsLanes
      ? Lane.allCases.reduce(0) { $0 + pending($1).events } : max(0, store.lastSeq - lanes.messages.taken)
  }

  // MARK: Reading

  /// The present against which events' ages are judged; `nil`: there is no age limit.
  var present: AgeLimit.Present? {
    guard filter.age != nil else { return nil }
    let (times, now) = store.journalTimes
    return AgeLimit.Present(wall: Moment(clock), now: now, times: times)
  }

  /// Reads on in a lane. `isPast`: about what was sent before, whose age does not matter.
  func read(
    _ lane: Lane, after cursor: Int64, limits: Batch.Limits, isPast: Bool = false
  ) throws(StoreError) -> Batch {
    let present = isPast ? nil : self.present
    var batch = try Batch(
      after: cursor, of: store, lane: laneSent(lane), limits: limits, filter: filter, present: present,
      folding: lane == Folding.lane ? foldingAhead(of: cursor, present) : nil, had: isPast ? 0 : lanes[lane].told.seq)
    if !isPast { batch.leaveOut(ahead(lane)) }
    return batch
  }

  /// What is known of the backlog there, with some more of it looked at; `nil`: nothing is folded. Where the server knows no lanes
  /// nothing is: its readers may want a node's record before its messages.
  private func foldingAhead(of cursor: Int64, _ present: AgeLimit.Present?) throws(StoreError) -> Folding? {
    let newest = store.newestSeq[Folding.lane]
    guard folds, knowsLanes else { return nil }
    if folding?.isUsable(after: cursor, epoch: store.epoch) != true {
      folding = nil
      // One that comes alone is not looked at twice; one that is left of a stretch says for how many it stands.
      guard newest > cursor + 1 else { return nil }
      folding = Folding(after: cursor, end: newest, epoch: store.epoch)
    }
    try folding?.lookAhead(in: store, from: cursor) { [filter, store] event throws(StoreError) in
      try filter.passes(event, store, present)
    }
    return folding
  }

  /// A stretch of folded events begins behind the cursor that is on disk. If it began before that, the next start would find a stretch that
  /// ends elsewhere; then a server that keeps no count, and drops what comes twice, could get what a newer event has stood for already, and
  /// keep that. Where little waits, no stretch ends before the backlog does.
  var wantsCursorKeptFirst: Bool {
    let (lane, start) = (Folding.lane, lanes[Folding.lane].readThrough)
    guard folds, knowsLanes, !serverKeepsCount, folding?.isUsable(after: start, epoch: store.epoch) != true else {
      return false
    }
    let kept = lanes[lane].cursor
    return start > kept && store.newestSeq[lane] - kept > Int64(Folding.maxKeys)
  }

  /// What was folded is behind us: no memory is kept for it.
  func forgetFolding() {
    if let folding, folding.isComplete, lanes[Folding.lane].taken >= folding.through { self.folding = nil }
  }

  /// A dead letter that an operator wants sent again; `nil`: there is none.
  func nextDeadLetter() throws(StoreError) -> DeadLetter? {
    guard deadLetters.areMarked else { return nil }
    var found: DeadLetter?
    try store.eachDeadLetter(of: name, marked: true, limit: 1) { letter in
      found = letter
      return false
    }
    deadLetters.areMarked = found != nil
    return found
  }

  func count(tooOld batch: Batch, through seq: Int64) {
    let count = Int64(batch.tooOld.count { $0 <= seq })
    tooOld = (tooOld.all + count, tooOld.unreported + count)
  }

  /// `now`: at most once a minute; `nil`: at the end.
  func reportTooOld(at now: MonotonicTime? = nil) {
    guard tooOld.unreported > 0, now.map({ tooOldLines.take(at: $0) }) ?? true else { return }
    log.notice("\(name): \(tooOld.unreported) events were too old when their turn came (max_age_s), and were left out")
    tooOld.unreported = 0
  }
}

/// Dead letters that are sent again.
struct DeadLetterRetries {
  /// Some may be marked for it.
  var areMarked = true
  /// Times in a row that the server hung up over one.
  private var hangUps = 0
  private static let maxHangUps = 3

  /// The reason, when one has been tried often enough.
  mutating func lastHangUp(_ verdict: Verdict) -> String? {
    guard case .hungUp(let reason) = verdict else {
      hangUps = 0
      return nil
    }
    hangUps = (hangUps + 1) % Self.maxHangUps
    return hangUps == 0 ? reason : nil
  }
}
