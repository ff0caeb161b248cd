// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import TestSupport
import Testing

extension WholeProgramTests {
  @Suite struct FirstMinutes {
    /// A command of the document, with the output printed under it.
    private struct Step {
      let command: String
      var output: [String] = []
    }

    private func steps() throws -> [Step] {
      let file = Checkout.folder.appending(path: "docs/first-ten-minutes.md")
      var steps: [Step] = []
      for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: false)
      {
        if line.hasPrefix("    $ ") {
          steps.append(Step(command: String(line.dropFirst(6))))
        } else if line.hasPrefix("    "), !steps.isEmpty {
          steps[steps.count - 1].output.append(line.dropFirst(4).trimmingCharacters(in: .whitespaces))
        }
      }
      return steps
    }

    @Test func `every command of the first ten minutes works, and prints the documented output`() throws {
      let scratch = Scratch()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      let steps = try steps()
      #expect(steps.count > 30)
      // One shell runs all of them, as for a reader; a mark after each shows where its output ends.
      let script = steps.enumerated().map { number, step in
        // The test's own port: the document's may be in use.
        let command = step.command.replacing("8791", with: "\(port)")
        // `export` and `cd` must affect the next command, and background programs must not hold our pipe.
        return "\(command)\n[ $? = 0 ] || { echo \"failed \(number)\"; break; }\necho \"done \(number)\""
      }.joined(separator: "\n")
      let path = "\(Program.programs.path()):/usr/local/bin:/usr/bin:/bin"
      let file = scratch.write(
        "session.sh", "trap 'kill $(jobs -p) 2>/dev/null' EXIT\nwhile true; do\n\(script)\nbreak\ndone\n")
      let shell = try Program("/bin/bash", [file], folder: scratch.folder, environment: ["PATH": path])
      _ = try shell.ended()
      var lines = shell.lines[...]
      for (number, step) in steps.enumerated() {
        let end = lines.firstIndex(of: "done \(number)")
        #expect(end != nil, "$ \(step.command)\n\(lines.suffix(20).joined(separator: "\n"))")
        guard let end else { return }
        let said = lines[..<end].map { $0.trimmingCharacters(in: .whitespaces) }
        for line in step.output {
          #expect(said.contains(line), "$ \(step.command): \(line) in\n\(said.joined(separator: "\n"))")
        }
        lines = lines[(end + 1)...]
      }
    }
  }
}
