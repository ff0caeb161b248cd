// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Upstreams are added, removed and corrected while the others run.
  @Suite struct UpstreamChanges {
    private func start() throws -> Rig {
      let rig = try Rig()
      rig.writeGatewayConfiguration()
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the hub to have all") {
        let hub = try Self.upstream(rig, "hub")
        return hub?["link"]?.string == "live" && hub?["pending"]?.integer == 0
      }
      return rig
    }

    private static func upstream(_ rig: Rig, _ name: String) throws -> JSONValue? {
      try rig.status()?["upstreams"]?.array?.first { $0["name"]?.string == name }
    }

    private func reload(_ rig: Rig) throws {
      let count = rig.gateway?.lines.count ?? 0
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded", from: count)
    }

    @Test
    func `an emptied file removes no upstream, and a removed upstream resumes when it is back`() throws {
      let rig = try start()
      let file = rig.scratch.location("gw.toml")
      let whole = try String(contentsOfFile: file, encoding: .utf8)
      #expect(try rig.meshpost("upstream", "pause", "hub").code == 0)
      rig.radio?.write("chan r1 0 before")
      func pending() throws -> Int64 { try Self.upstream(rig, "hub")?["pending"]?.integer ?? 0 }
      try untilTrue("it to wait: \(rig.gateway?.lines ?? [])") { try pending() > 0 }
      try "".write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "it is empty, which would remove hub")
      #expect(try Self.upstream(rig, "hub") != nil)
      #expect(try rig.meshpost("doctor").lines.contains { $0.contains("it is empty") })

      let waiting = try pending()
      try whole.components(separatedBy: "[[upstream]]")[0].write(toFile: file, atomically: true, encoding: .utf8)
      try reload(rig)
      #expect(
        rig.gateway?.lines.contains { $0.contains("hub: removed; events that it had not received: \(waiting)") }
          == true,
        "\(rig.gateway?.lines ?? [])")
      // Events in between wait, too.
      func promised(_ lines: [String], _ words: Regex<(Substring, Substring)>) -> Int64 {
        lines.lazy.compactMap { $0.firstMatch(of: words).flatMap { Int64($0.1) } }.first ?? 0
      }
      #expect(promised(try rig.meshpost("status").lines, /^hub +removed .*: (\d+) events wait for it/) >= waiting)
      #expect(try JSONShapes().problems("status", rig.meshpost("status", "--json").lines) == [])
      #expect(promised(try rig.meshpost("doctor").lines, /removed; (\d+) events wait for it/) >= waiting)
      rig.radio?.write("chan r1 0 meanwhile")
      rig.gateway?.kill9()
      try rig.startGateway()
      try rig.waitForSync()

      try whole.write(toFile: file, atomically: true, encoding: .utf8)
      try reload(rig)
      #expect(try rig.meshpost("upstream", "resume", "hub").code == 0)
      try untilTrue("both at the hub: \(rig.gateway?.lines ?? [])") { try rig.hubTexts() == ["before", "meanwhile"] }
      #expect(try rig.status()?["removed_upstreams"]?.array?.isEmpty == true)
    }

    @Test func `an added upstream can use only its own files`() throws {
      let rig = try start()
      let url = "http://127.0.0.1:\(rig.hubPort)/"
      let token = rig.scratch.location("token")
      let folder = rig.scratch.location("gw.db.upstreams/files")
      let refused = try rig.meshpost("upstream", "add", "spy", url, "--set", "token_file=\"\(token)\"")
      #expect(refused.code == 64 && refused.lines.joined().contains("is not in \(folder)"), "\(refused)")

      // A file sent with the request is stored for the daemon only, and removed with the upstream.
      #expect(try rig.meshpost("upstream", "add", "own", url, "--token-file", token, "--set", "link=http").code == 0)
      let kept = "\(folder)/own.token_file"
      let mode = try FileManager.default.attributesOfItem(atPath: kept)[.posixPermissions] as? Int
      #expect(mode == 0o600)
      try untilTrue("its token to be taken") { try Self.upstream(rig, "own")?["link"]?.string == "http" }
      #expect(try rig.meshpost("upstream", "remove", "own").code == 0)
      #expect(!FileManager.default.fileExists(atPath: kept))

      let typed = try Program.own(
        "meshpost", ["upstream", "add", "own", url, "--token-stdin", "--set", "link=http", "--socket", rig.socket])
      typed.write(try String(contentsOfFile: token, encoding: .utf8).trimmingCharacters(in: .newlines))
      #expect(try typed.ended() == 0, "\(typed.lines)")
      try untilTrue("its token to be taken") { try Self.upstream(rig, "own")?["link"]?.string == "http" }
    }
  }
}
