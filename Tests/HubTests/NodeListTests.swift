// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// A fleet's nodes are gateways times nodes rows: an answer about them reads a bounded part, and `next` goes on.
@Suite struct NodeListTests {
  private let scratch = Scratch(inMemory: true)
  private static let now: Int64 = 1_795_000_000_000

  private static func key(_ number: Int) -> String {
    let digits = String(number)
    return "node" + String(repeating: "0", count: 6 - digits.utf8.count) + digits
  }

  /// `named`: the nodes' names.
  private func store(
    gateways: Int, nodes: Range<Int>, named: (Int) -> String = { "Hut \($0)" }
  ) async throws -> HubStore {
    let store = try HubStore(location: scratch.location("hub.db"))
    for gateway in 0..<gateways {
      let events = nodes.enumerated().map { index, node in
        HubEvent(
          seq: Int64(index + 1), at: Self.now, trusted: true, kind: "contact",
          body: .object([("key", .string(Self.key(node))), ("name", .string(named(node)))]))
      }
      _ = try await store.take([
        PreparedBatch(events, of: "e", in: nil, from: "g\(gateway)", after: nil, at: Self.now)
      ])
    }
    return store
  }

  private func page(
    _ store: HubStore, after: String, limit: Int = 1000, _ words: String? = nil
  ) async throws -> JSONValue {
    try JSONValue(parsing: await store.nodes(after: after, limit: limit, words: try SearchTerms(words)))
  }

  /// All keys, answer by answer.
  private func walk(_ store: HubStore, limit: Int = 1000, _ words: String? = nil) async throws -> [[String]] {
    var (answers, after) = ([[String]](), "")
    while true {
      let page = try await page(store, after: after, limit: limit, words)
      answers.append((page["nodes"]?.array ?? []).compactMap { $0["key"]?.string })
      guard let next = page["next"]?.string else { return answers }
      #expect(Array(after.utf8).lexicographicallyPrecedes(Array(next.utf8)))
      after = next
    }
  }

  @Test func `an answer reads ten thousand rows at most, and the walk has every node once`() async throws {
    let (gateways, nodes) = (40, 0..<300)
    let store = try await store(gateways: gateways, nodes: nodes)
    let mostOfOne = ReadBudget.mostRows / gateways + 10
    func expect(_ wanted: [Int], limit: Int, _ words: String?) async throws {
      let answers = try await walk(store, limit: limit, words)
      #expect(answers.flatMap { $0 } == wanted.map(Self.key), "\(words ?? "all")")
      // A slow machine makes more answers, never fewer.
      #expect(answers.count > nodes.count / mostOfOne, "\(words ?? "all"): \(answers.count)")
    }
    try await expect([], limit: 1000, "nowhere")
    try await expect(Array(nodes), limit: 1000, nil)
    try await expect(Array(nodes), limit: 40, nil)
    try await expect([29, 129, 229] + Array(290...299), limit: 2, "HUT 29")
  }

  @Test func `a node that more gateways hear than are read at once is one node, and hides no other`() async throws {
    let store = try await store(gateways: 620, nodes: 0..<3)
    #expect(try await walk(store).flatMap { $0 } == (0..<3).map(Self.key))
    #expect(try await walk(store, limit: 1, "hut").flatMap { $0 } == (0..<3).map(Self.key))
    let first = try await page(store, after: "", limit: 1)["nodes"]?.array?.first
    #expect(first?["heard"]?.array?.count == 100)
    #expect(first?["name"]?.string == "Hut 0")
  }
}
