// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// The first commands: `meshpost run`, `meshpost setup`, `meshpost radio probe`.
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

    @Test func `probe distinguishes a radio from other devices, in its declared shape`() throws {
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
      // It shows nothing of another machine's gateway.
      let program = try Program(
        Program.programs.appending(path: "meshpost").path(), ["run", "--link", rig.link],
        environment: places.merging(["MESHPOST_HOST": "ssh://nowhere.invalid"]) { here, _ in here })
      try program.line(with: "other commands use that of MESHPOST_HOST, ssh://nowhere.invalid")
      try program.line(with: "synced with the radio")
      try program.line(with: "advertised to its direct neighbours")
      rig.radio?.write("chan r1 0 hello from the ridge")
      try program.line(with: "hello from the ridge")
      let status = try meshpost(["status"], environment: places)
      #expect(status.code == 0 && status.lines.contains { $0.contains("r0") }, "\(status.lines)")
      program.send(SIGINT)
      _ = try program.ended()
      let again = try Program(
        Program.programs.appending(path: "meshpost").path(), ["run", "--link", rig.link], environment: places)
      try again.line(with: "synced with the radio")
      try again.line(with: "hello from the ridge")
      again.send(SIGINT)
      _ = try again.ended()
      rig.scratch.makeFolder("config/meshpost")
      _ = rig.scratch.write("config/meshpost/meshpostd.toml", "[radio]\nlink = \"auto:\"\n")
      let ignoring = try meshpost(["run", "--link", rig.link], environment: places)
      #expect(ignoring.code == 64 && ignoring.lines.contains { $0.contains("is used as it is") }, "\(ignoring.lines)")
    }

    @Test func `run names the gateway that has the radio`() throws {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      try text.replacingOccurrences(of: rig.socket, with: "/run/meshpost/control.sock").write(
        toFile: file, atomically: true, encoding: .utf8)
      // In its own /run, because this machine may have a gateway.
      let script = """
        mount -t tmpfs tmpfs /run && mkdir /run/meshpost || exit 77
        "$0/meshpostd" --config "$1" 2>/dev/null & gateway=$!
        until "$0/meshpost" sync | grep -q synced; do sleep 0.1; done 2>/dev/null
        "$0/meshpost" run; echo "code $?"
        kill $gateway
        """
      let program = try Program("/usr/bin/unshare", ["-m", "sh", "-c", script, Program.programs.path(), file])
      guard try program.ended() != 77 else { return }
      #expect(program.lines.contains("code 69"), "\(program.lines)")
      #expect(program.lines.contains { $0.contains("the gateway of this machine is running") }, "\(program.lines)")
    }

    @Test
    func `unattended setup writes its arguments, keeps secrets for root, and replaces no edited file`()
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
        "--user", "field=hill\"top", "--token-file", "field=\(token)", "--allow", "field=send,status",
      ]
      let answer = try meshpost(words)
      #expect(answer.code == 0, "\(answer.lines)")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      for line in [
        "id = \"hilltop\"", "link = \"\(rig.link)\"", "advert_when_new = true", "key = \"77f0b83f\"",
        "token_file = \"hub.token\"",
        "password_file = \"field.token\"", "user = \"hill\\\"top\"", "allow = []", "allow = [\"send\", \"status\"]",
      ] { #expect(text.contains(line), "\(line) in \(text)") }
      #expect(!text.contains("a-token-that-is-secret"))
      let secret = rig.scratch.location("credentials/hub.token")
      #expect(try String(contentsOfFile: secret, encoding: .utf8) == "a-token-that-is-secret\n")
      let mode = try FileManager.default.attributesOfItem(atPath: secret)[.posixPermissions] as? Int
      #expect(mode == 0o600)
      // The service gets files that only root can read; without it, the gateway finds them beside its configuration.
      for service in [["CREDENTIALS_DIRECTORY": rig.scratch.location("credentials")], [:]] {
        let daemon = Program.programs.appending(path: "meshpostd").path()
        let check = try Program(daemon, ["--check", "--config", file], environment: service)
        #expect(try check.ended() == 0, "\(check.lines)")
      }
      // Repeating it changes nothing.
      func backups() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: rig.scratch.folder.path()).filter {
          $0.hasPrefix("etc.toml.before-")
        }
      }
      let again = try meshpost(words)
      #expect(again.code == 0 && again.lines.contains { $0.contains("is up to date") }, "\(again.lines)")
      #expect(try String(contentsOfFile: file, encoding: .utf8) == text && backups().isEmpty)
      // Started over, the gateway keeps its name.
      let anew = ["setup", "--unattended", "--no-start", "--config", file, "--link", rig.link, "--replace"]
      #expect(try meshpost(anew).code == 0)
      let fresh = try String(contentsOfFile: file, encoding: .utf8)
      #expect(fresh.contains("id = \"hilltop\"") && !fresh.contains("upstream"), "\(fresh)")
      #expect(try backups().count == 1)
    }

    @Test func `a second setup keeps the present settings, and changes only its arguments`() throws {
      let rig = try Rig()
      let written = """
        # by hand
        [gateway]
        id = "hilltop" # as on the map

        [radio]
        link = "tcp:10.0.0.7:5001"
        [store]
        location = "\(rig.scratch.location("gw.db"))"
        profile = "wear"
        [[upstream]]
        name = "hub"
        url = "https://hub.example.org"
        token_file = "hub.token"
        kinds = [
          "message",
        ]
        [[upstream]]
        name = "alarm"
        kind = "webhook"
        url = "https://hooks.example.org/x?y=z"
        [[hook]]
        name = "bot"
        run = ["/bin/true"]
        kinds = ["message"]
        user = "nobody"

        """
      let file = rig.scratch.write("etc.toml", written)
      chmod(file, 0o640)
      let setup = ["setup", "--unattended", "--no-start", "--config", file]
      func text() throws -> String { try String(contentsOfFile: file, encoding: .utf8) }
      func backups() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: rig.scratch.folder.path()).filter {
          $0.hasPrefix("etc.toml.before-")
        }
      }
      #expect(try meshpost(setup).code == 0)
      #expect(try text() == written && backups().isEmpty, "nothing was asked for, nothing is changed")

      // The new server gets the token because the option says so.
      let told =
        setup + [
          "--upstream", "hub=https://new.example.org", "--token-file", "hub=hub.token", "--upstream",
          "mqtts://broker.example.org",
        ]
      let answer = try meshpost(told)
      #expect(answer.code == 0, "\(answer.lines)")
      let changed = written.replacingOccurrences(of: "https://hub.example.org\"", with: "https://new.example.org\"")
      let now = try text()
      for line in changed.split(separator: "\n") { #expect(now.contains(line), "\(line) in \(now)") }
      #expect(try text().contains("url = \"mqtts://broker.example.org\"") && !text().contains("hub.example.org"))
      let old = try backups()
      #expect(try old.count == 1 && String(contentsOfFile: rig.scratch.location(old[0]), encoding: .utf8) == written)
      let mode = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
      #expect(mode == 0o640)
      let once = try text()
      #expect(try meshpost(told).code == 0)
      #expect(try text() == once && backups().count == 1, "the same again changes nothing")

      // Another hub without a name is added, and does not replace the first.
      #expect(try meshpost(setup + ["--upstream", "https://third.example.org", "--link", "auto:"]).code == 0)
      let third = try text()
      #expect(
        third.contains("name = \"hub2\"") && third.contains("new.example.org") && third.contains("link = \"auto:\""))
      #expect(third.contains("id = \"hilltop\" # as on the map") && third.contains("profile = \"wear\""))
      let check = try Program(
        Program.programs.appending(path: "meshpostd").path(), ["--check", "--config", file],
        environment: ["CREDENTIALS_DIRECTORY": rig.scratch.folder.path()])
      // Only the token is missing.
      #expect(try check.ended() == 78)
      #expect(check.lines.filter { !$0.contains("token_file") }.isEmpty, "\(check.lines)")

      // The name changes only on request.
      #expect(try meshpost(setup + ["--name", "ridge"]).code == 0)
      #expect(try text().contains("id = \"ridge\""))
    }

    @Test func `setup from Bluetooth to USB removes the PIN from the configuration and from the disk`() throws {
      let scratch = Scratch()
      let file = scratch.location("etc.toml")
      let pin = scratch.write("pin", "123456\n")
      let setup = ["setup", "--unattended", "--no-start", "--config", file]
      #expect(try meshpost(setup + ["--link", "ble:Hilltop", "--pin-file", pin, "--name", "x"]).code == 0)
      let kept = scratch.location("credentials/radio.pin")
      #expect(try String(contentsOfFile: kept, encoding: .utf8) == "123456\n")
      #expect(try String(contentsOfFile: file, encoding: .utf8).contains("pin_file = \"radio.pin\""))
      // Another setup of the same radio keeps the name.
      #expect(try meshpost(setup + ["--name", "y"]).code == 0)
      #expect(FileManager.default.fileExists(atPath: kept))
      #expect(try meshpost(setup + ["--link", "serial:/dev/ttyUSB0"]).code == 0)
      #expect(!FileManager.default.fileExists(atPath: kept))
      #expect(try !String(contentsOfFile: file, encoding: .utf8).contains("pin"))
      #expect(FileManager.default.fileExists(atPath: pin), "a file of somebody else's stays")
    }

    @Test func `setup writes nothing that the gateway would refuse, and stores none of its secrets`() throws {
      let scratch = Scratch()
      let pin = scratch.write("pin", "12345\n")
      let token = scratch.write("given", "a-token\n")
      let setup = ["setup", "--unattended", "--no-start", "--config", scratch.location("etc.toml")]
      #expect(try meshpost(setup + ["--link", "auto:", "--name", "x"]).code == 0)
      func everything() throws -> [String] {
        try FileManager.default.subpathsOfDirectory(atPath: scratch.folder.path()).sorted()
      }
      let (text, before) = (try String(contentsOfFile: scratch.location("etc.toml"), encoding: .utf8), try everything())
      for (wrong, words) in [
        (["--name", "Hill top"], "gateway.id: \"Hill top\" is not allowed"), (["--key", "xyz"], "radio.key: "),
        (["--upstream", "hub=htps://hub.example.org", "--token-file", token], "upstream.url: "),
        (["--link", "ble:Hilltop", "--pin-file", pin], "radio.pin_file: a PIN is a string of 6 digits"),
      ] {
        let answer = try meshpost(setup + wrong)
        #expect(answer.code == 78 && answer.lines.contains { $0.contains(words) }, "\(wrong) \(answer.lines)")
        #expect(try String(contentsOfFile: scratch.location("etc.toml"), encoding: .utf8) == text)
        #expect(try everything() == before)
      }
      for name in ["..", "a b", ".hidden", String(repeating: "x", count: 65)] {
        #expect(try meshpost(setup + ["--upstream", "\(name)=https://hub.example.org"]).code == 64, "\(name)")
      }
      #expect(try everything() == before)
    }

    @Test func `setup asks again for values that the gateway refuses, also if an earlier setup wrote them`() throws {
      let scratch = Scratch()
      let file = scratch.write(
        "etc.toml",
        """
        [gateway]
        id = "Hill top"
        [radio]
        link = "ble:Hilltop"
        pin_file = "radio.pin"
        [[upstream]]
        name = "hub"
        url = "htps://hub.example.org"

        """)
      try FileManager.default.createDirectory(
        atPath: scratch.location("credentials"), withIntermediateDirectories: false)
      _ = scratch.write("credentials/radio.pin", "12345\n")
      let answer = try meshpost(
        ["setup", "--no-start", "--config", file],
        input: ["y", "n", "", "htps:", "https://hub.example.org", "1234", "654321"])
      #expect(answer.code == 0, "\(answer.lines)")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      for line in ["id = \"Hill-top\"", "url = \"https://hub.example.org\"", "pin_file = \"radio.pin\""] {
        #expect(text.contains(line), "\(line) in \(text)")
      }
      #expect(try String(contentsOfFile: scratch.location("credentials/radio.pin"), encoding: .utf8) == "654321\n")
      // Without an answer the dialogue ends, and nothing has changed.
      let wrongKey = ["setup", "--no-start", "--config", file, "--key", "no key"]
      for answers in [[], ["y"], ["y", "y", "https://new.example.org", "new"], ["y", "n"]] {
        let silent = try meshpost(wrongKey, input: answers)
        #expect(silent.code == 64 && silent.lines.joined().contains("nothing was changed"), "\(silent.lines)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == text)
      }
      let empty = try meshpost(wrongKey, input: ["y", "n", ""])
      #expect(empty.code == 0, "an empty answer is any radio: \(empty.lines)")
      let stubborn = try meshpost(
        ["setup", "--no-start", "--config", file], input: ["y", "y"] + Array(repeating: "no URL", count: 9))
      #expect(
        stubborn.code == 64 && stubborn.lines.contains { $0.contains("nothing was changed") }, "\(stubborn.lines)")
      #expect(try String(contentsOfFile: file, encoding: .utf8) == text)
    }

    @Test func `the dialogue of setup replaces a server only on request`() throws {
      let scratch = Scratch()
      let written = """
        [[upstream]]
        name = "hub"
        url = "https://old.example.org"
        [radio]
        link = "auto:"
        advert_when_new = true
        [store]
        location = "\(scratch.location("gw.db"))"

        """
      let file = scratch.write("etc.toml", written)
      let url = "https://new.example.org"
      // No second link to the hub, whatever its name: the URL changes the one that is there, or is refused.
      let again = try meshpost(
        ["setup", "--no-start", "--config", file],
        input: ["y", "y", "https://OLD.example.org:443/", "n", "y", url, "n1", "", "n", "y", url, ""])
      let refusals = again.lines.joined().components(separatedBy: "has a link to this hub").count - 1
      #expect(again.code == 0 && refusals == 2, "\(again.lines)")
      #expect(try String(contentsOfFile: file, encoding: .utf8).components(separatedBy: "[[upstream]]").count == 3)
      try written.write(toFile: file, atomically: true, encoding: .utf8)
      let renewed = try meshpost(
        ["setup", "--no-start", "--config", file],
        input: ["y", "y", "https://OLD.example.org:443/", "y", "a-new-token-of-this-gateway", "n", "n"])
      #expect(renewed.code == 0, "\(renewed.lines)")
      let token = try String(contentsOfFile: scratch.location("credentials/hub.token"), encoding: .utf8)
      #expect(token == "a-new-token-of-this-gateway\n")
      #expect(try String(contentsOfFile: file, encoding: .utf8).components(separatedBy: "[[upstream]]").count == 2)
      try written.write(toFile: file, atomically: true, encoding: .utf8)
      let kept = try meshpost(
        ["setup", "--no-start", "--config", file], input: ["y", "y", url, "hub", "n", "../hub", "other", "", "n", "n"])
      #expect(kept.code == 0, "\(kept.lines)")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      #expect(text.contains("old.example.org") && text.contains("name = \"other\""), "\(text)")
      let replaced = try meshpost(
        ["setup", "--no-start", "--config", file],
        input: ["y", "y", "https://third.example.org", "hub", "y", "", "y", "n"])
      #expect(replaced.code == 0, "\(replaced.lines)")
      let now = try String(contentsOfFile: file, encoding: .utf8)
      #expect(!now.contains("old.example.org") && now.contains("allow = [\"send\"]"), "\(now)")
    }

    @Test func `a new hub gets what is stored already if somebody says so, and setup asks where something is`() throws {
      let scratch = Scratch()
      let store = "[store]\nlocation = \"\(scratch.location("gw.db"))\"\n"
      let file = scratch.write("etc.toml", store + "[radio]\nlink = \"auto:\"\nadvert_when_new = true\n")
      func text() throws -> String { try String(contentsOfFile: file, encoding: .utf8) }
      let base = ["setup", "--no-start", "--config", file]
      let told = base + ["--unattended", "--upstream", "one=https://one.example.org", "--from", "one=start"]
      #expect(try meshpost(told).code == 0)
      #expect(try text().contains("url = \"https://one.example.org\"\nfrom = \"start\"\n"))
      let once = try text()
      #expect(try meshpost(told).code == 0)
      #expect(try text() == once, "the same again changes nothing")
      for wrong in [["--from", "two=start"], ["--upstream", "two=https://two.example.org", "--from", "two=end"]] {
        #expect(try meshpost(base + ["--unattended"] + wrong).code == 64, "\(wrong)")
      }
      #expect(try text() == once)
      // Nothing is stored yet, so there is no question, and a broker is not asked about.
      let asked = ["y", "y", "https://two.example.org", "two", "", "n"]
      #expect(try meshpost(base, input: asked + ["n"]).code == 0)
      #expect(try text().contains("two.example.org") && !text().contains("from = \"now\""))
      _ = scratch.write("gw.db", "")
      for (name, answer, start) in [("three", "", "start"), ("four", "n", "now")] {
        let input = ["y", "y", "https://\(name).example.org", name, "", "n", answer, "n"]
        let answered = try meshpost(base, input: input)
        #expect(answered.code == 0, "\(answered.lines)")
        #expect(try text().contains("url = \"https://\(name).example.org\"\nfrom = \"\(start)\"\n"))
      }
      let broker = try meshpost(base, input: ["y", "y", "mqtts://five.example.org", "five", "", "", "n", "n"])
      #expect(broker.code == 0 && !broker.lines.joined().contains("stored here"), "\(broker.lines)")
    }

    @Test func `setup keeps upstreams that were added at runtime, and makes no second link to a hub`() throws {
      let scratch = Scratch()
      let store = scratch.location("gw.db")
      scratch.makeFolder("gw.db.upstreams")
      _ = scratch.write(
        "gw.db.upstreams/hub.toml", "name = \"hub\"\nkind = \"hub\"\nurl = \"https://added.example.org/\"\n")
      let file = scratch.write(
        "etc.toml", "[store]\nlocation = \"\(store)\"\n[radio]\nlink = \"auto:\"\nadvert_when_new = true\n")
      let before = try String(contentsOfFile: file, encoding: .utf8)
      let base = ["setup", "--no-start", "--config", file]
      for (upstream, words) in [
        ("hub=https://new.example.org", "was added by"),
        ("https://ADDED.example.org:443", "hub has a link to this hub"),
      ] {
        let refused = try meshpost(base + ["--unattended", "--upstream", upstream])
        #expect(refused.code == 64 && refused.lines.joined().contains(words), "\(refused.lines)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == before)
      }
      let free = try meshpost(base + ["--unattended", "--upstream", "https://new.example.org"])
      #expect(free.code == 0, "\(free.lines)")
      #expect(try String(contentsOfFile: file, encoding: .utf8).contains("name = \"hub2\""))
      let second = try meshpost(base + ["--unattended", "--upstream", "again=https://new.example.org/"])
      #expect(second.code == 64 && second.lines.joined().contains("hub2 has a link to this hub"), "\(second.lines)")
      // The dialogue reports it at the question.
      let asked = try meshpost(
        base, input: ["y", "y", "https://added.example.org", "https://third.example.org", "hub", "third", "", "n", "n"])
      #expect(asked.code == 0 && asked.lines.contains { $0.contains("hub has a link to this hub") }, "\(asked.lines)")
      #expect(asked.lines.contains { $0.contains("hub was added by") }, "\(asked.lines)")
      #expect(try String(contentsOfFile: file, encoding: .utf8).contains("name = \"third\""))
    }

    @Test func `an invalid file is replaced on request, and a copy is kept`() throws {
      let scratch = Scratch()
      for (number, written) in ["[radio\n", "\u{0}\u{0}\u{0}", "link = \n[gateway]\nid = \"x\"\n"].enumerated() {
        let file = scratch.write("etc\(number).toml", written)
        let command = ["setup", "--unattended", "--no-start", "--config", file, "--link", "tcp:10.0.0.7:5001"]
        let answer = try meshpost(command + ["--replace"])
        #expect(answer.code == 0 && !answer.lines.joined().contains("start over"), "\(answer.lines)")
        #expect(try String(contentsOfFile: file, encoding: .utf8).contains("tcp:10.0.0.7:5001"))
        let kept = try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path()).filter {
          $0.hasPrefix("etc\(number).toml.before-")
        }
        #expect(try kept.count == 1 && String(contentsOfFile: scratch.location(kept[0]), encoding: .utf8) == written)
      }
    }

    @Test func `setup refuses to begin where MESHPOST_HOST names another machine`() throws {
      let scratch = Scratch()
      let file = scratch.location("etc.toml")
      let setup = ["setup", "--unattended", "--no-start", "--config", file, "--link", "auto:"]
      let refused = try meshpost(setup, environment: ["MESHPOST_HOST": "ssh://pi@hilltop"])
      #expect(refused.code == 64 && refused.lines.joined().contains("ssh://pi@hilltop"), "\(refused.lines)")
      #expect(!FileManager.default.fileExists(atPath: file))
      #expect(try meshpost(setup, environment: ["MESHPOST_HOST": ""]).code == 0)
    }

    @Test func `the newest five replaced files stay, and what a person has named, whatever the clock says`() throws {
      let scratch = Scratch()
      let (file, token) = (scratch.location("etc.toml"), scratch.location("given"))
      let people = ["etc.toml.before-2024", "etc.toml.before-the-move", "etc.toml.before-1700000000-good", "my.toml"]
      for name in people { _ = scratch.write(name, "mine") }
      // Of a time when the clock was wrong: they are the oldest, and stay the oldest.
      for mark in ["", "x"] { _ = scratch.write("etc.toml.before-4000000000\(mark)", "wrong clock") }
      func names(_ folder: String = "") throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: scratch.location(folder)).filter { $0.contains(".before-") }
          .sorted()
      }
      for number in 0...7 {
        _ = scratch.write("given", "a-token-\(number)\n")
        let answer = try meshpost([
          "setup", "--unattended", "--no-start", "--config", file, "--link", "tcp:10.0.0.\(number):5000", "--upstream",
          "hub=https://hub.example.org", "--token-file", token,
        ])
        #expect(answer.code == 0, "\(answer.lines)")
      }
      let kept = try names().filter { !people.contains($0) }
      #expect(kept == (3...7).map { "etc.toml.before-\(4_000_000_000 + $0)" }, "\(kept)")
      for (place, name) in kept.enumerated() {
        let text = try String(contentsOfFile: scratch.location(name), encoding: .utf8)
        #expect(text.contains("tcp:10.0.0.\(place + 2):5000"), "\(name): \(text)")
      }
      for name in people { #expect(try String(contentsOfFile: scratch.location(name), encoding: .utf8) == "mine") }
      let secrets = try names("credentials").map {
        try String(contentsOfFile: scratch.location("credentials/\($0)"), encoding: .utf8)
      }
      #expect(secrets == (2...6).map { "a-token-\($0)\n" })
    }

    @Test func `setup asks, and writes the answers`() throws {
      let rig = try Rig()
      let file = rig.scratch.location("etc.toml")
      let answer = try meshpost(
        ["setup", "--no-start", "--config", file],
        input: [
          "t", "10.0.0.7:5001", "y", "nonsense", "y", "mqtts://broker.example.org", "field", "hilltop", "secret", "y",
          "y", "",
        ])
      #expect(answer.code == 0, "\(answer.lines)")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      for line in [
        "link = \"tcp:10.0.0.7:5001\"", "name = \"field\"", "kind = \"mqtt\"", "user = \"hilltop\"",
        "password_file = \"field.token\"", "allow = [\"send\"]",
      ] { #expect(text.contains(line), "\(line) in \(text)") }
      #expect(answer.lines.contains { $0.contains("not a URL") })
      for wrong in [["--link", "nonsense"], ["--upstream", "nonsense"]] {
        #expect(try meshpost(["setup", "--unattended", "--no-start", "--config", file] + wrong).code == 64)
      }
      let nowhere = try meshpost(["setup", "--unattended", "--no-start", "--config", "/proc/nowhere/meshpostd.toml"])
      #expect(nowhere.code == 73 && nowhere.lines.joined().contains("no folder /proc/nowhere"), "\(nowhere.lines)")
    }
  }
}
