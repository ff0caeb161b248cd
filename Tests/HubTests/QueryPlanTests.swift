// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// The cost of readers' and gateways' queries depends on the answer, not on the size of the database.
@Suite struct QueryPlanTests {
  private let scratch = Scratch(inMemory: true)
  /// Tables that grow with all events, or with gateways times nodes.
  private static let big = ["events", "messages", "heard", "contacts", "updates", "commands", "search_places"]
  /// Nodes of each gateway are counted once a minute for all readers.
  private static let excepted: Set = [
    "SELECT gateway, count(*) FROM contacts GROUP BY gateway",
    // The given number of rows from the end.
    HubStore.newestEvents,
    // The last row of the table.
    "SELECT coalesce(max(position), 0) FROM messages ",
  ]

  private func fill(_ store: HubStore) async throws {
    func event(_ seq: Int64, _ kind: String, _ body: JSONValue) -> JSONValue {
      .object([
        ("seq", .integer(seq)), ("at", .integer(seq)), ("trusted", .bool(true)), ("kind", .string(kind)),
        ("body", body),
      ])
    }
    let channel = "0123456789abcdef"
    let message = JSONValue.object([
      ("kind", .string("channel")), ("channel", .string(channel)), ("sender_time", .integer(1)), ("text", .string("x")),
    ])
    let events = [
      event(1, "channel", .object([("channel", .string(channel)), ("name", .string("hills"))])),
      event(2, "message", message), event(3, "contact", .object([("key", .string("k1")), ("name", .string("n"))])),
      event(4, "radio", .object([("key", .string(String(repeating: "a", count: 64)))])),
    ]
    let batch = try EventBatch(.object([("epoch", .string("e")), ("events", .array(events))]))
    _ = try await store.take(batch, from: "g", at: 9)
    _ = try await store.enqueue(.object([("command", .string("sync"))]), id: "c1", for: "g", by: "t", at: 9)
    #expect(try await SearchIndexer(reader: store, writer: store, messages: 1).step())
  }

  /// Runs each query of the store once, with its parameters.
  private func askAll(_ store: HubStore) async throws {
    let words = try SearchTerms("hill")
    for after in [nil, 0] as [Int64?] {
      var query = ListQuery(after: after, limit: 10)
      for gateway in [nil, "g"] {
        for channel in [nil, "0123456789abcdef"] {
          for (since, words) in [(nil, nil), (1, nil), (nil, words)] as [(Int64?, SearchTerms?)] {
            (query.gateway, query.channel, query.since, query.words) = (gateway, channel, since, words)
            _ = try await store.messages(query)
            query.from = words
            _ = try await store.messages(query)
            query.from = nil
            for kind in [nil, "message"] {
              query.kind = kind
              _ = try await store.events(of: "g", query)
            }
            query.kind = nil
          }
        }
      }
    }
    _ = try await store.hasUnindexed(9, after: 0)
    _ = try await store.unindexed(after: 0, limit: 9)
    _ = try await store.nodes(after: "", limit: 10, words: nil)
    _ = try await store.nodes(after: "k", limit: 10, words: words)
    _ = try await store.channels()
    _ = try await store.coverage(after: ("", ""), since: 0, limit: 10)
    _ = try await store.allCommands(before: nil, limit: 10)
    _ = try await store.allCommands(before: (9, "g", "c1"), limit: 10)
    _ = try await store.commands(of: "g", limit: 10)
    _ = try await store.commands(of: "g", since: 0)
    _ = try await store.command("c1", of: "g")
    _ = try await store.contacts(gateway: "g", after: "", limit: 10)
    _ = try await store.gateways("g")
    _ = try await store.gateways(after: "", limit: 10)
    _ = try await store.fleet()
    _ = try await store.fleet(only: ["g"])
    _ = try await store.gatewayCount()
    _ = try await store.figures(now: 9)
    _ = try await store.seen(since: 0)
    _ = try await store.states(of: "g")
    _ = try await store.newestPosition()
    _ = try await store.positions(after: 0, limit: 10)
    _ = try await store.missed(after: 0, upTo: 10)
    _ = try await store.hearerCounts(from: 0)
    _ = try await store.joined([1])
    _ = try await store.messageWithWays(1)
    _ = try await store.standings(of: [GatewayEpoch(gateway: "g", epoch: "e")])
    _ = try await store.states(of: [HubStore.BucketQuery(["commands", "channel/0123456789abcdef"], of: "g")])
    for bucket in ["commands", "channel/0123456789abcdef"] {
      for after in [0, 99] as [Int64] {
        for most in [nil, 1] as [Int64?] {
          _ = try await store.updates(
            bucket, of: "g", from: HubStore.Position(after: after, at: 1), until: nil, limit: 10, most: most)
        }
      }
    }
    _ = try await store.documents(of: "g", after: "", limit: 10)
    _ = try await store.allowed(by: "g")
    _ = try await store.alerts(before: .max, openOnly: false, limit: 10)
    _ = try await store.alerts(before: .max, openOnly: true, gateways: ["g", "h"], rule: "gateway_silent", limit: 10)
    _ = try await store.openAlerts(of: ["g"])
    _ = try await store.auditRecords(before: .max, limit: 10)
    _ = try await store.lastContacts(after: "", limit: 10)
    _ = try await store.fleetSettings(now: 9)
    _ = try await store.unknown(["x"])
    _ = try await store.kind(of: "g", after: "")
    _ = try await store.oldEvents(of: "g", "message", after: 0, before: 9, latest: 9, limit: 10)
    _ = try await store.oldContacts(of: "g", after: "", before: 9, limit: 10)
    _ = try await store.lacks("1 x")
    _ = try await store.livePushes(since: 0, at: 9)
    _ = try await store.pushSubscriptions(of: "ana")
    _ = try await store.pushReach(after: 0, through: 9, most: 10)
    for channels in [["*"], ["c", "d"]] {
      _ = try await store.pushedMessages(after: 0, through: 9, since: 0, now: 0, channels: channels)
    }
    _ = try await store.pushedAlerts(after: 0, through: 9)
  }

