// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

extension WholeProgramTests {
  /// Types the commands of README and docs as printed, on a machine for each document: `Tests/printed/run`.
  @Suite struct TypedDocuments {
    private static func stage(_ arguments: [String]) throws -> Program {
      let run = Checkout.folder.appending(path: "Tests/printed/run").path()
      return try Program(run, ["--programs", Program.programs.path(), "--python", Program.python] + arguments)
    }

    private static var mayBeMade: Bool { (try? stage(["--may"]).ended()) == 0 }

    @Test(
      .enabled("a machine for a document cannot be made here (needs root, namespaces, overlays)") { mayBeMade })
    func `every command line and configuration in the documents works as printed`() async throws {
      let run = try Self.stage([])
      let code = await run.ends()
      #expect(code == 0, "\(run.lines.joined(separator: "\n"))")
      // A line for each document has the number of typed commands.
      let typed = run.lines.compactMap { $0.firstMatch(of: /: (\d+) typed, 0 findings$/).flatMap { Int($0.1) } }
      #expect(typed.count > 15 && typed.reduce(0, +) > 150, "\(run.lines)")
    }
  }
}
