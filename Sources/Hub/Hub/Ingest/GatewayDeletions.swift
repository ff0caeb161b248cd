// SPDX-License-Identifier: MIT

import JSON
import MeshCrypto

/// What a gateway has deleted, as its event `deletion` tells it: docs/hub-protocol.md, "Deletion".
struct GatewayDeletion: Sendable {
  /// An event by its number and its time: a number alone may be another event's, of another history.
  struct Entry: Hashable, Sendable {
    let seq: Int64
    let at: Int64

    var name: String { "event/\(seq)/\(at)" }
  }

  /// A gateway names 100 in an event.
  private static let mostEntries = 200

  let entries: [Entry]

  /// `nil`: it names none, such as one in the place of an event.
  init?(_ body: JSONValue) {
    entries = (body["events"]?.array ?? []).prefix(Self.mostEntries).compactMap { entry in
      guard let seq = entry["seq"]?.count, let at = entry["at"]?.integer else { return nil }
      return Entry(seq: seq, at: at)
    }
    if entries.isEmpty { return nil }
  }
}

/// An event of which only the place is left.
enum EmptiedEvent {
  static let kind = "deletion"
  static let body = #"{"deleted":true}"#
  /// Only events with messages can be deleted: whoever has a gateway's token hides no gap, no alert, and nothing of nodes.
  private static let kinds = ["message", "outgoing", "reaction", "ways", "command"]

  /// SQL: events `e` of these kinds that were not deleted. Of the others only `ways` keeps its kind.
  fileprivate static let isDeletable =
    "e.kind IN (\(kinds.map { "'\($0)'" }.joined(separator: ", "))) AND (e.kind <> 'ways' OR e.body <> '\(body)')"

  /// `body`: of a command; only those that sent something.
  fileprivate static func isDeletable(_ kind: String, _ body: JSONValue) -> Bool {
    kinds.contains(kind) && (kind != "command" || body["result"]?["messages"]?.array != nil)
  }

  /// The name of a sent message: what it says and when somebody wanted it sent. Its id alone may be another message's after a restore of the gateway's
  /// database. `nil`: the event has no text.
  fileprivate static func nameOfSent(_ body: JSONValue) -> String? {
    guard let key = body["id"]?.string, let text = body["text"]?.string else { return nil }
    let parts = [key, body["created_at"]?.integer.map { String($0) } ?? "", text]
    return "sent/" + Digest.sha256(Array(parts.joined(separator: "\0").utf8)).prefix(16).hex
  }
}

extension PreparedEvent {
  /// The names by which it may have been deleted.
  fileprivate var deletionNames: [String] {
    var names = [GatewayDeletion.Entry(seq: event.seq, at: event.at).name]
    if case .heard(let heard) = effect { names.append(heard.identity) }
    // `try?`: what is no JSON was refused before.
    if event.kind == "outgoing", let whole = try? JSONValue(parsing: Array(body.utf8)),
      let name = EmptiedEvent.nameOfSent(whole)
    {
      names.append(name)
    }
    return names
  }

  fileprivate mutating func empty() {
    if event.kind != "ways" { event.kind = EmptiedEvent.kind }
    (event.body, body, effect) = (.null, EmptiedEvent.body, .none)
  }
}

/// What a transaction spends on deletions at most: the rest is done later, in transactions of its own.
struct DeletionBudget {
  /// Places that are looked at, and bytes of the events there.
  var (places, bytes) = (2000, 1 << 20)
  /// Places at a time, and what emptying an event costs, in places that are looked at.
  fileprivate static let (step, costOfEmptying) = (64, 16)

  fileprivate var isLeft: Bool { places > 0 && bytes > 0 }
}

/// Deleted events in all epochs of a gateway, place by place: one may be older than the gateway's present epoch.
private struct DeletionPlaces {
  /// `after`: its places up to this epoch are done; empty: none is.
  typealias Waiting = (entry: GatewayDeletion.Entry, after: String)

  private let entries: [Waiting]
  private let epochs: [String]
  private var done = 0

  /// Of entries that wait only the first has begun.
  init(_ entries: [Waiting], in epochs: [String]) {
    (self.entries, self.epochs) = (entries, epochs)
    if let after = entries.first?.after { done = epochs.prefix { $0 <= after }.count }
  }

  private var count: Int { entries.count * epochs.count }

  /// The next ones.
  func next(_ most: Int) -> [(epoch: String, entry: GatewayDeletion.Entry)] {
    (done..<min(count, done + most)).map { (epochs[$0 % epochs.count], entries[$0 / epochs.count].entry) }
  }

  mutating func pass(_ places: Int) { done += places }

  /// What is left.
  var left: [Waiting] {
    guard done < count else { return [] }
    let (whole, part) = done.quotientAndRemainder(dividingBy: epochs.count)
    var left: [Waiting] = entries[whole...].map { ($0.entry, "") }
    if part > 0 { left[0].after = epochs[part - 1] }
    return left
  }
}

