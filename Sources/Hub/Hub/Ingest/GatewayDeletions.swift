// SPDX-License-Identifier: MIT

import JSON

/// What a gateway has deleted, as its event `deletion` tells it: docs/hub-protocol.md, "Deletion".
struct GatewayDeletion: Sendable {
  enum Entry: Sendable {
    case event(seq: Int64, at: Int64)
    /// The events of a sent message, from its first to its last.
    case sent(key: String, first: Int64, last: Int64)
  }

  /// A gateway names 100 in an event. A range is as long as a message is on its way.
  private static let (mostEntries, longestRange, longestKey): (Int, Int64, Int) = (200, 10_000, 512)

  let entries: [Entry]

  /// Of events that came as deleted: a copy of the gateway may send them as they were.
  init(_ emptied: [PreparedEvent]) { entries = emptied.map { .event(seq: $0.event.seq, at: $0.event.at) } }

  /// `nil`: it names none, such as one in the place of an event.
  init?(_ body: JSONValue) {
    entries = (body["events"]?.array ?? []).prefix(Self.mostEntries).compactMap { entry in
      guard let seq = entry["seq"]?.count else { return nil }
      if let key = entry["outgoing"]?.string, key.utf8.count <= Self.longestKey {
        let last = entry["last"]?.count ?? seq
        return .sent(key: key, first: seq, last: min(last, seq + Self.longestRange))
      }
      return entry["at"]?.integer.map { .event(seq: seq, at: $0) }
    }
    if entries.isEmpty { return nil }
  }

  fileprivate static func name(seq: Int64, at: Int64) -> String { "event/\(seq)/\(at)" }
  fileprivate static func name(sent key: String) -> String { "outgoing/\(key)" }
}

/// An event of which only the place is left.
enum EmptiedEvent {
  static let kind = "deletion"
  static let body = #"{"deleted":true}"#
}

extension PreparedEvent {
  /// The names by which it may have been deleted.
  fileprivate var deletionNames: [String] {
    var names = [GatewayDeletion.name(seq: event.seq, at: event.at)]
    if case .heard(let heard) = effect { names.append(heard.identity) }
    // `try?`: what is no JSON was refused before.
    if event.kind == "outgoing", let key = (try? JSONValue(parsing: Array(body.utf8)))?["id"]?.string {
      names.append(GatewayDeletion.name(sent: key))
    }
    return names
  }

  fileprivate mutating func empty() {
    if event.kind != "ways" { event.kind = EmptiedEvent.kind }
    (event.body, body, effect) = (.null, EmptiedEvent.body, .none)
  }
}

/// Deletions by gateways. A gateway deletes what it has reported, and nothing of others; and nothing that it deleted comes back, in whatever epoch or
/// batch it comes again.
extension HubStore {
  /// Finds gateways that have deleted something.
  func findingDeleters(_ gateways: [String], _ row: @escaping (String) -> Void) -> HubCall {
    HubCall(
      "SELECT v.gateway FROM @rows WHERE EXISTS (SELECT 1 FROM deleted_messages d WHERE d.gateway = v.gateway)",
      ["gateway": gateways]
    ) { row($0.text(0)) }
  }

  /// Empties events that were deleted before they came, or came again.
  func emptyDeleted(_ batches: inout [PreparedBatch], of deleters: Set<String>) throws(HubDatabaseError) {
    guard !deleters.isEmpty else { return }
    var names: [(gateway: String, name: String)] = []
    for batch in batches where deleters.contains(batch.gateway) {
      for event in batch.events where event.body != EmptiedEvent.body {
        names += event.deletionNames.map { (batch.gateway, $0) }
      }
    }
    var deleted: [String: Set<String>] = [:]
    let call = HubCall(
      "SELECT v.gateway, v.name FROM @rows JOIN deleted_messages d ON d.gateway = v.gateway AND d.name = v.name",
      ["gateway": names.map(\.gateway), "name": names.map(\.name)]
    ) { deleted[$0.text(0), default: []].insert($0.text(1)) }
    try database.perform([call], begins: false, ends: false)
    for place in batches.indices {
      guard let known = deleted[batches[place].gateway] else { continue }
      for index in batches[place].events.indices {
        if batches[place].events[index].deletionNames.contains(where: known.contains) {
          batches[place].events[index].empty()
        }
      }
    }
  }

