// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// Wrong clocks and inventions of one gateway do not hide other gateways' reports of nodes and channels.
@Suite struct StrangersClockTests {
  private let scratch = Scratch(inMemory: true)
  private static let now: Int64 = 1_795_000_000_000

  private static func batch(
    _ gateway: String, _ kind: String, at: Int64 = now, trusted: Bool = true, seq: Int64 = 1, came: Int64 = now,
    _ bodies: [[(String, JSONValue)]]
  ) -> PreparedBatch {
    let events = bodies.enumerated().map { index, body in
      HubEvent(seq: seq + Int64(index), at: at, trusted: trusted, kind: kind, body: .object(body))
    }
    return PreparedBatch(events, of: "e", in: nil, from: gateway, after: nil, at: came)
  }

  private static func contact(_ name: String, heard: Int64) -> [[(String, JSONValue)]] {
    [[("key", .string("aa")), ("name", .string(name)), ("last_heard", .integer(heard))]]
  }

  @Test(arguments: [true, false]) func `a clock that is years ahead does not fix a node's name for ever`(
    _ trusted: Bool
  ) async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let ahead = Self.now * 2
    let lie = Self.batch("a", "contact", at: ahead, trusted: trusted, Self.contact("a lie", heard: ahead))
    let truth = Self.batch(
      "b", "contact", at: Self.now - 5, came: Self.now + 5, Self.contact("Birch", heard: Self.now - 9))
    let later = Self.batch(
      "b", "contact", at: Self.now + 10, seq: 2, came: Self.now + 12, Self.contact("Birch 2", heard: Self.now))
    for batch in [lie, truth, later] { _ = try await store.take([batch]) }
    let node = try #require(
      JSONValue(parsing: await store.nodes(after: "", limit: 10, words: nil))["nodes"]?.array?.first)
    #expect(node["name"]?.string == "Birch 2")
    let heard = node["heard"]?.array ?? []
    #expect(heard.map { $0["gateway"]?.string } == ["b", "a"])
    #expect(heard.allSatisfy { ($0["at"]?.integer ?? 0) <= Self.now }, "\(heard)")
  }

  @Test func `a record with an untrusted clock loses to one with a trusted clock`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    _ = try await store.take([Self.batch("b", "contact", at: Self.now - 5, Self.contact("Birch", heard: 1))])
    _ = try await store.take([Self.batch("a", "contact", trusted: false, Self.contact("a lie", heard: 1))])
    let nodes = try JSONValue(parsing: await store.nodes(after: "", limit: 10, words: nil))["nodes"]?.array
    #expect(nodes?.first?["name"]?.string == "Birch")
  }

  private static func channel(_ number: Int) -> [(String, JSONValue)] {
    let digits = String(number, radix: 16)
    let digest = String(repeating: "0", count: 16 - digits.utf8.count) + digits
    return [("channel", .string(digest)), ("name", .string("#\(number)"))]
  }

  @Test func `invented channels displace no others, and a cut answer says that it is cut`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let (shared, own) = (Self.channel(1_000_001), Self.channel(1_000_002))
    _ = try await store.take([Self.batch("b", "channel", [shared, own]), Self.batch("c", "channel", [shared])])
    func list() async throws -> (channels: [JSONValue], more: Bool?) {
      let page = try JSONValue(parsing: await store.channels())
      return (page["channels"]?.array ?? [], page["more"]?.bool)
    }
    #expect(try await list().more == nil)
    for start in stride(from: 1, to: 3000, by: 500) {
      let invented = (start..<start + 500).map(Self.channel)
      _ = try await store.take([Self.batch("a", "channel", seq: Int64(start), invented)])
    }
    let (channels, more) = try await list()
    #expect(more == true && channels.count == 66)
    // On a busy machine an answer has no time for the names.
    #expect(channels.contains { $0["channel"] == shared[0].1 && $0["gateways"]?.integer == 2 })
    #expect(channels.contains { $0["channel"] == own[0].1 })
    #expect(try await store.number("SELECT count(*) FROM gateway_channels WHERE gateway = 'a'") <= 1000)
  }
}
