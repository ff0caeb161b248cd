// SPDX-License-Identifier: MIT

import JSON
import SQLite
import TestSupport
import Testing

@testable import Hub

/// Version 2 of the protocol: order, positions and acknowledgements by lane. Source: docs/hub-protocol.md.
@Suite struct LaneTests {
  private func lanes(_ answer: JSONValue) -> [String: Int64]? {
    answer["lanes"]?.fields.map { Dictionary(uniqueKeysWithValues: $0.compactMap { ($0.0, $0.1.integer ?? -1) }) }
  }

  private func isTaken(_ answer: JSONValue, _ acknowledged: Int64) -> Bool {
    answer["type"]?.string == "taken" && answer["acknowledged"]?.integer == acknowledged
  }

  private func isOutOfOrder(_ answer: JSONValue, _ acknowledged: Int64) -> Bool {
    answer["type"]?.string == "out_of_order" && answer["acknowledged"]?.integer == acknowledged
  }

  @Test func `a hello of another gateway, or with an invalid epoch, is refused with a reason`() async throws {
    let rig = try LinkRig()
    for (hello, word) in [
      (#"{"type":"hello","protocol":2,"gateway":"other","epoch":"e"}"#, "another gateway"),
      (#"{"type":"hello","protocol":2,"gateway":7,"epoch":"e"}"#, "another gateway"),
      (#"{"type":"hello","protocol":2,"gateway":"g","epoch":".."}"#, "an epoch must be"),
      (#"{"type":"hello","protocol":2,"gateway":"g"}"#, "an epoch must be"),
    ] {
      do {
        _ = try await rig.say(hello)
        Issue.record("it was welcomed: \(hello)")
      } catch let failure as LinkMessageAssembler.Failure {
        #expect(failure.reason.contains(word) && failure.reason.utf8.count <= 123, "\(hello): \(failure)")
      }
    }
    #expect(try await rig.say(#"{"type":"hello","protocol":2,"epoch":"e"}"#)["type"]?.string == "welcome")
  }

  @Test func `a welcome has the lanes for new gateways, and one position for old ones`() async throws {
    let rig = try LinkRig()
    var new = try await rig.hello(version: 2)
    #expect(lanes(new) == [:] && new["protocol"]?.integer == 2 && new["acknowledged"] == nil)
    #expect(try await rig.hello(version: 1)["acknowledged"] == nil, "the epoch is not known")
    _ = try await rig.ship([LinkRig.event(24, "message")], lane: #""messages""#)
    _ = try await rig.ship([LinkRig.event(20, "advert")], lane: #""nodes""#)
    new = try await rig.hello(version: 2)
    #expect(lanes(new) == ["messages": 24, "nodes": 20], "a lane of which there is nothing is absent")
    #expect(new["window"]?.integer == 16 && new["max_bytes"]?.integer == 1 << 20 && new["at"]?.integer != nil)
    #expect(lanes(try await rig.hello(version: 3)) == ["messages": 24, "nodes": 20], "a newer one speaks ours, too")
    for version in [0, 1] {
      let old = try await rig.hello(version: version)
      #expect(old["acknowledged"]?.integer == 20 && old["lanes"] == nil && old["protocol"] == nil)
    }
    #expect(lanes(try await rig.hello(version: 2, epoch: "other")) == [:])
  }

  @Test func `a gap in one lane does not delay another lane`() async throws {
    let rig = try LinkRig()
    _ = try await rig.hello(version: 2)
    let (messages, nodes) = (#""messages""#, #""nodes""#)
    #expect(isTaken(try await rig.ship([LinkRig.event(9, "message")], lane: messages, after: 0), 9))
    #expect(isOutOfOrder(try await rig.ship([LinkRig.event(5, "advert")], lane: nodes, after: 3), 0))
    #expect(isOutOfOrder(try await rig.ship([LinkRig.event(7, "advert")], lane: nodes, after: 5), 0))
    #expect(isTaken(try await rig.ship([LinkRig.event(12, "message")], lane: messages, after: 9), 12))
    #expect(isTaken(try await rig.ship([LinkRig.event(3, "advert")], lane: nodes, after: 0), 3))
    #expect(isTaken(try await rig.ship([LinkRig.event(5, "advert")], lane: nodes, after: 3), 5))
    #expect(isTaken(try await rig.ship([LinkRig.event(4, "contact")], lane: nodes), 5), "refused earlier, in no order")
    #expect(isTaken(try await rig.ship([], lane: nodes, after: 5), 5))
    #expect(try await rig.lanes == ["messages": 12, "nodes": 5])
    #expect(try await rig.store.gateways().first?.events == 5)
  }

  @Test func `a batch's lane applies to all its events, and an unknown lane is refused`() async throws {
    let rig = try LinkRig()
    _ = try await rig.hello(version: 2)
    let moved = try await rig.ship([LinkRig.event(3, "packet"), LinkRig.event(4, "new_kind")], lane: #""nodes""#)
    #expect(isTaken(moved, 4))
    for lane in [#""bulk""#, #""Nodes""#, #""""#, "1", "null", #"["nodes"]"#] {
      let refused = try await rig.ship([LinkRig.event(5, "packet")], lane: lane)
      #expect(refused["type"]?.string == "refused" && refused["status"]?.integer == 400, "\(lane)")
    }
    #expect(try await rig.lanes == ["nodes": 4])
    #expect(try await rig.store.gateways().first?.events == 2)
  }

  @Test func `a batch without a lane applies to all lanes, in every version of the protocol`() async throws {
    let rig = try LinkRig()
    for (index, version) in [1, 2].enumerated() {
      let start = Int64(index) * 100
      _ = try await rig.hello(version: version)
      #expect(isTaken(try await rig.ship([LinkRig.event(start + 5, "message")], after: start), start + 5))
      #expect(try await rig.lanes == ["messages": start + 5, "nodes": start + 5, "packets": start + 5])
      let before = start + 5
      #expect(isTaken(try await rig.ship([LinkRig.event(start + 50, "message")], lane: #""messages""#), start + 50))
      #expect(isTaken(try await rig.ship([LinkRig.event(start + 40, "advert")], lane: #""nodes""#), start + 40))
      // In the order of the whole journal: after the smallest position of the lanes.
      #expect(isOutOfOrder(try await rig.ship([LinkRig.event(start + 41, "power")], after: start + 6), before))
      #expect(isTaken(try await rig.ship([LinkRig.event(start + 45, "power")], after: before), start + 45))
      #expect(
        try await rig.lanes == ["messages": start + 50, "nodes": start + 45, "packets": start + 45],
        "no lane goes back")
      _ = try await rig.ship([LinkRig.event(start + 100, "power")])
    }
  }

  @Test func `an old event does not move an acknowledged position back`() async throws {
    let rig = try LinkRig()
    _ = try await rig.hello(version: 2)
    _ = try await rig.ship([LinkRig.event(24, "message")], lane: #""messages""#)
    _ = try await rig.ship([LinkRig.event(20, "advert")], lane: #""nodes""#)
    _ = try await rig.hello(version: 1)
    #expect(isTaken(try await rig.ship([LinkRig.event(10, "advert")]), 20))
    #expect(isTaken(try await rig.ship([], after: 10), 10))
    #expect(try await rig.lanes == ["messages": 24, "nodes": 20, "packets": 10], "an empty batch claims nothing")
  }

  @Test func `the upgrade of a database without lanes gives each lane the old position`() async throws {
    let scratch = Scratch(inMemory: true)
    let location = scratch.location("hub.db")
    let before = HubSchema.steps(.sqlite).prefix(2).map { Migration(number: $0.number, sql: $0.sql) }
    do {
      let old = try Database(location: location)
      try old.migrate(before)
      try old.execute(
        """
        INSERT INTO gateways(id, epoch, events, last_seen) VALUES ('g', 'e', 24, 1), ('h', 'f', 0, 1);
        INSERT INTO epochs(gateway, epoch, acknowledged) VALUES ('g', 'd', 7), ('g', 'e', 24), ('h', 'f', 0);
        INSERT INTO buckets VALUES ('g', 'commands', 2, 1, 6);
        INSERT INTO updates VALUES ('g', 'commands', 1, 'a', 5, '{"n":1}'), ('g', 'commands', 2, 'b', 6, '{"n":2}')
        """)
    }
    do {
      let store = try HubStore(location: location)
      #expect(try await store.progress(gateway: "g", epoch: "e")?.lanes == [.messages: 24, .nodes: 24, .packets: 24])
      #expect(try await store.progress(gateway: "g", epoch: "d")?.acknowledged == 7)
      #expect(try await store.progress(gateway: "h", epoch: "f")?.lanes == [:])
      #expect(try await store.progress(gateway: "h", epoch: "e") == nil)
      #expect(try await store.gateways().map(\.progress.acknowledged) == [24, 0])
      let kept = try await store.updates("commands", of: "g", from: .init(after: 0), until: nil, limit: 10)
      #expect(try JSONValue(parsing: kept)["updates"]?.array?.compactMap { $0["body"]?["n"]?.integer } == [1, 2])
      let json = #"{"epoch":"e","lane":"nodes","events":[\#(LinkRig.event(30, "advert"))]}"#
      #expect(
        try await store.take(EventBatch(parsing: Array(json.utf8)), from: "g", after: 24, at: 1) == .acknowledged(30))
    }
    // A program that counts a lane's batch for all lanes neither begins nor continues.
    let old = try Database(location: location)
    #expect(throws: SQLiteError.self) { try old.migrate(before) }
    #expect(throws: SQLiteError.self) { try old.execute("SELECT acknowledged FROM epochs") }
  }
}
