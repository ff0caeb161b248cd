// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

/// A gateway on a mesh of `pymc_core` radios, with a repeater and a room on its server handlers.
private final class PythonMesh {
  let rig: Rig
  private let folder: URL

  init(more: String = "") throws {
    rig = try Rig()
    folder = rig.scratch.folder.appending(path: "mesh")
    let base = try LoopbackPort.pair()
    rig.radio = try Program(
      Program.python,
      [
        "hardware/mesh.py", "--nodes", "2", "--dir", folder.path(), "--port", "\(base)", "--tty", "",
        "--firmware-times", "--server", "Ridge=repeater", "--server", "Lobby=room",
      ])
    try rig.radio?.line(with: "\"ready\"")
    rig.link = "tcp:127.0.0.1:\(base)"
    rig.writeGatewayConfiguration()
    let file = rig.scratch.location("gw.toml")
    let text = try String(contentsOfFile: file, encoding: .utf8)
    _ = rig.scratch.write("gw.toml", text + "\n" + more)
    try rig.startGateway()
    try rig.waitForSync()
    try untilTrue("both servers among the contacts") {
      let lines = try self.rig.meshpost("contacts").lines
      return lines.contains { $0.contains("Ridge") } && lines.contains { $0.contains("Lobby") }
    }
  }

  func command(_ line: String) throws {
    let handle = try FileHandle(forWritingTo: folder.appending(path: "ctl"))
    try handle.write(contentsOf: Data((line + "\n").utf8))
    try handle.close()
  }

  /// Runs `meshpost` with this standard input.
  func meshpost(_ arguments: [String], input: String) throws -> (code: Int32, lines: [String]) {
    let program = try Program.own("meshpost", arguments + ["--socket", rig.socket])
    program.write(input)
    let code = try program.ended()
    return (code, program.lines)
  }
}

extension WholeProgramTests {
  @Suite struct RemoteNodes {
    @Test func `a repeater answers a login, status, telemetry, neighbours and commands`() throws {
      let mesh = try PythonMesh(more: "[[poll]]\nnode = \"Ridge\"\nkind = \"status\"\nevery_min = 1\n")
      let rig = mesh.rig
      #expect(try mesh.meshpost(["node", "login", "Ridge"], input: "wrong").code != 0)
      let login = try mesh.meshpost(["node", "login", "Ridge"], input: "password")
      #expect(login.code == 0 && login.lines == ["logged in to Ridge as admin"])
      let shapes = try JSONShapes()
      for words in [
        ["node", "status", "Ridge"], ["node", "neighbours", "Ridge"], ["node", "access", "Ridge"],
        ["node", "cli", "Ridge", "ver"],
      ] {
        let program = try Program.own("meshpost", words + ["--json", "--socket", rig.socket])
        #expect(try program.ended() == 0)
        #expect(shapes.problems(words.prefix(2).joined(separator: " "), program.lines).isEmpty)
      }
      let again = try rig.meshpost("node", "login", "Ridge", "--stored", "--json")
      #expect(shapes.problems("node login", again.lines).isEmpty, "\(again.lines)")
      let status = try rig.meshpost("node", "status", "Ridge", "--json")
      #expect(try JSONValue(parsing: status.lines.first ?? "")["battery_mv"]?.integer == 4015)
      let telemetry = try rig.meshpost("node", "telemetry", "Ridge")
      #expect(telemetry.lines.contains { $0.contains("temperature") && $0.contains("-4.5") })
      #expect(try rig.meshpost("node", "neighbours", "Ridge").lines.count == 14, "in two answers")
      let access = try rig.meshpost("node", "access", "Ridge").lines
      #expect(access.count == 1 && access[0].contains("admin"), "\(access)")
      #expect(try rig.meshpost("node", "cli", "Ridge", "get name").lines == ["> Ridge"])
      // Without a synchronised clock there is nothing to compare with.
      let clock = try rig.meshpost("node", "clock", "Ridge", "--json")
      if clock.code == 0 {
        #expect(shapes.problems("node clock", clock.lines).isEmpty, "\(clock.lines)")
      } else {
        #expect(clock.code == 64 && clock.lines.contains { $0.contains("not synchronised") }, "\(clock.lines)")
      }
      #expect(try rig.meshpost("node", "clock", "Ridge", "--reboot").code == 64, "only with --set")
      #expect(try rig.meshpost("node", "cli", "Ridge", "nonsense").lines == ["Unknown command"])
      #expect(try rig.meshpost("node", "cli", "r1", "ver").code == 64, "a companion has no command line")
      #expect(try rig.meshpost("send", "Ridge", "hello").code == 64, "a repeater takes no messages")
      let kinds = try rig.meshpost("node", "readings", "Ridge", "--json").lines.compactMap {
        try JSONValue(parsing: $0)["kind"]?.string
      }
      #expect(kinds.contains("node_status") && kinds.contains("telemetry"))
      // No command asks: the poll does, at its own time.
      try untilTrue("the poll's success: \(try rig.status()?["messaging"] ?? .null)") {
        try rig.status()?["messaging"]?["polls"]?.array?.first?["last_success"]?.integer != nil
      }
      let log = try #require(rig.gateway?.lines.joined())
      #expect(!log.contains("password") && !log.contains("wrong"), "passwords never reach the log")
    }

