// SPDX-License-Identifier: MIT

import Foundation
import JSON
import Store
import Synchronization
import TestSupport
import Testing

@testable import Hub

@Suite struct RetentionTests {
  private let scratch = Scratch(inMemory: true)
  private static let day: Int64 = 86_400_000
  /// 23 November 2026.
  private static let now: Int64 = 1_795_392_000_000

  private static func event(_ seq: Int64, _ kind: String, days: Double, isTrusted: Bool = true) -> HubEvent {
    let key = JSONValue.object([
      ("key", .string("k\(seq)")), ("sender_time", .integer(seq)), ("text", .string("text \(seq)")),
    ])
    return HubEvent(seq: seq, at: now - Int64(days * Double(day)), trusted: isTrusted, kind: kind, body: key)
  }

  private func take(
    _ store: HubStore, _ gateway: String, _ lane: EventBatch.Lane, _ events: [HubEvent]
  ) async throws {
    _ = try await store.take([
      PreparedBatch(events, of: "e", in: lane, from: gateway, after: nil, at: Self.now)
    ])
  }

  private func seqs(_ store: HubStore, _ gateway: String, _ kind: String? = nil) async throws -> [Int64] {
    let page = try JSONValue(parsing: await store.events(gateway: gateway, kind: kind, after: 0, limit: 1000))
    return (page["events"] ?? page["messages"])?.array?.compactMap { $0["seq"]?.integer } ?? []
  }

  private func purge(
    _ store: HubStore, _ plan: PurgePlan, deletes: Bool = true, at now: Int64 = now
  ) async throws -> Purge.Count {
    try await Purge(store, plan, at: now, clock: now, deletes: deletes, paused: { _ in }).run()
  }

  // MARK: Ages

  @Test(arguments: [0, 1, day, now]) func `the expiry date of rows is computed for any elapsed time, however short`(
    _ passed: Int64
  ) {
    // At a new hub hardly any time has certainly passed, whatever its clock shows.
    #expect(ExpiredRows.date(Self.now, isTrusted: true, latest: passed) == (passed == Self.now ? Self.now : nil))
  }

  @Test func `ages are hours, days, weeks and years, from an hour to a century`() {
    #expect(Age("90d")?.milliseconds == 90 * Self.day)
    #expect(Age("12h")?.milliseconds == Self.day / 2)
    #expect(Age("4w")?.milliseconds == 28 * Self.day)
    #expect(Age("2y")?.milliseconds == 730 * Self.day)
    for wrong in ["", "d", "0d", "-1d", "90", "90 d", "101y", "9223372036854775807y", "1.5d", "９d", "90d\u{301}"] {
      #expect(Age(wrong) == nil, "\(wrong)")
    }
  }

