// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import HTTP
import JSON
import Messaging
import Store

/// `/v1/radios`, and the parameter `radio=` that selects whose rows are shown.
enum RadiosAPI {
  /// The number of the selected radio; `nil`: all. Without `radio`, the attached radio or the last one.
  static func wanted(_ request: HTTPRequest, _ store: Store) throws(Refusal) -> Int64? {
    guard let text = request.query["radio"] else { return store.radio }
    guard text != "all" else { return nil }
    let typed = text.lowercased()
    let byKey = store.radios.filter { typed.utf8.count >= 4 && Array($0.key.hex.utf8).starts(with: typed.utf8) }
    let fitting = byKey.isEmpty ? store.radios.filter { Array($0.name.string.utf8) == Array(text.utf8) } : byKey
    guard let radio = fitting.first else { throw .notFound(.radio(text)) }
    guard fitting.count == 1 else {
      throw .ambiguous(text, candidates: fitting.map { "\($0.name.string) (\($0.mark))" })
    }
    return radio.id
  }

  /// Only the newest radios are listed: a header must stay short.
  private static let maxOthers = 8
  static let othersHeader = "Meshpost-Other-Radios"

  /// A header of answers with rows: other radios, whose rows are not included. `nil`: only one radio was ever attached.
  static func others(_ store: Store) -> String? {
    guard store.radios.count > 1 else { return nil }
    // If the store cannot be read, there are no rows either.
    guard let lines = store.ifReadable({ try rows(store) }) else { return nil }
    let others = lines.split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) }  // `try?`: just encoded
      .filter { $0["present"]?.bool == false }.suffix(maxOthers)
    return PercentCoding.encode(JSONValue.array(Array(others)).text)
  }

  /// One row for each radio that was ever attached, in order of first attachment.
  static func rows(_ store: Store) throws(StoreError) -> [UInt8] {
    var lines: [UInt8] = []
    for radio in store.radios {
      let (messages, nodes) = (try store.messageCount(ofRadio: radio.id), try store.contactCount(ofRadio: radio.id))
      let held = radio.id == store.radio ? 0 : try store.heldCount(ofRadio: radio.id)
      lines += ControlAPI.line { json in
        let row = Shape.KnownRadio()
        json.field(row.key, radio.key.hex)
        json.field(row.radio, radio.mark)
        json.field(row.name, radio.name.string)
        json.field(row.present, radio.id == store.radio)
        if radio.firstSeen > 0 { json.field(row.firstSeen, radio.firstSeen) }
        if radio.lastSeen > 0 { json.field(row.lastSeen, radio.lastSeen) }
        json.field(row.messages, messages)
        json.field(row.nodes, nodes)
        json.field(row.held, held)
      }
    }
    return lines
  }
}
