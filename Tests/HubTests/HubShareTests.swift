// SPDX-License-Identifier: MIT

import JSON
import SQLite
import TestSupport
import Testing

@testable import Hub
@testable import Relay

/// Reports of one gateway displace none of another: neither in a full list, nor in the updates for a gateway that was away.
@Suite struct HubShareTests {
  private let scratch = Scratch(inMemory: true)
  private static let channel = "0011223344556677"
  private static let list = "channel/0011223344556677"
  private static let now: Int64 = 1_795_000_000_000

  private func store() async throws -> HubStore {
    let store = try HubStore(location: scratch.location("hub.db"))
    let body = JSONValue.object([("channel", .string(Self.channel)), ("name", .string("#trees"))])
    let event = HubEvent(seq: 1, at: Self.now, trusted: true, kind: "channel", body: body)
    _ = try await store.take([PreparedBatch([event], of: "e", in: .messages, from: "z", after: nil, at: Self.now)])
    return store
  }

  /// Stores messages that a gateway reports, numbered from `from`.
  private func tell(_ store: HubStore, _ gateway: String, _ count: Int, from first: Int = 1) async throws {
    let events = (first..<first + count).map { number in
      let body: [(String, JSONValue)] = [
        ("kind", .string("channel")), ("channel", .string(Self.channel)), ("sender_name", .string("Birch")),
        ("sender_time", .integer(100)), ("text", .string("\(gateway) \(number)")),
      ]
      return HubEvent(seq: Int64(number), at: Self.now, trusted: true, kind: "message", body: .object(body))
    }
    for begin in stride(from: 0, to: events.count, by: 1000) {
      let part = Array(events[begin..<min(begin + 1000, events.count)])
      _ = try await store.take([PreparedBatch(part, of: "e", in: .messages, from: gateway, after: nil, at: Self.now)])
    }
  }

  private struct Got: Equatable {
    var texts: [String: Int] = [:]
    var lacking: Int64 = 0
    var gateways: Set<String> = []
    var pages = 0
    var reached: Int64 = 0
  }

  /// The updates of a list that the gateway `z` gets from position `after` on.
  private func catchUp(_ store: HubStore, _ list: String = list, after: Int64 = 0) async throws -> Got {
    var (catchUp, got) = (CatchUp([list: CatchUp.Position(seq: after)]), Got())
    catchUp.connected()
    while let action = catchUp.next() {
      switch action {
      case .askState(let names):
        let states = try await store.states(of: [HubStore.BucketQuery(names, of: "z")])[0].states
        catchUp.stateArrived(states.map { ($0.bucket, $0.seq, $0.at) })
      case .skip: throw CancellationError()
      case .fetch(let bucket, let from, let until, let limit, let most):
        let bytes = try await store.updates(
          bucket, of: "z", from: HubStore.Position(after: from.seq, at: from.at, since: from.since), until: until,
          limit: limit, most: most)
        let page = try #require(CatchUp.Page(try JSONValue(parsing: bytes)))
        let outcome = try #require(catchUp.read(page, of: bucket))
        for update in outcome.updates {
          got.texts[try JSONValue(parsing: update.body)["gateway"]?.string ?? "", default: 0] += 1
        }
        got.lacking += outcome.lacking
        got.gateways.formUnion(outcome.leftOut?.gateways ?? [])
        got.pages += 1
        got.reached = outcome.position.seq
        catchUp.moved(bucket, outcome)
      }
    }
    return got
  }

  @Test(arguments: [1000, 9000, 12_000])
  func
    `a gateway that comes back gets another's twenty messages, whatever a third one told of, and hears whose it lacks`(
      flood: Int
    ) async throws
  {
    let store = try await store()
    try await tell(store, "c", 20)
    try await tell(store, "b", flood)
    let got = try await catchUp(store)
    #expect(got.texts == ["c": 20, "b": 980])
    #expect(got.lacking == Int64(flood - 980) && got.gateways == ["b"] && got.reached == Int64(flood + 20))
    let all = try await store.updates(
      Self.list, of: "z", from: HubStore.Position(after: Int64(flood + 20)), until: nil, limit: 10)
    #expect(try JSONValue(parsing: all)["left_out"] == nil, "a gateway that lacks nothing gets no list of gateways")
  }

