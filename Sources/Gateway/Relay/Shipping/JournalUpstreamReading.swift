// SPDX-License-Identifier: MIT

import EventLoop
import Store

/// What a batch is read by, and what goes before it.
extension JournalUpstream {
  /// The present against which events' ages are judged; `nil`: there is no age limit.
  var present: AgeLimit.Present? {
    guard settings.filter.age != nil else { return nil }
    let (times, now) = store.journalTimes
    return AgeLimit.Present(wall: Moment(clock), now: now, times: times)
  }

  /// Reads on in a lane. `isPast`: about what was sent before, whose age does not matter.
  func read(
    _ lane: Lane, after cursor: Int64, limits: Batch.Limits, isPast: Bool = false
  ) throws(StoreError) -> Batch {
    let present = isPast ? nil : self.present
    var batch = try Batch(
      after: cursor, of: store, lane: laneSent(lane), limits: limits, filter: settings.filter, present: present,
      folding: lane == Folding.lane ? foldingAhead(of: cursor, present) : nil, had: isPast ? 0 : lanes[lane].told.seq)
    if !isPast { batch.leaveOut(ahead(lane)) }
    return batch
  }

  /// What is known of the backlog there, with some more of it looked at; `nil`: nothing is folded. Where the server knows no lanes
  /// nothing is: its readers may want a node's record before its messages.
  private func foldingAhead(of cursor: Int64, _ present: AgeLimit.Present?) throws(StoreError) -> Folding? {
    let newest = store.newestSeq[Folding.lane]
    guard settings.folds, knowsLanes else { return nil }
    if folding?.isUsable(after: cursor, epoch: store.epoch) != true {
      folding = nil
      // One that comes alone is not looked at twice; one that is left of a stretch says for how many it stands.
      guard newest > cursor + 1 else { return nil }
      folding = Folding(after: cursor, end: newest, epoch: store.epoch)
    }
    try folding?.lookAhead(in: store, from: cursor) { [filter = settings.filter, store] event throws(StoreError) in
      try filter.passes(event, store, present)
    }
    return folding
  }

  /// A stretch begins behind the cursor that is on disk. If it began before that, the next start would find a stretch that ends
  /// elsewhere; then a server that keeps no count, and drops what comes twice, could get what a newer event has stood for already, and
  /// keep that. True: the cursor is on its way. Where little waits, no stretch ends before the backlog does.
  func keepsCursorFirst() -> Bool {
    let (lane, start) = (Folding.lane, readThrough(Folding.lane))
    guard settings.folds, knowsLanes, carrier.kind != "hub",
      folding?.isUsable(after: start, epoch: store.epoch) != true
    else { return false }
    let kept = lanes[lane].cursor
    guard start > kept, store.newestSeq[lane] - kept > Int64(Folding.maxKeys) else { return false }
    // What is under way first: until it is answered the cursor cannot get there.
    guard start == lanes[lane].taken else { return true }
    if !isKeepingCursor { move(to: takenSeqs, when: .now) }
    isKeepingCursor = true
    return true
  }

  /// What was folded is behind us: no memory is kept for it.
  func forgetFolding() {
    if let folding, folding.isComplete, lanes[Folding.lane].taken >= folding.through { self.folding = nil }
  }

  func nextDeadLetter() throws(StoreError) -> DeadLetter? {
    guard hasMarkedDeadLetters, flights.isEmpty else { return nil }
    var found: DeadLetter?
    try store.eachDeadLetter(of: name, marked: true, limit: 1) { letter in
      found = letter
      return false
    }
    hasMarkedDeadLetters = found != nil
    return found
  }
}
