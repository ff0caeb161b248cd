// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// `meshpost send` and what belongs to it.
  @Suite struct Sending {
    @Test func `it says how a message ended, and refuses with a code that says why`() throws {
      let rig = try Rig()
      try rig.startRadio(["--nodes", "3"])
      try rig.startGateway()
      try rig.waitForSync()
      let delivered = try rig.meshpost("send", "r1", "hello", "there", "--wait")
      #expect(delivered.code == 0 && delivered.lines.last?.contains("delivered") == true)
      #expect(try rig.meshpost("send", "Public", "to all", "--wait").lines.last?.contains("sent") == true)
      #expect(try rig.meshpost("send", "nobody", "x").code == 67)
      #expect(try rig.meshpost("send", "#none", "x").code == 67)
      let ambiguous = try rig.meshpost("send", "r", "x")
      #expect(ambiguous.code == 64 && ambiguous.lines.first?.contains("r1 (chat") == true)
      let long = try rig.meshpost("send", "r1", String(repeating: "x", count: 200))
      #expect(long.code == 65 && long.lines.first?.contains("44 bytes too long") == true)
      let parts = try rig.meshpost("send", "r1", "--split", "--wait", String(repeating: "x", count: 200))
      #expect(parts.code == 0 && parts.lines.filter { $0.contains("delivered") }.count == 2)
      #expect(try rig.meshpost("send", "r1", "x", "--priority", "urgent").code == 64)
      rig.radio?.write("loss 1")
      let failed = try rig.meshpost("send", "r2", "lost", "--id", "lost", "--wait")
      #expect(failed.code == 75 && failed.lines.contains { $0.contains("failed (no_acknowledgement)") })
      rig.radio?.write("loss 0")
      #expect(try rig.meshpost("retry", "lost", "--wait").code == 0)
      #expect(try rig.meshpost("cancel", "lost").code == 64)
      #expect(try rig.meshpost("retry", "unknown").code == 67)
      let rows = try rig.meshpost("sent", "--json").lines.map { try JSONValue(parsing: $0) }
      #expect(rows.count == 5 && rows.allSatisfy { $0["ended"]?.bool == true })
      let status = try rig.status()?["messaging"]
      #expect(status?["waiting"]?.integer == 0 && status?["airtime_used_ms"]?.integer ?? 0 > 1000)
    }

    @Test func `repeaters that send a channel message on are counted`() throws {
      let rig = try Rig()
      try rig.startRadio(["--repeaters", "3"])
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("send", "Public", "anybody there?", "--wait").code == 0)
      try untilTrue("three repeats: \(try rig.meshpost("sent").lines)") {
        try rig.meshpost("sent").lines.last?.contains("heard 3 repeats") == true
      }
      let trace = try rig.meshpost("node", "trace", "r1", "--path", "a0a1a0")
      #expect(trace.lines == ["a0 9.75 dB → a1 9.75 dB → a0 9.75 dB → here 9.75 dB"])
      // A direct message is not repeated on a path without hops, and is acknowledged all the same.
      #expect(try rig.meshpost("send", "r1", "and you?", "--wait").code == 0)
    }

    @Test func `what waits survives a restart, and goes out when the radio is back`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.killRadio()
      try untilTrue("the loss of the radio") { try rig.status()?["radio"]?["state"]?.string == "down" }
      #expect(try rig.meshpost("send", "r1", "later", "--id", "later").lines == ["later pending"])
      #expect(try rig.meshpost("send", "r1", "expires", "--expires", "1", "--wait").code == 75)
      rig.gateway?.kill9()
      try rig.startGateway()
      let again = try rig.meshpost("send", "r1", "another text", "--id", "later").lines
      #expect(again == ["later pending"], "\(again) \(rig.gateway?.lines ?? [])")
      try rig.startRadio()
      try untilTrue("delivery: \(rig.gateway?.lines ?? [])") {
        try rig.meshpost("sent").lines.contains { $0.contains("delivered") && $0.contains(" later") }
      }
      try untilTrue("the hub to know") {
        try rig.hubRows("events").contains {
          $0["kind"]?.string == "outgoing" && $0["body"]?["id"]?.string == "later"
            && $0["body"]?["state"]?.string == "delivered"
        }
      }
    }

    @Test func `contacts and channels are changed, cards go around`() throws {
      let rig = try Rig()
      try rig.startRadio(["--nodes", "3", "--channels", "3"])
      try rig.startGateway()
      try rig.waitForSync()
      let card = try #require(try rig.meshpost("contact", "export", "r2").lines.first)
      #expect(try rig.meshpost("contact", "remove", "r2").code == 0)
      #expect(try rig.meshpost("contacts", "--on-radio").lines.count == 1)
      #expect(try rig.meshpost("send", "r2", "hello").code == 67, "the radio does not have it")
      #expect(try rig.meshpost("contact", "import", card).code == 0)
      #expect(try rig.meshpost("send", "r2", "hello", "--wait").code == 0)
      #expect(try rig.meshpost("contact", "import", card + "00").code == 64)
      #expect(try rig.meshpost("contact", "path", "r2").lines == ["direct neighbour"])
      #expect(try rig.meshpost("contact", "path", "r2", "--reset").code == 0)
      try untilTrue("the path to be gone") {
        try rig.meshpost("contact", "path", "r2").lines == ["no known path: messages are flooded"]
      }
      #expect(try rig.meshpost("contact", "path", "r2", "--set", "aabb").code == 0)
      try untilTrue("the path") { try rig.meshpost("contact", "path", "r2").lines == ["aabb (2 hops)"] }
      let key = String(repeating: "5a", count: 32)
      #expect(try rig.meshpost("contact", "add", key, "--name", "by hand", "--type", "room").code == 0)
      #expect(try rig.meshpost("contact", "share", "r1").code == 0)
      #expect(try rig.meshpost("channel", "add", "#test").lines == ["channel #test is in slot 1"])
      #expect(try rig.meshpost("channel", "add", "#test").code == 0, "it is there already")
      let club = try rig.meshpost("channel", "add", "Club", "--new").lines
      let link = try #require(club.last)
      #expect(club.count == 2 && link.hasPrefix("meshcore://channel/add?name=Club&secret="))
      #expect(try rig.meshpost("channel", "add", "#fourth").code == 75, "all slots are taken")
      #expect(try rig.meshpost("channel", "remove", "Club").code == 0)
      #expect(try rig.meshpost("channel", "add", link).code == 0)
      #expect(try rig.meshpost("channels").lines.count == 3)
      #expect(try rig.meshpost("channel", "add", "Private").code == 64, "without a secret")
      #expect(rig.gateway?.lines.joined().contains(link.suffix(32)) == false, "a secret reached the log")
    }

    /// Radios that others wrote, with losses: what is reported delivered has arrived, and nothing is shown twice.
    @Test func `over a mesh that loses packets it tells the truth`() throws {
      let script = Checkout.folder.appending(path: "Benchmarks/delivery.py").path()
      let program = try Program(
        Program.python, [script, Program.programs.path(), "--messages", "4", "--loss", "0", "0.3", "--no-cli"])
      let code = try program.ended()
      print(program.lines.joined(separator: "\n"))
      #expect(code == 0, "\(program.lines)")
    }
  }
}