  @Test func `a configuration keeps lanes and kinds for their ages, and without one nothing is deleted`() throws {
    func read(_ text: String) throws -> HubConfiguration {
      let token = scratch.write("token", "a-token-for-the-tests\n")
      return try HubConfiguration(
        parsing: Array("\(text)\n[[token]]\nfile = \"\(token)\"\n".utf8), file: "hub.toml")
    }
    #expect(try read("").retention.isEmpty)
    let kept = try read(
      """
      [retention]
      nodes = "30d"
      packets = "7d"
      [retention.kinds]
      telemetry = "never"
      gap = "1y"
      """
    ).retention
    #expect(!kept.isEmpty)
    #expect(kept.age(of: "advert") == 30 * Self.day && kept.age(of: "packet") == 7 * Self.day)
    #expect(kept.age(of: "telemetry") == nil && kept.age(of: "message") == nil && kept.plan.messages == nil)
    #expect(kept.age(of: "gap") == 365 * Self.day)
    for wrong in ["nodes = \"30\"", "nodes = 30", "nods = \"30d\"", "[retention.kinds]\n\"a b\" = \"1d\""] {
      #expect(throws: HubConfiguration.Failure.self, "\(wrong)") { try read("[retention]\n\(wrong)") }
    }
    let mistyped = #expect(throws: HubConfiguration.Failure.self) {
      try read("[retention.kinds]\ntelemtry = \"never\"")
    }
    let words = "line 2: retention.kinds.telemtry: not a kind of event (did you mean telemetry?)"
    #expect(mistyped?.description.contains(words) == true)
    #expect(try read("[retention.kinds]\nof_tomorrow = \"1d\"").retention.age(of: "of_tomorrow") == Self.day)
    // Two slips from "radio_gap" and "node_owner": another kind.
    let others = try read("[retention.kinds]\nradio_log = \"1d\"\nnode_power = \"1d\"").retention
    #expect(others.age(of: "node_power") == Self.day)
    #expect(try read("log_level = \"debug\"").logLevel == .debug)
    #expect(throws: HubConfiguration.Failure.self) { try read("log_level = \"loud\"") }
  }

  @Test func `a gateway that sends a month at once does not hide the last days of other gateways`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    for (place, gateway) in ["hill", "valley", "ridge"].enumerated() {
      // A month of events for each gateway, in turn; 7 events of each in the last seven days.
      try await take(store, gateway, .messages, (1...30).map { Self.event($0, "message", days: Double(30 - $0)) })
      let found = try await store.statistics(isServer: false, isFull: false, top: 3, now: Self.now)
      #expect(found.days?.map(\.events) == Array(repeating: Int64(place) + 1, count: 7))
    }
  }

  // MARK: Deletion

  @Test func `old events are deleted by kind, and positions stay`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    for gateway in ["hill", "valley"] {
      try await take(
        store, gateway, .messages, (1...20).map { Self.event($0, "message", days: Double(21 - $0) * 10) })
      try await take(
        store, gateway, .nodes, (21...40).map { Self.event($0, "advert", days: Double(41 - $0) * 10) })
    }
    let plan = PurgePlan(gateway: "hill", age: { $0 == "advert" ? 45 * Self.day : nil })
    #expect(try await purge(store, plan, deletes: false).kinds == ["advert": 16])
    #expect(try await seqs(store, "hill").count == 40, "only counted")
    let count = try await purge(store, plan)
    #expect(count.tables == [.events: 16] && count.message == "16 events")
    #expect(try await seqs(store, "hill", "advert") == [37, 38, 39, 40])
    #expect(try await seqs(store, "hill", "message").count == 20)
    #expect(try await seqs(store, "valley").count == 40)
    let progress = try await store.progress(gateway: "hill", epoch: "e")
    #expect(progress?.lanes == [.messages: 20, .nodes: 40])
    #expect(try await store.gateways("hill").first?.events == 40, "as many have come")
    // Deleted numbers are not reused: later events follow them.
    try await take(store, "hill", .nodes, [Self.event(41, "advert", days: 0)])
    #expect(try await seqs(store, "hill", "advert") == [37, 38, 39, 40, 41])
  }

  @Test func `a clock that was wrong for a while makes no event old, and undated events go with the next`()
    async throws
  {
    let store = try HubStore(location: scratch.location("hub.db"))
    try await take(
      store, "g", .nodes,
      [
        Self.event(1, "advert", days: 20_000, isTrusted: false), Self.event(2, "advert", days: 100),
        // A clock that was ahead, and a clock after a loss of its battery.
        Self.event(3, "advert", days: -4000), Self.event(4, "advert", days: 20_400),
        Self.event(5, "advert", days: 95), Self.event(6, "advert", days: 20_000, isTrusted: false),
        Self.event(7, "advert", days: 10), Self.event(8, "advert", days: 300), Self.event(9, "advert", days: 1),
      ])
    let plan = PurgePlan(age: { _ in 90 * Self.day })
    #expect(try await purge(store, plan).tables == [.events: 5])
    #expect(try await seqs(store, "g") == [6, 7, 8, 9], "behind one that is young everything is")
    #expect(try await purge(store, plan).isEmpty)
    #expect(try await purge(store, plan, at: Self.now + 81 * Self.day).tables == [.events: 3])
    #expect(try await seqs(store, "g") == [9])
  }

  @Test func `many events without a time are deleted with the next old event, and stay without one`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let many = Int64(Purge.step * 2 + 7)
    let undated = (1...many).map { Self.event($0, "packet", days: 0, isTrusted: false) }
    try await take(store, "g", .packets, undated)
    let plan = PurgePlan(age: { _ in 7 * Self.day })
    #expect(try await purge(store, plan).isEmpty)
    try await take(store, "g", .packets, [Self.event(many + 1, "packet", days: 9)])
    #expect(try await purge(store, plan).tables == [.events: Int(many + 1)])
  }

  @Test func `joined messages are deleted with their hearers, and the newest stays to keep its position`()
    async throws
  {
    let store = try HubStore(location: scratch.location("hub.db"))
    func positions() async throws -> [Int64] {
      let page = try JSONValue(parsing: await store.joinedMessages(channel: nil, after: 0, limit: 100))
      return page["messages"]?.array?.compactMap { $0["position"]?.integer } ?? []
    }
    try await take(store, "g", .messages, (1...5).map { Self.event($0, "message", days: 400 - Double($0)) })
    let count = try await purge(store, PurgePlan(age: { _ in nil }, messages: 365 * Self.day))
    #expect(count.tables == [.messages: 4])
    #expect(try await positions() == [5])
    #expect(try await seqs(store, "g").count == 5)
    #expect(try await store.number("SELECT count(*) FROM heard") == 1)
    try await take(store, "g", .messages, [Self.event(6, "message", days: 0)])
    #expect(try await positions() == [5, 6])
  }

  @Test func `reports whose message is gone are counted and deleted a few at a time, and others stay`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let store = stores.writer
    try await take(store, "g", .messages, (1...3).map { Self.event($0, "message", days: 0) })
    // As a purge on a server left them, when a batch added a report meanwhile.
    for gateway in ["g", "h"] {
      _ = try await store.number(
        """
        WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 699)
        INSERT INTO heard(message, gateway, at, body) SELECT i, '\(gateway)', 1, '{}' FROM n RETURNING message
        """)
    }
    let lonely = "SELECT count(*) FROM heard WHERE message NOT IN (SELECT position FROM messages)"
    #expect(try await store.number(lonely) == 1200)
    let plan = PurgePlan(age: { _ in nil }, messages: 365 * Self.day)
    #expect(try await purge(store, plan, deletes: false).tables == [.reports: 1200])
    await RetentionService(stores: stores, retention: Retention(), leastRest: .zero).forgetLonelyReports()
    #expect(try await store.number(lonely) == 0)
    #expect(try await store.number("SELECT count(*) FROM heard") == 3)
    #expect(stores.metrics.now.purged == [.reports: 1200])
    #expect(try await purge(store, plan).isEmpty)
  }

  @Test func `contacts and commands are deleted only on request, and waiting commands never`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    try await take(store, "g", .nodes, [Self.event(1, "advert", days: 100), Self.event(2, "advert", days: 1)])
    let command = JSONValue.object([("command", .string("sync"))])
    let before = Self.now - 100 * Self.day
    try await store.record(command, answer: .object([]), id: "ended", for: "g", by: "me", at: before)
    _ = try await store.enqueue(command, id: "waits", for: "g", by: "me", at: before)
    let age = 30 * Self.day
    #expect(try await purge(store, PurgePlan(age: { _ in age }, messages: age)).tables == [.events: 1])
    let plan = PurgePlan(age: { _ in nil }, contacts: age, commands: age)
    #expect(try await purge(store, plan, deletes: false).tables == [.contacts: 1, .commands: 1])
    #expect(try await purge(store, plan).tables == [.contacts: 1, .commands: 1])
    #expect(try await store.commands(of: "g", limit: 10).map(\.id) == ["waits"])
    #expect(try await purge(store, plan).isEmpty)
  }

  @Test func `a removed gateway leaves nothing of its own, and others keep what they heard, too`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    func heard(_ seq: Int64, _ text: String) -> HubEvent {
      let body: [(String, JSONValue)] = [
        ("channel", .string("00112233445566aa")), ("sender_time", .integer(1)), ("text", .string(text)),
      ]
      return HubEvent(seq: seq, at: Self.now, trusted: true, kind: "message", body: .object(body))
    }
    try await take(store, "g", .messages, [heard(1, "both"), heard(2, "own")])
    try await take(store, "h", .messages, [heard(1, "both"), heard(2, "newest")])
    try await take(store, "g", .messages, [heard(4, "newest")])
    try await take(store, "g", .nodes, (5...600).map { Self.event($0, "advert", days: 0, isTrusted: false) })
    let command = JSONValue.object([("command", .string("sync"))])
    _ = try await store.enqueue(command, id: "waits", for: "g", by: "me", at: Self.now)
    _ = try await store.editDocument("node/k/note", "1", of: "g", at: Self.now)
    _ = try await store.keep([GatewayState(gateway: "g", name: "gateway", at: 1, body: "{}")])
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "g", hearers: ["h"])])
    let removed = try await store.removeGateway("g") { _ in }
    #expect(removed.events == 599 && removed.messages == 1)
    for table in [
      "alerts", "buckets", "commands", "contacts", "documents", "epochs", "events", "gateway_channels", "heard",
      "lost_updates", "states", "updates", "wanted_hearers",
    ] {
      #expect(try await store.number("SELECT count(*) FROM \(table) WHERE gateway = 'g'") == 0, "\(table)")
    }
    #expect(try await store.gateways().map(\.id) == ["h"])
    #expect(try await store.number("SELECT count(*) FROM messages") == 2)
    #expect(try await store.number("SELECT count(*) FROM heard WHERE gateway = 'h'") == 2)
    #expect(try await seqs(store, "h") == [1, 2])
  }

  @Test func `what a batch stores while its gateway is removed is removed, too`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    func heard(_ seq: Int64, _ text: String) -> HubEvent {
      let body: [(String, JSONValue)] = [
        ("channel", .string("00112233445566aa")), ("sender_time", .integer(1)), ("text", .string(text)),
      ]
      return HubEvent(seq: seq, at: Self.now, trusted: true, kind: "message", body: .object(body))
    }
    try await take(store, "g", .messages, [heard(1, "first")])
    let late = PreparedBatch([heard(2, "late")], of: "e", in: .messages, from: "g", after: nil, at: Self.now)
    let steps = Mutex(0)
    let removed = try await store.removeGateway("g") { _ in
      // The events are deleted by then.
      let step = steps.withLock { steps in
        steps += 1
        return steps
      }
      if step == 4 { _ = try await store.take([late]) }
    }
    #expect(removed.events == 2 && removed.messages == 2)
    for table in ["events", "epochs", "heard", "gateway_channels"] {
      #expect(try await store.number("SELECT count(*) FROM \(table) WHERE gateway = 'g'") == 0, "\(table)")
    }
    #expect(try await store.gateways().isEmpty)
  }

  @Test func `of a removed gateway not even the newest message stays, and who hears it later adds it`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    func heard(_ seq: Int64, _ text: String) -> HubEvent {
      let body: [(String, JSONValue)] = [
        ("channel", .string("00112233445566aa")), ("sender_time", .integer(1)), ("text", .string(text)),
      ]
      return HubEvent(seq: seq, at: Self.now, trusted: true, kind: "message", body: .object(body))
    }
    try await take(store, "h", .messages, [heard(1, "first")])
    try await take(store, "g", .messages, [heard(1, "secret")])
    let before = try await store.newestPosition()
    func shown() async throws -> [String] {
      let page = try JSONValue(parsing: await store.joinedMessages(channel: nil, after: 0, limit: 10))
      return page["messages"]?.array?.compactMap { $0["body"]?["text"]?.string } ?? []
    }
    #expect(try await shown() == ["first", "secret"])
    let removed = try await store.removeGateway("g") { _ in }
    #expect(removed.messages == 1)
    #expect(try await shown() == ["first"])
    // `watch` begins behind it.
    let newest = try JSONValue(parsing: await store.messages(ListQuery(limit: 1)))["messages"]?.array
    #expect(newest?.compactMap { $0["body"]?["text"]?.string } == ["first"])
    #expect(try await store.figures(now: Self.now).total == 1)
    #expect(try await store.number("SELECT count(*) FROM messages WHERE body LIKE '%secret%'") == 0)
    #expect(try await store.newestPosition() == before, "no later message has its position")
    try await take(store, "h", .messages, [heard(2, "secret")])
    #expect(try await shown() == ["first", "secret"])
    #expect(try await store.newestPosition() > before)
  }

  @Test func `a clock that is ahead deletes nothing, neither at the start nor while the hub runs`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    try await take(store, "g", .messages, (1...105).map { Self.event($0, "message", days: Double(105 - $0)) })
    let year = 365 * Self.day
    // The machine starts with a clock that is three years ahead.
    let begun = try await store.surelyPassed(at: Self.now + 3 * year, uptime: 0)
    #expect(begun == Self.now)
    let plan = PurgePlan(age: { _ in year }, messages: year)
    #expect(try await purge(store, plan, at: begun).isEmpty)
    #expect(HubStore.clockTrouble(Self.now + 3 * year, surely: begun)?.contains("1095 days") == true)
    // An hour later the clock is right, then ten years ahead; the machine has run for two hours.
    #expect(try await store.surelyPassed(at: Self.now, uptime: 3_600_000) == Self.now)
    #expect(try await store.surelyPassed(at: Self.now + 10 * year, uptime: 7_200_000) == begun + 7_200_000)
    // The machine was off, and starts with that clock: no gateway confirms that date.
    let again = try HubStore(location: scratch.location("hub.db"))
    let wrong = Self.now + 20 * year
    #expect(try await again.surelyPassed(at: wrong, uptime: 0) == begun + 7_200_000)
    #expect(try await again.surelyPassed(at: wrong, uptime: 0, trusts: true) == wrong, "an operator says so")
    #expect(HubStore.clockTrouble(Self.now, surely: Self.now) == nil)
  }

  @Test func `a clock that is ahead makes no gateway look gone, and time that has passed does`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    try await take(stores.writer, "g", .messages, [Self.event(1, "message", days: 0)])
    _ = try await stores.bucketStates(of: [], for: "g", hearers: ["b"])
    let maintenance = RetentionService(stores: stores, retention: Retention(), access: HubAccess([]), log: { _, _ in })
    func forgets(uptime: Int64) async throws -> Bool {
      await maintenance.hourly(at: Self.now + 30 * Self.day, uptime: uptime)
      let answers = try await stores.writer.states(of: [HubStore.BucketQuery([], of: "g")])
      return answers.allSatisfy { $0.hearers.isEmpty }
    }
    #expect(try await !forgets(uptime: 0))
    #expect(try await forgets(uptime: 2 * Self.day))
  }

  @Test func `the hub's maintenance deletes rows that the configuration does not keep, and counts them`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    try await take(stores.writer, "g", .packets, (1...600).map { Self.event($0, "packet", days: 8) })
    try await take(stores.writer, "g", .messages, [Self.event(601, "message", days: 0)])
    var retention = Retention()
    retention.lanes = [.packets: 7 * Self.day]
    let count = await RetentionService(stores: stores, retention: retention).once(at: Self.now)
    #expect(count?.tables == [.events: 600])
    #expect(try await seqs(stores.writer, "g") == [601])
    #expect(stores.metrics.now.purged == [.events: 600])
  }
}

@Suite struct KnownKindsTests {
  @Test func `the hub knows exactly the kinds that gateways send`() {
    #expect(Set(KnownKinds.all) == Set(EventKind.allCases.map(\.rawValue)))
  }

  @Test func `each kind is kept as long as the lane that it comes in, as gateways and the document have it`() throws {
    let file = URL(filePath: #filePath).appending(path: "../../../docs/hub-protocol.md").standardizedFileURL
    let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
    for lane in EventBatch.Lane.allCases {
      let row = lines.first { $0.hasPrefix("| `\(lane.rawValue)` | `") }
      let written = Set((row ?? "").split(separator: "`").map(String.init).filter { KnownKinds.all.contains($0) })
      // A gap belongs to the lane that it names.
      let kinds = KnownKinds.all.filter { KnownKinds.lane(of: $0) == lane && $0 != "gap" }
      #expect(Set(kinds) == written, "\(lane)")
      for kind in kinds { #expect(EventKind(rawValue: kind)?.lane.rawValue == lane.rawValue, "\(kind)") }
    }
  }
}
