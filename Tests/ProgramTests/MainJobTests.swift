// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

/// Whole programs over real sockets and pseudo-terminals. One at a time: they share two cores.
@Suite(.serialized, .timeLimit(.minutes(30))) struct WholeProgramTests {
  @Suite struct MainJob {
    @Test func `heard messages reach the store and the hub once`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "40"])
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("dm r1 r0 a direct one")
      rig.radio?.write("chan r1 0 to everybody")
      try untilTrue("two messages at the hub") { try rig.hubTexts().count >= 2 }
      #expect(try rig.hubTexts().sorted() == ["a direct one", "to everybody"])
      // Nodes have their own lane, which may be behind the messages.
      try untilTrue("40 contacts of the table and r1") { try rig.hubRows("contacts").count == 41 }
      let gateways = try JSONValue(parsing: rig.askHub("GET", "/v1/gateways")?.body ?? [])
      #expect(gateways["gateways"]?.array?.first?["radio"]?.string == "r0", "the hub names its radio")
      let shown = try rig.meshpost("messages")
      #expect(shown.code == 0)
      #expect(shown.lines.contains { $0.hasSuffix("r1: a direct one") })
      #expect(shown.lines.contains { $0.hasSuffix("[Public] r1: to everybody") })
      for command in ["status", "contacts", "channels", "journal", "upstream", "sync"] {
        let (code, lines) = try rig.meshpost(command, "--json")
        #expect(code == 0, "\(command)")
        for line in lines { #expect(throws: Never.self, "\(command): \(line)") { try JSONValue(parsing: line) } }
      }
    }

    @Test func `a heard message reaches the hub from a radio over TCP`() throws {
      let rig = try Rig()
      rig.radio = try Program.own("meshpost-radio", ["--clock", "now", "--advertise", "--tcp", "r0=0"])
      let line = try #require(try rig.radio?.line(with: "tcp:127.0.0.1"))
      rig.link = try #require(try JSONValue(parsing: line)["address"]?.string)
      try rig.radio?.line(with: "ready")
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("dm r1 r0 over the network")
      try untilTrue("a message at the hub") { try rig.hubTexts() == ["over the network"] }
    }

    @Test func `the synchronisation can be followed`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "200"])
      try rig.startGateway()
      try rig.waitForSync()
      let watch = try Program.own("meshpost", ["sync", "--follow", "--json", "--socket", rig.socket])
      try watch.line(with: "\"state\":\"synced\"")
      #expect(try rig.meshpost("sync", "--full").code == 0)
      for phase in ["contacts", "channels", "messages"] { try watch.line(with: "\"phase\":\"\(phase)\"") }
      try watch.line(with: "\"state\":\"synced\"")
    }

    @Test func `the quick start shows messages arriving at its hub`() throws {
      let scratch = Scratch()
      let (descriptor, port) = try freePort()
      close(descriptor)
      let start = try Program(
        "/bin/bash", ["hardware/quickstart", "40"],
        environment: ["MESHPOST_RUN": scratch.folder.path(), "MESHPOST_PORT": "\(port)"])
      try start.line(with: "hub ← ")
      try start.line(with: "meshpost status")
      // A second instance neither connects to the first one's hub nor uses its folder.
      let second = try Program(
        "/bin/bash", ["hardware/quickstart", "1"], environment: ["MESHPOST_RUN": scratch.folder.path()])
      #expect(try second.ended() == 1 && second.lines.joined().contains("running already"), "\(second.lines)")
      let other = Scratch()
      let elsewhere = try Program(
        "/bin/bash", ["hardware/quickstart", "1"],
        environment: ["MESHPOST_RUN": other.folder.path(), "MESHPOST_PORT": "\(port)"])
      #expect(
        try elsewhere.ended() == 1 && elsewhere.lines == ["port \(port) is taken: MESHPOST_PORT=PORT takes another one"]
      )
      start.send(SIGTERM)
      _ = try start.ended()
    }

    private func freePort() throws -> (Int32, UInt16) {
      let made = try LoopbackPort.take()
      return (made.descriptor, made.port)
    }
  }
}
