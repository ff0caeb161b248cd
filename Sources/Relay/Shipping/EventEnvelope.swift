// SPDX-License-Identifier: MIT

import JSON
import Store

/// One event with its identity, as servers get it that take them one by one.
enum EventEnvelope {
  static func encode(_ event: JournalEvent, gateway: String, epoch: String) -> [UInt8] {
    JSONWriter.object { json in
      json.field("gateway", gateway)
      json.field("epoch", epoch)
      json.field("seq", event.seq)
      json.field("at", event.at)
      json.field("trusted", event.trusted)
      json.field("kind", event.kind)
      json.field("body", json: event.body)
    }
  }
}
