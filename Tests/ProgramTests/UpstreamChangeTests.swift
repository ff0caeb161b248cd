// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Upstreams come, go and are mended while the others run.
  @Suite struct UpstreamChanges {
    private func start(_ extra: String = "") throws -> Rig {
      let rig = try Rig()
      rig.writeGatewayConfiguration(extra: extra)
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

    /// Ports of this machine that are connected to the hub: another connection would have another one.
    private static func connections(_ rig: Rig) throws -> Set<String> {
      let suffix = ":" + String(rig.hubPort, radix: 16, uppercase: true).leftPadded(to: 4)
      // A file of the kernel's has no size to read by.
      let table = try FileHandle(forReadingFrom: URL(filePath: "/proc/net/tcp")).readToEnd() ?? Data()
      let rows = String(decoding: table, as: UTF8.self).split(separator: "\n").dropFirst()
      let columns = rows.map { $0.split(separator: " ").map(String.init) }
      let ports = Set(columns.filter { $0.count > 3 && $0[2].hasSuffix(suffix) && $0[3] == "01" }.map { $0[1] })
      try #require(!ports.isEmpty)
      return ports
    }

    private static func isStopped(_ rig: Rig, _ name: String, because message: String) throws -> Bool {
      let found = try upstream(rig, name)
      return found?["state"]?.string == "stopped" && found?["reason"]?.string?.contains(message) == true
    }

    private func reload(_ rig: Rig) throws {
      let count = rig.gateway?.lines.count ?? 0
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "configuration reloaded", from: count)
    }

    @Test func `an upstream that is added in a gateway's first second keeps its first connection`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startHub()
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      let alone = text.components(separatedBy: "[[upstream]]")[0]
      try alone.write(toFile: file, atomically: true, encoding: .utf8)
      try rig.startGateway()
      // Before the gateway has told its first state.
      let added = try rig.meshpost(
        "upstream", "add", "hub", "http://127.0.0.1:\(rig.hubPort)", "--token-file", rig.scratch.location("token"),
        "--from",
        "start")
      #expect(added.code == 0, "\(added)")
      try rig.waitForSync()
      try untilTrue("the hub to have all") {
        let hub = try Self.upstream(rig, "hub")
        return hub?["link"]?.string == "live" && hub?["pending"]?.integer == 0 && hub?["acknowledged"]?.integer ?? 0 > 0
      }
      #expect(
        rig.gateway?.lines.contains { $0.contains("the connection ended") } == false, "\(rig.gateway?.lines ?? [])")
    }

    @Test(arguments: ["", "# nothing\n\n  # else\n"])
    func `an emptied file removes no upstream, and one that is removed goes on where it stood when it is back`(
      _ blank: String
    ) throws {
      let rig = try start()
      let file = rig.scratch.location("gw.toml")
      let whole = try String(contentsOfFile: file, encoding: .utf8)
      #expect(try rig.meshpost("upstream", "pause", "hub").code == 0)
      rig.radio?.write("chan r1 0 before")
      func pending() throws -> Int64 { try Self.upstream(rig, "hub")?["pending"]?.integer ?? 0 }
      try untilTrue("it to wait: \(rig.gateway?.lines ?? [])") { try pending() > 0 }
      try blank.write(toFile: file, atomically: true, encoding: .utf8)
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "it is empty, which would remove hub")
      #expect(try Self.upstream(rig, "hub") != nil)
      #expect(try rig.meshpost("doctor").lines.contains { $0.contains("it is empty") })

      let waiting = try pending()
      try whole.components(separatedBy: "[[upstream]]")[0].write(toFile: file, atomically: true, encoding: .utf8)
      try reload(rig)
      #expect(
        rig.gateway?.lines.contains { $0.contains("hub: removed, with \(waiting) events that it had not received") }
          == true,
        "\(rig.gateway?.lines ?? [])")
      // What happens meanwhile waits, too.
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

    @Test func `a gateway starts with bad files, says which, and mends itself`() throws {
      let rig = try Rig()
      let pem = rig.scratch.write("ca.pem", "this is no PEM\n")
      rig.writeGatewayConfiguration(
        extra: "[[upstream]]\nname = \"vault\"\nkind = \"mqtt\"\nurl = \"mqtts://127.0.0.1:1\"\nca_file = \"\(pem)\"")
      let config = rig.scratch.location("gw.toml")
      let line = try String(contentsOfFile: config, encoding: .utf8).components(separatedBy: "\n").count
      let check = try Program.own("meshpostd", ["--check", "--config", config])
      #expect(try check.ended() == 78)
      let words = check.lines.joined(separator: "\n")
      #expect(words.contains("gw.toml: line \(line): upstream.ca_file: \(pem) has no certificates in PEM"), "\(words)")

      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 although one is bad")
      try untilTrue("the message to arrive") { try rig.hubTexts() == ["although one is bad"] }
      #expect(try Self.isStopped(rig, "vault", because: "no certificates in PEM"))
      let test = try rig.meshpost("upstream", "test", "vault")
      #expect(test.code != 0 && test.lines.joined().contains("no certificates in PEM"), "\(test.lines)")

      // Somebody's real authorities; nobody is there, which is another trouble.
      let store = "/etc/ssl/certs/ca-certificates.crt"
      try #require(FileManager.default.isReadableFile(atPath: store))
      try FileManager.default.removeItem(atPath: pem)
      try FileManager.default.copyItem(atPath: store, toPath: pem)
      #expect(try rig.meshpost("upstream", "resume").code == 0)
      try untilTrue("it to try") { try Self.upstream(rig, "vault")?["state"]?.string == "waiting" }
    }

    @Test func `what cannot work is not added, and costs the others nothing`() throws {
      let rig = try start()
      let before = try Self.connections(rig)
      let pem = rig.scratch.write("ca.pem", "this is no PEM\n")
      let bad = try rig.meshpost("upstream", "add", "second", "https://127.0.0.1:1", "--file", "ca_file=\(pem)")
      #expect(bad.code == 64 && bad.lines.joined().contains("no certificates in PEM"), "\(bad)")
      let folder = rig.scratch.location("gw.db.upstreams")
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["files"])
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder + "/files").isEmpty)
      #expect(try Self.upstream(rig, "second") == nil)

      let good = try rig.meshpost("upstream", "add", "second", "http://127.0.0.1:1")
      #expect(good.code == 0, "\(good.lines)")
      #expect(try rig.meshpost("upstream", "remove", "second").code == 0)
      #expect(try Self.connections(rig) == before, "the hub was not connected anew")
      #expect(try Self.upstream(rig, "hub")?["last_success"] != nil)
    }

    @Test func `an added upstream whose file is damaged keeps its place, and nothing else suffers`() throws {
      let rig = try start()
      #expect(try rig.meshpost("upstream", "add", "second", "http://127.0.0.1:1").code == 0)
      rig.radio?.write("chan r1 0 one")
      try untilTrue("it to be pending") { (try Self.upstream(rig, "second")?["pending"]?.integer ?? 0) > 0 }
      let pending = try Self.upstream(rig, "second")?["pending"]?.integer
      rig.gateway?.kill9()
      let file = rig.scratch.location("gw.db.upstreams/second.toml")
      try "\u{0}\u{0}\u{0}".write(toFile: file, atomically: true, encoding: .utf8)
      try rig.startGateway()
      try untilTrue("it to be stopped") { try Self.isStopped(rig, "second", because: "second.toml") }
      #expect((try Self.upstream(rig, "second")?["pending"]?.integer ?? 0) >= pending ?? 1)
      #expect(try rig.hubTexts() == ["one"])
      #expect(try rig.meshpost("upstream", "remove", "second").code == 0)
    }

    @Test func `an upstream that is added has no file of the gateway's but its own`() throws {
      let rig = try start()
      let url = "http://127.0.0.1:\(rig.hubPort)/"
      let token = rig.scratch.location("token")
      let folder = rig.scratch.location("gw.db.upstreams/files")
      for file in [token, "/etc/shadow", "hub.token", "\(folder)/../../token", "\(folder)/link", "/dev/watchdog", ""] {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        _ = symlink(token, "\(folder)/link")
        for key in ["token_file", "secret_file", "password_file", "ca_file", "cert_file", "key_file"] {
          let answer = try rig.meshpost("upstream", "add", "spy", url, "--set", "\(key)=\"\(file)\"")
          #expect(answer.code == 64 && answer.lines.joined().contains("is not in \(folder)"), "\(key) \(answer)")
        }
      }
      #expect(try Self.upstream(rig, "spy") == nil)

      // Sent along it is kept for the daemon alone, and goes when the upstream goes.
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

extension String {
  fileprivate func leftPadded(to length: Int) -> String {
    String(repeating: "0", count: max(0, length - count)) + self
  }
}
