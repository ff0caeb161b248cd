// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

extension WholeProgramTests {
  /// What `meshpost setup` refuses, and when.
  @Suite struct SetupRefusals {
    private func meshpost(_ arguments: [String], input: [String] = [], folder: URL? = nil) throws -> (
      code: Int32, lines: [String]
    ) {
      let program = try Program(Program.programs.appending(path: "meshpost").path(), arguments, folder: folder)
      for line in input { program.write(line) }
      program.endInput()
      return (try program.ended(), program.lines)
    }

    @Test func `setup finds upstreams that were added beside the database behind a link`() throws {
      let (scratch, name) = (Scratch(), "hub=https://new.example.org")
      scratch.makeFolder("disk/gw.db.upstreams")
      _ = scratch.write("disk/gw.db", "")
      _ = scratch.write(
        "disk/gw.db.upstreams/hub.toml", "name = \"hub\"\nkind = \"hub\"\nurl = \"https://added.example.org/\"\n")
      let link = scratch.location("link.db")
      #expect(symlink("disk/gw.db", link) == 0)
      let file = scratch.write("etc.toml", "[store]\nlocation = \"\(link)\"\n[radio]\nlink = \"auto:\"\n")
      let refused = try meshpost(["setup", "--no-start", "--config", file, "--unattended", "--upstream", name])
      #expect(refused.code == 64 && refused.lines.joined().contains("was added by"), "\(refused.lines)")
    }

    @Test func `setup refuses a URL, a token and a PIN where they are asked for`() throws {
      let scratch = Scratch()
      let store = "[store]\nlocation = \"\(scratch.location("gw.db"))\"\n"
      let file = scratch.write("etc.toml", store + "[radio]\nlink = \"auto:\"\n")
      let asked = try meshpost(
        ["setup", "--no-start", "--config", file, "--link", "ble:Hilltop"],
        input: [
          "12345a", "654321", "y", "https://me:secret@hub.example.org", "HTTPS://hub.example.org", "hub", "two words",
          "schlüssel", "a-token", "n", "n",
        ])
      #expect(asked.code == 0, "\(asked.lines)")
      for words in ["a PIN has 6 digits", "without user names", "a token has only letters"] {
        #expect(asked.lines.contains { $0.contains(words) }, "\(words) in \(asked.lines)")
      }
      #expect(!asked.lines.joined().contains("Announce the radio"), "it does not start now: \(asked.lines)")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      #expect(text.contains("url = \"https://hub.example.org\"") && !text.contains("HTTPS"), "\(text)")
      func secret(_ name: String) throws -> String {
        try String(contentsOfFile: scratch.location("credentials/\(name)"), encoding: .utf8)
      }
      #expect(try secret("hub.token") == "a-token\n" && secret("radio.pin") == "654321\n")
    }

    @Test func `another server in the place of one gets neither its token nor its user`() throws {
      let scratch = Scratch()
      let store = "[store]\nlocation = \"\(scratch.location("gw.db"))\"\n"
      func written(_ more: String) -> String {
        scratch.write("etc.toml", store + "[radio]\nlink = \"auto:\"\n[[upstream]]\nname = \"one\"\n" + more)
      }
      scratch.makeFolder("credentials")
      _ = scratch.write("credentials/one.token", "of-the-first\n")
      let hub = written("url = \"https://a.example.org\"\ntoken_file = \"one.token\"\n")
      let setup = ["setup", "--no-start", "--config", hub]
      let answer = try meshpost(setup, input: ["y", "y", "https://b.example.org", "one", "y", "", "n", "n"])
      #expect(answer.code == 0, "\(answer.lines)")
      let text = try String(contentsOfFile: hub, encoding: .utf8)
      #expect(text.contains("https://b.example.org") && !text.contains("token_file"), "\(text)")
      _ = written("kind = \"mqtt\"\nurl = \"mqtts://a.example.org\"\nuser = \"me\"\npassword_file = \"one.token\"\n")
      let other = try meshpost(setup, input: ["y", "y", "mqtts://b.example.org", "one", "y", "", "", "n", "n"])
      let broker = try String(contentsOfFile: hub, encoding: .utf8)
      #expect(other.code == 0 && !broker.contains("user") && !broker.contains("password_file"), "\(broker)")
      // Elsewhere on the same server it is as before.
      _ = written("url = \"https://a.example.org\"\ntoken_file = \"one.token\"\n")
      let same = try meshpost(setup, input: ["y", "y", "https://A.example.org/hub", "one", "y", "", "n", "n"])
      #expect(same.code == 0, "\(same.lines)")
      #expect(try String(contentsOfFile: hub, encoding: .utf8).contains("token_file = \"one.token\""))
    }

