// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Delivery
import JSON
import Store

/// What nodes report, kept as readings.
extension NodeService {
  /// Polls a node, and keeps its answer as a reading. Of a list of neighbours one packet is enough: those heard last, and how many there are.
  func poll(_ kind: NodePolling.Poll.Kind, _ stored: StoredContact) async throws(Refusal) {
    switch kind {
    case .status: _ = try await ask(.status, of: stored, .bulk)
    case .telemetry: _ = try await ask(.telemetry, of: stored, .bulk)
    case .neighbours:
      let answer = try await ask(.neighbours(first: 0), of: stored, .bulk)
      keep(.neighbours, stored.contact) { answer.write(to: &$0) }
    case .owner:
      let answer = try await ask(.owner, of: stored, .bulk)
      keep(.owner, stored.contact) { answer.write(to: &$0) }
    case .clock:
      let found = try await clock(of: stored, .bulk)
      keep(.clock, stored.contact) { json in
        json.field(Shape.NodeClock().offsetS, found.seconds)
        json.field(Shape.NodeClock().withinS, found.within)
      }
    }
  }

  func keep(_ kind: EventKind, _ contact: Contact, _ write: (inout JSONWriter) -> Void) {
    let body = JSONWriter.object { json in
      json.field("node", contact.key.hex)
      json.field("name", contact.name.string)
      write(&json)
    }
    let moment = messenger.synchronizer.now
    messenger.store.post(when: .soon, "the \(kind.rawValue) of \(contact.name.string)") { store throws(SQLiteError) in
      try store.keepReading(of: contact.key, kind: kind, body: body, at: moment)
    }
  }
}
