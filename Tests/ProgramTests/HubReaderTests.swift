// SPDX-License-Identifier: MIT

import Deflate
import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Requests of pages and programs to a hub, on either database.
  @Suite struct HubReaders {
    enum Place: String, CaseIterable { case sqlite, postgres }

    private final class Site {
      let rig: Rig
      private let server: PostgresServer?

      init(_ place: Place) throws {
        rig = try Rig()
        server = place == .postgres ? try PostgresServer() : nil
        // Pages add to the API: people, tokens, and the log of people's actions.
        rig.writeHubConfiguration(
          database: server?.address,
          extra: "[web]\nurl = \"http://127.0.0.1:\(rig.hubPort)\"\npages = \"\(PagesHost.pages)\"")
        try rig.startHub()
      }

      func ask(_ target: String, method: String = "GET", _ body: String = "") throws -> (status: Int, body: JSONValue) {
        let answer = try #require(rig.askHub(method, target, body: body))
        return (answer.status, try JSONValue(parsing: answer.body))
      }

      func page(_ target: String) throws -> JSONValue {
        let (status, body) = try ask(target)
        #expect(status == 200, "\(target): \(body)")
        return body
      }

      func take(_ events: [String], from gateway: String) throws {
        let (status, body) = try ask(
          "/v1/gateways/\(gateway)/events", method: "POST",
          #"{"epoch":"e","events":[\#(events.joined(separator: ","))]}"#)
        #expect(status == 200, "\(body)")
      }

      /// The same events of several gateways at once, in the order of several transactions.
      func takeTogether(_ events: [String], from gateways: [String]) throws {
        let posts = try gateways.map { gateway in
          try Program(
            "/usr/bin/curl",
            [
              "-sf", "-H", "Authorization: Bearer \(Rig.token)", "-d",
              #"{"epoch":"e","events":[\#(events.joined(separator: ","))]}"#,
              "http://127.0.0.1:\(rig.hubPort)/v1/gateways/\(gateway)/events",
            ], folder: rig.scratch.folder)
        }
        for post in posts { #expect(try post.ended() == 0) }
      }

      func follow(_ parameters: String = "", header: String = "Accept: */*") throws -> Program {
        try Program(
          "/usr/bin/curl",
          [
            "-sN", "-H", "Authorization: Bearer \(Rig.token)", "-H", header,
            "http://127.0.0.1:\(rig.hubPort)/v1/live\(parameters)",
          ], folder: rig.scratch.folder)
      }
    }

    private static let channel = "0011223344556677"

    private func event(_ seq: Int, _ kind: String, _ body: String) -> String {
      #"{"seq":\#(seq),"at":\#(1_795_000_000_000 + seq),"trusted":true,"kind":"\#(kind)","body":\#(body)}"#
    }

    private func message(_ seq: Int, _ text: String, channel: String = channel) -> String {
      event(
        seq, "message",
        #"{"kind":"channel","channel":"\#(channel)","sender_name":"Birch","sender_time":\#(seq),"text":"\#(text)","snr":1.5}"#
      )
    }

    @Test(arguments: Place.allCases)
    func `pages from the newest, by words, times and gateways, are complete without repetitions`(_ place: Place) throws
    {
      let site = try Site(place)
      let count = 250
      try site.take(
        (1...count).map { message($0, $0 % 50 == 0 ? "Straße 天气很好 e\u{301}cole \($0)" : "plain \($0)") }, from: "hill")
      try site.take((1...20).map { message($0, "plain \($0)") }, from: "valley")
      func walk(_ parameters: String, _ path: String = "/v1/messages") throws -> [String] {
        var (texts, next) = ([String](), "")
        while true {
          let page = try site.page("\(path)?order=newest&limit=7\(parameters)\(next)")
          texts += (page["messages"]?.array ?? []).compactMap { $0["body"]?["text"]?.string }
          guard let before = page["next"]?.integer else { return texts }
          next = "&before=\(before)"
        }
      }
      let all = try walk("")
      #expect(all.count == count && all.first?.hasSuffix("250") == true && all.last == "plain 1")
      #expect(try walk("", "/v1/gateways/hill/messages") == all)
      #expect(try walk("&gateway=valley").count == 20)
      #expect(try walk("&since=1795000000101&until=1795000000110").count == 10)
      #expect(try walk("&channel=ffffffffffffffff").isEmpty)
      for words in ["STRASSE", "%E6%B0%94%E5%BE%88", "%C3%89COLE", "birch%20ecole%20stra"] {
        #expect(try walk("&q=\(words)").count == 5, "\(words)")
        #expect(try walk("&q=\(words)", "/v1/gateways/hill/messages").count == 5, "\(words)")
      }
      for words in ["%25", "_", "%27", "%00", "e%CC%81e%CC%81", "nothing"] {
        #expect(try walk("&q=\(words)").isEmpty, "\(words)")
      }
      // By sender: words of the text are no name.
      #expect(try walk("&from=BIR%20rch").count == count)
      #expect(try walk("&from=birch&q=ecole&until=1795000000100").count == 2)
      #expect(try walk("&from=plain").isEmpty)
      let newest = try site.page("/v1/messages?order=newest&limit=1")["messages"]?.array?.first
      let position = try #require(newest?["position"]?.integer)
      #expect(try site.page("/v1/messages/\(position)") == newest)
    }

    @Test func `a browser that reconnects goes on after its last message, not after the address of its first request`()
      throws
    {
      let site = try Site(.sqlite)
      try site.take((1...3).map { message($0, "text \($0)") }, from: "hill")
      let positions = try (site.page("/v1/messages")["messages"]?.array ?? []).compactMap { $0["position"]?.integer }
      #expect(positions.count == 3)
      let reader = try site.follow("?after=\(positions[0])&arrived=1", header: "Last-Event-ID: \(positions[1])")
      _ = try reader.line(with: "text 3")
      #expect(!reader.lines.contains { $0.contains("text 2") || $0.contains("missed") }, "\(reader.lines)")
    }

    @Test func `a command with a field of a wrong type is refused, and an id names one command`() throws {
      let site = try Site(.sqlite)
      func send(_ fields: String, wait: String = "0") throws -> (status: Int, body: JSONValue) {
        try site.ask(
          "/v1/gateways/hill/commands?wait_s=\(wait)", method: "POST", #"{"command":"send","queue":true,\#(fields)}"#)
      }
      for wrong in [
        #""to":"t","text":"x","id":5"#, #""to":"t","text":"x","id":"""#, #""text":"x""#, #""to":5,"text":"x""#,
        #""to":"","text":"x""#, #""to":"t""#, #""to":"t","text":5"#, #""to":"t","text":"x","expires_s":"60""#,
        #""to":"t","text":"x","expires_s":0"#, #""to":"t","text":"x","expires_s":1.5"#,
        #""to":"t","text":"x","priority":"highest""#, #""to":"t","text":"x","split":"yes""#,
      ] {
        #expect(try send(wrong).status == 400, "\(wrong)")
      }
      for wrong in ["x", "60x", "1.5"] { #expect(try send(#""to":"t","text":"x""#, wait: wrong).status == 400) }
      #expect(try site.page("/v1/commands")["commands"]?.array?.isEmpty == true)
      for id in ["a b", "é", "a/b", "%41", "+"] {
        let fields = #""id":"\#(id)","to":"t","text":"x""#
        #expect(try send(fields).status == 202)
        #expect(try send(fields).status == 202, "the same once more")
        #expect(try send(#""id":"\#(id)","to":"t","text":"y""#).status == 409)
        let escaped = try #require(id.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        #expect(try site.ask("/v1/gateways/hill/commands/\(escaped)").body["id"]?.string == id)
      }
      #expect(try site.page("/v1/commands")["commands"]?.array?.count == 5)
      // Nothing else happens at this hub: its lists end what is over.
      #expect(try send(#""id":"brief","to":"t","text":"x","expires_s":1"#).status == 202)
      for list in ["/v1/commands", "/v1/gateways/hill/commands"] {
        try untilTrue("an expired command in \(list)") {
          try site.page(list)["commands"]?.array?.first { $0["id"]?.string == "brief" }?["state"]?.string == "expired"
        }
      }
    }

    @Test func `forty searches of one token wait, and another holder's page is answered`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let other = "another-token-of-this-test"
      let file = rig.scratch.write("other", other)
      rig.writeHubConfiguration(
        database: server.address, extra: "[[token]]\nfile = \"\(file)\"\naccess = \"read\"")
      try rig.startHub()
      // Queries for messages wait for this lock.
      let lock = try server.session("BEGIN; LOCK TABLE messages; SELECT pg_sleep(600)")
      defer { lock.kill9() }
      try untilTrue("the lock") {
        try server.value("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted") == "1"
      }
      let searches = try Program(
        "/usr/bin/curl",
        [
          "-sZN", "--parallel-immediate", "--parallel-max", "40", "-H", "Authorization: Bearer \(Rig.token)",
          "-o", rig.scratch.location("answer-#1"), "-w", "%{stderr}\\nstatus %{http_code} %header{retry-after}\\n",
          "http://127.0.0.1:\(rig.hubPort)/v1/messages?q=word[1-40]",
        ], folder: rig.scratch.folder)
      // One query runs, 16 wait.
      do {
        try untilTrue("the others to get a retry time") { searches.lines.count { $0 == "status 429 2" } >= 23 }
      } catch {
        Issue.record("their answers: \(searches.lines.filter { $0.hasPrefix("status") })")
        throw error
      }
      #expect(rig.askHub("GET", "/v1/nodes", token: other)?.status == 200)
      #expect(rig.askHub("GET", "/v1/nodes")?.status == 429)
      #expect(!searches.lines.contains { $0.hasPrefix("status 200") }, "none of them was answered meanwhile")
      try server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%' AND pid <> pg_backend_pid()"
      )
      #expect(try searches.ended() == 0)
      #expect(searches.lines.filter { $0.hasPrefix("status 200") }.count == 17, "\(searches.lines)")
    }

    @Test(arguments: Place.allCases)
    func `two interleaved histories become two epochs, and another one a third`(_ place: Place)
      throws
    {
      let site = try Site(place)
      func epochs() throws -> [String] {
        try (site.page("/v1/gateways/hill/events")["events"]?.array ?? []).compactMap { $0["epoch"]?.string }
      }
      for number in 1...6 {
        for name in ["left", "right", "left"] { try site.take([message(number, "\(name) \(number)")], from: "hill") }
      }
      let two = try epochs()
      #expect(two.count == 12)
      #expect(Set(two).count == 2)
      try site.take((3...5).map { message($0, "third \($0)") }, from: "hill")
      let three = try epochs()
      #expect(three.count == 15)
      #expect(Set(three).count == 3)
    }

    @Test(arguments: Place.allCases)
    func `absurd numbers and long words are answered or refused, and the hub goes on`(_ place: Place) throws {
      let site = try Site(place)
      try site.take((1...5).map { message($0, "text \($0)") }, from: "hill")
      for number in [
        "-1", "0", "9007199254740993", "9223372036854775808", "-9223372036854775809", String(repeating: "9", count: 40),
      ] {
        for name in ["before", "after", "since", "until", "limit"] {
          for path in ["messages", "gateways/hill/events", "gateways/hill/messages"] {
            #expect(try site.ask("/v1/\(path)?\(name)=\(number)").status == 200, "\(path) \(name)=\(number)")
          }
        }
        #expect(try [200, 404].contains(site.ask("/v1/messages/\(number)").status))
      }
      for number in ["x", "1e3", "--1", "", "%00", String(repeating: "9", count: 41)] {
        #expect(try site.ask("/v1/messages?before=\(number)").status == 400, "before=\(number)")
      }
      #expect(try site.ask("/v1/messages?q=\(String(repeating: "x", count: 5000))").status == 400)
      #expect(try site.ask("/v1/messages?q=e\(String(repeating: "%CC%81", count: 250))").status == 200)
      #expect(try site.ask("/v1/messages?q=\(Array(repeating: "a", count: 17).joined(separator: "%20"))").status == 400)
      #expect(try site.ask("/v1/messages?from=\(String(repeating: "x", count: 5000))").status == 400)
      #expect(try site.ask("/v1/messages?after=1&before=2").status == 400)
      #expect(try site.ask("/v1/commands?before=x").status == 400)
    }

    @Test(arguments: Place.allCases)
    func `the fleet, its nodes and its channels are as gateways reported them`(_ place: Place) throws {
      let site = try Site(place)
      let key = String(repeating: "ab", count: 32), node = String(repeating: "cd", count: 32)
      for gateway in ["hill", "valley"] {
        try site.take(
          [
            event(1, "radio", #"{"key":"\#(key)","name":"r-\#(gateway)","model":"T-Deck","lat":50.1,"lon":8.2}"#),
            event(2, "contact", #"{"key":"\#(node)","name":"Ärger","type":"repeater","lat":1.5,"lon":2.5,"hops":1}"#),
            event(3, "channel", #"{"slot":0,"name":"Public","channel":"\#(Self.channel)"}"#), message(4, "hello"),
            event(5, "power", #"{"source":"battery","state":"low"}"#),
          ], from: gateway)
        let state =
          #"{"version":"0.2","radio":"up","sync":"synced","clock_trusted":true,"battery_mv":3300,"pending":10}"#
        #expect(try site.ask("/v1/gateways/\(gateway)/state/gateway", method: "PUT", state).status == 200)
        let note = "/v1/gateways/\(gateway)/documents/node/\(key)/note"
        #expect(try site.ask(note, method: "PUT", #"{"value":"on the roof"}"#).status == 200)
      }
      let first = try site.page("/v1/fleet?limit=1")
      #expect(first["next"]?.string == "hill")
      let row = try #require(try site.page("/v1/fleet?after=hill")["gateways"]?.array?.first)
      for (name, value) in [
        "gateway": "valley", "name": "r-valley", "model": "T-Deck", "version": "0.2", "radio_state": "up",
        "power": "low",
        "note": "on the roof",
      ] { #expect(row[name]?.string == value, "\(name)") }
      #expect(row["battery_mv"]?.integer == 3300 && row["pending"]?.integer == 10 && row["linked"]?.bool == false)
      #expect(row["position"]?["lat"]?.number == 50.1 && row["last_message"]?["text"]?.string == "hello")
      #expect(row["nodes"]?.integer == 1)
      let nodes = try site.page("/v1/nodes?q=arger")["nodes"]?.array ?? []
      #expect(nodes.count == 1 && nodes.first?["heard"]?.array?.count == 2 && nodes.first?["lat"]?.number == 1.5)
      let channels = try site.page("/v1/channels")["channels"]?.array ?? []
      #expect(channels.first?["name"]?.string == "Public" && channels.first?["gateways"]?.integer == 2)
      var (links, after) = ([JSONValue](), "")
      while true {
        let page = try site.page("/v1/coverage?limit=1&after=\(after)")
        links += page["links"]?.array ?? []
        let known = (page["gateways"]?.array ?? []).compactMap { $0["gateway"]?.string }
        // The first page has all gateways of a small fleet, the others those of their links.
        let hearing = (page["links"]?.array ?? []).compactMap { $0["gateway"]?.string }
        #expect(known == (after.isEmpty ? ["hill", "valley"] : hearing))
        guard let next = page["next"]?.string else { break }
        after = next
      }
      #expect(links.compactMap { $0["gateway"]?.string } == ["hill", "valley"])
      #expect(try site.page("/v1/fleet/summary")["gateways"]?.integer == 2)
      #expect(
        try site.ask(
          "/v1/gateways/hill/commands?wait_s=0", method: "POST", #"{"id":"c1","command":"send","to":"t","text":"x"}"#
        ).status
          == 202)
      let commands = try site.page("/v1/commands?limit=1")
      #expect(commands["commands"]?.array?.first?["gateway"]?.string == "hill")
      #expect(
        try site.page("/v1/commands?before=\(commands["next"]?.string ?? "")")["commands"]?.array?.isEmpty == true)
    }

    @Test(arguments: Place.allCases)
    func `a reader that is cut off misses no message, and one that does not read harms nobody`(_ place: Place) throws {
      let site = try Site(place)
      try site.take([message(1, "before")], from: "hill")
      let reader = try site.follow()
      try reader.line(with: "event: hello")
      try site.take([message(2, "second")], from: "hill")
      try reader.line(with: "second")
      try site.take([message(2, "second")], from: "valley")
      try reader.line(with: #""gateway":"valley""#)
      #expect(
        try site.ask(
          "/v1/gateways/hill/commands?wait_s=0", method: "POST", #"{"id":"c1","command":"send","to":"t","text":"x"}"#
        ).status
          == 202)
      try reader.line(with: "event: command")
      let id = try #require(reader.lines.last { $0.hasPrefix("id: ") }?.dropFirst(4))
      reader.kill9()
      let silent = try site.follow()
      try silent.line(with: "event: hello")
      silent.send(SIGSTOP)
      for batch in 0..<12 {
        let text = String(repeating: "x", count: 400)
        try site.take((1...500).map { message(10 + batch * 500 + $0, "flood \(batch) \($0) \(text)") }, from: "hill")
      }
      silent.kill9()
      // More messages than the stream repeats: it reports this.
      let late = try site.follow("?after=\(id)")
      try late.line(with: #""missed":true"#)
      late.kill9()
      let newest = try #require(try site.page("/v1/messages?order=newest&limit=1")["messages"]?.array?.first)
      let position = try #require(newest["position"]?.integer)
      let again = try #require(try site.page("/v1/messages?before=\(position)&limit=100")["messages"]?.array?.last)
      let behind = try site.follow("?after=\(again["position"]?.integer ?? 0)")
      try behind.line(with: "id: \(position)")
      #expect(behind.lines.filter { $0 == "event: message" }.count >= 99)
      behind.kill9()
    }

    @Test(arguments: Place.allCases)
    func `a follower of another history of the hub is told that it missed messages`(_ place: Place) throws {
      let site = try Site(place)
      try site.take([message(1, "first"), message(2, "second"), message(3, "third")], from: "hill")
      let rows = try #require(try site.page("/v1/messages?order=newest")["messages"]?.array)
      #expect(rows.count == 3)
      for row in rows {
        let (position, arrived) = (try #require(row["position"]?.integer), try #require(row["arrived"]?.integer))
        func hello(_ parameters: String) throws -> JSONValue {
          let reader = try site.follow("?after=\(position)\(parameters)")
          defer { reader.kill9() }
          try reader.line(with: #""position""#)
          let data = try #require(reader.lines.first { $0.hasPrefix("data: ") })
          return try JSONValue(parsing: Array(data.utf8.dropFirst("data: ".utf8.count)))
        }
        for parameters in ["", "&arrived=\(arrived)"] {
          let own = try hello(parameters)
          #expect(own["position"]?.integer == position && own["missed"] == nil, "\(own)")
          #expect(own["arrived"]?.integer == arrived)
        }
        // As if the hub had been restored and had reached the same position again.
        let other = try hello("&arrived=\(arrived - 1)")
        #expect(other["missed"]?.bool == true && other["position"] == rows[0]["position"], "\(other)")
        #expect(other["arrived"] == rows[0]["arrived"])
      }
    }

    @Test(arguments: Place.allCases)
    func `a gateway that selects reporters gets each message once, until it accepts all reporters`(_ place: Place)
      throws
    {
      let site = try Site(place)
      let names = (1...8).map { "h\($0)" }
      try site.take([event(1, "channel", #"{"slot":1,"channel":"\#(Self.channel)"}"#)], from: "asker")
      func ask(_ parameters: String) throws -> Int64? {
        try site.page("/v1/gateways/asker/updates?buckets=heard\(parameters)")["buckets"]?.array?.first?["seq"]?.integer
      }
      #expect(try ask("&gateways=\(names.joined(separator: ","))") == 0)
      for number in 1...3 {
        try site.take([message(number, "text")], from: "other")
        try site.takeTogether([message(number, "text")], from: names)
        #expect(try ask("") == Int64(number))
      }
      #expect(try ask("&gateways=") == 3)
      try site.take([message(4, "text")], from: names[0])
      #expect(try ask("") == 3)
    }

    @Test func `answers are compressed with gzip only for clients that accept it, with their real length`() throws {
      let site = try Site(.sqlite)
      for number in 0..<200 { try site.take([message(1, "text \(number)")], from: "hill-\(number)") }
      func get(_ accepted: String?, _ target: String) throws -> (head: [String], body: [UInt8]) {
        let file = site.rig.scratch.location("body")
        let curl = try Program(
          "/usr/bin/curl",
          ["-s", "-D", "-", "-o", file, "-H", "Authorization: Bearer \(Rig.token)"]
            + (accepted.map { ["-H", "Accept-Encoding: \($0)"] } ?? [])
            + ["http://127.0.0.1:\(site.rig.hubPort)\(target)"])
        #expect(try curl.ended() == 0)
        let body = try Data(contentsOf: URL(filePath: file))
        return (curl.lines.map { $0.lowercased() }, Array(body))
      }
      let plain = try get(nil, "/v1/fleet?limit=1000")
      #expect(plain.body.count > 20_000 && !plain.head.contains { $0.hasPrefix("content-encoding") })
      for accepted in ["gzip", "br, gzip;q=0.5", "GZIP"] {
        let packed = try get(accepted, "/v1/fleet?limit=1000")
        #expect(packed.head.contains { $0.hasPrefix("content-encoding: gzip") }, "\(accepted): \(packed.head)")
        #expect(packed.head.contains { $0.hasPrefix("content-length: \(packed.body.count)") })
        #expect(packed.body.count < plain.body.count / 8, "\(packed.body.count) of \(plain.body.count)")
        let unpacked = try Inflater.gunzip(packed.body, limit: 1 << 20)
        #expect(try JSONValue(parsing: unpacked)["gateways"]?.array?.count == 200)
      }
      for accepted in ["identity", "gzip;q=0", "gzip; q=0.000", "xgzip"] {
        #expect(try !get(accepted, "/v1/fleet").head.contains { $0.hasPrefix("content-encoding") }, "\(accepted)")
      }
      #expect(try !get("gzip", "/v1/fleet/summary?x=1").body.isEmpty)
    }

    @Test func `each query of the dashboard uses metrics and labels that a hub has`() throws {
      let site = try Site(.sqlite)
      try site.take([message(1, "text")], from: "hill")
      let metrics = try String(decoding: #require(site.rig.askHub("GET", "/metrics")).body, as: UTF8.self)
      let file = Checkout.folder.appending(path: "deploy/grafana/meshpost-hub.json")
      let panels = try JSONValue(parsing: String(contentsOf: file, encoding: .utf8))["panels"]?.array ?? []
      let questions = panels.flatMap { ($0["targets"]?.array ?? []).compactMap { $0["expr"]?.string } }
      #expect(questions.count >= panels.count && panels.count >= 10)
      for question in questions {
        let name = try #require(question.firstMatch(of: /(meshpost_hub|process)_[a-z_]+/)).output.0
        let rows = metrics.split(separator: "\n").filter { $0.hasPrefix("\(name){") || $0.hasPrefix("\(name) ") }
        #expect(!rows.isEmpty, "\(name)")
        guard let labels = question.firstMatch(of: /by \(([a-z, ]+)\)/) else { continue }
        for label in labels.output.1.split(separator: ",").map({ $0.drop { $0 == " " } }) {
          #expect(rows.allSatisfy { $0.contains("\(label)=\"") }, "\(name) has no \(label)")
        }
      }
    }

    private static var schemathesis: String {
      URL(filePath: Program.python).deletingLastPathComponent().appending(path: "schemathesis").path()
    }

    @Test(
      .enabled("schemathesis is not installed: hardware/requirements.txt") {
        access(schemathesis, X_OK) == 0
      }, arguments: Place.allCases)
    func `the API matches its description for all generated requests`(_ place: Place) throws {
      let site = try Site(place)
      try site.take([message(1, "text"), event(2, "contact", #"{"key":"ab","name":"n"}"#)], from: "hill")
      let settings = site.rig.scratch.write(
        "schemathesis.toml",
        """
        parameters = { "wait_s" = 0, "query.wait_s" = 0 }
        [checks.not_a_server_error]
        expected-statuses = ["2xx", "4xx", 503, 504]
        """)
      let judge = try Program(
        Self.schemathesis,
        [
          "--config-file", settings, "run", "http://127.0.0.1:\(site.rig.hubPort)/openapi.json", "-H",
          "Authorization: Bearer \(Rig.token)", "--exclude-path", "/v1/live", "--max-examples", "8", "--phases",
          "examples,coverage,fuzzing", "--checks",
          "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance",
          "--suppress-health-check", "all", "--generation-database", "none", "--seed", "1", "--no-color",
        ], folder: site.rig.scratch.folder)
      #expect(try judge.ended() == 0, "\(judge.lines.suffix(60).joined(separator: "\n"))")
      #expect(try site.ask("/v1/fleet").status == 200)
    }
  }
}
