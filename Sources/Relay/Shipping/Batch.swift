// SPDX-License-Identifier: MIT

import JSON
import Store

/// Events on their way to an upstream, as the JSON that is sent. Source: docs/hub-protocol.md.
struct Batch {
  struct Limits: Equatable {
    var events: Int
    var bytes: Int
  }

  static let maxLeftOut = 2000

  private(set) var events: [JournalEvent] = []
  private(set) var bytes = 0
  /// Everything up to here is in the batch, or is a gap that the batch tells of.
  private(set) var last: Int64
  /// The event that the server must have before these; `nil`: it does not matter.
  var after: Int64?

  /// Reads on from the cursor. What is missing in between (given up by quota or age, or damaged) becomes a `gap` event
  /// in its place.
  ///
  /// What the filter does not let pass is left out and counts as being in it; `maxLeftOut` of that end the batch, so that
  /// nobody is held up by a long stretch that is not for this server.
  init(
    after cursor: Int64, of store: Store, limits: Limits, filter: EventFilter = EventFilter(),
    present: AgeLimit.Present? = nil
  ) throws(StoreError) {
    last = cursor
    var missing: [(first: Int64, last: Int64, at: Int64)] = []
    var collected: [JournalEvent] = []
    var size = 0
    var expected = cursor + 1
    var leftOut = 0
    var failure: StoreError?
    try store.readJournal(after: cursor, limit: limits.events + Self.maxLeftOut) { event, isSound in
      guard collected.count < limits.events, leftOut < Self.maxLeftOut else { return false }
      guard collected.isEmpty || size + event.body.count <= limits.bytes else { return false }
      if event.seq > expected {
        missing.append((expected, event.seq - 1, event.at))
        collected.append(JournalEvent(seq: event.seq - 1, at: event.at, trusted: false, kind: "gap", body: []))
        expected = event.seq
        // The gap counts: a batch of one that a server refuses must not come again as the same two.
        guard collected.count < limits.events else { return false }
      }
      expected = event.seq + 1
      do throws(StoreError) {
        let isYoung = present.map { filter.age?.passes(event, $0) ?? true } ?? true
        let passes = isSound ? try filter.passes(event, store) : true
        guard passes, isYoung || !isSound else {
          leftOut += 1
          return true
        }
      } catch {
        // Whose it is cannot be told now: the batch is read again.
        failure = error
        return false
      }
      let body = isSound ? event.body : EventBody.gap(first: event.seq, last: event.seq, reason: "corrupt")
      let kind = isSound ? event.kind : EventKind.gap.rawValue
      collected.append(
        JournalEvent(seq: event.seq, at: event.at, trusted: event.trusted, kind: kind, body: body))
      size += event.body.count
      return true
    }
    if let failure { throw failure }
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

  /// `gateway`: told to servers whose address does not say it. `number`: counts batches of a live link.
  func encode(epoch: String, gateway: String? = nil, number: Int? = nil) -> [UInt8] {
    var json = JSONWriter(reserving: bytes + events.count * 80 + 64)
    json.object { json in
      json.field("gateway", gateway)
      if let number {
        json.field("type", "events")
        json.field("n", number)
        json.field("after", after)
      }
      // A live link was told of it at its beginning.
      if number == nil { json.field("epoch", epoch) }
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
