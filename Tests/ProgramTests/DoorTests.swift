// SPDX-License-Identifier: MIT

import Foundation
import HTTP
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Limits for clients without a token: what they may learn, and whether they can block others.
  @Suite struct Doors {
    private static let other = "another-token-for-tests"

    private func hub(_ extra: String = "", database: String? = nil) throws -> Rig {
      let rig = try Rig()
      rig.writeHubConfiguration(
        database: database,
        extra: """
          [[token]]
          file = "\(rig.scratch.write("other", Self.other + "\n"))"
          access = "read"
          [web]
          url = "http://127.0.0.1:\(rig.hubPort)"
          pages = "\(PagesHost.pages)"
          """ + extra)
      try rig.startHub()
      return rig
    }

    @Test func `one token cannot take all places for streams`() throws {
      let rig = try hub()
      var readers: [Following] = []
      for _ in 0..<32 { readers.append(try Following(rig.hubPort, header: "Authorization: Bearer \(Self.other)")) }
      for reader in readers { try reader.begin() }
      #expect(rig.askHub("GET", "/v1/live", token: Self.other)?.status == 503)
      let metrics = String(decoding: rig.askHub("GET", "/metrics")?.body ?? [], as: UTF8.self)
      #expect(metrics.contains("meshpost_hub_busy_total{reason=\"readers\"} 1"), "\(metrics)")
      let reader = try Following(rig.hubPort, header: "Authorization: Bearer \(Rig.token)")
      try reader.begin()
      readers.removeLast()
      try untilTrue("a place again") {
        let another = try Following(rig.hubPort, header: "Authorization: Bearer \(Self.other)")
        try untilTrue("an answer") { !another.look().isEmpty }
        return another.look().contains("200 OK")
      }
    }

    @Test func `HEAD is answered like GET, without a body`() throws {
      let rig = try hub()
      for (path, status) in [
        ("/healthz", 200), ("/", 200), ("/openapi.json", 200), ("/v1/fleet", 401), ("/v1/nothing", 404),
      ] {
        let asked = try Program("/usr/bin/curl", ["-s", "-I", "-m", "20", "http://127.0.0.1:\(rig.hubPort)\(path)"])
        #expect(try asked.ended() == 0, "\(path)")
        #expect(asked.lines.first?.contains(" \(status)") == true, "\(path): \(asked.lines)")
      }
    }

    @Test func `a body of an unknown transfer coding is refused as such, and not as too large`() throws {
      let rig = try hub()
      let asked = try Program(
        "/usr/bin/curl",
        [
          "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}\n", "-d", "{}",
          "-H", "Transfer-Encoding: xchunked", "-H", "Authorization: Bearer \(Rig.token)",
          "http://127.0.0.1:\(rig.hubPort)/v1/gateways/g/events",
        ])
      _ = try asked.ended()
      #expect(asked.lines.first == "400", "\(asked.lines)")
    }

    @Test func `behind a proxy on this machine the log has the client's address`() throws {
      let rig = try hub()
      for address in ["192.0.2.9", "2001:db8::9", "8.8.8.8, 192.0.2.10", "no address"] {
        var request = HTTPRequest("GET", "/v1/fleet", headers: ["X-Forwarded-For": address])
        request.headers.add("Authorization", "Bearer wrong-wrong-wrong-wrong")
        #expect(Rig.ask(.tcp(host: "127.0.0.1", port: UInt16(rig.hubPort), tls: false), request)?.status == 401)
      }
      for address in ["192.0.2.9", "2001:db8::9", "192.0.2.10", "127.0.0.1"] {
        try rig.hub?.line(with: "login refused from \(address): unknown token (GET /v1/fleet)")
      }
    }

    @Test func `a client without a session does not learn where the database is`() throws {
      let server = try PostgresServer()
      let rig = try hub(database: server.address)
      try server.crash()
      let browser = Browser(port: UInt16(rig.hubPort), way: "password")
      browser.cookie = "meshpost_hub=\(String(repeating: "a", count: 64))"
      for (method, path, body) in [
        ("GET", "/session", ""), ("GET", "/v1/fleet", ""), ("DELETE", "/session", ""),
        ("POST", "/session", #"{"person":"ana","password":"correct horse"}"#),
      ] {
        let answer = browser.ask(method, path, body)
        #expect(answer?.status == 503, "\(method) \(path)")
        #expect(
          answer.map { String(decoding: $0.body, as: UTF8.self) } == #"{"error":"the database does not answer"}"#)
      }
    }

    @Test func `a token does not show where the database is`() throws {
      let server = try PostgresServer()
      let rig = try hub(database: server.address)
      try server.crash()
      let batch = #"{"epoch":"e","events":[{"seq":1,"at":1,"trusted":true,"kind":"radio","body":{}}]}"#
      for (method, path, body) in [
        ("GET", "/v1/fleet", ""), ("GET", "/v1/gateways/hill", ""), ("PUT", "/v1/gateways/hill/state/a", "{}"),
        ("POST", "/v1/gateways/hill/events", batch),
      ] {
        let answer = try #require(rig.askHub(method, path, body: body))
        let words = String(decoding: answer.body, as: UTF8.self)
        #expect(answer.status == 503 && words.contains("the database does not answer"), "\(method) \(path): \(words)")
        #expect(!words.contains("127.0.0.1") && !words.contains("\(server.port)"), "\(words)")
      }
    }

    @Test func `a command with a field twice is refused`() throws {
      let rig = try hub()
      let body = ##"{"id":"c1","command":"send","to":"#trees","text":"x","to":"#oaks","queue":true}"##
      let answer = rig.askHub("POST", "/v1/gateways/hill/commands", body: body)
      #expect(answer?.status == 400 && String(decoding: answer?.body ?? [], as: UTF8.self).contains("twice"))
    }

    @Test func `a command's id must be one line of text`() throws {
      let rig = try hub()
      for id in ["", "a\u{0}b", "a\nb", "a\u{1B}[2J", "\u{202E}a", String(repeating: "a", count: 49)] {
        let body = JSONWriter.object { json in
          json.field("id", id)
          json.field("command", "send")
          json.field("queue", true)
        }
        #expect(
          rig.askHub("POST", "/v1/gateways/hill/commands", body: String(decoding: body, as: UTF8.self))?.status == 400,
          "\(id.debugDescription)")
      }
    }
  }
}
