// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Mistakes in the configuration show at a start that no operator attends.
  @Suite struct RefusedConfigurations {
    @Test(arguments: ["[gateway]\nid = \"Hill top\"\n", "[radio\n"])
    func `a gateway with a refused configuration starts with the last valid one, and reports it`(_ wrong: String)
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

      // The gateway accepts the corrected configuration, and falls back on it at the next start.
      try (right + "# mended\n").write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded")
      try untilTrue("the alert's end") { try !alerts().joined().contains("configuration_wrong") }
      #expect(try rig.status()?["configuration_error"] == nil)
      let kept = try String(contentsOfFile: rig.scratch.location("gw.db.configuration"), encoding: .utf8)
      #expect(kept.hasSuffix("# mended\n"))
      // A reload of a wrong configuration changes nothing, and is reported in the same way.
      try wrong.write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try untilTrue("the alert again") { try alerts().joined().contains("configuration_wrong") }
      #expect(try rig.status()?["configuration_error"] != nil)
    }

    @Test func `a reload reports the settings that wait for a restart, at the gateway and at the hub`() throws {
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
      #expect(try rig.status()?["after_restart"]?.array?.compactMap(\.string) == ["store.max_size", "store.profile"])
      #expect(try JSONShapes().problems("status", rig.meshpost("status", "--json").lines) == [])
      let status = try rig.meshpost("status").lines
      #expect(status.contains("config    waits for a restart: store.max_size, store.profile"), "\(status)")
      #expect(try rig.meshpost("doctor").lines.contains { $0.hasPrefix("WARN  configuration: store.max_size") })
      try before.write(toFile: gateway, atomically: true, encoding: .utf8)
      let count = rig.gateway?.lines.count ?? 0
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded", from: count)
      #expect(rig.gateway?.lines.dropFirst(count).contains { $0.contains("except") } == false)
      #expect(try rig.status()?["after_restart"] == nil, "nothing waits any more")
      try ("max_connections = 99\nlog_level = \"debug\"\n" + atHub + "\n[retention]\nnodes = \"90d\"\n").write(
        toFile: hub, atomically: true, encoding: .utf8)
      rig.hub?.send(SIGHUP)
      try rig.hub?.line(with: "tokens reloaded")
      try rig.hub?.line(with: "not reloaded: max_connections, retention.nodes: ")
    }

    @Test func `settings from documents are reported with both values, and so are world-readable secrets`() throws {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let token = rig.scratch.write("open.token", "secret\n")
      let text =
        try String(contentsOfFile: file, encoding: .utf8) + """

          [messaging]
          airtime_per_hour_s = 40
          [[upstream]]
          name = "other"
          url = "http://127.0.0.1:1"
          token_file = "\(token)"
          allow = ["settings"]

          """
      try text.write(toFile: file, atomically: true, encoding: .utf8)
      chmod(token, 0o666)
      chmod(file, 0o666)
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.status()?["overrides"] == nil)
      for (value, isOther) in [("99", true), ("40", false)] {
        #expect(try rig.meshpost("documents", "set", "settings/airtime_per_hour_s", value).code == 0)
        let one = try rig.status()?["overrides"]?.array?.first
        #expect((one != nil) == isOther, "\(value)")
        guard isOther else { continue }
        #expect(one?["setting"]?.string == "messaging.airtime_per_hour_s" && one?["value"]?.string == "99")
        #expect(one?["configured"]?.string == "40" && one?["document"]?.string == "settings/airtime_per_hour_s")
        #expect(try JSONShapes().problems("status", rig.meshpost("status", "--json").lines) == [])
        for command in ["status", "doctor"] {
          let lines = try rig.meshpost(command).lines
          #expect(
            lines.contains { $0.contains("airtime_per_hour_s is 99 by") && $0.contains("in place of 40") }, "\(lines)")
        }
      }
      let doctor = try rig.meshpost("doctor").lines
      let check = try Program.own("meshpostd", ["--check", "--config", file])
      #expect(try check.ended() == 0, "it is reported, and not refused")
      for said in [doctor, check.lines] {
        #expect(said.contains { $0.contains("chmod o-w \(file)") }, "\(said)")
        #expect(said.contains { $0.contains("chmod o= \(token)") }, "\(said)")
      }
      chmod(token, 0o640)
      chmod(file, 0o644)
      #expect(try !rig.meshpost("doctor").lines.contains { $0.contains("chmod o") && $0.contains(token) })
    }

    @Test func `a configured channel that the radio does not have is reported until the radio has it`() throws {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration(extra: "[relay]\nmessages_from_hub = true\nchannels = [\"#hll\"]")
      try rig.startGateway()
      try rig.waitForSync()
      let words = "relay.channels names \"#hll\", which the radio does not have; it has "
      try rig.gateway?.line(with: words)
      #expect(try JSONShapes().problems("status", rig.meshpost("status", "--json").lines) == [])
      let (status, doctor) = (try rig.meshpost("status").lines, try rig.meshpost("doctor").lines)
      #expect(status.contains { $0.hasPrefix("config    without effect: \(words)") }, "\(status)")
      #expect(doctor.contains { $0.hasPrefix("WARN  configuration: \(words)") }, "\(doctor)")
      // A sync reports nothing again.
      #expect(try rig.meshpost("sync", "--now").code == 0)
      try rig.waitForSync()
      #expect(rig.gateway?.lines.count { $0.contains(words) } == 1)
      #expect(try rig.meshpost("channel", "add", "#hll").code == 0)
      try untilTrue("it has effect") { try rig.status()?["without_effect"] == nil }
      #expect(try !rig.meshpost("doctor").lines.contains { $0.contains("#hll") })
    }

    @Test func `a configuration that never worked, or another file's, is not used as a fallback`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.kill9()
      let text = try String(contentsOfFile: rig.scratch.location("gw.toml"), encoding: .utf8)
      let other = rig.scratch.write("other.toml", "[gateway]\nid = \"Hill top\"\n" + text)
      let program = try Program.own("meshpostd", ["--config", other])
      #expect(try program.ended() == 78)
      // Commands that read the file itself report on the file itself.
      _ = rig.scratch.write("gw.toml", "[gateway]\nid = \"Hill top\"\n" + text)
      let check = try Program.own("meshpostd", ["--check", "--config", rig.scratch.location("gw.toml")])
      #expect(try check.ended() == 78)
    }
  }
}
