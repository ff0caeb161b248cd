// SPDX-License-Identifier: MIT

import Companion
import EarlierSchemas
import Foundation
import Glibc
import JSON
import MeshCrypto
import TestSupport
import Testing

extension WholeProgramTests {
  @Suite struct Postgres {
    private func startHub(_ rig: Rig, _ server: PostgresServer, port: Int) throws -> Program {
      let hub = try startHub(rig, at: server.address, port: port)
      try hub.line(with: "listening")
      return hub
    }

    private func startHub(_ rig: Rig, at address: String, port: Int) throws -> Program {
      let file = rig.scratch.write(
        "hub-\(port).toml",
        """
        port = \(port)
        database = "\(address)"
        [[token]]
        file = "\(rig.scratch.location("token"))"
        access = "all"
        """)
      return try Program.own("meshpost-hub", ["serve", "--config", file])
    }

    @Test(arguments: ["session", "transaction"])
    func `a pool that changes sessions is refused at the start, and one that keeps them works`(_ mode: String) throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let (pool, port) = try server.pool(mode)
      defer { pool.kill9() }
      let hub = try startHub(rig, at: "postgresql://hub@127.0.0.1:\(port)/mesh", port: rig.hubPort)
      guard mode == "transaction" else {
        try hub.line(with: "listening")
        rig.hub = hub
        return
      }
      try hub.line(with: "pool_mode = session")
      #expect(try hub.ended() == 74)
    }

