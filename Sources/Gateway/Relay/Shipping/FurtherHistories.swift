// SPDX-License-Identifier: MIT

import JSON
import Store

/// Further histories of an epoch. A hub makes them of events that came by a broker and whose numbers it had with other content, and names each by the
/// epoch, a dot, and the digest of its first event. Source: docs/hub-protocol.md.
extension JournalReader {
  /// The newest events of the epoch among which the first one of a history is searched.
  private static let mostSearched: Int64 = 2000

  /// Whether such a history is no loss: it began with an event of this journal, which was published before a hub told of the conflict; or the loss of
  /// its epoch was told, which is the same other copy of the database.
  func isKnownHistory(_ epoch: String) throws(StoreError) -> Bool {
    guard let dot = epoch.lastIndex(of: ".") else { return false }
    let (stem, first) = (String(epoch[..<dot]), String(epoch[dot...].dropFirst()))
    guard try store.knows(stem, through: 0) else { return false }
    if try store.isLossTold(of: stem) { return true }
    let last = stem == store.epoch ? store.lastSeq : store.identity.epochFirst - 1
    var isOwn = false
    try store.readJournal(after: max(0, last - Self.mostSearched), limit: Int(Self.mostSearched)) { event, isSound in
      guard event.seq <= last else { return false }
      isOwn = isSound && Self.historyName(event) == first
      return !isOwn
    }
    return isOwn
  }

  /// How a history is named that begins with this event.
  private static func historyName(_ event: JournalEvent) -> String? {
    guard event.kind != EventKind.gap.rawValue else { return "gap" }
    return event.json.map { EventContent.digest(at: event.at, kind: event.kind, body: $0) }
  }
}