  /// Within a transaction of batches, behind its events. Returns the identities of messages that nobody has any more.
  func delete(_ deletion: GatewayDeletion, of gateway: String, epoch: String) throws(HubDatabaseError) -> Set<String> {
    let found = try find(deletion, of: gateway, epoch)
    var (identities, copies, commands): ([String: String?], Set<String>, [String]) = ([:], [], [])
    for event in found {
      // `try?`: stored values were valid JSON when they arrived.
      guard let body = try? JSONValue(parsing: Array(event.stored.body.utf8)) else { continue }
      switch event.stored.kind {
      case "message":
        let whole = HubEvent(seq: event.seq, at: event.stored.at, trusted: true, kind: "message", body: body)
        guard case .heard(let heard) = PreparedEvent(whole, from: gateway, epoch: event.epoch).effect else { continue }
        identities.updateValue(heard.channel, forKey: heard.identity)
        if let identity = Self.identity(ofCopies: body) { copies.insert(identity) }
      case "command": if let id = body["id"]?.string { commands.append(id) }
      default: break
      }
    }
    try note(deletion, Array(identities.keys), of: gateway)
    let ids = try found.map(\.id) + idsOfWays(copies.sorted(), of: gateway)
    try database.perform(
      [
        HubCall(
          """
          UPDATE events SET kind = CASE kind WHEN 'ways' THEN kind ELSE '\(EmptiedEvent.kind)' END,
          body = '\(EmptiedEvent.body)' WHERE id IN (SELECT v.id FROM @rows)
          """, ["id": ids]),
        HubCall(
          "UPDATE commands SET body = '\(EmptiedEvent.body)', answer = NULL WHERE gateway = @1 AND id IN (SELECT v.id FROM @rows)",
          ["id": commands], values: [gateway]),
        HubCall(
          "UPDATE updates SET body = '' WHERE gateway = @1 AND bucket = 'commands' AND id IN (SELECT v.id FROM @rows)",
          ["id": commands], values: [gateway]),
      ], begins: false, ends: false)
    return try forget(identities, heardBy: gateway)
  }

  private struct FoundEvent {
    let id: Int64
    let epoch: String
    let seq: Int64
    let stored: StoredEvent
  }

  /// Its events in all epochs: one may be older than the gateway's present one.
  private func find(
    _ deletion: GatewayDeletion, of gateway: String, _ epoch: String
  ) throws(HubDatabaseError) -> [FoundEvent] {
    let known = try database.rows("SELECT epoch FROM epochs WHERE gateway = ?1", [gateway]) { $0.text(0) }
    // The epoch of a first batch has no row yet.
    let epochs = Array(Set(known + [epoch]))
    var events: [(epoch: String, seq: Int64, at: Int64)] = []
    var sent: [(epoch: String, first: Int64, last: Int64)] = []
    var keys: Set<String> = []
    for epoch in epochs {
      for entry in deletion.entries {
        switch entry {
        case .event(let seq, let at): events.append((epoch, seq, at))
        case .sent(let key, let first, let last):
          sent.append((epoch, first, last))
          keys.insert(key)
        }
      }
    }
    var found: [FoundEvent] = []
    let columns = "SELECT e.id, e.epoch, e.seq, e.at, e.kind, e.body FROM @rows JOIN events e"
    let same = "e.gateway = @1 AND e.epoch = v.epoch AND e.body <> '\(EmptiedEvent.body)'"
    func add(_ row: any HubRow) {
      let stored = StoredEvent(row, from: 3)
      found.append(FoundEvent(id: row.integer(0), epoch: row.text(1), seq: row.integer(2), stored: stored))
    }
    try database.perform(
      [
        HubCall(
          "\(columns) ON \(same) AND e.seq = v.seq AND e.at = v.at",
          ["epoch": events.map(\.epoch), "seq": events.map(\.seq), "at": events.map(\.at)], values: [gateway], row: add),
        HubCall(
          "\(columns) ON \(same) AND e.seq >= v.first AND e.seq <= v.last AND e.kind = 'outgoing'",
          ["epoch": sent.map(\.epoch), "first": sent.map(\.first), "last": sent.map(\.last)], values: [gateway]
        ) { row in
          // `try?`: as above.
          let body = try? JSONValue(parsing: Array(row.text(5).utf8))
          if let key = body?["id"]?.string, keys.contains(key), body?["text"] != nil { add(row) }
        },
      ], begins: false, ends: false)
    return found
  }

