// SPDX-License-Identifier: MIT

import JSON
import Store

/// Events that the journal deletes while they are under way to the server.
extension JournalReader {
  func noteSent(_ batch: Batch, _ lane: Lane) {
    lanes[lane].sent = max(lanes[lane].sent, batch.last)
    lanes[lane].named?.isSent = true
    for event in batch.events where event.kind == EventKind.gap.rawValue {
      guard let body = event.json, ["quota", "age"].contains(body["reason"]?.string) else { continue }
      lanes[lane].gapsSent[event.seq] = body["count"]?.count ?? 0
    }
  }

  /// The number of events that were counted as lost when the journal deleted them, but may have been under way: sent (up to `end`), and not
  /// acknowledged.
  func doubtful(_ lane: Lane, through end: Int64 = .max) -> Int64 {
    let (taken, end) = (lanes[lane].taken, min(end, lanes[lane].sent))
    // A server that knows no lanes gets all events in the first.
    let sent = knowsLanes ? [lane] : Lane.allCases
    guard end > taken, sent.contains(where: { taken < store.deletedThrough[$0] }),
      let deleted = store.ifReadable({
        try sent.reduce(0) { try $0 + store.deleted(of: $1, after: taken, through: end) }
      })
    else { return 0 }
    let told = lanes[lane].gapsSent.filter { $0.key > taken && $0.key <= end }.values.reduce(0, +)
    return max(0, deleted - told)
  }

  /// The server has the lane up to `seq`: events that were deleted while they were under way are not lost. Call it before the lane moves. Returns the
  /// number of these events.
  func hasDeleted(in lane: Lane, through seq: Int64) -> Int64 {
    let (events, taken) = (doubtful(lane, through: seq), lanes[lane].taken)
    lanes[lane].gapsSent = lanes[lane].gapsSent.filter { $0.key > seq }
    guard events > 0 else { return 0 }
    store.post(when: .heard, "what \(name) has of what was deleted") { [name] store throws(SQLiteError) in
      try store.tookDeleted(events, of: lane, after: taken, by: name)
    }
    return events
  }

  /// The server has acknowledged a gap. Events that it once had and has no more are lost, because they are not here either; other servers get the
  /// gap, too, but lose nothing. `had`: the last event that this server had acknowledged before. Returns the number of lost events.
  func lost(in gap: JournalEvent, _ lane: Lane, had: Int64) -> Int64 {
    guard let body = gap.json, let first = body["first"]?.count, let count = body["count"]?.count else { return 0 }
    // The server had only a part of a trimmed range; the rest was counted as lost when it was deleted.
    let isDeleted = body["reason"]?.string == "missing"
    guard first <= (isDeleted ? lanes[lane].wasTaken : had) else { return 0 }
    let events = isDeleted ? count : min(count, min(had, gap.seq) - first + 1)
    log.warning(
      "\(name): it had events \(first) to \(gap.seq) of \(lane.rawValue) and has them no more, and the journal has not kept them: at most "
        + "\(events) are lost there; it has a gap for them")
    store.post(when: .heard, "what \(name) lost") { [name] store throws(SQLiteError) in
      try store.addGivenUp(events, of: name)
    }
    return events
  }
}
