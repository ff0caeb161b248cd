// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Upstreams are added and removed while the gateway runs.
  @Suite struct UpstreamChanges {
    private static func upstream(_ rig: Rig, _ name: String) throws -> JSONValue? {
      try rig.status()?["upstreams"]?.array?.first { $0["name"]?.string == name }
    }

    @Test func `the command line tells what waits for a removed upstream, and reads an added one's token`() throws {
      let rig = try Rig()
      rig.writeGatewayConfiguration()
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      func pending() throws -> Int64 { try Self.upstream(rig, "hub")?["pending"]?.integer ?? 0 }
      #expect(try rig.meshpost("upstream", "pause", "hub").code == 0)
      rig.radio?.write("chan r1 0 before")
      try untilTrue("it to wait: \(rig.gateway?.lines ?? [])") { try pending() > 0 }
      let (file, waiting) = (rig.scratch.location("gw.toml"), try pending())
      let whole = try String(contentsOfFile: file, encoding: .utf8)
      try whole.components(separatedBy: "[[upstream]]")[0].write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "hub: removed; events that it had not received: ")
      try rig.gateway?.line(with: "configuration reloaded")
      // Events in between wait, too.
      func promised(_ lines: [String], _ words: Regex<(Substring, Substring)>) -> Int64 {
        lines.lazy.compactMap { $0.firstMatch(of: words).flatMap { Int64($0.1) } }.first ?? 0
      }
      #expect(promised(try rig.meshpost("status").lines, /^hub +removed .*: (\d+) events? waits? for it/) >= waiting)
      #expect(try JSONShapes().problems("status", rig.meshpost("status", "--json").lines) == [])
      #expect(promised(try rig.meshpost("doctor").lines, /removed; (\d+) events wait for it/) >= waiting)

      let (url, token) = ("http://127.0.0.1:\(rig.hubPort)/", rig.scratch.location("token"))
      let folder = rig.scratch.location("gw.db.upstreams/files")
      let refused = try rig.meshpost("upstream", "add", "spy", url, "--set", "token_file=\"\(token)\"")
      #expect(refused.code == 64 && refused.lines.joined().contains("is not in \(folder)"), "\(refused)")
      let wrong = try rig.meshpost("upstream", "add", "own", url, "--token-file", token, "--from", "end")
      #expect(wrong.code == 64, "\(wrong)")
      // Nobody is at a terminal, so nobody is asked.
      let added = try rig.meshpost("upstream", "add", "own", url, "--token-file", token, "--set", "link=http")
      #expect(added.code == 0 && added.lines.joined().contains("`--from start` sends what is stored"), "\(added)")
      try untilTrue("its token to be taken") { try Self.upstream(rig, "own")?["link"]?.string == "http" }
      #expect(try rig.meshpost("upstream", "remove", "own").code == 0)
      let typed = try Program.own(
        "meshpost", ["upstream", "add", "own", url, "--token-stdin", "--set", "link=http", "--socket", rig.socket])
      typed.write(try String(contentsOfFile: token, encoding: .utf8).trimmingCharacters(in: .newlines))
      #expect(try typed.ended() == 0, "\(typed.lines)")
      try untilTrue("its token to be taken") { try Self.upstream(rig, "own")?["link"]?.string == "http" }
    }
  }
}
