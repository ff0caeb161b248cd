// SPDX-License-Identifier: MIT

import JSON
import SQLite
import Store

/// What the journal deletes while it is under way to the server.
extension JournalReader {
  /// The batch is sent.
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
  /// Returns how many events that are.
  func hasDeleted(in lane: Lane, through seq: Int64) -> Int64 {
    let (events, taken) = (doubtful(lane, through: seq), lanes[lane].taken)
    lanes[lane].gapsSent = lanes[lane].gapsSent.filter { $0.key > seq }
    guard events > 0 else { return 0 }
    store.post(when: .heard, "what \(name) has of what was deleted") { [name] store throws(SQLiteError) in
      try store.tookDeleted(events, of: lane, after: taken, by: name)
    }
    return events
  }

  /// A gap was acknowledged. What the server had, and has no more, is not here either; others have a gap for it, too, but lose nothing.
  /// `had`: what it had acknowledged before. Returns how many events are lost there.
  func lost(in gap: JournalEvent, _ lane: Lane, had: Int64) -> Int64 {
    // `try?`: it is our own.
    guard let body = try? JSONValue(parsing: gap.body), let first = body["first"]?.count,
      let count = body["count"]?.count
    else { return 0 }
    // Of what was trimmed it had a part at most; the rest was counted when it was deleted.
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