    @Test func `each hub shows that a gateway is linked to another hub, until that hub ends`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let (descriptor, taken) = try LoopbackPort.take()
      close(descriptor)
      try rig.startRadio()
      let reader = try startHub(rig, server, port: Int(taken))
      defer { withExtendedLifetime(reader) {} }
      func ask(_ target: String) throws -> JSONValue {
        let answer = rig.askHub("GET", target, port: Int(taken))
        return try JSONValue(parsing: answer?.body ?? Array("null".utf8))
      }
      /// The other hub's answers, at each place.
      func said() throws -> [Bool] {
        let row = try ask("/v1/fleet")["gateways"]?.array?.first
        #expect((row?["link_since"] != nil) == (row?["linked"]?.bool == true))
        return [
          row?["linked"]?.bool ?? false, try ask("/v1/fleet/summary")["linked"]?.integer == 1,
          try ask("/v1/gateways/\(rig.gatewayID ?? "")")["linked"]?.bool ?? false,
        ]
      }
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      try rig.startGateway()
      try untilTrue("linked, says the other") { try said() == [true, true, true] }
      rig.hub?.send(SIGTERM)
      _ = try rig.hub?.ended()
      try untilTrue("linked no more") { try said() == [false, false, false] }
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      _ = rig.control("POST", "/v1/outbox/resume")
      try untilTrue("linked again") { try said() == [true, true, true] }
      // A killed hub cannot announce its end.
      rig.hub?.kill9()
      try untilTrue("not linked to the hub that has gone") { try said() == [false, false, false] }
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      _ = rig.control("POST", "/v1/outbox/resume")
      try untilTrue("linked once more") { try said() == [true, true, true] }
      // The server loses the lists, and gets them again.
      try server.crash()
      try server.start()
      let lists = "SELECT count(*) FROM hub_links WHERE links LIKE '{\"%'"
      try untilTrue("a list after the crash: \(rig.gateway?.lines.suffix(5) ?? [])") {
        // The hub closed the gateway's third short link in a row: the gateway waits a minute or longer.
        _ = rig.control("POST", "/v1/outbox/resume")
        return try server.value(lists) == "1"
      }
      try untilTrue("linked after the crash") { try said() == [true, true, true] }
    }

    @Test func `two hubs on one server work as one hub, and a crash of the server loses nothing`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let (descriptor, taken) = try LoopbackPort.take()
      close(descriptor)
      rig.writeGatewayConfiguration(extra: "allow = [\"send\", \"status\", \"documents\"]\noutgoing = \"all\"")
      try rig.startRadio(["--queue", "100000", "--contacts", "5"])
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      // The gateway is linked to the first hub; operators and readers ask the second.
      let other = try startHub(rig, server, port: Int(taken))
      try rig.startGateway()
      try rig.waitForSync()
      let id = rig.gatewayID ?? ""
      func ask(_ method: String, _ target: String, _ body: String = "") throws -> JSONValue {
        let answer = rig.askHub(method, "/v1/gateways/\(id)\(target)", body: body, port: Int(taken))
        return try JSONValue(parsing: answer?.body ?? Array("null".utf8))
      }
      try untilTrue("the link") { try rig.status()?["upstreams"]?.array?.first?["link"]?.string == "live" }
      // Its first contact is written down a moment after the link.
      try untilTrue("the gateway at the other hub") {
        let rows = rig.askHub("GET", "/v1/gateways", port: Int(taken))?.body ?? []
        return String(decoding: rows, as: UTF8.self).contains(id)
      }
      let done = try ask(
        "POST", "/commands?wait_s=30", #"{"id":"c1","command":"send","to":"Public","text":"by the other"}"#)
      #expect(done["state"]?.string == "done", "\(done)")
      // Commands that are not queued pass from hub to hub; a gateway without a link is unreachable.
      let status = try ask("POST", "/commands", #"{"command":"status"}"#)
      #expect(status["state"]?.string == "done" && status["answer"]?["ok"]?.bool == true, "\(status)")
      let nobody = rig.askHub(
        "POST", "/v1/gateways/nobody/commands", body: #"{"command":"status"}"#, port: Int(taken))
      #expect(nobody?.status == 404, "\(String(decoding: nobody?.body ?? [], as: UTF8.self))")
      try untilTrue("a contact at the hub") { try !rig.hubRows("contacts").isEmpty }
      let key = try #require(try rig.hubRows("contacts").first?["key"]?.string)
      #expect(try ask("PUT", "/documents/node/\(key)/note", #"{"value":"über the hill"}"#)["value"]?.string != nil)
      try untilTrue("the note at the gateway") {
        try rig.meshpost("documents").lines.contains { $0.contains("über the hill") }
      }
      rig.radio?.write("inject r0 300 2000")
      for round in 0..<4 {
        usleep(700_000)
        if round % 2 == 0 {
          try server.crash()
          try server.start()
        } else {
          rig.hub?.kill9()
          rig.hub = try startHub(rig, server, port: rig.hubPort)
        }
        _ = rig.control("POST", "/v1/outbox/resume")
      }
      try rig.radio?.line(with: "\"injected\"")
      // The note that the gateway got from the hub does not return to it.
      try rig.waitForAllAtHub(messages: 2000, told: 1)
      let events = try rig.hubRows("events")
      let seqs = events.compactMap { $0["seq"]?.integer }
      let last = try rig.status()?["store"]?["last_seq"]?.integer ?? 0
      // The note that the gateway got from the hub does not return to it.
      let own = try rig.meshpost("journal", "--limit", "100000", "--json").lines.compactMap { line in
        let event = try JSONValue(parsing: line)
        return event["body"]?["via"]?.string == "hub" ? event["seq"]?.integer : nil
      }
      #expect(own.count == 1)
      let missing = Set(1...max(1, last)).subtracting(seqs + own).sorted()
      #expect(missing.isEmpty, "of \(last): \(missing.prefix(20))")
      #expect(Set(seqs).count == seqs.count && Rig.isInOrder(events), "each once, in order by lane")
      #expect(try ask("GET", "/documents")["documents"]?.array?.count == 1)
      withExtendedLifetime(other) {}
    }

    @Test func `the upgrade of a database without lanes keeps positions, and a newer database is refused`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      try startHub(rig, server, port: rig.hubPort).kill9()
      try server.execute(
        """
        \(EarlierSchema.hubOnPostgres.sql(to: 2));
        DELETE FROM schema_version WHERE version > 2;
        INSERT INTO gateways(id, epoch, events, last_seen) VALUES ('g', 'e', 24, 1);
        INSERT INTO epochs(gateway, epoch, acknowledged) VALUES ('g', 'e', 24), ('g', 'f', 0);
        INSERT INTO events(gateway, epoch, seq, at, trusted, kind, body)
          VALUES ('g', 'e', 3, 1, 1, 'channel', '{"slot":1,"name":"a\\u0000\\u0000\\\\u0000","channel":"0011223344556677"}');
        INSERT INTO updates(gateway, bucket, seq, id, at, body)
          VALUES ('', 'messages', 1, 'i', 1, '{"text":"a\\u0000b","gateway":"g"}')
        """)
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      func lanes(_ epoch: String) throws -> JSONValue? {
        try JSONValue(parsing: #require(rig.askHub("GET", "/v1/gateways/g?epoch=\(epoch)")).body)["lanes"]
      }
      #expect(try lanes("e") == JSONValue(parsing: #"{"messages":24,"nodes":24,"packets":24}"#))
      #expect(try lanes("f") == .object([]))
      #expect(try server.value("SELECT gateway || channel FROM gateway_channels") == "g0011223344556677")
      #expect(try server.value("SELECT source FROM updates") == "g")
      let batch = #"{"epoch":"f","lane":"nodes","events":[{"seq":7,"at":1,"kind":"advert","body":{}}]}"#
      #expect(rig.askHub("POST", "/v1/gateways/g/events", body: batch)?.status == 200)
      #expect(try lanes("f") == .object([("nodes", .integer(7))]))

      rig.hub?.kill9()
      try server.execute("INSERT INTO schema_version(version) VALUES (99)")
      let refused = try Program.own(
        "meshpost-hub", ["serve", "--config", rig.scratch.location("hub-\(rig.hubPort).toml")])
      #expect(try refused.ended() == 74)
      #expect(refused.lines.contains { $0.contains("schema version 99 is newer") }, "\(refused.lines)")
    }

    /// Upgrades the tables like a hub of a newer version: after the present transactions, and before the next.
    private static let upgrade = """
      BEGIN; SELECT pg_advisory_xact_lock(hashtext('meshpost'), hashtext('tables')); SELECT pg_sleep(0.5);
      ALTER TABLE events RENAME COLUMN body TO content; INSERT INTO schema_version(version) VALUES (99); COMMIT
      """
    private static let back = """
      ALTER TABLE events RENAME COLUMN content TO body; DELETE FROM schema_version WHERE version = 99
      """

    @Test func `a hub ends without a loss when a newer hub upgrades its tables`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      try rig.startRadio(["--queue", "100000"])
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 200 1000")
      try untilTrue("some messages at the hub") { try rig.hubRows("events").count > 50 }
      try server.execute(Self.upgrade)
      let old = try #require(rig.hub)
      #expect(try old.ended() == 74)
      let words = old.lines.filter { $0.contains("a newer version has upgraded the tables") }
      #expect(!words.isEmpty && words.count <= 2, "\(old.lines.suffix(20))")
      #expect(!old.lines.contains { $0.contains("column") }, "it has not tried: \(old.lines.suffix(20))")
      let again = try startHub(rig, at: server.address, port: rig.hubPort)
      #expect(try again.ended() == 74)

      try server.execute(Self.back)
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      try rig.radio?.line(with: "\"injected\"")
      try rig.waitForAllAtHub(messages: 1000)
      let events = try rig.hubRows("events")
      let last = try rig.status()?["store"]?["last_seq"]?.integer ?? 0
      #expect(events.compactMap { $0["seq"]?.integer }.sorted() == Array(1...max(1, last)), "each once")
      #expect(Rig.isInOrder(events))
      #expect(try Set(rig.hubTexts()).count == 1000)
    }

    @Test func `pages end at 1 MiB on PostgreSQL, too`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      let text = String(repeating: "x", count: 300_000)
      for seq in 1...10 {
        let event = """
          {"seq":\(seq),"at":1,"trusted":true,"kind":"message","body":{"kind":"direct","sender_time":\(seq),"text":"\(text)"}}
          """
        let taken = rig.askHub("POST", "/v1/gateways/g/events", body: #"{"epoch":"e","events":[\#(event)]}"#)
        #expect(taken?.status == 200)
      }
      for path in ["/v1/gateways/g/events", "/v1/gateways/g/messages", "/v1/messages"] {
        var (after, pages, rows) = (Int64(0), 0, 0)
        while pages < 20 {
          // The client refuses answers of more than 1 MiB.
          let answer = try #require(rig.askHub("GET", "\(path)?after=\(after)&limit=1000"))
          let page = try JSONValue(parsing: answer.body)
          rows += (page["messages"] ?? page["events"])?.array?.count ?? 0
          pages += 1
          guard let next = page["next"]?.integer else { break }
          after = next
        }
        #expect(rows == 10 && pages == 4, "\(path): \(rows) in \(pages)")
      }
      // NUL, which PostgreSQL's texts cannot contain, also before a combining character.
      let odd = #"{"seq":11,"at":1,"trusted":true,"kind":"contact","body":{"key":"a\u0000\u0301b","name":"x"}}"#
      #expect(
        rig.askHub("POST", "/v1/gateways/g/events", body: #"{"epoch":"e","events":[\#(odd)]}"#)?.status == 200)
      let contacts = try JSONValue(parsing: rig.askHub("GET", "/v1/gateways/g/contacts")?.body ?? [])
      #expect(contacts["contacts"]?.array?.count == 1)
    }

    @Test func `copies of a message are joined over gateways on PostgreSQL, too, whatever text they have`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      var traits = MessageTraits(kind: "channel", time: 100, text: Array("hello".utf8))
      (traits.channel, traits.senderName) = ("0011223344556677", Array("Birch".utf8))
      let said = #""kind":"channel","channel":"0011223344556677","sender_name":"Birch","sender_time":100"#
      for gateway in ["a", "b"] {
        let identity = "\"identity\":\"\(Hex.string(traits.identity))\""
        let bodies = [
          ("message", #"{\#(said),"text":"hello"}"#), ("ways", #"{"identity":"x\u0000\\u0000","ways":[]}"#),
          ("ways", #"{\#(identity),"x":"\u0000","ways":[{"path":["a1"],"region":"\#(gateway)\u0000"}]}"#),
        ]
        let events = bodies.enumerated().map { number, event in
          #"{"seq":\#(number + 1),"at":1,"kind":"\#(event.0)","body":\#(event.1)}"#
        }
        let batch = #"{"epoch":"e","events":[\#(events.joined(separator: ","))]}"#
        #expect(rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: batch)?.status == 200)
      }
      let list = try JSONValue(parsing: rig.askHub("GET", "/v1/messages?after=0")?.body ?? [])
      let position = try #require(list["messages"]?.array?.first?["position"]?.integer)
      let one = try JSONValue(parsing: rig.askHub("GET", "/v1/messages/\(position)")?.body ?? [])
      #expect(one["ways"]?.array?.map { $0["gateway"]?.string } == ["a", "b"])
      #expect(one["ways"]?.array?.first?["ways"]?.array?.first?["path"]?.array?.first?.string == "a1")
    }

    @Test func `of a removed gateway not even the newest message stays on PostgreSQL, either`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      let event = #"{"seq":1,"at":1,"trusted":true,"kind":"message","body":{"sender_time":1,"text":"x"}}"#
      let batch = #"{"epoch":"e","events":[\#(event)]}"#
      #expect(rig.askHub("POST", "/v1/gateways/g/events", body: batch)?.status == 200)
      let file = rig.scratch.location("hub-\(rig.hubPort).toml")
      let removal = try Program.own("meshpost-hub", ["gateways", "remove", "--config", file, "--yes", "g"])
      #expect(try removal.ended() == 0)
      #expect(removal.lines.contains("removed g, 1 events, 1 messages that nobody else heard"), "\(removal.lines)")
      let list = try JSONValue(parsing: rig.askHub("GET", "/v1/messages?after=0")?.body ?? [])
      #expect(list["messages"]?.array?.isEmpty == true)
    }

    @Test func `a message that a flood reports at one hub is listed again for a reporter at the other hub`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      let (descriptor, taken) = try LoopbackPort.take()
      close(descriptor)
      let other = try startHub(rig, server, port: Int(taken))
      defer { withExtendedLifetime(other) {} }
      func post(_ gateway: String, _ bodies: [String], kind: String = "message", at port: Int? = nil) {
        let events = bodies.enumerated().map { number, body in
          #"{"seq":\#(number + 1),"at":1,"kind":"\#(kind)","body":{"channel":"0011223344556677",\#(body)}}"#
        }
        let batch = #"{"epoch":"e","lane":"messages","events":[\#(events.joined(separator: ","))]}"#
        #expect(rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: batch, port: port)?.status == 200)
      }
      func message(_ text: String) -> String { #""kind":"channel","sender_time":7,"text":"\#(text)""# }
      post("c", [#""name":"trees""#], kind: "channel")
      // A gateway that accepts only the messages of these.
      _ = rig.askHub("GET", "/v1/gateways/c/updates?buckets=heard&gateways=thief,b,d")
      post("thief", (1...6).map { message("invented \($0)") } + [message("hello"), message("hello again")])
      post("b", [message("hello")], at: Int(taken))
      post("d", [message("hello"), message("hello again")])
      for bucket in ["channel/0011223344556677", "heard"] {
        let page = try JSONValue(
          parsing: rig.askHub("GET", "/v1/gateways/c/updates?bucket=\(bucket)&after=0")?.body ?? [])
        let told = (page["updates"]?.array ?? []).compactMap { update in
          update["body"].map { "\($0["gateway"]?.string ?? "") \($0["text"]?.string ?? "")" }
        }
        #expect(
          told.suffix(4) == ["thief hello", "thief hello again", "b hello", "d hello again"], "\(bucket): \(told)")
      }
    }

    @Test func `what a gateway deletes is gone at both hubs of a server, and nothing of others is`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      rig.hub = try startHub(rig, server, port: rig.hubPort)
      let (descriptor, taken) = try LoopbackPort.take()
      close(descriptor)
      let other = try startHub(rig, server, port: Int(taken))
      defer { withExtendedLifetime(other) {} }
      func post(_ gateway: String, _ first: Int, _ bodies: [(String, String)], epoch: String = "e", at port: Int? = nil)
      {
        let events = bodies.enumerated().map { number, event in
          #"{"seq":\#(first + number),"at":\#(first + number),"kind":"\#(event.0)","body":\#(event.1)}"#
        }
        let batch = #"{"epoch":"\#(epoch)","lane":"messages","events":[\#(events.joined(separator: ","))]}"#
        #expect(rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: batch, port: port)?.status == 200)
      }
      func message(_ text: String) -> (String, String) {
        ("message", #"{"kind":"channel","channel":"0011223344556677","sender_time":7,"text":"\#(text)"}"#)
      }
      let sent = ("outgoing", #"{"id":"k","text":"ours","state":"sent"}"#)
      post("a", 1, [message("both"), message("own"), sent])
      post("b", 1, [message("both")], at: Int(taken))
      let named =
        #"[{"seq":1,"at":1,"id":1},{"seq":2,"at":2,"id":2},{"seq":3,"at":3,"outgoing":"k"},{"seq":9,"at":9}]"#
      post("a", 4, [("deletion", #"{"events":\#(named)}"#)], at: Int(taken))
      // Again, as a clone of its card has them; and one that came as deleted, before its original.
      post("a", 1, [message("both"), message("own"), sent], epoch: "f")
      post("a", 5, [("deletion", #"{"deleted":true}"#)])
      post("a", 5, [message("late")], epoch: "f", at: Int(taken))
      post("a", 9, [message("not yet")])
      let list = try JSONValue(parsing: rig.askHub("GET", "/v1/messages?after=0")?.body ?? [])
      let shown = (list["messages"]?.array ?? []).map { message in
        "\(message["body"]?["text"]?.string ?? "") \(message["heard"]?.array?.count ?? 0)"
      }
      #expect(shown == ["both 1"])
      let events = rig.askHub("GET", "/v1/gateways/a/events?after=0")?.body ?? []
      let text = String(decoding: events, as: UTF8.self)
      for word in ["both", "own", "ours", "late", "not yet"] { #expect(!text.contains(word), "\(word) in \(text)") }
      let updates = rig.askHub("GET", "/v1/gateways/b/updates?bucket=channel/0011223344556677&after=0")?.body ?? []
      #expect(!String(decoding: updates, as: UTF8.self).contains("own"))
    }

    @Test func `an unreachable database server is reported at once`() throws {
      let rig = try Rig()
      let file = rig.scratch.write(
        "hub-x.toml",
        """
        database = "postgresql://hub@127.0.0.1:1/mesh"
        [[token]]
        file = "\(rig.scratch.location("token"))"
        """)
      let hub = try Program.own("meshpost-hub", ["serve", "--config", file])
      #expect(try hub.ended() == 74)
      #expect(hub.lines.joined().contains("Connection refused"))
    }
  }
}
