// SPDX-License-Identifier: MIT

import JSON
import SQLite
import TestSupport
import Testing
import Timing

@testable import Hub

@Suite struct IngestTests {
  private let scratch = Scratch(inMemory: true)

  @Test func `impossible numbers are removed from events, and possible ones stay`() throws {
    func stays(_ kind: String, _ body: String) throws -> String {
      let event = Self.event(1, kind, try JSONValue(parsing: body))
      return PreparedEvent(event, from: "g", epoch: "e").body
    }
    #expect(
      try stays(
        "message",
        #"{"text":"a","snr":1e308,"hops":64,"waited_s":-1,"age_s":1e99,"o":[{"d":-1e17}],"x":{"y":9007199254740992}}"#)
        == #"{"text":"a","x":{"y":9007199254740992}}"#)
    let possible = [
      #"{"snr":-32,"rssi":-128,"hops":0,"battery_mv":0,"waited_s":0,"age_s":0}"#,
      #"{"snr":31.75,"rssi":127,"hops":63,"battery_mv":65535,"waited_s":3200000000,"age_s":2592000}"#,
      // A node may claim any position, and its gateway reports it.
      #"{"lat":-2147.483648,"lon":2147.483647,"hops":null}"#,
    ]
    for body in possible { #expect(try stays("contact", body) == body) }
    let heard = try JSONValue(parsing: #"{"text":"a","sender_time":1,"snr":1e308,"hops":1e308,"age_s":2}"#)
    guard case .heard(let message) = PreparedEvent(Self.event(1, "message", heard), from: "g", epoch: "e").effect else {
      Issue.record("it is a message")
      return
    }
    #expect(message.report == #"{"gateway":"g","at":10,"seq":1,"age_s":2}"#)
  }

  @Test func `an event with statements of its own counts as twenty in a transaction`() throws {
    let ordinary = ["message", "contact", "radio", "packet"].map { Self.event(1, $0, .object([])) }
    #expect(Self.prepared("g", ordinary).cost == 4)
    let alert = try JSONValue(parsing: #"{"rule":"backlogged","state":"begin","since":1}"#)
    let others = ["command", "document"].map { Self.event(1, $0, .object([])) }
    #expect(Self.prepared("g", others + [Self.event(1, "alert", alert)]).cost == 60)
  }

  @Test func `a batch of many documents is stored in several transactions, and answered as one`() async throws {
    let documents = (1...250).map { seq in
      Self.event(
        Int64(seq), "document",
        Self.object(["key": .string("node/k\(seq)/note"), "value": .string("a"), "updated_at": .integer(1)]))
    }
    let batch = Self.prepared("g", documents)
    let parts = batch.parts(most: 2000)
    #expect(parts.map(\.events.count) == [100, 100, 50] && parts.map(\.cost) == [2000, 2000, 1000])
    #expect(parts.map(\.after) == [nil, 100, 200])
    #expect(Self.prepared("g", Array(documents.prefix(100))).parts(most: 2000).count == 1)
    let store = try HubStore(location: scratch.location("hub.db"))
    let ingest = Ingest([store], patience: .seconds(600))
    #expect(try await ingest.take(batch) == .acknowledged(250))
    #expect(try await store.number("SELECT count(*) FROM events") == 250)
    // Behind a gap nothing is stored, whatever its part.
    let late = Self.prepared("g", (301...450).map { Self.event($0, "document", .object([])) }, after: 300)
    #expect(try await ingest.take(late) == .outOfOrder(250))
    #expect(try await store.number("SELECT count(*) FROM events") == 250)
  }

  // MARK: Batches

  private static func event(_ seq: Int64, _ kind: String, _ body: JSONValue) -> HubEvent {
    HubEvent(seq: seq, at: seq * 10, trusted: true, kind: kind, body: body)
  }

  private static func object(_ fields: KeyValuePairs<String, JSONValue>) -> JSONValue {
    .object(fields.map { ($0.key, $0.value) })
  }

  private static func prepared(
    _ gateway: String, _ events: [HubEvent], after: Int64? = nil, lane: EventBatch.Lane? = .messages, at: Int64 = 1000
  ) -> PreparedBatch {
    PreparedBatch(events, of: "e", in: lane, from: gateway, after: after, at: at)
  }

  private static func message(_ text: String, time: Int64 = 100, channel: Int = 0) -> JSONValue {
    object([
      "kind": .string("channel"), "channel": .string("001122334455667\(channel)"), "channel_name": .string("#trees"),
      "sender_name": .string("Birch"), "sender_time": .integer(time), "text": .string(text), "snr": .integer(3),
    ])
  }

  /// All readable data of a hub, as text.
  private func everything(_ store: HubStore, _ gateways: [String]) async throws -> [String] {
    var made: [String] = []
    func add(_ bytes: [UInt8]) { made.append(String(decoding: bytes, as: UTF8.self)) }
    for gateway in gateways {
      add(try await store.events(gateway: gateway, kind: nil, after: 0, limit: 1000))
      add(try await store.contacts(gateway: gateway, after: "", limit: 1000))
      for channel in 0..<3 {
        let bucket = "channel/001122334455667\(channel)"
        add(try await store.updates(bucket, of: gateway, from: HubStore.Position(after: 0), until: nil, limit: 1000))
      }
      for bucket in ["commands", "documents"] {
        add(try await store.updates(bucket, of: gateway, from: HubStore.Position(after: 0), until: nil, limit: 1000))
      }
      made.append("\(try await store.commands(of: gateway, limit: 100))")
      made.append("\(try await store.documents(of: gateway, after: "", limit: 100).found)")
      made.append(
        "\(String(describing: try await store.progress(gateway: gateway, epoch: "e")?.lanes.sorted { $0.key.rawValue < $1.key.rawValue }))"
      )
    }
    add(try await store.joinedMessages(channel: nil, after: 0, limit: 1000))
    for gateway in try await store.gateways() {
      made.append("\(gateway.id) \(gateway.events) \(gateway.lastSeen) \(gateway.radio ?? "-")")
    }
    return made
  }

  /// A batch of random events: some are repeated, and some messages are also heard by others.
  private static func random(
    _ gateway: String, from seq: inout Int64, _ random: inout SeededRandom
  ) -> PreparedBatch {
    let again = seq > 3 && Int.random(in: 0..<4, using: &random) == 0
    var next = again ? seq - 3 : seq
    var events: [HubEvent] = []
    for _ in 0..<Int.random(in: 1...6, using: &random) {
      next += 1
      // Repeated events are identical.
      var own = SeededRandom(seed: UInt64(next) &* 31 &+ UInt64(gateway.utf8.last ?? 0))
      let number = Int.random(in: 0..<4, using: &own)
      switch Int.random(in: 0..<9, using: &own) {
      case 0...3: events.append(event(next, "message", message("hello \(number)", channel: number % 3)))
      case 4:
        events.append(
          event(next, "contact", object(["key": .string("k\(number)"), "n": .integer(next), "on_radio": .bool(true)])))
      case 5: events.append(event(next, "contact_removed", object(["key": .string("k\(number)")])))
      case 6: events.append(event(next, "radio", object(["name": .string("r\(next)")])))
      case 7: events.append(event(next, "command", object(["id": .string("c\(number)"), "ok": .bool(true)])))
      default:
        events.append(
          event(
            next, "document",
            object(["key": .string(noteKey(number)), "value": .string("\(next)"), "updated_at": .integer(next)])))
      }
    }
    seq = max(seq, next)
    return prepared(gateway, events, lane: nil, at: 5000 + seq)
  }

  @Test(arguments: 0..<20) func `a hub has the same content if batches are stored together or one by one`(
    _ seed: UInt64
  ) async throws {
    var random = SeededRandom(seed: seed)
    let (alone, together) = (
      try HubStore(location: scratch.location("a\(seed).db")), try HubStore(location: scratch.location("b\(seed).db"))
    )
    let gateways = ["g0", "g1", "g2", "g3"]
    for store in [alone, together] {
      for gateway in gateways {
        for number in 0..<4 {
          _ = try await store.enqueue(.object([]), id: "c\(number)", for: gateway, by: "me", at: Int64(number))
        }
      }
    }
    var seqs = [Int64](repeating: 0, count: gateways.count)
    for _ in 0..<12 {
      // If the effects of batches are done one by one, their times are those of their own batch; in a group they share one time.
      let group = (0..<Int.random(in: 1...8, using: &random)).map { _ in
        let index = Int.random(in: 0..<gateways.count, using: &random)
        return Self.random(gateways[index], from: &seqs[index], &random)
      }
      var answers: [HubStore.IngestAnswer] = []
      for batch in group { answers += try await alone.take([batch]) }
      #expect(try await together.take(group) == answers, "seed \(seed)")
    }
    let (one, other) = (try await everything(alone, gateways), try await everything(together, gateways))
    // Updates of a channel have their own times, which differ.
    let withoutTimes = { (message: String) in message.replacing(/"(at|last_at|age_ms|now)":\d+/, with: "") }
    for (first, second) in zip(one, other) {
      #expect(withoutTimes(first) == withoutTimes(second), "seed \(seed)")
    }
  }

  @Test func `in a group of batches, only those behind a gap are left out`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let answers = try await store.take([
      Self.prepared("g", [Self.event(1, "x", .object([]))], after: 0),
      Self.prepared("g", [Self.event(5, "x", .object([]))], after: 4),
      Self.prepared("g", [Self.event(2, "x", .object([]))], after: 1),
      Self.prepared("h", [Self.event(9, "x", .object([]))]),
    ])
    #expect(answers == [.acknowledged(1), .outOfOrder(1), .acknowledged(2), .acknowledged(9)])
    #expect(try await store.gateways().map(\.events) == [2, 1])
  }

  @Test func `contacts whose keys look the same are two, unless the database cannot distinguish their bytes`()
    async throws
  {
    let store = try HubStore(location: scratch.location("hub.db"))
    func contact(_ seq: Int64, _ key: String) -> HubEvent {
      Self.event(seq, "contact", Self.object(["key": .string(key), "n": .integer(seq)]))
    }
    // Composed and decomposed; a NUL, and its replacement in databases.
    let keys = ["\u{E9}", "e\u{301}", "a\0", "a\u{FFFD}"]
    let events = keys.enumerated().map { contact(Int64($0.offset + 1), $0.element) }
    _ = try await store.take([Self.prepared("g", events)])
    let found = try JSONValue(parsing: try await store.contacts(gateway: "g", after: "", limit: 10))
    let numbers = found["contacts"]?.array?.compactMap { $0["n"]?.integer } ?? []
    #expect(numbers.sorted() == [1, 2, 4], "\(found)")
    _ = try await store.take([
      Self.prepared("g", [Self.event(5, "contact_removed", Self.object(["key": .string("e\u{301}")]))])
    ])
    let after = try JSONValue(parsing: try await store.contacts(gateway: "g", after: "", limit: 10))
    let gone = after["contacts"]?.array?.filter { $0["on_radio"]?.bool == false }.compactMap { $0["n"]?.integer }
    #expect(gone == [2], "\(after)")
  }

  // MARK: The queue

  @Test
  func `waiting batches are stored together in order, and one that cannot be stored alone is refused`()
    async throws
  {
    let database = try PickyDatabase(scratch.location("hub.db"))
    let begun = database.begun
    let ingest = Ingest([HubStore(database)], patience: .seconds(600))
    let answers = try await withThrowingTaskGroup(of: (Int, Bool).self) { group in
      for number in 0..<200 {
        group.addTask {
          let words = number == 77 ? "poison" : "hello \(number)"
          let batch = Self.prepared(
            "g\(number % 40)", [Self.event(Int64(number / 40 + 1), "message", Self.message(words))], lane: nil)
          do {
            return (number, try await ingest.take(batch) != .outOfOrder(0))
          } catch let error as HubDatabaseError {
            return (number, error.kind != .unfit)
          }
        }
      }
      return try await group.reduce(into: [Int: Bool]()) { $0[$1.0] = $1.1 }
    }
    #expect(answers.filter { !$0.value }.map(\.key) == [77])
    // Halving finds the bad batch.
    #expect(begun.count < 60, "\(begun.count) transactions for 200 batches")
    let store = try HubStore(location: scratch.location("hub.db"))
    #expect(try await store.gateways().reduce(0) { $0 + $1.events } == 199)
  }
}

/// An SQLite database that refuses a certain word, and counts its transactions.
private final class PickyDatabase: HubDatabase {
  /// The test reads it only at the end.
  final class Count: @unchecked Sendable { var count = 0 }

  let begun = Count()
  private let database: SQLiteHubDatabase

  init(_ location: String) throws { database = try SQLiteHubDatabase(location: location) }

  func run(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> Int { try database.run(sql, values) }
  func each(
    _ sql: String, _ values: [any SQLBindable], _ row: (any HubRow) throws(HubDatabaseError) -> Bool
  ) throws(HubDatabaseError) { try database.each(sql, values, row) }
  func rollback() { database.rollback() }
  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError) {
    if begins { begun.count += 1 }
    try database.perform(calls, begins: begins, ends: false)
    for call in calls {
      for column in call.columns where column.values.contains(where: { $0.text?.contains("poison") == true }) {
        throw HubDatabaseError(kind: .unfit, message: "never")
      }
    }
    if ends { try database.perform([], begins: false, ends: true) }
  }
  func read(_ calls: [HubCall]) throws(HubDatabaseError) { try database.read(calls) }
  let dialect = HubSchema.Dialect.sqlite
}