    @Test func `a snapshot keeps a repeater's settings, and a later one shows what has changed`() throws {
      let mesh = try PythonMesh(more: "[messaging]\nairtime_per_hour_s = 3600\n")
      let rig = mesh.rig
      #expect(try rig.meshpost("node", "snapshot", "Ridge").code == 64, "only for admins")
      #expect(try rig.meshpost("node", "diff", "Ridge").code == EX_NOINPUT)
      #expect(try mesh.meshpost(["node", "login", "Ridge"], input: "password").code == 0)
      #expect(try rig.meshpost("node", "snapshot", "Ridge", "--stored").code == EX_NOINPUT)
      var first = try rig.meshpost("node", "snapshot", "Ridge")
      // pymc_core says of a login without an answer within ten seconds, too, that the password is refused.
      for _ in 1...3 where first.code != 0 { first = try rig.meshpost("node", "snapshot", "Ridge") }
      #expect(first.code == 0, "\(first.lines)")
      #expect(first.lines.contains { $0.hasSuffix("tx = 22") })
      #expect(first.lines.contains { $0.contains("cad = (the node does not know") })
      #expect(try rig.meshpost("node", "cli", "Ridge", "set tx 17").lines == ["OK"])
      // Without --json it prints each setting, which shows that it has not ended.
      #expect(try rig.meshpost("node", "snapshot", "Ridge").code == 0)
      let second = try rig.meshpost("node", "snapshot", "Ridge", "--stored", "--json")
      let shapes = try JSONShapes()
      #expect(second.code == 0 && shapes.problems("node snapshot", second.lines).isEmpty, "\(second.lines)")
      let snapshot = try JSONValue(parsing: second.lines.joined())
      #expect(
        snapshot["settings"]?["tx"]?.string == "17"
          && snapshot["settings"]?["firmware"]?.string?.hasPrefix("v1.17") == true)
      #expect(!second.lines.joined().contains("hello"), "no password")
      let difference = try rig.meshpost("node", "diff", "Ridge")
      #expect(difference.code == 1 && difference.lines.last == "tx: 22 -> 17", "\(difference.lines)")
      let changes = try rig.meshpost("node", "diff", "Ridge", "--json")
      #expect(shapes.problems("node diff", changes.lines).isEmpty, "\(changes.lines)")
      #expect(try rig.meshpost("node", "diff", "Ridge", "2").code == EX_NOINPUT)
      #expect(try rig.meshpost("node", "snapshot", "Ridge", "--stored").lines.contains("tx = 17"))
      let events = try rig.meshpost("journal", "--limit", "1000", "--json").lines.filter {
        $0.contains(#""kind":"snapshot""#)
      }
      #expect(events.count == 2)
    }

    @Test func `a room accepts a login and posts, and a login again after a restart`() throws {
      let mesh = try PythonMesh()
      let rig = mesh.rig
      #expect(try mesh.meshpost(["room", "login", "Lobby"], input: "hello").code == 0)
      let shapes = try JSONShapes()
      let post = try rig.meshpost("room", "post", "Lobby", "good evening", "--wait", "--json")
      #expect(post.code == 0 && post.lines.last?.contains("\"state\":\"delivered\"") == true, "\(post.lines)")
      #expect(shapes.problems("room post", post.lines).isEmpty, "\(post.lines)")
      try mesh.command("post Lobby first")
      // A pymc_core room may send us our own posts, too.
      func posts(_ text: String) throws -> Int {
        try rig.meshpost("room", "read", "Lobby").lines.count { $0.contains(text) }
      }
      try untilTrue("a post") { try posts("first") == 1 }
      #expect(shapes.problems("room read", try rig.meshpost("room", "read", "Lobby", "--json").lines).isEmpty)
      rig.gateway?.kill9()
      try rig.startGateway()
      try rig.waitForSync()
      // A login makes the room send its posts. The answer would be the same without one, so the room's own count decides.
      try untilTrue("a login after the restart") {
        try rig.status()?["messaging"]?["hour_messages"]?.integer ?? 0 >= 3
      }
      // Two logins within a second are one packet for pymc_core, which has no unique times, unlike the firmware.
      try untilTrue("a login with the stored password") {
        try mesh.meshpost(["room", "login", "Lobby", "--stored"], input: "").code == 0
      }
      try mesh.command("post Lobby second")
      try untilTrue("another post") { try posts("second") == 1 }
      #expect(try posts("first") == 1)
    }
  }
}
