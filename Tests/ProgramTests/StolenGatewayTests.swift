// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A thief of a gateway's card has its token: which data of others can he read?
  @Suite struct StolenGateway {
    private static let reader = "a-token-for-readers-alone"
    private static let batch = #"{"epoch":"e","events":[{"seq":1,"at":1,"trusted":true,"kind":"radio","body":{}}]}"#

    /// A hub with a folder for gateways' tokens, a reader's token and, if `shared`, a token for any gateway.
    private func start(shared: Bool = false) throws -> Rig {
      let rig = try Rig()
      try FileManager.default.createDirectory(
        atPath: rig.scratch.location("tokens"), withIntermediateDirectories: false)
      _ = rig.scratch.write("reader", Self.reader + "\n")
      let any = shared ? "[[token]]\nfile = \"\(rig.scratch.location("token"))\"\naccess = \"write\"\n" : ""
      _ = rig.scratch.write(
        "hub.toml",
        """
        port = \(rig.hubPort)
        database = "\(rig.scratch.location("hub.db"))"
        gateway_tokens = "\(rig.scratch.location("tokens"))"
        [[token]]
        file = "\(rig.scratch.location("reader"))"
        \(any)
        """)
      try rig.startHub()
      return rig
    }

    @discardableResult
    private func tokens(_ rig: Rig, _ arguments: String..., code: Int32 = 0) throws -> String {
      let program = try Program.own(
        "meshpost-hub", ["tokens"] + arguments + ["--config", rig.scratch.location("hub.toml")])
      #expect(try program.ended() == code, "\(arguments): \(program.lines)")
      return program.lines.first { !$0.contains(" ") } ?? ""
    }

    private func isLinked(_ rig: Rig) throws -> Bool {
      _ = rig.control("POST", "/v1/outbox/resume")
      let fleet = try JSONValue(parsing: rig.askHub("GET", "/v1/fleet", token: Self.reader)?.body ?? [])
      return fleet["gateways"]?.array?.contains { $0["linked"]?.bool == true } ?? false
    }

    @Test func `a gateway's token allows no reading, and no writing for other gateways`() throws {
      let rig = try start()
      let own = try tokens(rig, "add", "hilltop")
      let other = try tokens(rig, "add", "ridge")
      try tokens(rig, "add", "Ridge", code: 65)
      for (gateway, token) in [("hilltop", own), ("ridge", other)] {
        try untilTrue("the hub to know the token of \(gateway)") {
          rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: Self.batch, token: token)?.status == 200
        }
      }
      let description = try JSONValue(parsing: rig.askHub("GET", "/openapi.json")?.body ?? [])
      var asked: Set<String> = []
      for (path, operations) in description["paths"]?.fields ?? [] {
        for gateway in ["hilltop", "ridge"] {
          for (method, _) in operations.fields ?? [] {
            let isOwn =
              gateway == "hilltop"
              && ["", "/events", "/updates", "/state/{name}", "/link"].contains(
                path.replacingOccurrences(of: "/v1/gateways/{id}", with: ""))
            if isOwn, method != "delete",
              method != "get" || path.hasSuffix("}") || path.hasSuffix("updates") || path.hasSuffix("link")
            {
              continue
            }
            var target = path.replacingOccurrences(of: "{id}", with: gateway)
            for name in ["{name}", "{command}", "{position}", "{alert}", "{documents}"] {
              target = target.replacingOccurrences(of: name, with: "1")
            }
            let answer = rig.askHub(method.uppercased(), target, body: method == "get" ? "" : "{}", token: own)
            #expect(answer?.status == 403, "\(method) \(target): \(answer?.status ?? 0)")
            asked.insert(path)
          }
        }
      }
      #expect(asked.count > 20, "the description has few paths: \(asked)")
      let position = rig.askHub("GET", "/v1/gateways/hilltop?epoch=e", token: own)
      #expect(position?.status == 200)
    }

    /// Opens a link for each line, which names a gateway and its token, and prints the hub's answer.
    private static let opener = """
      import socket, sys
      for line in sys.stdin:
          gateway, token = line.split()
          s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
          s.sendall(("GET /v1/gateways/%s/link HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer %s\\r\\nUpgrade: websocket\\r\\n"
                     "Connection: Upgrade\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n"
                     % (gateway, token)).encode())
          print(gateway, s.recv(4096).split(b"\\r\\n")[0].decode(), flush=True)
      """

    @Test func `a token works from the moment at which it was added, over HTTP and for a link`() throws {
      let rig = try start()
      let opener = try Program(Program.python, ["-c", Self.opener, "\(rig.hubPort)"])
      for number in 0..<5 {
        let token = try tokens(rig, "add", "h\(number)")
        // The hub does not know the gateway.
        #expect(rig.askHub("GET", "/v1/gateways/h\(number)?epoch=e", token: token)?.status == 404)
        opener.write("w\(number) \(try tokens(rig, "add", "w\(number)"))")
        let answer = try opener.line(with: "w\(number) ")
        #expect(answer.contains("101"), "\(answer)")
      }
      opener.write("w0 a-token-that-nobody-has")
      let answer = try opener.line(with: "401")
      #expect(answer.hasPrefix("w0"), "\(answer)")
    }

    @Test func `a gateway is linked with the token that was made for it, until the token is removed`() throws {
      let rig = try start()
      try rig.startRadio(["--contacts", "3"])
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the gateway to say that it is refused") {
        "\(try rig.status()?["upstreams"] ?? .null)".contains("unknown token")
      }
      let id = try #require(rig.gatewayID)
      _ = rig.scratch.write("token", try tokens(rig, "add", id) + "\n")
      try untilTrue("the link") { try isLinked(rig) }
      try tokens(rig, "add", id, code: 65)
      // An exchange: both tokens are valid, then only the newer one.
      let next = try tokens(rig, "add", id, "--another")
      _ = rig.scratch.write("token", next + "\n")
      try tokens(rig, "remove", id, "--keep-newest")
      // Its link, and perhaps the connection of an earlier request.
      try rig.hub?.line(with: "tokens reloaded; closed ")
      try untilTrue("the link with the newer token") { try isLinked(rig) }
      // Stolen.
      try tokens(rig, "remove", id)
      try untilTrue("the token to be unknown") {
        rig.askHub("POST", "/v1/gateways/\(id)/events", body: Self.batch, token: next)?.status == 401
      }
      try untilTrue("its link to end") { try !isLinked(rig) }
      try tokens(rig, "remove", id, code: 67)
    }

    @Test(arguments: ["SQLite", "PostgreSQL"])
    func `a token for any gateway belongs to its first gateway, and the second gets the reason`(_ kind: String) throws {
      let server = kind == "SQLite" ? nil : try PostgresServer()
      let rig = try start(shared: true)
      if let server {
        rig.hub?.kill9()
        let text = try String(contentsOfFile: rig.scratch.location("hub.toml"), encoding: .utf8)
        _ = rig.scratch.write(
          "hub.toml", text.replacingOccurrences(of: rig.scratch.location("hub.db"), with: server.address))
        try rig.startHub()
      }
      func post(_ gateway: String) -> Int? {
        rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: Self.batch)?.status
      }
      #expect(post("first") == 200)
      #expect(post("second") == 403)
      rig.hub?.kill9()
      try rig.startHub()
      #expect(post("second") == 403)
      #expect(post("first") == 200)
      // A real gateway, by link and by HTTP, reports the problem, keeps everything, and continues with its own token.
      try rig.startRadio(["--contacts", "3"])
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the gateway to say why it is refused") {
        "\(try rig.status()?["upstreams"] ?? .null)".contains("belongs to another gateway")
      }
      let id = try #require(rig.gatewayID)
      _ = rig.scratch.write("token", try tokens(rig, "add", id) + "\n")
      try untilTrue("the link") { try isLinked(rig) }
      try untilTrue("all events at the hub") {
        try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0
      }
    }
  }
}
