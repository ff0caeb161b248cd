// SPDX-License-Identifier: MIT

import JSON
import SQLite
import Store

/// How far each lane is, and what waits in it.
extension JournalUpstream {
  /// The lanes that are sent: a server that knows none gets everything in the first.
  var activeLanes: [Lane] { knowsLanes ? Lane.allCases : [.messages] }

  /// The lane as `Batch` names it.
  func laneSent(_ lane: Lane) -> Lane? { knowsLanes ? lane : nil }

  /// The journal was read up to here.
  func readThrough(_ lane: Lane) -> Int64 {
    max(lanes[lane].taken, flights.last { $0.lane == lane }?.batch.last ?? 0)
  }

  /// Lanes that have events which were not sent yet.
  var waiting: ByLane<Bool> {
    var waiting = ByLane(all: false)
    for lane in activeLanes { waiting[lane] = newest(lane) > readThrough(lane) }
    return waiting
  }

  private func newest(_ lane: Lane) -> Int64 { knowsLanes ? store.newestSeq[lane] : store.lastSeq }

  /// Nothing of a lane that has had its newest event is before what others have now.
  func passOver() {
    guard knowsLanes else { return }
    for lane in Lane.allCases {
      let taken = lanes[lane].taken
      let isIdle = newest(lane) <= taken && !flights.contains { $0.lane == lane }
      guard isIdle, taken < store.lastSeq else { continue }
      lanes[lane].taken = store.lastSeq
      lanes[lane].passed = store.journaled[lane]
    }
  }

  /// The lanes continue from there.
  func startOver(from seqs: ByLane<Int64>) {
    for lane in Lane.allCases {
      lanes[lane].lastSent = lanes[lane].serverHas
      hasDeleted(in: lane, through: seqs[lane])
      (lanes[lane].sent, lanes[lane].gapsSent) = (0, [:])
    }
    setTaken(seqs)
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

  // MARK: What is deleted while it is under way

  /// How far each lane is under way; 0: nothing of it is.
  var underWay: ByLane<Int64> {
    var through = ByLane<Int64>(all: 0)
    for flight in flights { through[flight.lane] = max(through[flight.lane], flight.batch.last) }
    return through
  }

  func noteSent(_ batch: Batch, _ lane: Lane) {
    lanes[lane].sent = max(lanes[lane].sent, batch.last)
    for event in batch.events where event.kind == EventKind.gap.rawValue {
      // `try?`: it is our own.
      guard let body = try? JSONValue(parsing: event.body), ["quota", "age"].contains(body["reason"]?.string) else {
        continue
      }
      lanes[lane].gapsSent[event.seq] = body["count"]?.count ?? 0
    }
  }

  /// Events that were counted as lost when they were deleted, and may have been under way: sent up to `end`, and not acknowledged.
  func doubtful(_ lane: Lane, through end: Int64 = .max) -> Int64 {
    let (taken, end) = (lanes[lane].taken, min(end, lanes[lane].sent))
    // A server that knows no lanes gets all of them in the first.
    let sent = knowsLanes ? [lane] : Lane.allCases
    guard end > taken, sent.contains(where: { taken < store.deletedThrough[$0] }),
      let deleted = store.ifReadable({
        try sent.reduce(0) { try $0 + store.deleted(of: $1, after: taken, through: end) }
      })
    else { return 0 }
    let told = lanes[lane].gapsSent.filter { $0.key > taken && $0.key <= end }.values.reduce(0, +)
    return max(0, deleted - told)
  }

  /// The server has a lane up to there: what was deleted while it was under way is not lost. To be called before the lane moves.
  func hasDeleted(in lane: Lane, through seq: Int64) {
    let (events, taken) = (doubtful(lane, through: seq), lanes[lane].taken)
    lanes[lane].gapsSent = lanes[lane].gapsSent.filter { $0.key > seq }
    guard events > 0 else { return }
    store.post(when: .heard, "what \(name) has of what was deleted") { [name] store throws(SQLiteError) in
      try store.tookDeleted(events, of: lane, after: taken, by: name)
    }
    historyFound(.arrived(events: events))
  }

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

  /// Acknowledged, in each lane.
  var takenSeqs: ByLane<Int64> {
    ByLane(messages: lanes.messages.taken, nodes: lanes.nodes.taken, packets: lanes.packets.taken)
  }

  /// Kept, in each lane.
  var cursor: ByLane<Int64> {
    ByLane(messages: lanes.messages.cursor, nodes: lanes.nodes.cursor, packets: lanes.packets.cursor)
  }
}
