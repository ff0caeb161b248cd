// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Foreign radios and clients.
  @Suite struct Interoperability {
    @Test func `with pymc_core radios, contacts appear, and a direct and a channel message arrive once`() throws {
      let rig = try Rig()
      let folder = rig.scratch.folder.appending(path: "mesh")
      let base = try LoopbackPort.pair()
      rig.radio = try Program(
        Program.python,
        ["hardware/mesh.py", "--nodes", "2", "--dir", folder.path(), "--port", "\(base)", "--tty", "r0"])
      try rig.radio?.line(with: "\"ready\"")
      rig.link = "serial:\(folder.appending(path: "r0.tty").path())"
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("advert r1")
      try command(rig, folder, "advert r1")
      try untilTrue("r1 among the contacts") {
        try rig.meshpost("contacts").lines.contains { $0.contains("r1") }
      }
      try command(rig, folder, "dm r1 r0 hello from pymc")
      try command(rig, folder, "chan r1 0 a word to all")
      try untilTrue("two messages at the hub: \(rig.gateway?.lines ?? [])") { try rig.hubTexts().count >= 2 }
      #expect(try rig.hubTexts().sorted() == ["a word to all", "hello from pymc"])
      try untilTrue("r1 at the hub") { try rig.hubRows("contacts").contains { $0["name"]?.string == "r1" } }
      let messages = try rig.hubRows("messages")
      #expect(
        messages.contains { $0["body"]?["sender_name"]?.string == "r1" && $0["body"]?["kind"]?.string == "direct" })
    }

    /// The mesh reads a FIFO, so its standard input does not matter.
    private func command(_ rig: Rig, _ folder: URL, _ line: String) throws {
      let handle = try FileHandle(forWritingTo: folder.appending(path: "ctl"))
      try handle.write(contentsOf: Data((line + "\n").utf8))
      try handle.close()
    }

    @Test func `meshcore-cli works with the virtual radio: infos, contacts, channels, send, receive`() throws {
      let radio = try Program.own(
        "meshpost-radio", ["--clock", "now", "--contacts", "3", "--advertise", "--tcp", "r0=0"])
      let address = try JSONValue(parsing: try radio.line(with: "tcp:127.0.0.1"))["address"]?.string ?? ""
      let port = address.split(separator: ":").last.map(String.init) ?? ""
      try radio.line(with: "ready")
      func cli(_ arguments: String...) throws -> String {
        let program = try Program(
          Program.python, ["-m", "meshcore_cli.meshcore_cli", "-t", "127.0.0.1", "-p", port, "-j"] + arguments)
        _ = try program.ended()
        return program.lines.joined(separator: "\n")
      }
      #expect(try cli("infos").contains("\"name\": \"r0\""))
      let contacts = try cli("contacts")
      #expect(contacts.contains("Node 0 Ridge") && contacts.contains("\"r1\""))
      #expect(try cli("get_channel", "0").contains("Public"))
      #expect(try cli("set_channel", "1", "#trees").contains("error") == false)
      #expect(try cli("get_channel", "1").contains("#trees"))
      #expect(try cli("msg", "r1", "hi from the cli", "wait_ack").contains("ack"))
      #expect(try cli("public", "hello all").contains("error") == false)
      radio.write("dm r1 r0 back to you")
      radio.write("chan r1 0 and to all")
      let received = try until("both messages") {
        let text = try cli("sync_msgs")
        return text.contains("back to you") || text.contains("and to all") ? text : nil
      }
      #expect(received.contains("back to you") && received.contains("and to all"))
    }
  }
}
