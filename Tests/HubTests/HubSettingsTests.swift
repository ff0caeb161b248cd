// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// The settings of the fleet's nodes.
@Suite struct HubSettingsTests {
  private let scratch = Scratch(inMemory: true)
  private static let now: Int64 = 1_795_000_000_000

  private func snapshot(
    _ node: String, _ seq: Int64, at: Int64, _ settings: [(String, String)], trusted: Bool = true
  ) -> HubEvent {
    let key = String(repeating: node, count: 64)
    return HubEvent(
      seq: seq, at: at, trusted: trusted, kind: "snapshot",
      body: .object([
        ("node", .string(key)), ("name", .string("Node \(node)")),
        ("settings", .object(settings.map { ($0.0, .string($0.1)) })),
      ]))
  }

  private func take(_ events: [HubEvent], from gateway: String, _ store: HubStore) async throws {
    _ = try await store.take([PreparedBatch(events, of: "e", in: nil, from: gateway, after: nil, at: Self.now)])
  }

  @Test func `the newest snapshot of each node counts, whichever gateway took it, and says where nodes differ`()
    async throws
  {
    let store = try HubStore(location: scratch.location("hub.db"))
    let none = try await store.fleetSettings(now: Self.now)
    #expect(none.nodes == 0 && none.settings.isEmpty)
    try await take(
      [
        snapshot("a", 1, at: Self.now - 500, [("name", "A"), ("tx", "20"), ("af", "1.0"), ("cad", "on")]),
        snapshot("a", 2, at: Self.now - 400, [("name", "A"), ("tx", "22"), ("af", "1.0")]),
        snapshot("b", 3, at: Self.now - 300, [("name", "B"), ("tx", "22"), ("af", "1.0")]),
      ], from: "hill", store)
    // Its clock is a year ahead, and its snapshot of a older than it says.
    try await take(
      [snapshot("c", 1, at: Self.now + 31_536_000_000, [("tx", "17"), ("af", "1.0")])], from: "valley", store)
    try await take([snapshot("a", 1, at: Self.now - 900, [("tx", "9")])], from: "old", store)
    let found = try await store.fleetSettings(now: Self.now)
    #expect(found.nodes == 3)
    #expect(found.settings.map(\.name) == ["name", "tx", "af"])
    #expect(found.differing.map(\.name) == ["tx"])
    let values = found.differing.first?.values ?? []
    #expect(values.map(\.value) == ["22", "17"] && values.map(\.nodes) == [["Node a", "Node b"], ["Node c"]])
    let json = try JSONValue(parsing: found.json)
    #expect(json["nodes"]?.integer == 3 && json["settings"]?.array?.count == 3 && json["left_out"] == nil)
  }

  /// The value of `tx` that counts for node a.
  private func tx(_ store: HubStore) async throws -> String? {
    try await store.fleetSettings(now: Self.now).settings.first { $0.name == "tx" }?.values.first?.value
  }

  @Test func `a snapshot of a clock that was ahead is not the newest for ever`() async throws {
    let store = try HubStore(location: scratch.location("ahead.db"))
    let year: Int64 = 31_536_000_000
    try await take([snapshot("a", 1, at: Self.now + year, [("tx", "1")])], from: "hill", store)
    #expect(try await tx(store) == "1", "the only one")
    try await take([snapshot("a", 2, at: Self.now - year, [("tx", "2")])], from: "hill", store)
    #expect(try await tx(store) == "2", "of one gateway the last counts, whatever its clock said")
    try await take([snapshot("a", 1, at: Self.now + 9, [("tx", "3")])], from: "valley", store)
    try await take([snapshot("a", 1, at: Self.now - 9, [("tx", "4")], trusted: false)], from: "wood", store)
    #expect(try await tx(store) == "2", "a time ahead, and one of a clock that is not synchronised, are none")
    try await take([snapshot("a", 1, at: Self.now - year + 1, [("tx", "5")])], from: "lake", store)
    #expect(try await tx(store) == "5")
  }

  @Test func `values are compared by their bytes, and what is left out is counted`() async throws {
    let store = try HubStore(location: scratch.location("bytes.db"))
    let large = String(repeating: "x", count: 9000)
    try await take(
      [
        snapshot("a", 1, at: Self.now, [("owner.info", "caf\u{E9}")]),
        snapshot("b", 2, at: Self.now, [("owner.info", "cafe\u{301}")]),
        snapshot("c", 3, at: Self.now, [("owner.info", large)]),
      ], from: "hill", store)
    let found = try await store.fleetSettings(now: Self.now)
    #expect(found.differing.first?.values.count == 2 && found.nodes == 2 && found.leftOut == 1)
    #expect(try JSONValue(parsing: found.json)["left_out"]?.integer == 1)
  }
}
