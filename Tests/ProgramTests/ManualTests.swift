// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Help, man pages, shapes and printed output agree.
  @Suite struct Manual {
    private func generate(_ arguments: String...) throws -> String {
      let program = try Program.own("meshpost", ["generate"] + arguments)
      #expect(try program.ended() == 0, "\(program.lines)")
      return program.lines.joined(separator: "\n") + "\n"
    }

    /// The words of executable commands, with their arguments from the parser.
    private func leaves() throws -> [(words: [String], command: JSONValue)] {
      let program = try Program.own("meshpost", ["--experimental-dump-help"])
      _ = try program.ended()
      let root = try JSONValue(parsing: program.lines.joined(separator: "\n"))["command"] ?? .null
      func walk(_ command: JSONValue, _ words: [String]) -> [(words: [String], command: JSONValue)] {
        let children = (command["subcommands"]?.array ?? []).filter {
          $0["shouldDisplay"]?.bool != false && $0["commandName"]?.string != "help"
        }
        guard !children.isEmpty else { return [(words, command)] }
        let hasOptions = (command["arguments"]?.array ?? []).contains { argument in
          let names = (argument["names"]?.array ?? []).compactMap { $0["name"]?.string }
          return argument["shouldDisplay"]?.bool != false && !names.contains("help") && !names.contains("version")
        }
        return (hasOptions ? [(words, command)] : [])
          + children.flatMap { walk($0, words + [$0["commandName"]?.string ?? ""]) }
      }
      return walk(root, [])
    }

    @Test func `the shipped manual is the generated one`() throws {
      let folder = Checkout.folder.appending(path: "docs/man")
      let names = try generate("man").split(separator: "\n").map(String.init)
      let shipped = try FileManager.default.contentsOfDirectory(atPath: folder.path()).filter { $0.hasSuffix(".1") }
      #expect(Set(shipped) == Set(names.map { $0 + ".1" }), "run `make manual`")
      for name in names {
        let text = try String(contentsOf: folder.appending(path: name + ".1"), encoding: .utf8)
        #expect(try generate("man", name) == text, "\(name): run `make manual`")
      }
      for (what, name) in [("shapes", "json.md"), ("requests", "requests.md"), ("openapi", "control-socket.json")] {
        let text = try String(contentsOf: Checkout.folder.appending(path: "docs/\(name)"), encoding: .utf8)
        #expect(try generate(what) == text, "\(name): run `make manual`")
      }
    }

    @Test func `each command's help and man page name every argument, and man renders them without warnings`() throws {
      for (words, command) in try leaves() {
        let help = try Program.own("meshpost", words + ["--help"])
        #expect(try help.ended() == 0)
        let text = help.lines.joined(separator: " ")
        let page = try rendered(words[0])
        for argument in command["arguments"]?.array ?? [] {
          let name =
            argument["preferredName"]?["name"]?.string.map { "--\($0)" } ?? argument["valueName"]?.string ?? "?"
          #expect(text.contains(name), "\(words) --help: \(name)")
          #expect(page.contains(name.hasPrefix("--") ? name : name.uppercased()), "man \(words): \(name)")
        }
        #expect(command["abstract"]?.string?.isEmpty == false, "\(words) says nothing of itself")
      }
    }

    /// Only names of several words: others could be members of anything.
    @Test func `each field that a gateway's pages read is declared`() throws {
      // Fields of values that are `any` in a shape, or that no command prints: a radio's identity and counters, a session, a refusal.
      let others: Set = [
        "bandwidth_hz", "frequency_khz", "max_power_dbm", "retry_after_s", "signed_in", "spreading_factor",
        "tx_power_dbm",
      ]
      let folder = Checkout.folder.appending(path: "Sources/Pages")
      var read: Set<String> = []
      for name in try FileManager.default.subpathsOfDirectory(atPath: folder.path()) where name.hasSuffix(".js") {
        guard !["hub", "languages/", "worker"].contains(where: name.hasPrefix) else { continue }
        let text = try String(contentsOf: folder.appending(path: name), encoding: .utf8)
        read.formUnion(text.matches(of: /\.([a-z]+(?:_[a-z0-9]+)+)\b/).map { String($0.1) })
      }
      #expect(read.subtracting(try JSONShapes().names) == others)
    }

    @Test(
      .enabled("openapi-spec-validator is not installed: hardware/requirements.txt") {
        try Program(Program.python, ["-c", "import openapi_spec_validator"]).ended() == 0
      })
    func `the description of the control socket is valid OpenAPI`() throws {
      let file = Checkout.folder.appending(path: "docs/control-socket.json").path()
      let judge = try Program(Program.python, ["-m", "openapi_spec_validator", file])
      #expect(try judge.ended() == 0, "\(judge.lines.suffix(20))")
    }

    private func rendered(_ command: String) throws -> String {
      let file = Checkout.folder.appending(path: "docs/man/meshpost-\(command).1").path()
      let script = "MANWIDTH=1000 LC_ALL=C.UTF-8 groff -Kutf8 -man -ww -Tutf8 -rLL=1000n -P-cbou '\(file)'"
      let program = try Program("/bin/sh", ["-c", script])
      #expect(try program.ended() == 0)
      #expect(!program.lines.contains { $0.contains("groff") || $0.contains("troff") }, "\(program.lines.prefix(3))")
      return program.lines.joined(separator: " ")
    }

    @Test func `completion scripts are valid in their shells`() throws {
      for shell in ["bash", "zsh", "fish"] {
        let script = try Program.own("meshpost", ["--generate-completion-script", shell])
        #expect(try script.ended() == 0 && script.lines.count > 100)
        let scratch = Scratch()
        let file = scratch.write("completion", script.lines.joined(separator: "\n"))
        guard access("/usr/bin/\(shell)", X_OK) == 0 || access("/bin/\(shell)", X_OK) == 0 else { continue }
        let check = try Program("/usr/bin/env", [shell, "-n", file])
        #expect(try check.ended() == 0, "\(shell): \(check.lines)")
      }
    }

    @Test func `meshpost without a command shows a summary and common commands`() throws {
      let rig = try Rig()
      #expect(try Program.own("meshpost", ["--socket", rig.socket]).ended() == EX_UNAVAILABLE)
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 good morning")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      try untilTrue("the hub to be missed") {
        try rig.status()?["upstreams"]?.array?.first?["state"]?.string == "waiting"
      }
      let text = try rig.meshpost().lines.joined(separator: "\n")
      for words in [
        "radio     r0, up, synced", "r1: good morning", "hub       waiting", "meshpost doctor", "meshpost send NAME",
      ] {
        #expect(text.contains(words), "\(words) in:\n\(text)")
      }
    }

    @Test func `names are completed from the gateway's data`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "2"])
      try rig.startGateway()
      try rig.waitForSync()
      func complete(_ words: [String], _ name: String) throws -> [String] {
        let asked = ["---completion"] + words + ["--", name, "0", "0", ""]
        let program = try Program(
          Program.programs.appending(path: "meshpost").path(), asked,
          environment: ["MESHPOST_SOCKET": rig.socket, "SAP_SHELL": "bash"])
        _ = try program.ended()
        return program.lines
      }
      #expect(try complete(["send"], "positional@0").contains { $0.contains("r1") })
      #expect(try complete(["send"], "positional@0").contains { $0.contains("Public") })
    }

    /// The output of each command matches its shape. Commands to other nodes are compared in NodeTests, those of Bluetooth where Bluetooth exists;
    /// `upstream skip` has something to skip at a failing server only (SuspicionTests).
    @Test func `every command works over ssh, and its JSON output has its declared shape`() throws {
      let (rig, shapes, server) = (try EveryCommand.rig(), try JSONShapes(), try Remote.Server())
      server.scratch.makeFolder("mux-user-known")
      let tried = try EveryCommand(rig, shapes) { try server.start($0, of: rig) }.run()
      let elsewhere: Set<String> = [
        "retry", "node login", "node logout", "node status", "node neighbours", "node regions", "node access",
        "node trace", "node cli", "node clock", "node snapshot", "node diff", "room login",
        "room post", "room read", "radio probe", "radio scan", "radio pair", "radio forget", "doctor bluetooth",
        "upstream skip",
      ]
      #expect(
        Set(shapes.commands) == tried.union(elsewhere),
        "\(Set(shapes.commands).symmetricDifference(tried.union(elsewhere)))")
      let silent: Set<String> = [
        "export messages", "export contacts", "export readings", "connect", "top", "chat", "run", "setup", "web",
        "web password",
      ]
      let all = Set(try leaves().map { $0.words.joined(separator: " ") })
      #expect(
        all == Set(shapes.commands).union(silent), "\(all.symmetricDifference(Set(shapes.commands).union(silent)))")
    }
  }
}