  @Test func `shares hold over all pages, in any order of reporters`() async throws {
    let store = try await store()
    for round in 0..<10 {
      try await tell(store, "b", 900, from: 1 + round * 900)
      try await tell(store, "c", 50, from: 1 + round * 50)
      try await tell(store, "d", 10, from: 1 + round * 10)
    }
    let got = try await catchUp(store)
    #expect(got.texts["c", default: 0] >= 440 && got.texts["d"] == 100)
    let total = Int64(got.texts.values.reduce(0, +))
    #expect(total <= 1000 && total >= 900, "\(got)")
    #expect(got.lacking + total == 9600 && got.gateways.contains("b"))
  }

  @Test func `in the list of messages heard by others, each reporter has its share`() async throws {
    let store = try await store()
    try await store.setWantedHearers([HubStore.WantedHearers(gateway: "z", hearers: ["b", "c"])])
    try await tell(store, "c", 20)
    try await tell(store, "b", 3000)
    let got = try await catchUp(store, "heard")
    #expect(got.texts["c"] == 20 && got.gateways == ["b"])
    #expect(got.lacking + Int64(got.texts.values.reduce(0, +)) == 3020)
    let bytes = try await store.updates(
      "heard", of: "z", from: HubStore.Position(after: 30), until: nil, limit: 1000)
    #expect(try JSONValue(parsing: bytes)["left_out"]?["gateways"]?.array == [.string("b")], "without being asked to")
  }

  @Test func `a gateway works without shares at a hub that does not support them`() async throws {
    var catchUp = CatchUp([Self.list: CatchUp.Position()])
    catchUp.connected()
    #expect(catchUp.next() == .askState([Self.list]))
    catchUp.stateArrived([(Self.list, 5000, 1)])
    guard case .fetch(_, _, _, _, 1000) = catchUp.next() else { throw CancellationError() }
    let page = CatchUp.Page.updates([], first: 1, last: 100, lastAt: 1, more: true)
    catchUp.moved(Self.list, try #require(catchUp.read(page, of: Self.list)))
    let target = CatchUp.Position(seq: 4000, at: nil, since: 0)
    #expect(catchUp.next() == .skip(bucket: Self.list, first: 101, last: 4000, to: target))
  }

  @Test func `shares are as even as the available messages allow`() {
    #expect(HubStore.share(of: 10, []) == nil)
    #expect(HubStore.share(of: 10, [3, 7]) == nil)
    #expect(HubStore.share(of: 10, [3, 8]) == 7)
    #expect(HubStore.share(of: 10, [9, 9, 1]) == 4)
    #expect(HubStore.share(of: 2, [1, 1, 1, 5]) == 1, "the newest of each stays")
  }

  @Test func `messages that were listed before the upgrade of the tables have their gateways`() async throws {
    do {
      let old = try Database(location: scratch.location("hub.db"))
      try old.migrate(HubSchema.steps(.sqlite).prefix(19).map { Migration(number: $0.number, sql: $0.sql) })
      try old.execute(
        """
        INSERT INTO buckets VALUES ('', '\(Self.list)', 1, 1, 5), ('z', 'commands', 1, 1, 5);
        INSERT INTO updates VALUES ('', '\(Self.list)', 1, 'a', 5, '{"gateway":"c"}'), ('z', 'commands', 1, 'b', 5, '')
        """)
    }
    _ = try await store()
    let sources = try SQLiteHubDatabase(reading: scratch.location("hub.db")).rows(
      "SELECT source FROM updates ORDER BY bucket", read: { $0.text(0) })
    #expect(sources == ["c", ""])
  }
}
