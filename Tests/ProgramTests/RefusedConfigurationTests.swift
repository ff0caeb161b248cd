// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A mistake in the configuration is found when nobody is there.
  @Suite struct RefusedConfigurations {
    @Test(arguments: ["[gateway]\nid = \"Hill top\"\n", "[radio\n"])
    func `a gateway whose configuration is refused starts with the last one that worked, and says so`(_ wrong: String)
      throws
    {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.kill9()
      let file = rig.scratch.location("gw.toml")
      let right = try String(contentsOfFile: file, encoding: .utf8)
      try (wrong + right).write(toFile: file, atomically: true, encoding: .utf8)
      try rig.startGateway()
      try rig.gateway?.line(with: "running with the last configuration that worked")
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 after the power cut")
      try untilTrue("the message") { try rig.hubTexts() == ["after the power cut"] }
      let status = try rig.meshpost("status")
      #expect(status.lines.contains { $0.contains("refused; running with the last") }, "\(status)")
      #expect(try JSONShapes().problems("status", rig.meshpost("status", "--json").lines) == [])
      let doctor = try rig.meshpost("doctor")
      #expect(
        doctor.code == 1 && doctor.lines.contains { $0.contains("FAIL  configuration: \(file): line") }, "\(doctor)")
      func alerts() throws -> [String] { try rig.meshpost("alerts", "--open", "--json").lines }
      try untilTrue("the alert") { try alerts().joined().contains("configuration_wrong") }

      // Mended, it is taken, and is what the next start falls back on.
      try (right + "# mended\n").write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded")
      try untilTrue("the alert's end") { try !alerts().joined().contains("configuration_wrong") }
      #expect(try rig.status()?["configuration_error"] == nil)
      let kept = try String(contentsOfFile: rig.scratch.location("gw.db.configuration"), encoding: .utf8)
      #expect(kept.hasSuffix("# mended\n"))
      // A reload of a wrong one changes nothing, and is told the same way.
      try wrong.write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try untilTrue("the alert again") { try alerts().joined().contains("configuration_wrong") }
      #expect(try rig.status()?["configuration_error"] != nil)
    }

    @Test func `a reload says what waits for a restart, at the gateway and at the hub`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      let (gateway, hub) = (rig.scratch.location("gw.toml"), rig.scratch.location("hub.toml"))
      let (before, atHub) = (
        try String(contentsOfFile: gateway, encoding: .utf8), try String(contentsOfFile: hub, encoding: .utf8)
      )
      try (before + "\n[power]\nlow_battery_mv = 3300\n[contacts]\nkeep_free = 3\n").replacing(
        "[store]", with: "[store]\nprofile = \"wear\"\nmax_size = \"64 MiB\""
      ).write(toFile: gateway, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded, except store.max_size, store.profile: ")
      try before.write(toFile: gateway, atomically: true, encoding: .utf8)
      let count = rig.gateway?.lines.count ?? 0
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded", from: count)
      #expect(rig.gateway?.lines.dropFirst(count).contains { $0.contains("except") } == false)
      try ("max_connections = 99\nlog_level = \"debug\"\n" + atHub + "\n[retention]\nnodes = \"90d\"\n").write(
        toFile: hub, atomically: true, encoding: .utf8)
      rig.hub?.send(SIGHUP)
      try rig.hub?.line(with: "tokens reloaded")
      try rig.hub?.line(with: "not reloaded: max_connections, retention.nodes: ")
    }

    @Test func `a configuration that never worked, or another file's, is no way to start`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.kill9()
      let text = try String(contentsOfFile: rig.scratch.location("gw.toml"), encoding: .utf8)
      let other = rig.scratch.write("other.toml", "[gateway]\nid = \"Hill top\"\n" + text)
      let program = try Program.own("meshpostd", ["--config", other])
      #expect(try program.ended() == 78)
      // What asks for the file itself is told of the file itself.
      _ = rig.scratch.write("gw.toml", "[gateway]\nid = \"Hill top\"\n" + text)
      let check = try Program.own("meshpostd", ["--check", "--config", rig.scratch.location("gw.toml")])
      #expect(try check.ended() == 78)
    }
  }
}
