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
      json.field("seq", event.seq)
      json.field("at", event.at)
      json.field("trusted", event.trusted)
      json.field("kind", event.kind)
      json.field("body", json: event.body)
    }
  }
}
