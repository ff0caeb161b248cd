// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Two radios on one port in turns.
  @Suite struct Radios {
    /// r0 and r1, with r2 elsewhere on the mesh, and one port without a radio.
    private func rig() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(["--nodes", "3", "--tty", "r1=\(rig.scratch.location("r1.tty"))"])
      rig.link = "serial:\(port(rig))"
      return rig
    }

    private func port(_ rig: Rig) -> String { rig.scratch.location("port") }

    private func plug(_ name: String, _ rig: Rig) throws {
      let terminal = rig.scratch.location(name == "r0" ? "radio.tty" : "r1.tty")
      try untilTrue("\(name) to be there") { access(terminal, F_OK) == 0 }
      #expect(symlink(terminal, port(rig)) == 0)
    }

    private func waitFor(_ name: String, _ rig: Rig) throws {
      try untilTrue("\(name) to be synced: \(rig.gateway?.lines ?? [])") {
        let status = try rig.status()
        return status?["radio"]?["identity"]?["name"]?.string == name && status?["sync"]?["state"]?.string == "synced"
          && status?["radio"]?["state"]?.string == "up"
      }
    }

    private func pull(_ name: String, _ rig: Rig) throws {
      unlink(port(rig))
      rig.radio?.write("unplug \(name) 1")
      try untilTrue("\(name) to be gone") { try rig.status()?["radio"]?["state"]?.string == "down" }
    }

    @Test func `the list and the status show a message that is held for another radio, and how to send it`() throws {
      let rig = try rig()
      try plug("r0", rig)
      try rig.startGateway()
      try waitFor("r0", rig)
      try pull("r0", rig)
      #expect(try rig.meshpost("send", "r2", "by r0 alone").code == 0)
      try plug("r1", rig)
      try waitFor("r1", rig)
      let list = try rig.meshpost("sent").lines
      #expect(list.contains { $0.contains("held for r0") } && list.last?.contains("meshpost sent adopt") == true)
      #expect(try rig.meshpost("status").lines.contains { $0.contains("1 held for a radio that is not attached") })
      #expect(try rig.meshpost("radio", "list").lines.count == 2)
    }
  }

  /// Received and sent messages in one list.
  @Suite struct BothDirections {
    @Test func `a message of a program that shares the radio is in the list, too`() throws {
      let rig = try Rig()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      try rig.startRadio()
      rig.writeGatewayConfiguration(extra: "[[proxy]]\nname = \"apps\"\nlisten = \"127.0.0.1:\(port)\"")
      try rig.startGateway()
      try rig.waitForSync()
      let client = try Program(
        Program.python,
        ["-u", "-m", "meshcore_cli.meshcore_cli", "-t", "127.0.0.1", "-p", "\(port)", "msg", "r1", "from an app"])
      _ = try client.ended()
      try untilTrue("it to be shown as delivered: \(client.lines)") {
        try rig.meshpost("messages").lines.contains {
          $0.contains("me → r1: from an app  ✓ (delivered by proxy/apps/127.0.0.1/1)")
        }
      }
      #expect(try rig.meshpost("sent").lines.count == 1)
      rig.gateway?.kill9()
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("sent").lines.count == 1, "it is that program's affair, and not repeated")
    }
  }
}
