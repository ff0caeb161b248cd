// SPDX-License-Identifier: MIT

import Glibc
import JSON
import Testing

@testable import meshpost

extension WholeProgramTests {
  /// The first attempts of new users, and the answers.
  @Suite struct Newcomers {
    @Test func `a node's alias is shown and accepted, and no node on the air can take it`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "2"])
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("node", "alias", "r1", "Birch").code == 0)
      #expect(try rig.meshpost("contacts").lines.contains { $0.contains("Birch (r1)") })
      rig.radio?.write("dm r1 r0 hello")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      #expect(try rig.meshpost("messages").lines.contains { $0.hasSuffix(" Birch: hello") })
      let row = try JSONValue(parsing: try rig.meshpost("messages", "--json").lines.first ?? "")
      #expect(row["sender_alias"]?.string == "Birch" && row["sender_name"]?.string == "r1")
      let key = try #require(
        try rig.meshpost("contacts", "--json").lines.map { try JSONValue(parsing: $0) }.first {
          $0["name"]?.string == "r1"
        }?["key"]?.string)
      // Another node with that name, as from the air.
      #expect(
        try rig.meshpost("contact", "add", String(repeating: "ab", count: 32), "--name", "Birch").code == 0)
      let sent = try rig.meshpost("send", "Birch", "hi", "--json")
      #expect(sent.code == 0, "\(sent)")
      let message = try JSONValue(parsing: sent.lines.first ?? "")["messages"]?.array?.first
      #expect(message?["recipient"]?.string == key, "\(sent)")
    }

    @Test func `a similar channel name is suggested, and a documented template is accepted`() throws {
      let rig = try Rig()
      try rig.startRadio([])
      try rig.startGateway()
      try rig.waitForSync()
      let refused = try rig.meshpost("send", "#Public", "hello")
      #expect(refused.code == EX_NOUSER && refused.lines.joined().contains("write 'Public'"), "\(refused)")
      #expect(try rig.meshpost("send", "#nowhere", "hello").lines.joined().contains("channel add '#nowhere'"))
      let added = try rig.meshpost(
        "upstream", "add", "chat", "http://127.0.0.1:1/x", "--kind", "webhook", "--set",
        #"template={"text": "{{sender_name}}: {{text}}"}"#)
      #expect(added.code == 0, "\(added)")
      let mistyped = try rig.meshpost("staus")
      #expect(
        mistyped.code == EX_USAGE
          && mistyped.lines.joined() == "meshpost: unknown command 'staus'. Did you mean 'status'?", "\(mistyped)")
      let before = try Program.own("meshpost", ["--json", "--socket", rig.socket, "status"])
      #expect(try before.ended() == 0 && before.lines.first?.hasPrefix("{") == true, "\(before.lines)")
      #expect(try rig.meshpost("send", "r1", "hello", "--expires", "2h").code == 0)
    }
  }
}

@Suite struct DurationArgumentTests {
  @Test(arguments: [
    ("90s", 90), ("15m", 900), ("2h", 7200), ("3d", 259_200), ("1w", 604_800), ("90", 90), ("0", nil), ("-5m", nil),
    ("", nil), ("h", nil), ("2x", nil), ("٣h", nil), ("2h\u{301}", nil), ("99999999999h", nil), ("1.5h", nil),
  ]) func `a duration is parsed as people type it`(_ text: String, _ seconds: Int?) {
    #expect(DurationArgument(argument: text)?.seconds == seconds)
  }

  @Test func `the suggested ssh command has the address as it was given`() {
    #expect(SSHAddress("ssh://pi@hilltop:2222")?.plainCommand == "ssh -p 2222 pi@hilltop true")
    #expect(SSHAddress("ssh://hilltop/run/x.sock")?.plainCommand == "ssh hilltop true")
  }
}
