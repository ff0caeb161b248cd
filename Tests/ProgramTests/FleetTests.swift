// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Tests the load generator of Benchmarks/fleet: not the speed of a hub, but that the measurements are right.
  @Suite struct Fleets {
    private static let sources = Checkout.folder.appending(path: "Benchmarks/fleet")
    private static let gateways = 50

    private let rig: Rig

    init() throws {
      rig = try Rig()
      let made = try Program(Self.sources.appending(path: "compile").path(), [rig.scratch.location("fleet")])
      guard try made.ended() == 0 else { throw Program.Waited(description: "compile: \(made.lines)") }
      try rig.startHub()
    }

    private func fleet(_ mode: String, _ more: String...) throws -> Program {
      try Program(
        rig.scratch.location("fleet/fleet"),
        [
          mode, "--port", "\(rig.hubPort)", "--token-file", rig.scratch.location("token"), "--gateways",
          "\(Self.gateways)",
          "--journal", rig.scratch.location("journal"), "--limit", "600", "--backoff", "2",
        ] + more)
    }

    private func result(of fleet: Program) throws -> JSONValue {
      let code = try fleet.ended()
      #expect(code == 0, "\(fleet.lines)")
      return try JSONValue(parsing: #require(fleet.lines.last { $0.contains(#""result""#) }))
    }

    /// Runs check.py on the journal: its exit code, and its line.
    private func check(_ journal: String = "journal") throws -> (code: Int32, told: JSONValue) {
      let check = try Program(
        Program.python,
        [
          Self.sources.appending(path: "check.py").path(), "\(rig.hubPort)", rig.scratch.location("token"),
          rig.scratch.location(journal), "--whole",
        ])
      let code = try check.ended()
      return (code, try JSONValue(parsing: check.lines.last ?? ""))
    }

    @Test func `a fleet's backlog is at the hub once, and a message that two gateways heard is one message`() throws {
      let result = try result(of: fleet("backlog", "--events", "10", "--nodes", "30", "--hearers", "2"))
      #expect(result["complete"]?.bool == true && result["wrong"]?.integer == 0)
      #expect(result["acknowledged"]?.integer == Int64(Self.gateways * 10))
      let (code, told) = try check()
      #expect(code == 0 && told["there"]?.integer == Int64(Self.gateways * 10), "\(told)")

      let page = try JSONValue(parsing: #require(rig.askHub("GET", "/v1/messages?limit=1000")).body)
      let messages = page["messages"]?.array ?? []
      #expect(!messages.isEmpty && messages.allSatisfy { $0["heard"]?.array?.count == 2 })

      // It finds one additional event that seems to be acknowledged.
      let lines = try String(contentsOfFile: rig.scratch.location("journal"), encoding: .utf8).split(separator: "\n")
      var words = try #require(lines.first).split(separator: " ").map(String.init)
      (words[5], words[6]) = ("11", "11")
      _ = rig.scratch.write("claimed", words.joined(separator: " ") + "\n")
      let (claimed, complaint) = try check("claimed")
      #expect(claimed == 1 && complaint["wrong"]?.integer ?? 0 > 0, "\(complaint)")
    }

    @Test func `PostgreSQL fails over twice under load, and no acknowledged event is lost`() throws {
      let bench = try Program(
        Program.python,
        [
          Self.sources.appending(path: "run").path(), "--hub",
          Program.programs.appending(path: "meshpost-hub").path(), "--rounds", "2", "failover",
        ])
      #expect(try bench.ended() == 0, "\(bench.lines.suffix(20))")
      let row = try #require(bench.lines.first { $0.hasPrefix("| failover") }, "\(bench.lines)")
      #expect(row.contains("(kill)") && row.contains("(freeze)"), "\(row)")
    }

    @Test func `a fleet whose hub is killed links again, and no acknowledged event is lost`() throws {
      let fleet = try fleet("storm", "--rate", "1", "--nodes", "20", "--news", "--state")
      try fleet.line(with: #""linked""#)
      rig.hub?.kill9()
      try rig.startHub()
      let result = try result(of: fleet)
      #expect(result["complete"]?.bool == true && result["wrong"]?.integer == 0)
      #expect(result["lost_links"]?.integer ?? 0 >= Int64(Self.gateways))
      #expect(result["linked"]?.integer == Int64(Self.gateways))
      let (code, told) = try check()
      #expect(code == 0, "\(told)")
    }
  }
}
