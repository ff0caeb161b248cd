// SPDX-License-Identifier: MIT

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

  func write(to json: inout JSONWriter) {
    json.field("seq", seq)
    json.field("at", at)
    json.field("trusted", trusted)
    json.field("kind", kind)
    json.field("body", json: body)
  }
}
