// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import HTTP
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// The hub's pages without a browser: people, their rights, and the live stream.
  @Suite struct HubPeople {
    private final class Hub {
      let rig: Rig
      let browser: Browser

      init(database: String? = nil) throws {
        rig = try Rig()
        browser = Browser(port: UInt16(rig.hubPort), way: "password")
        rig.writeHubConfiguration(
          database: database,
          extra: """
            [web]
            url = "http://127.0.0.1:\(rig.hubPort)"
            pages = "\(PagesHost.pages)"
            """)
        try rig.startHub()
      }

      @discardableResult
      func people(_ arguments: [String], input: String? = nil) throws -> (code: Int32, lines: [String]) {
        let program = try Program.own(
          "meshpost-hub", ["people"] + arguments + ["--config", rig.scratch.location("hub.toml")])
        if let input { program.write(input) }
        program.endInput()
        return (try program.ended(), program.lines)
      }

      func add(_ name: String, _ role: String, password: String) throws {
        let added = try people(["add", name, "--role", role], input: password)
        #expect(added.code == 0, "\(added)")
      }

      func another() -> Browser { Browser(port: browser.port, way: "password") }
    }

    private static func signIn(
      _ browser: Browser, _ person: String, _ password: String, from address: String? = nil
    ) -> Int? {
      let body = "{\"person\":\"\(person)\",\"password\":\"\(password)\"}"
      var headers: [String: String] = [:]
      if let address { headers["X-Forwarded-For"] = "203.0.113.77, \(address)" }
      let response = browser.ask("POST", "/session", body, headers: headers, signedIn: browser.cookie != nil)
      browser.keep(response)
      return response?.status
    }

    /// Of a browser: with the keys of RFC 8291 § 5.
    private static func subscription(_ endpoint: String) -> String {
      """
      {"endpoint":"\(endpoint)","auth":"BTBZMqHH6r4Tts7J_aSIgg","device":"phone","alerts":true,
       "key":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"}
      """
    }

    private static func json(_ response: HTTPResponse?) throws -> JSONValue {
      try JSONValue(parsing: response?.body ?? [])
    }

    @Test(arguments: ["SQLite", "PostgreSQL"])
    func `a person may do what the role allows, and nothing after removal`(_ kind: String) throws {
      let server = kind == "SQLite" ? nil : try PostgresServer()
      let hub = try Hub(database: server?.address)
      try hub.add("ana", "administer", password: "correct horse")
      try hub.add("vera", "view", password: "battery staple")
      #expect(try hub.people(["add", "vera", "--role", "view"], input: "another word").code == 65)
      #expect(try hub.people(["add", "a b", "--role", "view"], input: "another word").code == EX_USAGE)
      #expect(try hub.people(["remove", "ana"]).lines.joined().contains("last one who may administer"))
      let (ana, vera) = (hub.browser, hub.another())
      #expect(ana.ask("GET", "/v1/fleet")?.status == 401)
      #expect(Self.signIn(ana, "ana", "battery staple") == 403)
      #expect(Self.signIn(ana, "nobody", "battery staple") == 403)
      #expect(Self.signIn(ana, "ana", "correct horse") == 200)
      #expect(Self.signIn(vera, "vera", "battery staple") == 200)
      let session = try Self.json(vera.ask("GET", "/session"))
      #expect(session["host"]?.string == "hub" && session["role"]?.string == "view")
      #expect(session["can_change"]?.bool == false)
      for browser in [ana, vera] { #expect(browser.ask("GET", "/v1/fleet")?.status == 200) }
      // A viewer may not command, edit, or manage people.
      #expect(vera.ask("POST", "/v1/gateways/g/commands", #"{"command":"send","to":"x","text":"y"}"#)?.status == 403)
      #expect(vera.ask("PUT", "/v1/gateways/g/documents/settings/log_level", #"{"value":"info"}"#)?.status == 403)
      #expect(vera.ask("PUT", "/v1/people/vera", #"{"role":"administer"}"#)?.status == 403)
      for path in ["/v1/people", "/v1/tokens", "/v1/audit", "/metrics"] {
        #expect(vera.ask("GET", path)?.status == 403, "\(path)")
        #expect(ana.ask("GET", path)?.status == 200, "\(path)")
      }
      // No person may act as a gateway.
      #expect(ana.ask("POST", "/v1/gateways/g/events", "{}")?.status == 403)
      // Requests of other sites and under other names are refused.
      #expect(ana.ask("GET", "/v1/people", headers: ["Origin": "http://evil.example"])?.status == 403)
      #expect(ana.ask("DELETE", "/v1/people/vera", headers: ["Sec-Fetch-Site": "cross-site"])?.status == 403)
      #expect(ana.ask("PUT", "/v1/people/vera", "{}", headers: ["Content-Type": "text/plain"])?.status == 403)
      for (method, body) in [("PUT", #"{"password":"battery staple"}"#), ("PUT", #"{"role":"view"}"#), ("DELETE", "")] {
        #expect(ana.ask(method, "/v1/people/bob", body)?.status == 404, "\(method) \(body)")
      }
      // A viewer gets pushes, at a push service of the list alone; the subscription ends with the session.
      #expect(vera.ask("POST", "/v1/push", Self.subscription("https://10.0.0.1/x"))?.status == 400)
      #expect(vera.ask("POST", "/v1/push", Self.subscription("http://127.0.0.1:\(hub.rig.hubPort)/x"))?.status == 400)
      for wrong in [#""alerts":"yes""#, #""alerts":true,"channels":"*""#, #""alerts":true,"channels":[1]"#] {
        let asked = Self.subscription("https://fcm.googleapis.com/x").replacing(#""alerts":true"#, with: wrong)
        #expect(vera.ask("POST", "/v1/push", asked)?.status == 400, "\(wrong)")
      }
      let subscribed = vera.ask("POST", "/v1/push", Self.subscription("https://fcm.googleapis.com/x"))
      let device = try #require(try Self.json(subscribed)["id"]?.string)
      let listed = try Self.json(vera.ask("GET", "/v1/push"))
      #expect(listed["devices"]?.array?.count == 1)
      let mark = try #require(try Self.json(subscribed)["session"]?.string)
      #expect(listed["session"]?.string == mark)
      #expect(try Self.json(ana.ask("GET", "/v1/push"))["devices"]?.array?.isEmpty == true)
      #expect(vera.ask("GET", "/v1/push/all")?.status == 403)
      #expect(ana.ask("DELETE", "/v1/push/\(device)")?.status == 404)
      let byToken = hub.rig.askHub("POST", "/v1/push", body: Self.subscription("https://fcm.googleapis.com/y"))
      #expect(byToken?.status == 403)
      #expect(try Self.json(ana.ask("GET", "/v1/push/all"))["devices"]?.array?.count == 1)
      // Each change writes: a person has a ration of them, and others theirs.
      func refused(_ method: String, _ path: String, _ body: String = "") -> HTTPResponse? {
        for _ in 0..<300 { if let reply = ana.ask(method, path, body), reply.status == 429 { return reply } }
        return nil
      }
      #expect(ana.ask("DELETE", "/v1/push/none")?.status == 404)
      let pause = refused("DELETE", "/v1/push/none")?.headers["Retry-After"].flatMap { Int($0) }
      #expect(pause.map { (1...5).contains($0) } == true, "\(String(describing: pause))")
      #expect(refused("POST", "/v1/push", Self.subscription("https://fcm.googleapis.com/x")) != nil)
      #expect(vera.ask("DELETE", "/v1/push/none")?.status == 404)
      // A new role ends the sessions.
      #expect(ana.ask("PUT", "/v1/people/vera", #"{"role":"operate"}"#)?.status == 200)
      #expect(vera.ask("GET", "/v1/fleet")?.status == 401)
      #expect(try Self.json(ana.ask("GET", "/v1/push/all"))["devices"]?.array?.isEmpty == true)
      #expect(Self.signIn(vera, "vera", "battery staple") == 200)
      #expect(
        vera.ask(
          "POST", "/v1/gateways/g/commands?wait_s=0", #"{"id":"c1","command":"send","to":"x","text":"y","queue":true}"#)?
          .status == 202)
      let command = try Self.json(ana.ask("GET", "/v1/commands"))["commands"]?.array?.first
      #expect(command?["author"]?.string == "vera" && command?["gateway"]?.string == "g")
      let deeds = try Self.json(ana.ask("GET", "/v1/audit"))["audit"]?.array ?? []
      #expect(deeds.first?["what"]?.string == "command" && deeds.first?["who"]?.string == "vera")
      #expect(deeds.contains { $0["way"]?.string == "command_line" && $0["detail"]?["name"]?.string == "ana" })
      let changes = deeds.filter { $0["detail"]?["name"]?.string == "vera" }.map { $0["detail"]?["added"] != nil }
      #expect(changes == [false, true], "added at the machine, then changed in the pages: \(deeds)")
      #expect(!"\(deeds)".contains("horse") && !"\(deeds)".contains("scrypt"))
      let tokens = try Self.json(ana.ask("GET", "/v1/tokens"))["tokens"]?.array ?? []
      #expect(tokens.first?["access"]?.string == "all")
      #expect(!"\(tokens)".contains(Rig.token))
      // Removal at the machine takes effect at once.
      #expect(try hub.people(["remove", "vera"]).code == 0)
      #expect(vera.ask("GET", "/v1/fleet")?.status == 401)
      #expect(Self.signIn(vera, "vera", "battery staple") == 403)
      let list = try hub.people([])
      #expect(list.lines.count == 1 && list.lines[0].hasPrefix("ana  administer"), "\(list)")
      // Sessions survive a restart of the hub.
      hub.rig.hub?.kill9()
      try hub.rig.startHub()
      #expect(ana.ask("GET", "/v1/people")?.status == 200)
      #expect(ana.ask("DELETE", "/session")?.status == 200)
      #expect(ana.ask("GET", "/v1/people")?.status == 401)
    }

    @Test(arguments: ["SQLite", "PostgreSQL"])
    func `a person's stream ends with their role, their session or their removal`(_ kind: String) throws {
      let server = kind == "SQLite" ? nil : try PostgresServer()
      let hub = try Hub(database: server?.address)
      try hub.add("ana", "administer", password: "correct horse")
      try hub.add("vera", "view", password: "battery staple")
      let (ana, vera) = (hub.browser, hub.another())
      func follow(_ browser: Browser, _ name: String, _ password: String) throws -> Following {
        #expect(Self.signIn(browser, name, password) == 200)
        let following = try Following(hub.rig.hubPort, header: "Cookie: \(browser.cookie ?? "")")
        try following.begin()
        return following
      }
      let anas = try follow(ana, "ana", "correct horse")
      let first = try follow(vera, "vera", "battery staple")
      #expect(try hub.people(["role", "vera", "operate"]).code == 0)
      try first.end("the stream of vera, whose role has changed")
      let second = try follow(vera, "vera", "battery staple")
      #expect(ana.ask("DELETE", "/v1/people/vera")?.status == 200)
      try second.end("the stream of vera, whose account is removed")
      _ = anas.look()
      #expect(!anas.hasEnded)
      #expect(ana.ask("DELETE", "/session")?.status == 200)
      try anas.end("the stream of ana after signing out")
    }

    @Test func `a person with wrong passwords waits, and tokens still work`() throws {
      let hub = try Hub()
      try hub.add("ana", "administer", password: "correct horse")
      let statuses = (0..<8).map { Self.signIn(hub.browser, "ana", "guess \($0)") }
      #expect(statuses.prefix(6).allSatisfy { $0 == 403 } && statuses.last == 429, "\(statuses)")
      try hub.rig.hub?.line(with: "login refused from 127.0.0.1: wrong name or password")
      let token = ["Authorization": "Bearer \(Rig.token)"]
      #expect(hub.browser.ask("GET", "/v1/fleet", headers: token)?.status == 200)
      #expect(hub.browser.ask("GET", "/v1/fleet", headers: ["Authorization": "Bearer wrong"])?.status == 401)
    }

    @Test func `wrong passwords lock out neither a known browser nor another name`() throws {
      let hub = try Hub()
      try hub.add("ana", "administer", password: "correct horse")
      try hub.add("vera", "view", password: "battery staple")
      #expect(Self.signIn(hub.browser, "ana", "correct horse", from: "10.0.0.1") == 200)
      #expect(hub.browser.ask("DELETE", "/session")?.status == 200)
      // From her own address: behind the same router.
      let guesser = hub.another()
      for number in 0..<7 { _ = Self.signIn(guesser, "ana", "guess \(number)", from: "10.0.0.1") }
      #expect(Self.signIn(guesser, "ana", "correct horse", from: "10.0.0.1") == 429)
      // From many addresses.
      for number in 0..<25 { _ = Self.signIn(guesser, "ana", "guess \(number)", from: "10.0.1.\(number)") }
      #expect(Self.signIn(guesser, "ana", "correct horse", from: "10.0.2.1") == 429)
      #expect(Self.signIn(hub.another(), "vera", "battery staple", from: "10.0.2.1") == 200)
      #expect(Self.signIn(hub.browser, "ana", "correct horse", from: "10.0.2.2") == 200)
      // Text that a person typed into the wrong field is not logged.
      #expect(Self.signIn(guesser, "correct-horse", "x", from: "10.0.3.1") == 403)
      let deeds = try Self.json(hub.browser.ask("GET", "/v1/audit"))["audit"]?.array ?? []
      let refused = deeds.filter { $0["what"]?.string == "sign_in_refused" }
      #expect(refused.contains { $0["who"]?.string == "ana" && $0["detail"]?["from"]?.string == "10.0.0.1" })
      #expect((10...25).contains(refused.count) && !"\(deeds)".contains("correct-horse"))
      // A browser is known for one person, and after a change of the password for none.
      let known = hub.another()
      known.cookie = hub.browser.cookie?.components(separatedBy: "; ").first { $0.hasPrefix("meshpost_browser=") }
      for number in 0..<25 { _ = Self.signIn(known, "vera", "guess \(number)", from: "10.0.4.\(number)") }
      #expect(Self.signIn(known, "vera", "battery staple", from: "10.0.5.1") == 429)
      let file = hub.rig.scratch.write("password", "another horse\nand a second line\n")
      #expect(try hub.people(["password", "ana", "--password-file", file]).code == 0)
      // For as long as this took, no other browser can sign in under her name.
      for number in 0..<25 { _ = Self.signIn(guesser, "ana", "again \(number)", from: "10.0.6.\(number)") }
      #expect(Self.signIn(known, "ana", "another horse", from: "10.0.5.2") == 429)
      #expect(try hub.people(["add", "carl", "--role", "view", "--password-file", file]).code == 0)
      #expect(Self.signIn(hub.another(), "carl", "another horse", from: "10.0.5.2") == 200)
    }

    @Test func `the last use of a token is known after a restart`() throws {
      let hub = try Hub()
      try hub.add("ana", "administer", password: "correct horse")
      #expect(Self.signIn(hub.browser, "ana", "correct horse") == 200)
      func lastUse() throws -> Int64? {
        try Self.json(hub.browser.ask("GET", "/v1/tokens"))["tokens"]?.array?.first?["last_used"]?.integer
      }
      #expect(try lastUse() == nil)
      let token = ["Authorization": "Bearer \(Rig.token)"]
      #expect(hub.browser.ask("GET", "/v1/fleet", headers: token, signedIn: false)?.status == 200)
      let used = try #require(try lastUse())
      hub.rig.hub?.send(SIGTERM)
      #expect(try hub.rig.hub?.ended() == 0)
      try hub.rig.startHub()
      #expect(try lastUse() == used)
    }

    @Test func `pages have a security policy, and are served only under the hub's names`() throws {
      let hub = try Hub()
      let shell = try #require(hub.browser.ask("GET", "/fleet"))
      #expect(shell.status == 200 && shell.headers["Content-Type"]?.hasPrefix("text/html") == true)
      #expect(shell.headers["Content-Security-Policy"]?.contains("default-src 'none'") == true)
      let tag = try #require(shell.headers["ETag"])
      #expect(hub.browser.ask("GET", "/", headers: ["If-None-Match": tag])?.status == 304)
      #expect(hub.browser.ask("GET", "/pages/..%2f..%2fPackage.swift")?.status == 404)
      #expect(hub.browser.ask("GET", "/v1/nonsense")?.status == 404)
      #expect(hub.browser.ask("GET", "/healthz")?.status == 200)
      for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.example", 403), ("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b", 400),
      ] {
        let socket = try LoopbackPort.connect(hub.browser.port)
        defer { close(socket) }
        _ = "\(head)\r\n\r\n".withCString { write(socket, $0, strlen($0)) }
        var answer = [UInt8](repeating: 0, count: 32)
        let count = read(socket, &answer, answer.count)
        #expect(String(decoding: answer.prefix(max(0, count)), as: UTF8.self).contains(" \(status) "), "\(head)")
      }
    }

    @Test(arguments: ["SQLite", "PostgreSQL"]) func `the pages show the fleet, its messages and live changes`(
      _ kind: String
    ) throws {
      let server = kind == "SQLite" ? nil : try PostgresServer()
      let hub = try Hub(database: server?.address)
      let rig = hub.rig
      try hub.add("ana", "view", password: "correct horse")
      #expect(Self.signIn(hub.browser, "ana", "correct horse") == 200)
      try rig.startRadio(["--contacts", "5"])
      try rig.startGateway()
      try rig.waitForSync()
      for number in 0..<5 { rig.radio?.write("chan r1 0 message \(number) 山の上") }
      func messages(_ query: String) throws -> [JSONValue] {
        try Self.json(hub.browser.ask("GET", "/v1/messages?\(query)"))["messages"]?.array ?? []
      }
      func texts(_ query: String) throws -> [String] { try messages(query).compactMap { $0["body"]?["text"]?.string } }
      try untilTrue("the messages") { try messages("order=newest").count == 5 }
      #expect(try texts("order=newest&limit=2").map { String($0.prefix(9)) } == ["message 4", "message 3"])
      let next = try #require(Self.json(hub.browser.ask("GET", "/v1/messages?order=newest&limit=2"))["next"]?.integer)
      #expect(try texts("before=\(next)&limit=2").first?.hasPrefix("message 2") == true)
      #expect(try texts("q=MESSAGE%203").count == 1)
      #expect(try texts("q=%E5%B1%B1%E3%81%AE").count == 5)
      for query in [
        "q=%25", "q=_", "q=%00", "gateway=nobody", "since=9007199254740991", "until=0",
        "q=\(String(repeating: "a", count: 5000))",
      ] { #expect(try texts(query).isEmpty, "\(query)") }
      for query in [
        "before=-1", "before=9223372036854775808", "before=x", "limit=0", "limit=-5", "since=-1", "channel=%00",
      ] {
        #expect(hub.browser.ask("GET", "/v1/messages?\(query)")?.status ?? 0 < 500, "\(query)")
      }
      func fleet() throws -> JSONValue? { try Self.json(hub.browser.ask("GET", "/v1/fleet"))["gateways"]?.array?.first }
      try untilTrue("the gateway's state") { try fleet()?["radio_state"]?.string == "up" }
      let row = try fleet()
      #expect(row?["linked"]?.bool == true)
      #expect(row?["nodes"]?.integer ?? 0 >= 5 && row?["model"] != nil)
      #expect(row?["last_message"]?["text"]?.string?.hasPrefix("message 4") == true)
      #expect(try Self.json(hub.browser.ask("GET", "/v1/channels"))["channels"]?.array?.count == 1)
      let position = try #require(try messages("order=newest&limit=1").first?["position"]?.integer)
      #expect(try Self.json(hub.browser.ask("GET", "/v1/messages/\(position)"))["heard"]?.array?.count == 1)
      #expect(hub.browser.ask("GET", "/v1/messages/\(position + 1)")?.status == 404)
      rig.radio?.write("chan r1 0 while somebody looks")
      let live = try hub.browser.follow(after: "\(position)") { $0.contains { $0.contains("while somebody looks") } }
      #expect(live.contains { $0.contains("event: message") && $0.contains("while somebody looks") })
      // The pages judge who is silent by the hub's clock, and not by the browser's.
      #expect(live.contains { $0.contains("event: hello") && $0.contains("\"now\":") })
      rig.gateway?.kill9()
      _ = try hub.browser.follow(after: nil) {
        $0.contains { $0.contains("event: gateway") && $0.contains("\"linked\":false") }
      }
      // A reader of a stream does not delay the hub's end.
      var hasAsked = false
      _ = try hub.browser.follow(after: nil) { _ in
        if !hasAsked {
          hasAsked = true
          rig.hub?.send(SIGTERM)
        }
        return false
      }
      #expect(try rig.hub?.ended() == 0)
    }
  }
}
