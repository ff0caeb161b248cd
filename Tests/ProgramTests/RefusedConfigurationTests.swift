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
