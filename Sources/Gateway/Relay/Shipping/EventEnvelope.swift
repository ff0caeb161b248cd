// SPDX-License-Identifier: MIT

import ControlShapes
import JSON
import Store

/// One event with its identity, for servers that take events one by one.
enum EventEnvelope {
  static func encode(_ event: JournalEvent, of store: Store) -> [UInt8] {
    JSONWriter.object { json in
      json.field("gateway", store.gatewayID)
      json.field("epoch", store.epoch)
      json.field("before", store.identity.epochBefore(of: event.seq))
      event.write(to: &json)
    }
  }
}

extension JournalEvent {
  /// The body's content; `nil`: it is damaged, which a gap reports.
  var json: JSONValue? {
    // `try?`: as above.
    try? JSONValue(parsing: body)
  }

  /// A received message with the copies of it that are known by now, for receivers that get each event alone and may look at nothing else. Later ones
  /// come in an event of their own.
  func withCopies(in store: Store) -> JournalEvent {
    guard kind == EventKind.message.rawValue, body.last == UInt8(ascii: "}"), let id = json?["id"]?.integer,
      // If copies or nodes cannot be read, the message goes out without them.
      let (copies, more) = store.ifReadable({ try store.copies(of: .received(id)) }), !copies.isEmpty
    else { return self }
    let nodes = store.ifReadable { try store.nodesOnWays(copies) } ?? []
    let fields = JSONWriter.object { EventBody.write(copies, more: more, Shape.Message().ways, nodes, to: &$0) }
    var whole = self
    whole.body = body.dropLast() + [UInt8(ascii: ",")] + fields.dropFirst()
    return whole
  }

  func write(to json: inout JSONWriter) {
    json.field("seq", seq)
    json.field("at", at)
    json.field("trusted", trusted)
    json.field("kind", kind)
    json.field("body", json: body)
  }
}
