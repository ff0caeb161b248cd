// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// How a gateway uses a day's bytes, and which lanes wait when they are used up.
@Suite struct AllowancesOfAGatewayTests {
  private func stopped(_ rig: Rig) throws -> [String] {
    try rig.upstream("hub")?["allowance"]?["stopped"]?.array?.compactMap(\.string) ?? []
  }

  /// Sends distinct messages, and with them adverts and packets, until these lanes have stopped.
  private func talk(_ rig: Rig, _ random: inout SeededRandom, until lanes: [String]) throws {
    for _ in 0..<500 {
      for _ in 0..<5 {
        let text = (0..<110).map { _ in
          "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-".randomElement(using: &random) ?? "a"
        }
        rig.air("chan r\(Int.random(in: 1...3, using: &random)) 0 \(String(text))")
      }
      rig.air("advert r\(Int.random(in: 1...3, using: &random))")
      rig.pass(.seconds(3))
      if try stopped(rig) == lanes { return }
    }
    throw Rig.InVain(description: "\(lanes) never stopped: \(try rig.upstream("hub") ?? .null)")
  }

  private func kinds(_ rig: Rig) -> [String: Int] {
    rig.hub.events.reduce(into: [:]) { $0[$1.kind, default: 0] += 1 }
  }

  @Test func `as a day's bytes run out, packets stop, then nodes, then messages, also over a restart`() throws {
    let rig = try Rig(nodes: 4, airtime: 0) { $0.queueCapacity = 20_000 }
    rig.configure(
      "daily_bytes = 200000\nkinds = [\"message\", \"advert\", \"contact\", \"packet\", \"allowance\"]")
    try rig.startSynced()
    var random = SeededRandom(seed: 1)
    try talk(rig, &random, until: ["packets"])
    #expect(kinds(rig)["packet"] ?? 0 > 10)
    try talk(rig, &random, until: ["nodes", "packets"])
    let before = try rig.upstream("hub")?["allowance"]
    #expect((150_000...200_000).contains(before?["day_bytes"]?.integer ?? 0), "\(before ?? .null)")
    try talk(rig, &random, until: ["messages", "nodes", "packets"])

    // The status reports the stop.
    try rig.until("the connection to be closed") { try rig.upstream("hub")?["state"]?.string == "waiting" }
    let hub = try #require(try rig.upstream("hub"))
    let allowance = try #require(hub["allowance"])
    let used = try #require(allowance["day_bytes"]?.integer)
    #expect((185_000...202_000).contains(used) && allowance["daily_bytes"]?.integer == 200_000, "\(used)")
    #expect(allowance["until"]?.integer ?? 0 > rig.machine.wallMilliseconds)
    #expect(hub["reason"]?.string?.contains("its allowance is used up") == true, "\(hub)")
    let metrics = String(decoding: try rig.ask("GET", "/metrics").body, as: UTF8.self).split(separator: "\n")
    #expect(metrics.contains(#"meshpost_upstream_allowance_stopped{upstream="hub",lane="messages"} 1"#), "\(metrics)")
    #expect(metrics.contains(#"meshpost_upstream_allowance_limit_bytes{upstream="hub",period="day"} 200000"#))
    let bytes = ["messages", "nodes", "packets"].map { lane -> Int in
      let start = #"meshpost_upstream_sent_event_bytes_total{upstream="hub",lane="\#(lane)"} "#
      return metrics.first { $0.hasPrefix(start) }.flatMap { Int($0.dropFirst(start.count)) } ?? 0
    }
    // The hub has had events of each lane.
    #expect(bytes.allSatisfy { $0 > 500 }, "\(bytes) \(metrics)")
    let told = rig.hub.events.filter { $0.kind == "allowance" }.map(\.body)
    #expect(told.first?["stopped"]?.array?.compactMap(\.string) == ["packets"], "\(told)")
    #expect(told.contains { $0["stopped"]?.array?.count == 2 }, "\(told)")
    let seen = kinds(rig)
    #expect(seen["message"] ?? 0 > 50 && seen["advert"] ?? 0 > 3, "\(seen)")

    // Neither a regular end nor a kill gives new bytes.
    for isKilled in [false, true] {
      if isKilled { rig.kill() } else { rig.end() }
      try rig.startSynced()
      #expect(try rig.upstream("hub")?["allowance"]?["day_bytes"]?.integer ?? 0 >= used)
      #expect(try stopped(rig) == ["messages", "nodes", "packets"])
      rig.air("chan r1 0 after a restart")
      try rig.until("it to wait") { (try rig.upstream("hub")?["pending"]?.integer ?? 0) > 0 }
    }
    #expect(kinds(rig) == seen, "nothing was sent")
    rig.pass(.seconds(86_400))
    try rig.until("the next day's bytes") { kinds(rig)["message"] ?? 0 > seen["message"] ?? 0 }
  }

  @Test func `adverts that waited for the hub are folded, also over a restart, and messages are not`() throws {
    let rig = try Rig(nodes: 4, airtime: 0) { $0.queueCapacity = 20_000 }
    rig.hub.mood = .unreachable
    try rig.startSynced()
    for round in 0..<40 {
      if round == 20 {
        try rig.until("twenty messages") { try rig.status()["store"]?["messages"]?.integer == 20 }
        try rig.restart()
        try rig.untilSynced()
      }
      for node in 1...3 { rig.air("advert r\(node)") }
      rig.air("chan r1 0 number \(round)")
      // The time of an advert has a resolution of a second.
      rig.pass(.seconds(2))
    }
    try rig.until("forty messages") { try rig.status()["store"]?["messages"]?.integer == 40 }
    #expect(try rig.upstream("hub")?["lanes"]?["nodes"]?["pending"]?.integer ?? 0 > 20)
    rig.hub.mood = .well
    _ = try rig.ask("POST", "/v1/outbox/resume")
    try rig.until("everything at the hub") { try rig.upstream("hub")?["pending"]?.integer == 0 }
    // The radio may still have had adverts to report when the hub came.
    let adverts = try rig.rows("/v1/journal?limit=1000").filter { $0["kind"]?.string == "advert" }
    #expect(adverts.count > 20, "\(adverts.count)")
    #expect(rig.hub.texts == (0..<40).map { "number \($0)" })
    #expect(!rig.hub.events.contains { !["advert", "contact"].contains($0.kind) && $0.body["folded"] != nil })
    let here = rig.hub.events.filter { $0.kind == "advert" }
    #expect(here.map(\.seq) == here.map(\.seq).sorted())
    var newest: [String: Int64] = [:]
    for advert in adverts { newest[advert["body"]?["key"]?.string ?? ""] = advert["seq"]?.integer }
    #expect(newest.count == 3 && newest.values.allSatisfy(here.map(\.seq).contains), "\(newest)")
    #expect(here.count < adverts.count / 2, "\(here.count) of \(adverts.count)")
    let folded = here.reduce(0) { $0 + ($1.body["folded"]?.integer ?? 0) }
    #expect(Int(folded) + here.count == adverts.count, "\(folded) folded, \(here.count) of \(adverts.count)")
  }
}