  /// Remembers for good what was deleted.
  private func note(
    _ deletion: GatewayDeletion, _ identities: [String], of gateway: String
  ) throws(HubDatabaseError) {
    let names = deletion.entries.map { entry in
      switch entry {
      case .event(let seq, let at): GatewayDeletion.name(seq: seq, at: at)
      case .sent(let key, _, _): GatewayDeletion.name(sent: key)
      }
    }
    let all = Set(names + identities).sorted()
    try database.perform(
      [
        HubCall(
          into: "deleted_messages", ["gateway": all.map { _ in gateway }, "name": all],
          "ON CONFLICT(gateway, name) DO NOTHING")
      ], begins: false, ends: false)
  }

  private func idsOfWays(_ identities: [String], of gateway: String) throws(HubDatabaseError) -> [Int64] {
    guard !identities.isEmpty else { return [] }
    var ids: [Int64] = []
    let named = HubSchema.message(ofWays: "x.body", database.dialect)
    let call = HubCall(
      "SELECT x.id FROM @rows JOIN events x ON x.kind = 'ways' AND \(named) = v.identity AND x.gateway = @1",
      ["identity": identities], values: [gateway]
    ) { ids.append($0.integer(0)) }
    try database.perform([call], begins: false, ends: false)
    return ids
  }

  /// `identities`: with their channels.
  private func forget(_ identities: [String: String?], heardBy gateway: String) throws(HubDatabaseError) -> Set<String>
  {
    guard !identities.isEmpty else { return [] }
    var (positions, alone): ([Int64], [(position: Int64, identity: String)]) = ([], [])
    let names = identities.keys.sorted()
    let finding = HubCall(
      """
      SELECT m.position, m.identity, (SELECT count(*) FROM heard h WHERE h.message = m.position AND h.gateway <> @1)
      FROM @rows JOIN messages m ON m.identity = v.identity
      """, ["identity": names], values: [gateway]
    ) { row in
      positions.append(row.integer(0))
      if row.integer(2) == 0 { alone.append((row.integer(0), row.text(1))) }
    }
    try database.perform([finding], begins: false, ends: false)
    // The others keep it for their readers: it is theirs, too. Of a message that nobody has any more, the list may have the report of any of them.
    let updates = alone.map { message in
      let channel = identities[message.identity].flatMap { $0 }
      return (bucket: channel.map { "channel/\($0)" } ?? "", id: message.identity)
    }
    let last = "(SELECT max(position) FROM messages)"
    let rows: KeyValuePairs<String, any HubColumn> = ["position": alone.map(\.position)]
    try database.perform(
      [
        HubCall(
          "DELETE FROM heard WHERE gateway = @1 AND message IN (SELECT v.position FROM @rows)", ["position": positions],
          values: [gateway]),
        HubCall("DELETE FROM messages WHERE position IN (SELECT v.position FROM @rows) AND position < \(last)", rows),
        // The next message's position follows from the newest one.
        HubCall(
          """
          UPDATE messages SET body = '', channel = NULL, at = \(HubSchema.timeOfEmptied),
          identity = \(Self.identityOfEmptied) WHERE position IN (SELECT v.position FROM @rows)
          """, rows),
        HubCall(
          """
          UPDATE updates SET body = '' WHERE gateway = '' AND bucket IN (SELECT v.bucket FROM @rows)
          AND id IN (SELECT v.id FROM @rows)
          """, ["bucket": updates.map(\.bucket), "id": updates.map(\.id)]),
        HubCall(
          """
          UPDATE updates SET body = '' WHERE gateway IN (SELECT w.gateway FROM wanted_hearers w)
          AND gateway <> '' AND bucket = '\(Self.heardBucket)' AND body <> '' AND id IN (SELECT v.id FROM @rows)
          """, ["id": updates.map(\.id)]),
      ], begins: false, ends: false)
    return Set(alone.map(\.identity))
  }
}
