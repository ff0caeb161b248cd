// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

extension WholeProgramTests {
  /// Random histories of whole programs: Tests/Histories/run makes and repeats them.
  @Suite struct Histories {
    /// $MESHPOST_HISTORIES: how many. Ten have each combination of ways, databases and versions once.
    private static let count = ProcessInfo.processInfo.environment["MESHPOST_HISTORIES"].flatMap { Int($0) } ?? 10

    @Test func `after restores, clones and forgeries all events are at the servers or reported as lost`()
      throws
    {
      let run = Checkout.folder.appending(path: "Tests/Histories/run").path()
      let program = try Program(
        Program.python, [run, "\(Self.count)", "--jobs", "2"],
        environment: ["MESHPOST_PROGRAMS": Program.programs.path()])
      let code = try program.ended()
      #expect(code == 0, "\(program.lines.joined(separator: "\n"))")
    }
  }
}
