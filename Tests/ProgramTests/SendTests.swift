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

    @Test func `a lost answer is told as a doubt, with an id to send the message again`() throws {
      let scratch = Scratch()
      let socket = scratch.location("socket")
      let script = """
        import socket, sys
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen(8)
        print("ready", flush=True)
        while True:
            client = listener.accept()[0]
            client.recv(65536)
            client.close()
        """
      let gateway = try Program(Program.python, ["-c", script, socket])
      defer { withExtendedLifetime((scratch, gateway)) {} }
      try gateway.line(with: "ready")
      func said(_ arguments: String...) throws -> String {
        let program = try Program.own("meshpost", arguments + ["--socket", socket])
        #expect(try program.ended() == 69)
        return program.lines.joined()
      }
      let doubt = "it is not known whether the gateway has done it"
      let sent = try said("send", "r1", "hello", "--id", "two")
      #expect(sent.contains(doubt) && sent.contains("meshpost send --id two"), "\(sent)")
      let removed = try said("contact", "remove", "r1")
      #expect(removed.contains(doubt), "\(removed)")
      let asked = try said("status")
      #expect(!asked.contains(doubt), "nothing was to be changed: \(asked)")
    }
  }
}
