// SPDX-License-Identifier: MIT

import Glibc
import JSON
import Testing

@testable import meshpost

extension WholeProgramTests {
  /// The first attempts of new users, and the answers.
  @Suite struct Newcomers {
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
