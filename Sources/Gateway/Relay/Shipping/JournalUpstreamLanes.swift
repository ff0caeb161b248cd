// SPDX-License-Identifier: MIT

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
    for lane in Lane.allCases { lanes[lane].lastSent = lanes[lane].serverHas }
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
