// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Kills at random moments under steady traffic, while servers come and go.
@Suite struct KillsTests {
  private static let kills = 30

  @Test(arguments: [UInt64(20_261_121), 20_261_122])
  func `after kills, each server has each committed event once and in order`(_ seed: UInt64) throws {
    var random = SeededRandom(seed: seed)
    let rig = try Rig(seed: seed) { ($0.queueCapacity, $0.contacts) = (100_000, 20) }
    let others = ["mqtt", "webhook"]
    rig.configure(
      others.map {
        "[[upstream]]\nname = \"\($0)\"\nkind = \"\($0)\"\nurl = \"\($0 == "mqtt" ? $0 : "http")://127.0.0.1:1\"\nkinds = [\"message\"]\n"
      }.joined())
    let servers = [rig.hub] + others.map { rig.server($0, $0) }
    try rig.startSynced()
    let (total, perSecond) = (1500, 20)
    rig.air("inject r0 \(perSecond) \(total)")
    for _ in 0..<Self.kills {
      rig.pass(.milliseconds(Int64.random(in: 10...5000, using: &random)))
      let moods: [ScriptedServer.Mood] = [.well, .unreachable, .losesAnswers, .standsStill, .hangsUp]
      for server in servers { server.mood = moods.randomElement(using: &random) ?? .well }
      rig.kill()
      try rig.start()
    }
    #expect(servers.allSatisfy { $0.hangUps > 0 && !$0.events.isEmpty }, "the faults were met")
    for server in servers { server.mood = .well }
    try rig.untilSynced()
    rig.pass(.seconds(Int64(total / perSecond)))
    try rig.until("all from the radio") { rig.radio.queuedMessages == 0 }
    try rig.until("everything at the servers", within: .seconds(7200)) {
      _ = try rig.ask("POST", "/v1/outbox/resume")
      return try rig.status()["upstreams"]?.array?.allSatisfy { $0["pending"]?.integer == 0 } == true
    }
    let events = rig.hub.events
    let last = try rig.status()["store"]?["last_seq"]?.integer ?? 0
    #expect(events.map(\.seq).sorted() == Array(1...last), "each committed event once (seed \(seed))")
    #expect(Set(events.map(\.epoch)).count == 1)
    // The lanes are those of docs/hub-protocol.md: the daemon's own list is not asked.
    let nodes: Set<String> = ["contact", "contact_removed", "advert", "telemetry", "node_status", "ways", "route"]
    for isOfNodes in [true, false] {
      let lane = events.filter { nodes.contains($0.kind) == isOfNodes }.map(\.seq)
      #expect(lane == lane.sorted(), "in order by lane (seed \(seed))")
    }
    let stored = Int(try rig.status()["store"]?["messages"]?.integer ?? 0)
    for server in servers {
      #expect(server.texts.count == stored && Set(server.texts).count == stored, "\(server.kind) (seed \(seed))")
      #expect(server.texts == rig.hub.texts, "\(server.kind), in order (seed \(seed))")
    }
    #expect((0...Self.kills).contains(total - stored), "at most one a kill (seed \(seed)): \(total - stored)")
  }
}
