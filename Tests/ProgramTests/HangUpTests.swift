// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Servers that close the connection at one message each time: real servers, behind a double that does this.
  @Suite struct HangUps {
    enum Kind: String, CaseIterable { case live, http, webhook, mqtt }

    private static let webhook = """
      \(Program.say)
      import http.server
      class Handler(http.server.BaseHTTPRequestHandler):
          protocol_version = "HTTP/1.1"
          def do_POST(self):
              say("got " + self.rfile.read(int(self.headers["Content-Length"])).decode())
              self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
          def log_message(self, *_): pass
      server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
      print("port", server.server_address[1], flush=True)
      server.serve_forever()
      """

    /// A server and the double in front of it.
    private final class Server {
      let rig: Rig
      let kind: Kind
      let front: Program
      private let behind: Program?

      init(_ kind: Kind, _ rig: Rig, word: String) throws {
        (self.rig, self.kind) = (rig, kind)
        var port = rig.hubPort
        switch kind {
        case .live, .http:
          try rig.startHub()
          behind = nil
        case .webhook:
          behind = try Program(Program.python, ["-c", HangUps.webhook])
          port = try HangUps.port(of: behind)
        case .mqtt:
          let (descriptor, free) = try LoopbackPort.take()
          close(descriptor)
          port = Int(free)
          let settings = rig.scratch.write(
            "mosquitto.conf", "listener \(port) 127.0.0.1\nallow_anonymous true\nuser root\n")
          behind = try Program("/usr/sbin/mosquitto", ["-v", "-c", settings])
          try behind?.line(with: " running")
        }
        let script = Checkout.folder.appending(path: "Tests/Doubles/hangup.py").path()
        front = try Program(Program.python, [script, "\(port)", word])
        try configure(try HangUps.port(of: front))
      }

      private func configure(_ port: Int) throws {
        let url = kind == .mqtt ? "mqtt://127.0.0.1:\(port)" : "http://127.0.0.1:\(port)"
        let extra =
          switch kind {
          case .live: ""
          case .http: "link = \"http\""
          case .webhook: "kind = \"webhook\"\nbatch = true\nkinds = [\"message\"]"
          case .mqtt: "kind = \"mqtt\"\nkinds = [\"message\"]"
          }
        rig.writeGatewayConfiguration(url: url, extra: extra)
        guard kind == .mqtt else { return }
        let file = rig.scratch.location("gw.toml")
        let text = try String(contentsOfFile: file, encoding: .utf8)
        _ = rig.scratch.write(
          "gw.toml", text.split(separator: "\n").filter { !$0.hasPrefix("token_file") }.joined(separator: "\n"))
      }

      var hangUps: Int { front.lines.count { $0 == "hung up" } }
    }

    private static func port(of program: Program?) throws -> Int {
      try program?.line(with: "port ").split(separator: " ").last.flatMap { Int($0) } ?? 0
    }

    private func number(_ rig: Rig, _ name: String) throws -> Int64 {
      try rig.status()?["upstreams"]?.array?.first?[name]?.integer ?? -1
    }

    /// Waits with shortened pauses between attempts.
    private func untilTrue(_ what: String, _ server: Server, _ look: () throws -> Bool) throws {
      var (hangUps, since) = (server.hangUps, Date())
      while try !look() {
        _ = server.rig.control("POST", "/v1/outbox/resume")
        if server.hangUps != hangUps { (hangUps, since) = (server.hangUps, Date()) }
        guard Date().timeIntervalSince(since) < Patience.stillness else {
          throw Program.Waited(
            description:
              "\(what): \(try server.rig.meshpost("upstream", "pending").lines), \(server.rig.gateway?.lines.suffix(5) ?? [])"
          )
        }
        usleep(100_000)
      }
    }

    @Test(arguments: Kind.allCases)
    func `a message over which the server hangs up becomes a dead letter, and the others are delivered`(
      _ kind: Kind
    ) throws {
      let rig = try Rig()
      let server = try Server(kind, rig, word: "poison")
      try rig.startRadio(["--queue", "1000"])
      try rig.startGateway()
      try rig.waitForSync()
      for number in 1...3 { rig.radio?.write("chan r1 0 before \(number)") }
      try untilTrue("the first three", server) {
        try rig.status()?["store"]?["messages"]?.integer == 3 && self.number(rig, "pending") == 0
      }
      for text in ["poison 1", "poison 2", "after 1", "after 2"] { rig.radio?.write("chan r1 0 \(text)") }
      try untilTrue("the rest", server) {
        try rig.status()?["store"]?["messages"]?.integer == 7 && self.number(rig, "pending") == 0
      }
      #expect(try number(rig, "dead_letters") == 2)
      let shown = try rig.meshpost("upstream", "pending").lines.joined(separator: "\n")
      #expect(shown.contains("closes the connection"), "\(shown)")
      if kind == .live || kind == .http {
        #expect(Set(try rig.hubTexts()) == ["before 1", "before 2", "before 3", "after 1", "after 2"])
      }
    }

    @Test func `a name that no broker accepts in a topic does not stop an upstream`() throws {
      let rig = try Rig()
      let server = try Server(.mqtt, rig, word: "nothing of the sort")
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write("gw.toml", text + "\ntopic = \"mesh/{text}\"\n")
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      // Among them scalars that Swift does not allow in a literal.
      for value in [0xFFFF, 0xFDD0, 0x9F, 0x2B, 0x1FFFE, 0x66] as [UInt32] {
        let scalar = try #require(Unicode.Scalar(value))
        rig.radio?.write("chan r1 0 name\(Character(scalar))")
      }
      try untilTrue("all six", server) {
        try rig.status()?["store"]?["messages"]?.integer == 6 && self.number(rig, "pending") == 0
      }
      #expect(try number(rig, "dead_letters") == 0)
      #expect(rig.gateway?.lines.contains { $0.contains("closed the connection") } == false)
    }
  }
}
