// SPDX-License-Identifier: MIT

import Companion
import JSON
import TestSupport
import Testing

@testable import Hub
@testable import Store

/// The ways by which one message came to several gateways.
@Suite struct WaysAtTheHubTests {
  private static let channel = "0011223344556677"
  private static let now: Int64 = 1_795_000_000_000
  private let scratch = Scratch(inMemory: true)
  private let store: HubStore

  init() throws { store = try HubStore(location: scratch.location("hub.db")) }

  private func take(_ gateway: String, _ kind: String, _ body: JSONValue, seq: Int64) async throws {
    let event = HubEvent(seq: seq, at: Self.now, trusted: true, kind: kind, body: body)
    let lane: EventBatch.Lane = kind == "message" ? .messages : .nodes
    _ = try await store.take([
      PreparedBatch([event], of: "e", in: lane, from: gateway, after: nil, at: Self.now)
    ])
  }

  private func message(_ gateway: String, text: String = "hello", seq: Int64 = 1) async throws {
    try await take(
      gateway, "message",
      .object([
        ("id", .integer(7)), ("kind", .string("channel")), ("channel", .string(Self.channel)),
        ("sender_name", .string("Birch")), ("sender_time", .integer(100)), ("text", .string(text)),
      ]), seq: seq)
  }

  private static func identity(_ text: String = "hello") -> String {
    Store.identity(ofMessageOn: channel, senderName: "Birch", senderTime: 100, text: Text(text))
  }

  private func ways(
    _ gateway: String, _ hashes: [String], seq: Int64, identity: String = Self.identity(),
    more: [(String, JSONValue)] = []
  ) async throws {
    let copies = hashes.map { hash in
      JSONValue.object([
        ("at", .integer(Self.now)), ("path", .array([.string(hash)])), ("snr", .number(1.5)), ("rssi", .integer(-90)),
      ])
    }
    try await take(
      gateway, "ways",
      .object([("id", .integer(7)), ("identity", .string(identity)), ("ways", .array(copies))] + more),
      seq: seq)
  }

  private func told() async throws -> JSONValue {
    try JSONValue(parsing: try #require(try await store.messageWithWays(1)))
  }

  private func paths(_ told: JSONValue) -> [String: [String]] {
    (told["ways"]?.array ?? []).reduce(into: [:]) { all, one in
      all[one["gateway"]?.string ?? ""] = one["ways"]?.array?.compactMap { $0["path"]?.array?.first?.string }
    }
  }

  @Test func `a message has the newest copies of each gateway that heard it, and no others`() async throws {
    // The lanes have no order: copies may come before their message.
    try await ways("a", ["a0"], seq: 1)
    for gateway in ["a", "b", "c"] { try await message(gateway) }
    #expect(try paths(await told()) == ["a": ["a0"]])
    try await ways("a", ["a0", "a1"], seq: 2)
    try await ways("b", ["b0"], seq: 3)
    try await ways("c", ["c0"], seq: 4, identity: Self.identity("another"))
    try await ways("stranger", ["d0"], seq: 5)
    #expect(try paths(await told()) == ["a": ["a0", "a1"], "b": ["b0"]])
    #expect(try await store.messageWithWays(99) == nil)
    let list = try JSONValue(parsing: await store.messages(ListQuery(limit: 10)))
    #expect(list["messages"]?.array?.first?["ways"] == nil, "only of one message")
  }

  @Test func `of many gateways 16 are shown and the others counted, and none hides another`() async throws {
    for number in 0..<40 { try await message("g\(number + 10)") }
    for seq in 1...300 as ClosedRange<Int64> { try await ways("g10", ["a0"], seq: seq) }
    for number in 1..<40 { try await ways("g\(number + 10)", ["b\(number % 10)"], seq: 1) }
    let told = try await told()
    #expect(told["ways"]?.array?.count == 16 && told["ways_more"]?.integer == 24)
    #expect(paths(told)["g11"] == ["b1"])
  }

  @Test func `what a gateway invents is bounded`() async throws {
    try await message("a")
    let long = String(repeating: "z", count: 5000)
    let nodes = JSONValue.array(
      (0..<40).map { _ in
        .object([("hash", .string("a0")), ("nodes", .array((0..<8).map { _ in .object([("name", .string(long))]) }))])
      })
    try await ways(
      "a", (0..<500).map { _ in "a0" } + [long], seq: 1,
      more: [("way_nodes", nodes), ("ways_more", .string(long)), ("extra", .string(long))])
    let told = try await told()
    #expect(told["ways"]?.array?.first?["ways"]?.array?.count == 8)
    #expect(told.text.utf8.count < 50_000 && told["ways"]?.array?.first?["extra"] == nil)
    // No browser has a date behind this, and a name belongs to its hash.
    let odd = JSONValue.array(
      [.integer(9_000_000_000_000_000), .number(0.5), .integer(-1)].map {
        .object([("at", $0), ("path", .array([.string("a0")])), ("hops", $0)])
      })
    let others = JSONValue.array([
      .object([
        ("hash", .string("a0")),
        ("nodes", .array([.object([]), .object([("key", .string("b0b0"))]), .object([("key", .string("a0b0"))])])),
      ])
    ])
    try await ways("a", ["a0"], seq: 2, more: [("way_nodes", others)])
    let known = try await self.told()["ways"]?.array?.first?["way_nodes"]?.array?.first?["nodes"]?.array
    #expect(known?.map { $0["key"]?.string } == ["a0b0"] && known?.first?["name"]?.string == "")
    try await take("a", "ways", .object([("identity", .string(Self.identity())), ("ways", odd)]), seq: 3)
    let copies = try await self.told()["ways"]?.array?.first?["ways"]?.array ?? []
    #expect(copies.count == 3 && copies.allSatisfy { $0["at"]?.integer == 0 && $0["hops"] == nil })
    // Not even an identity that no index would take keeps an event out.
    try await ways("a", ["a0"], seq: 4, identity: long)
    try await take("a", "ways", .object([("identity", .object([("x", .integer(1))]))]), seq: 5)
    try await take("a", "ways", .object([("identity", .string("nul\u{0}")), ("ways", .integer(1))]), seq: 6)
    #expect(try await store.messageWithWays(1) != nil)
  }
}
