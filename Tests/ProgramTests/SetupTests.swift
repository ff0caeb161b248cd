// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// The ways in: `meshpost run`, `meshpost setup`, `meshpost radio probe`.
  @Suite struct Beginning {
    private func meshpost(_ arguments: [String], input: [String] = [], environment: [String: String] = [:]) throws -> (
      code: Int32, lines: [String]
    ) {
      let program = try Program(
        Program.programs.appending(path: "meshpost").path(), arguments, environment: environment)
      for line in input { program.write(line) }
      program.endInput()
      return (try program.ended(), program.lines)
    }

    @Test func `a radio is told from what is none, as promised`() throws {
      let rig = try Rig()
      try rig.startRadio()
      let device = rig.scratch.location("radio.tty")
      let gone = rig.scratch.location("gone")
      let answer = try meshpost(["radio", "probe", "--json", device, gone])
      #expect(answer.code == 0)
      let line = try #require(answer.lines.first)
      let value = try JSONValue(parsing: line)
      #expect(try JSONShapes().problems("radio probe", answer.lines) == [])
      let devices = value["devices"]?.array ?? []
      #expect(devices.map { $0["result"]?.string } == ["radio", "closed"])
      #expect(devices.first?["name"]?.string == "r0")
      #expect(try meshpost(["radio", "probe", gone]).code == 69)
    }

    @Test func `run needs nothing but a radio, and other commands find it`() throws {
      let rig = try Rig()
      try rig.startRadio(["--forgetful"])
      let places = [
        "XDG_STATE_HOME": rig.scratch.location("state"), "XDG_RUNTIME_DIR": rig.scratch.location("run"),
        "XDG_CONFIG_HOME": rig.scratch.location("config"),
      ]
      let program = try Program(
        Program.programs.appending(path: "meshpost").path(), ["run", "--link", rig.link], environment: places)
      try program.line(with: "synced with the radio")
      try program.line(with: "advertised to its direct neighbours")
      rig.radio?.write("chan r1 0 hello from the ridge")
      try program.line(with: "hello from the ridge")
      let status = try meshpost(["status"], environment: places)
      #expect(status.code == 0 && status.lines.contains { $0.contains("r0") }, "\(status.lines)")
      program.send(SIGINT)
      let again = try Program(
        Program.programs.appending(path: "meshpost").path(), ["run", "--link", rig.link], environment: places)
      try again.line(with: "synced with the radio")
      try again.line(with: "hello from the ridge")
      again.send(SIGINT)
    }

    @Test
    func `setup unattended writes what it was told, keeps secrets for root, and replaces nothing that was edited`()
      throws
    {
      let rig = try Rig()
      let file = rig.scratch.location("etc.toml")
      let token = rig.scratch.write("given", "a-token-that-is-secret\n")
      let words = [
        "setup", "--unattended", "--no-start", "--config", file, "--link", rig.link, "--key", "77f0b83f", "--name",
        "hilltop",
        "--upstream", "https://hub.example.org", "--token-file", token, "--upstream",
        "field=mqtts://broker.example.org",
        "--user", "field=hill\"top", "--token-file", "field=\(token)",
      ]
      let answer = try meshpost(words)
      #expect(answer.code == 0, "\(answer.lines)")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      for line in [
        "id = \"hilltop\"", "link = \"\(rig.link)\"", "advert_when_new = true", "key = \"77f0b83f\"",
        "token_file = \"hub.token\"",
        "password_file = \"field.token\"", "user = \"hill\\\"top\"",
      ] { #expect(text.contains(line), "\(line) in \(text)") }
      #expect(!text.contains("a-token-that-is-secret"))
      let secret = rig.scratch.location("credentials/hub.token")
      #expect(try String(contentsOfFile: secret, encoding: .utf8) == "a-token-that-is-secret\n")
      let mode = try FileManager.default.attributesOfItem(atPath: secret)[.posixPermissions] as? Int
      #expect(mode == 0o600)
      let check = try Program.own("meshpostd", ["--check", "--config", file])
      #expect(try check.ended() == 0, "\(check.lines)")
      // A second time as well; but not over what somebody has edited.
      #expect(try meshpost(words).code == 0)
      try ("# mine\n" + text).write(toFile: file, atomically: true, encoding: .utf8)
      #expect(try meshpost(words).code == 73)
      #expect(try meshpost(words + ["--replace"]).code == 0)
      let kept = try FileManager.default.contentsOfDirectory(atPath: rig.scratch.folder.path())
      #expect(kept.contains { $0.hasPrefix("etc.toml.before-") })
    }

    @Test func `setup asks, and what is answered is what is written`() throws {
      let rig = try Rig()
      let file = rig.scratch.location("etc.toml")
      let answer = try meshpost(
        ["setup", "--no-start", "--config", file],
        input: [
          "t", "10.0.0.7:5001", "y", "nonsense", "y", "mqtts://broker.example.org", "field", "hilltop", "secret", "n",
        ])
      #expect(answer.code == 0, "\(answer.lines)")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      for line in [
        "link = \"tcp:10.0.0.7:5001\"", "name = \"field\"", "kind = \"mqtt\"", "user = \"hilltop\"",
        "password_file = \"field.token\"",
      ] { #expect(text.contains(line), "\(line) in \(text)") }
      #expect(answer.lines.contains { $0.contains("that is no address") })
      for wrong in [["--link", "nonsense"], ["--upstream", "nonsense"]] {
        #expect(try meshpost(["setup", "--unattended", "--no-start", "--config", file] + wrong).code == 64)
      }
      #expect(
        try meshpost(["setup", "--unattended", "--no-start", "--config", "/proc/nowhere/meshpostd.toml"]).code == 77)
    }
  }
}
