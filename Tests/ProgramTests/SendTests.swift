// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

extension WholeProgramTests {
  @Suite struct Sending {
    /// Foreign radios, with losses: messages reported as delivered have arrived, and no message is shown twice.
    /// The messages live for less than the wait for a program that does nothing: a held one is tried once more at least.
    @Test func `over a mesh that loses packets, send reports the real outcome`() throws {
      let script = Checkout.folder.appending(path: "Benchmarks/delivery.py").path()
      let program = try Program(
        Program.python,
        [script, Program.programs.path(), "--messages", "4", "--loss", "0", "0.3", "--no-cli", "--lifetime", "40"])
      let code = try program.ended()
      print(program.lines.joined(separator: "\n"))
      #expect(code == 0, "\(program.lines)")
    }
  }
}