  @Test func `no query scans a whole table`() async throws {
    try await fill(try HubStore(location: scratch.location("hub.db")))
    let store = HubStore(try SQLiteHubDatabase(reading: scratch.location("hub.db")))
    try await askAll(store)
    let plans = try await store.plans()
    #expect(plans.count > 40)
    for (sql, steps) in plans where !Self.excepted.contains(sql) {
      var names = Set(Self.big)
      for match in sql.matches(of: /\b(events|messages|heard|contacts|updates|commands) (?:AS )?([a-z])\b/) {
        names.insert(String(match.2))
      }
      for step in steps {
        let words = step.split(separator: " ").map(String.init)
        // A minimum or maximum without an index is also a SEARCH, but without a condition.
        let isWalk = words.first == "SCAN" || (words.first == "SEARCH" && !step.contains("("))
        let isWhole = isWalk && words.dropFirst().first.map(names.contains) == true
        #expect(!isWhole, "\(step): \(sql)")
      }
    }
  }

  @Test func `each second's look for new states reads the index of their times, and no state`() async throws {
    let store = try HubStore(location: scratch.location("seen.db"))
    try await fill(store)
    #expect(try await store.keep([GatewayState(gateway: "g", name: "gateway", at: 9, body: "{}")]) == [true])
    #expect(try await store.seen(since: 9)["g"]?.state == 9)
    #expect(try await store.seen(since: 10)["g"] == nil)
    let plans = try await store.plans().filter { $0.sql.hasPrefix("SELECT gateway, at FROM states") }
    #expect(plans.count == 1)
    for step in plans.flatMap(\.steps) { #expect(step.contains("COVERING INDEX states_by_time"), "\(step)") }
  }

  @Test func `the removal of a gateway reads what it heard, however many messages others heard`() async throws {
    let store = try HubStore(location: scratch.location("removal.db"))
    try await fill(store)
    let removed = try await store.removeGateway("g") { _ in }
    #expect(removed.messages == 1)
    let plans = try await store.plans().filter { $0.sql.contains("FROM heard h WHERE h.gateway") }
    #expect(plans.count == 3)
    for (sql, steps) in plans {
      for step in steps where step.contains("messages") {
        // The newest position is the end of the table.
        #expect(step.contains("(rowid=?)") || step == "SEARCH messages", "\(step): \(sql)")
      }
      #expect(steps.contains { $0.contains("heard_by_gateway (gateway=? AND message>?") }, "\(steps): \(sql)")
    }
  }

  @Test func `the ingest finds stored events by their numbers, however many events a gateway has`() async throws {
    let store = try HubStore(location: scratch.location("ingest.db"))
    try await fill(store)
    func batch(_ seq: Int64, _ text: String, epoch: String, before: String? = nil) -> PreparedBatch {
      let event = HubEvent(
        seq: seq, at: seq, trusted: true, kind: "outgoing", body: .object([("text", .string(text))]))
      var batch = PreparedBatch([event], of: epoch, in: nil, from: "g", after: nil, at: 9)
      batch.before = before
      return batch
    }
    // A new epoch, events that come again, and a further history of an epoch.
    _ = try await store.take([batch(5, "a", epoch: "f")])
    _ = try await store.take([batch(5, "a", epoch: "h", before: "f")])
    _ = try await store.take([batch(5, "b", epoch: "f")])
    var searches = 0
    for (sql, steps) in try await store.plans() where sql.contains("JOIN events e") {
      for step in steps where step.contains(" e USING ") {
        searches += 1
        #expect(step.contains("seq=?"), "\(step): \(sql)")
      }
    }
    #expect(searches >= 3)
  }
}

extension HubStore {
  /// SQLite's plans for the queries so far.
  fileprivate func plans() throws(HubDatabaseError) -> [(sql: String, steps: [String])] {
    var plans: [(sql: String, steps: [String])] = []
    for sql in (database as? SQLiteHubDatabase)?.statements ?? [] where sql.contains("SELECT") {
      var steps: [String] = []
      try database.each("EXPLAIN QUERY PLAN \(sql)", []) { (row) throws(HubDatabaseError) in
        steps.append(row.text(3))
        return true
      }
      plans.append((sql, steps))
    }
    return plans
  }
}