    @Test func `another server that is typed in place of a refused URL gets nothing of the old one's`() throws {
      let scratch = Scratch()
      let store = "[store]\nlocation = \"\(scratch.location("gw.db"))\"\n[radio]\nlink = \"auto:\"\n"
      scratch.makeFolder("credentials")
      _ = scratch.write("credentials/one.token", "of-the-first\n")
      for (more, url, none) in [
        (
          "kind = \"mqtt\"\nurl = \"mqtts://a.example.org/x\"\nuser = \"me\"\npassword_file = \"one.token\"\n",
          "mqtts://b.example.org", ["", ""]
        ),
        ("url = \"https://a.example.org:80443\"\ntoken_file = \"one.token\"\n", "https://b.example.org", [""]),
      ] {
        let text = store + "[[upstream]]\nname = \"one\"\n\(more)allow = [\"send\"]\n"
        let setup = ["setup", "--no-start", "--config", scratch.write("etc.toml", text)]
        let other = try meshpost(setup, input: ["y", "n", url] + none + ["n"])
        let written = try String(contentsOfFile: scratch.location("etc.toml"), encoding: .utf8)
        #expect(other.code == 0 && written.contains(url), "\(other.lines)")
        for old in ["user", "_file", "send"] { #expect(!written.contains(old), "\(old) in \(written)") }
      }
      let broker = "kind = \"mqtt\"\nurl = \"mqtts://a.example.org/x\"\nuser = \"me\"\n"
      let text = store + "[[upstream]]\nname = \"one\"\n\(broker)"
      let setup = ["setup", "--no-start", "--config", scratch.write("etc.toml", text)]
      let same = try meshpost(setup, input: ["y", "n", "mqtts://A.example.org"])
      #expect(same.code == 0, "\(same.lines)")
      #expect(try String(contentsOfFile: scratch.location("etc.toml"), encoding: .utf8).contains("user = \"me\""))
    }

    @Test(arguments: [SIGINT, SIGTERM, SIGHUP])
    func `a signal during the check of setup takes the secret with it, and a kill leaves it to the next setup`(
      _ signal: Int32
    ) throws {
      let scratch = Scratch()
      for folder in ["bin", "etc"] { scratch.makeFolder(folder) }
      let own = scratch.location("bin/meshpost")
      try FileManager.default.copyItem(atPath: Program.programs.appending(path: "meshpost").path(), toPath: own)
      // A check that takes long, until the last setup.
      let slow = scratch.write("slow", "")
      let daemon = scratch.write("bin/meshpostd", "#!/bin/sh\n[ ! -e '\(slow)' ] || exec sleep 60 >/dev/null 2>&1\n")
      #expect(chmod(daemon, 0o755) == 0)
      _ = scratch.write("tk", "a-secret-token\n")
      let (folder, file) = (scratch.location("etc"), scratch.location("etc/gw.toml"))
      let arguments = ["setup", "--no-start", "--unattended", "--config", file, "--link", "tcp:10.0.0.7:5001"]
      let upstream = ["--upstream", "hub=https://hub.example.org", "--token-file", scratch.location("tk")]
      func names() throws -> [String] { try FileManager.default.subpathsOfDirectory(atPath: folder) }
      for (number, leaves) in [(signal, false), (SIGKILL, true)] {
        let setup = try Program(own, arguments + upstream)
        try untilTrue("the check") { try names().contains { $0.hasSuffix("/meshpostd.toml") } }
        setup.send(number)
        _ = try setup.ended()
        let left = try names()
        #expect(left.isEmpty != leaves, "\(left)")
      }
      unlink(slow)
      #expect(try meshpost(arguments + upstream).code == 0)
      #expect(try names().sorted() == ["credentials", "credentials/hub.token", "gw.toml"])
    }

    @Test func `options that name another server say what it gets of the old one's secret, user and rights`() throws {
      let scratch = Scratch()
      let written = """
        [store]
        location = "\(scratch.location("gw.db"))"
        [radio]
        link = "auto:"
        [[upstream]]
        name = "one"
        url = "https://a.example.org"
        token_file = "one.token"
        allow = ["send"]
        [[upstream]]
        name = "two"
        kind = "mqtt"
        url = "mqtts://a.example.org"
        user = "me"
        password_file = "one.token"
        allow = []

        """
      scratch.makeFolder("credentials")
      _ = scratch.write("credentials/one.token", "of-the-first\n")
      let file = scratch.write("etc.toml", written)
      let setup = ["setup", "--unattended", "--no-start", "--config", file, "--upstream"]
      let hub = "one=https://b.example.org"
      for (wrong, words) in [
        ([hub], "(--token-file one=FILE --allow one=RIGHTS)"),
        ([hub, "--token-file", "one=one.token"], "(--allow one=RIGHTS)"),
        (["one=https://a.example.org:8443"], "one is https://a.example.org"),
        (["one=http://a.example.org"], "one is https://a.example.org"),
        (["two=mqtts://b.example.org"], "(--token-file two=FILE --user two=USER)"),
        (["two=mqtt://a.example.org"], "two is mqtts://a.example.org"),
      ] {
        let refused = try meshpost(setup + wrong)
        #expect(refused.code == 64 && refused.lines.joined().contains(words), "\(wrong) \(refused.lines)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == written, "\(wrong)")
      }
      // The same server in another spelling, or another place on it, keeps them.
      let spelt = ["one=https://A.example.org:443/hub", "--upstream", "two=mqtts://a.example.org:8883"]
      let same = try meshpost(setup + spelt)
      #expect(same.code == 0, "\(same.lines)")
      let kept = try String(contentsOfFile: file, encoding: .utf8)
      for line in ["token_file = \"one.token\"", "allow = [\"send\"]", "password_file = \"one.token\"", "user = "] {
        #expect(kept.contains(line), "\(line) in \(kept)")
      }
      let told = try meshpost(setup + [hub, "--token-file", "one=one.token", "--allow", "one=none"])
      #expect(told.code == 0, "\(told.lines)")
      let moved = try String(contentsOfFile: file, encoding: .utf8)
      #expect(moved.contains("https://b.example.org") && !moved.contains("\"send\""), "\(moved)")
    }

    @Test func `setup takes a token from the current folder, and no option that would count for nothing`() throws {
      let scratch = Scratch()
      let file = scratch.location("etc.toml")
      for (name, token) in [("tk", "a-token"), ("words", "two words"), ("pin", "123456")] {
        _ = scratch.write(name, "\(token)\n")
      }
      let setup = ["setup", "--unattended", "--no-start", "--config", file, "--link", "tcp:10.0.0.7:5001"]
      let hub = ["--upstream", "hub=https://hub.example.org", "--token-file"]
      let refusals: [([String], Int32)] = [
        (["--name", ""], 64), (["--pin-file", "pin"], 64), (hub + ["hub=words"], 65), (hub + ["hub="], 64),
      ]
      for (wrong, code) in refusals {
        let refused = try meshpost(setup + wrong, folder: scratch.folder)
        #expect(refused.code == code, "\(wrong) \(refused.lines)")
        #expect(!FileManager.default.fileExists(atPath: file), "\(wrong)")
      }
      let answer = try meshpost(setup + hub + ["hub=tk"], folder: scratch.folder)
      #expect(answer.code == 0, "\(answer.lines)")
      let stored = scratch.location("credentials/hub.token")
      #expect(try String(contentsOfFile: stored, encoding: .utf8) == "a-token\n")
      // The stored one by its location is a credential, too: only the service manager can read it there.
      #expect(try meshpost(setup + hub + [stored]).code == 0)
      #expect(try String(contentsOfFile: file, encoding: .utf8).contains("token_file = \"hub.token\""))
    }

    @Test func `setup does not change a file that it cannot change safely`() throws {
      let rig = try Rig()
      for written in ["radio = { link = \"auto:\" }\n", "radio.link = \"\"\"\nauto:\"\"\"\n", "[radio\n"] {
        let file = rig.scratch.write("etc.toml", written)
        let answer = try meshpost(
          ["setup", "--unattended", "--no-start", "--config", file, "--link", "tcp:10.0.0.7:5001"])
        #expect(answer.code == 78, "\(written) \(answer.lines)")
        #expect(try String(contentsOfFile: file, encoding: .utf8) == written)
      }
    }
  }
}
