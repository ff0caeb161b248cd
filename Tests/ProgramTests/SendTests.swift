// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// `meshpost send` and related commands.
  @Suite struct Sending {
    @Test func `send reports how a message ended, and refuses with a code for the reason`() throws {
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

    /// Foreign radios, with losses: messages reported as delivered have arrived, and no message is shown twice.
    @Test func `over a mesh that loses packets, send reports the real outcome`() throws {
      let script = Checkout.folder.appending(path: "Benchmarks/delivery.py").path()
      let program = try Program(
        Program.python, [script, Program.programs.path(), "--messages", "4", "--loss", "0", "0.3", "--no-cli"])
      let code = try program.ended()
      print(program.lines.joined(separator: "\n"))
      #expect(code == 0, "\(program.lines)")
    }
  }
}
