// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

extension WholeProgramTests {
  /// What `meshpost setup` refuses, and when.
  @Suite struct SetupRefusals {
    private func meshpost(_ arguments: [String], input: [String] = [], folder: URL? = nil) throws -> (
      code: Int32, lines: [String]
    ) {
      let program = try Program(Program.programs.appending(path: "meshpost").path(), arguments, folder: folder)
      for line in input { program.write(line) }
      program.endInput()
      return (try program.ended(), program.lines)
    }

    @Test func `setup does not change a file that it cannot change safely`() throws {
      let rig = try Rig()
      for written in ["radio = { link = \"auto:\" }\n", "radio.link = \"\"\"\nauto:\"\"\"\n", "[radio\n"] {
        let file = rig.scratch.write("etc.toml", written)
        let answer = try meshpost(
          ["setup", "--unattended", "--no-start", "--config", file, "--link", "tcp:10.0.0.7:5001"])
        #expect(answer.code == 78, "\(written) \(answer.lines)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == written)
      }
    }
  }
}
