// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A thin line for all traffic between gateway and hub, like a modem's; and a check of the line itself.
  @Suite(
    .enabled("a line between two network namespaces cannot be made here (needs root, /dev/net/tun, ip and nsenter)") {
      ShapedLine.isPossible
    }) struct ShapedLines
  {
    private static let port = "7000"

    private func probed(_ line: ShapedLine, _ words: String...) throws -> JSONValue {
      let program = try line.probe([words[0], line.farAddress, Self.port] + words.dropFirst())
      _ = try program.ended()
      return try JSONValue(parsing: program.lines.last ?? "")
    }

    private func served(_ arguments: String...) throws -> (line: ShapedLine, server: Program, scratch: Scratch) {
      let scratch = Scratch()
      let line = try ShapedLine(arguments, door: scratch.location("door"))
      let server = try line.probe(["serve", Self.port], in: line.far)
      try server.line(with: "listening")
      return (line, server, scratch)
    }

    /// The best of a few measurements: a busy machine slows down the senders, not the line.
    private func best(_ measure: () throws -> Double, until isEnough: (Double) -> Bool) throws -> [Double] {
      var found: [Double] = []
      for _ in 0..<5 {
        found.append(try measure())
        if isEnough(found[found.count - 1]) { break }
      }
      return found
    }

    @Test func `a shaped line has its configured rate and round trip`() throws {
      let (line, server, scratch) = try served("--up", "24000", "--delay", "0.05", "--buffer", "100000")
      defer { withExtendedLifetime((server, scratch)) {} }
      let trips = try best {
        try probed(line, "ping", "20", "0.02")["shortest"]?.number ?? 9
      } until: {
        $0 < 0.11
      }
      #expect(trips.allSatisfy { $0 >= 0.1 } && trips.last ?? 9 < 0.11, "\(trips)")
      let before = try line.tell("report")
      let rates = try best {
        try probed(line, "bulk", "48000")["per_second"]?.number ?? 0
      } until: {
        $0 > 0.8 * 24_000
      }
      print("round trips \(trips), rates \(rates)")
      #expect(rates.allSatisfy { $0 < 24_000 } && rates.last ?? 0 > 0.8 * 24_000, "\(rates)")
      let after = try line.tell("report")
      #expect(after.up.payload - after.up.again - before.up.payload == rates.count * 48_008, "\(after.up)")
      #expect(after.up.bytes - before.up.bytes > rates.count * 48_008 * 1500 / 1448, "headers count")
    }

    @Test func `a shaped line loses its configured share, and counts retransmissions`() throws {
      let (line, server, scratch) = try served("--up", "100000", "--delay", "0.01", "--loss", "10", "--seed", "4")
      defer { withExtendedLifetime((server, scratch)) {} }
      let came = Int(try probed(line, "ping", "400", "0.005")["came"]?.integer ?? 0)
      let lost = try line.tell("report")
      #expect((30...50).contains(lost.up.lost), "10 % of 400: \(lost)")
      #expect(came == 400 - lost.up.lost - lost.down.lost, "\(came), \(lost)")
      let sent = try probed(line, "bulk", "50000")
      let told = try line.tell("report")
      #expect(sent["bytes"]?.integer == 50_000, "TCP repairs it")
      #expect(told.up.offered - told.up.repeated == 50_008 && told.up.payload - told.up.again == 50_008, "\(told.up)")
      #expect(told.up.repeated > 0)
    }

    @Test func `nothing passes a cut line, and a forgetful NAT ends old connections`() throws {
      let (line, server, scratch) = try served("--up", "20000", "--delay", "0.01")
      defer { withExtendedLifetime((server, scratch)) {} }
      try line.tell("cut")
      #expect(try probed(line, "ping", "5", "0.01")["came"]?.integer == 0)
      try line.tell("mend")
      #expect(try probed(line, "ping", "5", "0.01")["came"]?.integer == 5)
      let long = try line.probe(["bulk", line.farAddress, Self.port, "500000"])
      try untilTrue("bytes to move") { try line.tell("report").up.payload > 5000 }
      let before = try line.tell("forget")
      try untilTrue("the NAT to drop some") { try line.tell("report").up.forgotten > 1 }
      #expect(try probed(line, "bulk", "1000")["bytes"]?.integer == 1000, "a new connection is known")
      #expect(long.exitCode == nil, "the old one has ended nobody: \(before)")
    }

    /// Waits while more events arrive, however slowly.
    private func untilArrived(_ rig: Rig, _ count: Int) throws {
      var (most, since) = (-1, Date())
      while true {
        let texts = try rig.hubTexts().count
        if texts >= count { return }
        if texts > most { (most, since) = (texts, Date()) }
        guard Date().timeIntervalSince(since) < 3 * Patience.stillness else {
          throw Program.Waited(
            description: "\(most) of \(count) are there and it does not move; \(try rig.line?.tell("report") as Any)"
              + "\n\(rig.gateway?.lines.suffix(10) ?? [])")
        }
        usleep(300_000)
      }
    }

    @Test(arguments: ["live", "http"])
    func `over a thin line with cuts a hub gets everything once and in order`(_ road: String) throws {
      let rig = try Rig()
      // The default of 30 s would only make this test longer.
      try rig.shapeLine(["--up", "1500", "--delay", "0.3"], extra: "link = \"\(road)\"\ntimeout_s = 10")
      let line = try #require(rig.line)
      try line.tell("cut")
      try rig.startHub()
      try rig.startRadio(["--queue", "100"])
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 0 30")
      try untilTrue("30 stored") { try rig.status()?["store"]?["messages"]?.integer == 30 }
      let begin = Date()
      try line.tell("mend")
      _ = rig.control("POST", "/v1/outbox/resume")
      try untilArrived(rig, 8)
      try line.tell("cut 4")
      for number in 1...10 { rig.radio?.write("chan r1 0 live \(number)") }
      try untilArrived(rig, 20)
      if road == "live" {
        // The modem connects again, with another address.
        try line.tell("cut 1")
        try line.tell("forget")
      }
      try untilArrived(rig, 40)
      let (up, down) = try line.tell("report")
      print("\(road): \(Int(Date().timeIntervalSince(begin))) s, \(Int(up.share * 100)) % sent twice, \(up), \(down)")
      let expected = (1...30).map { "message \($0)" } + (1...10).map { "live \($0)" }
      #expect(try rig.hubTexts() == expected)
      #expect(up.cut + down.cut > 0, "the cuts met something")
    }
  }
}
