// SPDX-License-Identifier: MIT

import JSON
import Store

/// Events on their way to an upstream, as the JSON that is sent. Source: docs/hub-protocol.md.
struct Batch {
  struct Limits: Equatable {
    var events: Int
    var bytes: Int
  }

  private(set) var events: [JournalEvent] = []
  private(set) var bytes = 0
  /// Everything up to here is in the batch, or is a gap that the batch tells of.
  private(set) var last: Int64

  /// Reads on from the cursor. What is missing in between (given up by quota or age, or damaged) becomes a `gap` event
  /// in its place.
  init(after cursor: Int64, of store: Store, limits: Limits) throws(StoreError) {
    last = cursor
    var missing: [(first: Int64, last: Int64, at: Int64)] = []
    var collected: [JournalEvent] = []
    var size = 0
    var expected = cursor + 1
    try store.readJournal(after: cursor, limit: limits.events) { event, isSound in
      guard collected.isEmpty || size + event.body.count <= limits.bytes else { return false }
      if event.seq > expected {
        missing.append((expected, event.seq - 1, event.at))
        collected.append(JournalEvent(seq: event.seq - 1, at: event.at, trusted: false, kind: "gap", body: []))
      }
      let body = isSound ? event.body : EventBody.gap(first: event.seq, last: event.seq, reason: "corrupt")
      let kind = isSound ? event.kind : EventKind.gap.rawValue
      collected.append(
        JournalEvent(seq: event.seq, at: event.at, trusted: event.trusted, kind: kind, body: body))
      size += event.body.count
      expected = event.seq + 1
      return true
    }
    for gap in missing {
      guard let index = collected.firstIndex(where: { $0.seq == gap.last && $0.kind == "gap" && $0.body.isEmpty })
      else { continue }
      let reason = try store.trim(covering: gap.last)?.reason ?? "missing"
      collected[index].body = EventBody.gap(first: gap.first, last: gap.last, reason: reason)
    }
    events = collected
    bytes = size
    last = expected - 1
  }

  init(_ event: JournalEvent) {
    events = [event]
    bytes = event.body.count
    last = event.seq
  }

  var isEmpty: Bool { events.isEmpty }

  func encode(epoch: String) -> [UInt8] {
    var json = JSONWriter(reserving: bytes + events.count * 80 + 64)
    json.object { json in
      json.field("epoch", epoch)
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
