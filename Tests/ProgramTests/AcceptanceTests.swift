// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// `hardware/acceptance`, which owners run with their radios, with virtual ones.
  @Suite struct Acceptance {
    private func accept(_ rig: Rig, _ arguments: [String]) throws -> (code: Int32, lines: [String]) {
      let program = try Program(
        Fixtures.checkout.appending(path: "hardware/acceptance").path(),
        ["--programs", Program.programs.path(), "--output", rig.scratch.location("out"), "--yes"] + arguments)
      return (try program.ended(), program.lines)
    }

    @Test func `two radios that are well pass, and are as they were`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "5", "--tty", "r1=\(rig.scratch.location("second.tty"))", "--forgetful"])
      rig.radio?.write("chan r1 0 this waited in the radio")
      let answer = try accept(rig, ["--link", rig.link, "--second", "serial:\(rig.scratch.location("second.tty"))"])
      print(answer.lines.joined(separator: "\n"))
      #expect(answer.code == 0)
      #expect(answer.lines.contains { $0.contains("ok      a message from the second radio") })
      let report = try JSONValue(
        parsing: String(contentsOfFile: rig.scratch.location("out/report.json"), encoding: .utf8))
      #expect((report["trials"]?.array ?? []).count == 9)
      let messages = try String(contentsOfFile: rig.scratch.location("out/messages.jsonl"), encoding: .utf8)
      #expect(messages.contains("this waited in the radio"), "what was taken from the radio is kept")
    }

    @Test func `what is no radio fails, and it is said why`() throws {
      let rig = try Rig()
      let program = try Program(
        Fixtures.checkout.appending(path: "hardware/acceptance").path(),
        [
          "--programs", Program.programs.path(), "--output", rig.scratch.location("out"), "--yes", "--link",
          "serial:\(rig.scratch.location("nothing"))",
        ], environment: ["MESHPOST_TEST_PATIENCE": "3"])
      #expect(try program.ended() == 1)
      #expect(program.lines.contains { $0.hasPrefix("FAILED  the radio is read") && $0.contains("does not exist") })
    }
  }
}
