// SPDX-License-Identifier: MIT

import Alerts
import Messaging

/// Watches the radio's contact table for a free place after a node was not added.
struct ContactTableWatch {
  typealias Table = () -> (count: Int, most: Int)?

  private let table: Table
  /// A node was not added, and the table has had no free place since.
  private var wasFull = false
  private var removed: UInt64 = 0
  var unread = UnreadTexts()

  init(_ table: @escaping Table) { self.table = table }

  var isFull: Bool { table().map { $0.count >= $0.most } ?? false }

  mutating func nodeWasNotAdded() -> AlertReading? {
    guard let table = table() else { return nil }
    wasFull = true
    let texts =
      unread.count == 0
      ? ""
      : "Since the start, texts for this radio that could not be read, and did not come again readably: \(unread.count), from nodes whose keys begin "
        + "with \(unread.senderBytes.joined(separator: ", ")). "
    let text =
      "the radio's contact table is full (\(table.count) of \(table.most)): a node was not added. The radio cannot read a text of a node outside of its "
      + "table, until the node has a place. \(texts)See [contacts] in the configuration, or remove a node with meshpost contact remove"
    return .bad(text: text, value: Double(table.count))
  }

  /// Only a free place ends the alert: further nodes may need one.
  mutating func look() -> AlertReading? {
    guard let table = table() else { return nil }
    if table.count < table.most {
      wasFull = false
      return .well
    }
    // While a refused node has no place, the alert stays as it is until it times out.
    return wasFull ? nil : .between
  }

  /// `removed`: the number of contacts removed since the start. Returns true if it has changed while the table was full.
  mutating func mayHaveRoom(_ removed: UInt64) -> Bool {
    guard wasFull, removed != self.removed else { return false }
    self.removed = removed
    return true
  }
}
