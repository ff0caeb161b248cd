// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import Testing
import Timing

@testable import meshpost

@Suite struct AllowanceTextTests {
  private func shown(_ text: String) throws -> (whole: String?, stopped: String?) {
    let json = try JSONValue(parsing: Array(text.utf8))
    return (Show.allowance(json), Show.stopped(json))
  }

  @Test func `an allowance is described in words`() throws {
    #expect(Show.allowance(nil) == nil && Show.stopped(nil) == nil)
    let free = try shown(
      #"{"day_bytes":1999,"daily_bytes":3000000,"month_bytes":2000,"stopped":[],"waits_for_hours":false}"#)
    #expect(free.whole == "allowance: 1 of 3000 kB today" && free.stopped == nil)
    let both = try shown(
      #"{"day_bytes":5000,"daily_bytes":9000,"month_bytes":7000,"monthly_bytes":8000,"stopped":["packets"],"waits_for_hours":false}"#
    )
    #expect(both.whole == "allowance: 5 of 9 kB today, 7 of 8 kB this month; packets wait")
    let until = try shown(
      #"{"day_bytes":5000,"daily_bytes":9000,"month_bytes":7,"stopped":["nodes","packets"],"waits_for_hours":true,"until":1796083200000}"#
    )
    #expect(until.stopped == "nodes, packets wait until \(Show.time(1_796_083_200_000))")
    let hours = try shown(#"{"day_bytes":0,"month_bytes":0,"stopped":[],"waits_for_hours":true}"#)
    #expect(hours.whole == "bulk hours; nodes, packets wait")
    // Output of another version of the daemon, or of none.
    #expect(try shown("[]").whole == nil && shown(#"{"stopped":7}"#).stopped == nil)
  }
}

extension WholeProgramTests {
  @Suite struct Allowances {
    private func hub(_ rig: Rig) throws -> JSONValue? {
      try rig.status()?["upstreams"]?.array?.first { $0["name"]?.string == "hub" }
    }

    private func end(_ rig: Rig) throws {
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
    }

    private func stopped(_ rig: Rig) throws -> [String] {
      try hub(rig)?["allowance"]?["stopped"]?.array?.compactMap(\.string) ?? []
    }

    /// Sends distinct messages, and with them adverts and packets, until these lanes have stopped.
    private func talk(_ rig: Rig, _ random: inout SeededRandom, until lanes: [String]) throws {
      try untilTrue("\(lanes) to stop: \(try hub(rig) ?? .null)") {
        for _ in 0..<10 {
          let text = (0..<110).map { _ in
            "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-".randomElement(using: &random) ?? "a"
          }
          rig.radio?.write("chan r\(Int.random(in: 1...3, using: &random)) 0 \(String(text))")
        }
        rig.radio?.write("advert r\(Int.random(in: 1...3, using: &random))")
        usleep(200_000)
        return try stopped(rig) == lanes
      }
    }

    private func kinds(_ rig: Rig) throws -> [String: Int] {
      try rig.hubRows("events").reduce(into: [:]) { $0[$1["kind"]?.string ?? "", default: 0] += 1 }
    }

    @Test func `as a day's bytes run out, packets stop, then nodes, then messages, also over a restart`() throws {
      let rig = try Rig()
      try rig.startRadio(["--nodes", "4", "--airtime", "0", "--queue", "20000"])
      rig.writeGatewayConfiguration(
        extra: """
          daily_bytes = 200000
          kinds = ["message", "advert", "contact", "packet", "allowance"]
          """)
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      var random = SeededRandom(seed: 1)
      try talk(rig, &random, until: ["packets"])
      let packets = try kinds(rig)["packet"] ?? 0
      #expect(packets > 20)
      try talk(rig, &random, until: ["nodes", "packets"])
      #expect(try rig.meshpost("status").lines.contains { $0.contains("nodes, packets wait until ") })
      let before = try hub(rig)?["allowance"]
      #expect((150_000...200_000).contains(before?["day_bytes"]?.integer ?? 0), "\(before ?? .null)")
      try talk(rig, &random, until: ["messages", "nodes", "packets"])

      // The status reports the stop.
      try untilTrue("the connection to be closed") { try hub(rig)?["state"]?.string == "waiting" }
      let allowance = try #require(try hub(rig)?["allowance"])
      let used = try #require(allowance["day_bytes"]?.integer)
      #expect((185_000...202_000).contains(used) && allowance["daily_bytes"]?.integer == 200_000)
      #expect(allowance["until"]?.integer ?? 0 > Int64(Date().timeIntervalSince1970) * 1000)
      let lines = try rig.meshpost("status").lines
      #expect(
        lines.contains { $0.contains("of 200 kB today; messages, nodes, packets wait until ") }
          && lines.contains { $0.contains("its allowance is used up") }, "\(lines)")
      let outbox = try rig.meshpost("upstream", "pending").lines
      #expect(outbox.contains { $0.contains(/^ +packets +\d+ events/) }, "\(outbox)")
      let metrics = String(decoding: rig.control("GET", "/metrics")?.body ?? [], as: UTF8.self).split(separator: "\n")
      #expect(metrics.contains(#"meshpost_upstream_allowance_stopped{upstream="hub",lane="messages"} 1"#), "\(metrics)")
      #expect(metrics.contains(#"meshpost_upstream_allowance_limit_bytes{upstream="hub",period="day"} 200000"#))
      let events = try rig.hubRows("events")
      let told = events.filter { $0["kind"]?.string == "allowance" }.compactMap { $0["body"] }
      #expect(told.first?["stopped"]?.array?.compactMap(\.string) == ["packets"], "\(told)")
      #expect(told.contains { $0["stopped"]?.array?.count == 2 }, "\(told)")
      let seen = try kinds(rig)
      #expect(seen["message"] ?? 0 > 50 && seen["advert"] ?? 0 > 3, "\(seen)")

      // Neither a regular end nor a kill gives new bytes.
      for isKilled in [false, true] {
        if isKilled { rig.gateway?.kill9() } else { try end(rig) }
        try rig.startGateway()
        try rig.waitForSync()
        try untilTrue("the count to be there") { try hub(rig)?["allowance"]?["day_bytes"]?.integer ?? 0 >= used }
        #expect(try stopped(rig) == ["messages", "nodes", "packets"])
        rig.radio?.write("chan r1 0 after a restart")
        try untilTrue("it to wait") { (try hub(rig)?["pending"]?.integer ?? 0) > 0 }
      }
      #expect(try kinds(rig) == seen, "nothing was sent")
    }
  }
}
