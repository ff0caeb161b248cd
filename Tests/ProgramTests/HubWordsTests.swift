// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// What a hub and its commands say when something is wrong.
  @Suite struct HubWords {
    private func hub(_ arguments: String...) throws -> (code: Int32, lines: [String]) {
      let program = try Program.own("meshpost-hub", arguments)
      program.endInput()
      return (try program.ended(), program.lines)
    }

    private func watch(_ rig: Rig, _ token: String) throws -> Program {
      try Program.own(
        "meshpost-hub",
        ["watch", "--url", "http://127.0.0.1:\(rig.hubPort)", "--token-file", token, "--interval", "0.1"])
    }

    private func say(_ rig: Rig, _ gateway: String, seq: Int, _ text: String) throws {
      let body =
        #"{"kind":"channel","channel":"0011223344556677","sender_name":"Birch","sender_time":\#(seq),"#
        + #""channel_name":"Public","text":"\#(text)"}"#
      let event = #"{"seq":\#(seq),"at":1795000000000,"trusted":true,"kind":"message","body":\#(body)}"#
      let batch = #"{"epoch":"e","events":[\#(event)]}"#
      #expect(rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: batch)?.status == 200)
    }

    @Test func `watch shows what arrives from now on, each message once, and waits for a hub that is away`() throws {
      let rig = try Rig()
      let token = rig.scratch.location("token")
      let watcher = try watch(rig, token)
      try watcher.line(with: "warning: the hub does not answer: ")
      try rig.startHub()
      try say(rig, "hill", seq: 1, "before")
      try watcher.line(with: "the hub answers again")
      for gateway in ["hill", "lake"] { try say(rig, gateway, seq: 2, "after") }
      try say(rig, "lake", seq: 3, "the last")
      try watcher.line(with: "the last")
      rig.hub?.send(SIGTERM)
      #expect(try rig.hub?.ended() == 0)
      try watcher.line(with: "warning: the hub does not answer: ", from: 1)
      try rig.startHub()
      try say(rig, "lake", seq: 4, "again here")
      try watcher.line(with: "again here")
      let lines = watcher.lines
      #expect(lines.count { $0.contains("after") } == 1, "\(lines)")
      #expect(lines.contains { $0.hasPrefix("hub ← lake #3") && $0.hasSuffix("[Public] Birch: the last") }, "\(lines)")
      #expect(lines.count { $0.contains("does not answer") } == 2, "\(lines)")
      #expect(lines.count { $0.contains("answers again") } == 2, "\(lines)")
      // While the hub was away, nothing was there before.
      #expect(lines.count { $0.contains("before") } <= 1, "\(lines)")
    }

    @Test func `a mistyped command gets a suggestion, and no other command runs`() throws {
      for (typed, words) in [
        (["stts"], "unknown command 'stts'. Did you mean 'stats'?"),
        (["help", "serv"], "unknown command 'serv'. Did you mean 'serve'?"),
        (["tokens", "lst"], "unknown command 'tokens lst'. Did you mean 'tokens list'?"),
        (["tokens", "revoke", "hill"], "unknown command 'tokens revoke'. Did you mean 'tokens remove'?"),
        (["tokens", "grant", "hill"], "unknown command 'tokens grant'. See `meshpost-hub tokens --help`"),
        ([""], "unknown command ''. See `meshpost-hub --help`"),
      ] {
        let program = try Program.own("meshpost-hub", typed)
        program.endInput()
        #expect(try program.ended() == 64 && program.lines == ["error: \(words)"], "\(typed): \(program.lines)")
      }
      let all = [["--help"], ["help", "tokens", "list"], ["tokens", "--help"], ["--version"], ["stats", "--help"]]
      for known in all {
        let program = try Program.own("meshpost-hub", known)
        program.endInput()
        #expect(try program.ended() == 0, "\(known): \(program.lines)")
      }
    }

    @Test func `watch does not begin with the past`() throws {
      let rig = try Rig()
      try rig.startHub()
      for seq in 1...3 { try say(rig, "hill", seq: seq, "old \(seq)") }
      let watcher = try watch(rig, rig.scratch.location("token"))
      for seq in 4...200 {
        try say(rig, "hill", seq: seq, "new \(seq)")
        if watcher.lines.contains(where: { $0.contains("new ") }) { break }
        usleep(50_000)
      }
      try watcher.line(with: "new ")
      #expect(!watcher.lines.contains { $0.contains("old ") }, "\(watcher.lines)")
    }

    @Test func `watch ends with words and a code if it cannot read`() throws {
      let rig = try Rig()
      try rig.startHub()
      let refused = try watch(rig, rig.scratch.write("other", "not-a-token-of-this-hub\n"))
      #expect(try refused.ended() == 77)
      #expect(refused.lines.count == 1 && refused.lines[0].contains("unknown token"), "\(refused.lines)")
      for (file, words) in [("/nope", "there is no such file"), ("/", "it is a folder"), ("/dev/null", "it is a pipe")]
      {
        let missing = try watch(rig, file)
        #expect(try missing.ended() == 66)
        #expect(
          missing.lines.count == 1 && missing.lines[0].contains("--token-file \(file): \(words)"), "\(missing.lines)")
      }
    }

    @Test func `a configuration that cannot be read, or has mistakes, is refused with the reasons, one a line`() throws
    {
      let rig = try Rig()
      let pipe = rig.scratch.location("pipe")
      #expect(mkfifo(pipe, 0o600) == 0)
      for (file, words) in [
        ("/nope/hub.toml", "there is no such file"), (rig.scratch.folder.path(), "it is a folder"),
        (pipe, "it is a pipe"),
      ] {
        let (code, lines) = try hub("serve", "--config", file)
        #expect(code == 78 && lines.count == 1 && lines[0].contains("cannot be read: \(words)"), "\(lines)")
      }
      for location in ["", "mysql://db.example.org/mesh"] {
        rig.writeHubConfiguration(database: location)
        let (code, lines) = try hub("serve", "--config", rig.scratch.location("hub.toml"))
        #expect(code == 78 && lines.count == 1 && lines[0].contains("database: expected "), "\(lines)")
      }
      rig.writeHubConfiguration(extra: "[web]\nurl = \"https://hub.example.org\"\npages = \"/nowhere\"")
      for (command, expected) in [("serve", Int32(78)), ("doctor", 1)] {
        let (code, lines) = try hub(command, "--config", rig.scratch.location("hub.toml"))
        #expect(code == expected && lines.contains { $0.contains("web.pages: no pages in /nowhere") }, "\(lines)")
        #expect(!lines.contains { $0.hasPrefix("OK    configuration") }, "\(lines)")
      }
      rig.writeHubConfiguration(extra: "max_bdy = 3\nlog_level = \"loud\"")
      let (code, lines) = try hub("serve", "--config", rig.scratch.location("hub.toml"))
      #expect(code == 78 && lines.count == 2 && lines.allSatisfy { $0.hasPrefix("error: ") }, "\(lines)")
    }

    @Test func `an address at which the hub cannot listen is named`() throws {
      let rig = try Rig()
      try rig.startHub()
      let file = rig.scratch.location("hub.toml")
      let second = try hub("serve", "--config", file)
      #expect(second.code == 69)
      #expect(second.lines.last?.contains("another hub serves from this file already (process ") == true, "\(second)")
      rig.writeHubConfiguration(database: rig.scratch.location("other.db"))
      let (code, lines) = try hub("serve", "--config", file)
      #expect(code == 69)
      #expect(lines.last?.contains("127.0.0.1:\(rig.hubPort) is in use by another program") == true, "\(lines)")
      rig.writeHubConfiguration(database: rig.scratch.location("other.db"), extra: "host = \"no-such-host.invalid\"")
      let unknown = try hub("serve", "--config", file)
      #expect(unknown.code == 69)
      #expect(unknown.lines.last?.contains("no-such-host.invalid is unknown") == true, "\(unknown.lines)")
      rig.writeHubConfiguration(database: rig.scratch.location("other.db"), extra: "host = \"192.0.2.1\"")
      let foreign = try hub("serve", "--config", file)
      #expect(foreign.code == 69)
      #expect(
        foreign.lines.last?.contains("192.0.2.1:\(rig.hubPort): this machine does not have") == true, "\(foreign)")
    }

    @Test func `mistakes at the command line name what is wrong, and no other command's usage`() throws {
      let rig = try Rig()
      rig.writeHubConfiguration(extra: "[retention]\npackets = \"7d\"")
      try rig.startHub()
      try rig.hub?.line(with: "retention: the first run begins in ")
      let config = ["--config", rig.scratch.location("hub.toml")]
      func people(_ name: String, password: String) throws -> (code: Int32, lines: [String]) {
        let file = rig.scratch.write("password", password + "\n")
        let program = try Program.own(
          "meshpost-hub", ["people"] + config + ["add", name, "--role", "view", "--password-file", file])
        return (try program.ended(), program.lines)
      }
      let short = try people("ana", password: "short")
      #expect(short.code == 65 && short.lines.count == 1 && short.lines[0].contains("a password has "), "\(short)")
      #expect(try people("ana", password: String(repeating: " ", count: 12)).code == 65, "nothing of it is visible")
      #expect(try people("ana", password: "a-long-enough-password").code == 0)
      let alike = try people("Ana", password: "a-long-enough-password")
      #expect(alike.code == 65 && alike.lines.joined().contains("ana is there already"), "\(alike)")
      let backup = try hub("backup", "", config[0], config[1])
      #expect(backup.code == 64 && backup.lines.joined().contains("meshpost-hub backup"), "\(backup)")
      let doctor = try hub("doctor", config[0], config[1])
      #expect(doctor.lines.contains { $0.contains("retention: it has not run yet") }, "\(doctor)")
    }

    @Test func `a database that was dropped and made anew is named with its remedy, which works`() throws {
      let server = try PostgresServer()
      let rig = try Rig()
      rig.writeHubConfiguration(database: server.address)
      try rig.startHub()
      try say(rig, "hill", seq: 1, "before")
      try server.dropDatabase()
      try rig.hub?.line(with: "the database has no tables any more")
      try untilTrue("the reason") {
        guard let answer = rig.askHub("GET", "/readyz", token: nil), answer.status == 503 else { return false }
        return try JSONValue(parsing: answer.body)["reason"]?.string == "database_empty"
      }
      let refused = try #require(rig.askHub("GET", "/v1/messages"))
      #expect(refused.status == 503)
      #expect(String(decoding: refused.body, as: UTF8.self).contains("the hub's database is empty"))
      rig.hub?.send(SIGTERM)
      #expect(try rig.hub?.ended() == 0)
      try rig.startHub()
      try say(rig, "hill", seq: 1, "again")
    }

    @Test func `a hub on a full disk keeps its links, and says why it stores nothing`() throws {
      let rig = try Rig()
      let place = rig.scratch.location("small")
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
      func run(_ arguments: String...) throws -> Bool { try Program("/usr/bin/env", arguments).ended() == 0 }
      guard try run("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place) else { return }
      defer { _ = try? run("umount", "-l", place) }
      rig.writeHubConfiguration(database: "\(place)/hub.db")
      try rig.startHub()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 before")
      try rig.waitForAllAtHub(messages: 1)
      let filler = "\(place)/filler"
      _ = try run("dd", "if=/dev/zero", "of=\(filler)", "bs=1k")
      var sent = 1
      try untilTrue("the reason at the gateway: \(try rig.status() ?? .null)") {
        rig.radio?.write("chan r1 0 full \(sent)")
        sent += 1
        usleep(500_000)
        let hub = try rig.status()?["upstreams"]?.array?.first
        return hub?["reason"]?.string?.contains("the hub's disk is full") == true
      }
      let answer = try #require(rig.askHub("GET", "/readyz", token: nil))
      #expect(try JSONValue(parsing: answer.body)["disk"]?.string == "full")
      let doctor = try hub("doctor", "--config", rig.scratch.location("hub.toml"))
      #expect(doctor.lines.contains { $0.hasPrefix("FAIL  disk: the disk is full") }, "\(doctor.lines)")
      #expect(rig.hub?.lines.contains { $0.contains("the disk is full, and nothing is stored") } == true)
      unlink(filler)
      try rig.hub?.line(with: "the disk has room again")
      try untilTrue("everything at the hub") {
        _ = rig.control("POST", "/v1/outbox/resume")
        return try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0
      }
      let fleet = try JSONValue(parsing: try #require(rig.askHub("GET", "/v1/fleet")).body)
      let row = try #require(fleet["gateways"]?.array?.first)
      #expect(row["linked"]?.bool == true)
    }

    @Test func `a hub takes a signal to end at any moment of its start, and a reload does not end it`() throws {
      let rig = try Rig()
      rig.writeHubConfiguration(database: rig.scratch.location("hub.db"))
      for delay in 0..<20 as Range<UInt32> {
        let hub = try Program.own("meshpost-hub", ["serve", "--config", rig.scratch.location("hub.toml")])
        // Before its first line of code no program can take a signal; SIGHUP is the last one.
        try untilTrue("signals that are taken") {
          let status = try String(contentsOfFile: "/proc/\(hub.processID)/status", encoding: .utf8)
          let caught = status.split(separator: "\n").first { $0.hasPrefix("SigCgt:") }?.split(separator: "\t").last
          return UInt64(caught ?? "0", radix: 16).map { $0 & 1 == 1 } ?? false
        }
        hub.send(SIGHUP)
        usleep(delay * 5000)
        hub.send(SIGTERM)
        #expect(try hub.ended() == 0, "\(delay): \(hub.lines)")
      }
    }

    @Test func `a hub that starts on a full disk refuses with the reason, and serves once there is room`() throws {
      let rig = try Rig()
      let place = rig.scratch.location("small")
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
      func run(_ arguments: String...) throws -> Bool { try Program("/usr/bin/env", arguments).ended() == 0 }
      guard try run("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place) else { return }
      defer { _ = try? run("umount", "-l", place) }
      rig.writeHubConfiguration(database: "\(place)/hub.db")
      // A file system in memory says that it is full some pages too early.
      let fillers = (0..<4).map { "\(place)/filler\($0)" }
      for filler in fillers { _ = try run("dd", "if=/dev/zero", "of=\(filler)", "bs=1k") }
      let hub = try Program.own("meshpost-hub", ["serve", "--config", rig.scratch.location("hub.toml")])
      rig.hub = hub
      try hub.line(with: "the disk is full, and nothing is stored")
      // A reload does not end a hub that waits.
      hub.send(SIGHUP)
      try untilTrue("the state") {
        guard let answer = rig.askHub("GET", "/readyz", token: nil), answer.status == 503 else { return false }
        return try JSONValue(parsing: answer.body)["disk"]?.string == "full"
      }
      let refused = try #require(rig.askHub("GET", "/v1/messages"))
      #expect(refused.status == 503)
      #expect(String(decoding: refused.body, as: UTF8.self).contains("the hub's disk is full"))
      for filler in fillers { unlink(filler) }
      try hub.line(with: "listening")
      try say(rig, "hill", seq: 1, "after")
    }
  }
}
