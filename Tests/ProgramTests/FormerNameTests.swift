// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Commands with former names.
  @Suite struct FormerNames {
    @Test func `former names of commands work, and are not shown`() throws {
      let rig = try EveryCommand.rig()
      let sent = try rig.meshpost("send", "r1", "hi", "--wait")
      #expect(sent.code == 0, "\(sent.lines)")
      for (former, present) in [
        (["outgoing"], ["sent"]),
        (["--json", "outgoing", "list", "--limit", "1"], ["sent", "list", "--limit", "1", "--json"]),
        (["outbox"], ["upstream", "pending"]), (["outbox", "--json", "list"], ["upstream", "pending", "--json"]),
        (["outbox", "dead"], ["upstream", "dead"]), (["outbox", "retry", "nosuch"], ["upstream", "retry", "nosuch"]),
        (["outbox", "drop", "hub"], ["upstream", "drop", "hub"]), (["outbox", "resume"], ["upstream", "resume"]),
        (["outgoing", "cancel", "--all"], ["sent", "cancel", "--all"]),
      ] {
        // The output about waiting events changes every second.
        try untilTrue("\(former) to do the same") { try run(former, rig) == run(present, rig) }
      }
      let resumed = try run(["upstream", "resume", "--json"], rig)
      #expect(resumed.code == 0 && resumed.lines == ["{\"ok\":true}"], "\(resumed)")
      for shown in [["--help"], ["--generate-completion-script", "bash"], ["generate", "man", "meshpost"]] {
        let program = try Program.own("meshpost", shown)
        #expect(try program.ended() == 0)
        #expect(!program.lines.contains { $0.contains("outbox") || $0.contains("outgoing") }, "\(shown)")
      }
    }

    private struct Run: Equatable {
      let code: Int32
      let lines: [String]
    }

    private func run(_ words: [String], _ rig: Rig) throws -> Run {
      let program = try Program.own("meshpost", words + ["--socket", rig.socket])
      return Run(code: try program.ended(), lines: program.lines)
    }
  }
}