/// Deletions by gateways. A gateway deletes what it has reported, and nothing of others; and nothing that it deleted comes back, in whatever epoch or
/// batch it comes again.
extension HubStore {
  /// The most names that are remembered of a gateway, and events that wait to be emptied. It may be some thousands more: they are counted rarely.
  private static let (mostNames, mostWaiting): (Int64, Int64) = (500_000, 100_000)
  private static let deletionLog = ThrottledLog(HubLog.write)

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
      for event in batch.events where EmptiedEvent.isDeletable(event.event.kind, event.event.body) {
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
        let event = batches[place].events[index]
        guard EmptiedEvent.isDeletable(event.event.kind, event.event.body),
          event.deletionNames.contains(where: known.contains)
        else { continue }
        batches[place].events[index].empty()
      }
    }
  }

  /// Within a transaction of batches, behind its events. Returns the identities of messages that nobody has any more.
  ///
  /// `budget`: what is beyond it waits for `continueDeletions`. So a stolen token costs no more than with other events.
  func delete(
    _ named: Set<GatewayDeletion.Entry>, of gateway: String, epoch: String, _ budget: inout DeletionBudget
  ) throws(HubDatabaseError) -> Set<String> {
    let entries = named.sorted { ($0.seq, $0.at) < ($1.seq, $1.at) }
    try remember(entries.map(\.name), of: gateway)
    var places = DeletionPlaces(entries.map { ($0, "") }, in: try epochs(of: gateway, and: epoch))
    let gone = try empty(&places, of: gateway, &budget)
    let left = places.left
    guard !left.isEmpty else { return gone }
    let waiting = try database.number(
      "SELECT count(*) FROM (SELECT 1 FROM deletions WHERE gateway = ?1 LIMIT \(Self.mostWaiting)) d", gateway)
    if waiting < Self.mostWaiting {
      try database.perform([waitingFor(left, of: gateway)], begins: false, ends: false)
    } else {
      Self.deletionLog.say(
        "gateway \(gateway) deletes more at once than this hub works on: \(left.count) events stay as they are, such as \(left[0].entry.seq)"
      )
    }
    return gone
  }

  private func waitingFor(_ left: [DeletionPlaces.Waiting], of gateway: String) -> HubCall {
    HubCall(
      into: "deletions",
      [
        "gateway": left.map { _ in gateway }, "seq": left.map(\.entry.seq), "at": left.map(\.entry.at),
        "after": left.map(\.after),
      ], "ON CONFLICT(gateway, seq, at) DO UPDATE SET \(excluded("after"))")
  }

  /// In an order that stays. `epoch`: that of a first batch has no row yet.
  private func epochs(of gateway: String, and epoch: String? = nil) throws(HubDatabaseError) -> [String] {
    let known = try database.rows("SELECT epoch FROM epochs WHERE gateway = ?1", [gateway]) { $0.text(0) }
    return Set(known + [epoch].compactMap { $0 }).sorted()
  }

  /// Empties some of the events for which a transaction of batches had no time. False: none is left.
  func continueDeletions() throws(HubDatabaseError) -> Bool {
    try database.transaction { () throws(HubDatabaseError) in
      let next = try database.first("SELECT min(gateway) FROM deletions") { $0.textIfAny(0) }
      guard let gateway = next ?? nil else { return false }
      let locks = database.locking([gateway]) + database.stoppingMessages(Self.longestWait)
      try database.perform(locks, begins: false, ends: false)
      var budget = DeletionBudget()
      let waiting = try database.rows(
        "SELECT seq, at, after FROM deletions WHERE gateway = ?1 ORDER BY seq, at LIMIT ?2",
        [gateway, budget.places]
      ) { (entry: GatewayDeletion.Entry(seq: $0.integer(0), at: $0.integer(1)), after: $0.text(2)) }
      let some = waiting.prefix(1) + waiting.dropFirst().prefix { $0.after.isEmpty }
      var places = DeletionPlaces(Array(some), in: try epochs(of: gateway))
      _ = try empty(&places, of: gateway, &budget)
      let left = places.left
      let done = some.prefix(some.count - left.count).map(\.entry)
      try database.perform(
        [
          HubCall(
            "DELETE FROM deletions WHERE gateway = @1 AND (seq, at) IN (SELECT v.seq, v.at FROM @rows)",
            ["seq": done.map(\.seq), "at": done.map(\.at)], values: [gateway]),
          waitingFor(Array(left.prefix(1)), of: gateway),
        ], begins: false, ends: false)
      return true
    }
  }

  /// Remembers names of what was deleted. At the bound new ones are forgotten: what they name is deleted, and may come again.
  private func remember(_ names: [String], of gateway: String) throws(HubDatabaseError) {
    var known = deletedNames[gateway] ?? (0, 0)
    // Other connections add some, too.
    if known.left <= 0 {
      let count = try database.number(
        "SELECT count(*) FROM (SELECT 1 FROM deleted_messages WHERE gateway = ?1 LIMIT \(Self.mostNames)) d", gateway)
      known = (count, 4096)
    }
    defer { deletedNames[gateway] = known }
    known.left -= Int64(names.count)
    guard !names.isEmpty else { return }
    guard known.count < Self.mostNames else {
      return Self.deletionLog.say(
        "gateway \(gateway) has deleted more than this hub remembers: a copy of the gateway may bring its newest deletions back"
      )
    }
    known.count += Int64(names.count)
    let call = HubCall(
      into: "deleted_messages", ["gateway": names.map { _ in gateway }, "name": names],
      "ON CONFLICT(gateway, name) DO NOTHING")
    try database.perform([call], begins: false, ends: false)
  }

  private struct FoundEvent {
    let id: Int64
    let epoch: String
    let seq: Int64
    let stored: StoredEvent
  }

  private func empty(
    _ places: inout DeletionPlaces, of gateway: String, _ budget: inout DeletionBudget
  ) throws(HubDatabaseError) -> Set<String> {
    var gone: Set<String> = []
    while budget.isLeft {
      let some = places.next(min(DeletionBudget.step, budget.places))
      if some.isEmpty { break }
      var found: [FoundEvent] = []
      // CROSS JOIN fixes the order for SQLite, as in `findMoved`.
      let call = HubCall(
        """
        SELECT e.id, e.epoch, e.seq, e.at, e.kind, e.body FROM @rows CROSS JOIN events e
        WHERE e.gateway = @1 AND e.epoch = v.epoch AND e.seq = v.seq AND e.at = v.at AND \(EmptiedEvent.isDeletable)
        """,
        ["epoch": some.map(\.epoch), "seq": some.map(\.entry.seq), "at": some.map(\.entry.at)], values: [gateway]
      ) { row in
        let stored = StoredEvent(row, from: 3)
        found.append(FoundEvent(id: row.integer(0), epoch: row.text(1), seq: row.integer(2), stored: stored))
      }
      try database.perform([call], begins: false, ends: false)
      budget.places -= some.count + found.count * DeletionBudget.costOfEmptying
      budget.bytes -= found.reduce(0) { $0 + $1.stored.body.utf8.count }
      if try empty(found, of: gateway, &gone) { places.pass(some.count) }
    }
    return gone
  }

  /// False: messages have more events of copies than it empties at once. Those come first, because only the message leads to them.
  private func empty(
    _ found: [FoundEvent], of gateway: String, _ gone: inout Set<String>
  ) throws(HubDatabaseError) -> Bool {
    var (identities, sent, copies): ([String: String?], Set<String>, Set<String>) = ([:], [], [])
    var (ids, commands): ([Int64], [String]) = ([], [])
    for event in found {
      // `try?`: stored values were valid JSON when they arrived.
      guard let body = try? JSONValue(parsing: Array(event.stored.body.utf8)),
        EmptiedEvent.isDeletable(event.stored.kind, body)
      else { continue }
      ids.append(event.id)
      switch event.stored.kind {
      case "message":
        let whole = HubEvent(seq: event.seq, at: event.stored.at, trusted: true, kind: "message", body: body)
        guard case .heard(let heard) = PreparedEvent(whole, from: gateway, epoch: event.epoch).effect else { continue }
        identities.updateValue(heard.channel, forKey: heard.identity)
        if let identity = Self.identity(ofCopies: body) { copies.insert(identity) }
      case "outgoing": if let name = EmptiedEvent.nameOfSent(body) { sent.insert(name) }
      case "command": if let id = body["id"]?.string { commands.append(id) }
      default: break
      }
    }
    let ways = try idsOfWays(copies.sorted(), of: gateway)
    guard ways.count < DeletionBudget.step else {
      try database.perform([emptying(ways)], begins: false, ends: false)
      return false
    }
    try remember(sent.union(identities.keys).sorted(), of: gateway)
    try database.perform(
      [
        emptying(ids + ways),
        HubCall(
          "UPDATE commands SET body = '\(EmptiedEvent.body)', answer = NULL WHERE gateway = @1 AND id IN (SELECT v.id FROM @rows)",
          ["id": commands], values: [gateway]),
        HubCall(
          "UPDATE updates SET body = '' WHERE gateway = @1 AND bucket = 'commands' AND id IN (SELECT v.id FROM @rows)",
          ["id": commands], values: [gateway]),
      ], begins: false, ends: false)
    gone.formUnion(try forget(identities, heardBy: gateway))
    return true
  }

  private func emptying(_ ids: [Int64]) -> HubCall {
    HubCall(
      """
      UPDATE events SET kind = CASE kind WHEN 'ways' THEN kind ELSE '\(EmptiedEvent.kind)' END,
      body = '\(EmptiedEvent.body)' WHERE id IN (SELECT v.id FROM @rows)
      """, ["id": ids])
  }

  private func idsOfWays(_ identities: [String], of gateway: String) throws(HubDatabaseError) -> [Int64] {
    guard !identities.isEmpty else { return [] }
    var ids: [Int64] = []
    let named = HubSchema.message(ofWays: "x.body", database.dialect)
    let call = HubCall(
      """
      SELECT x.id FROM @rows JOIN events x ON x.kind = 'ways' AND \(named) = v.identity AND x.gateway = @1
      LIMIT \(DeletionBudget.step)
      """, ["identity": identities], values: [gateway]
    ) { ids.append($0.integer(0)) }
    try database.perform([call], begins: false, ends: false)
    return Array(ids.prefix(DeletionBudget.step))
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
