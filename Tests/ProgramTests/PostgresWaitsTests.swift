// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import HTTP
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// What a hub does while another transaction of the server is open.
  @Suite struct PostgresWaits {
    private static let message = #"{"kind":"channel","channel":"0011223344556677","sender_time":7,"text":"hello"}"#

    private func start(_ rig: Rig, _ server: PostgresServer) throws -> String {
      rig.hub = try start(rig, server, port: rig.hubPort)
      return rig.scratch.location("hub-\(rig.hubPort).toml")
    }

    private func start(_ rig: Rig, _ server: PostgresServer, port: Int) throws -> Program {
      let file = rig.scratch.write(
        "hub-\(port).toml",
        """
        port = \(port)
        database = "\(server.address)"
        [alerts]
        hub_database_after_s = 1
        [[token]]
        file = "\(rig.scratch.location("token"))"
        access = "all"
        """)
      let hub = try Program.own("meshpost-hub", ["serve", "--config", file])
      try hub.line(with: "listening")
      return hub
    }

    private func report(_ rig: Rig, _ gateway: String, _ body: String = message) {
      let event = #"{"seq":1,"at":1,"trusted":true,"kind":"message","body":\#(body)}"#
      let batch = #"{"epoch":"e","events":[\#(event)]}"#
      #expect(rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: batch)?.status == 200)
    }

    private func messages(_ rig: Rig) throws -> [JSONValue] {
      try JSONValue(parsing: rig.askHub("GET", "/v1/messages?after=0")?.body ?? [])["messages"]?.array ?? []
    }

    @Test func `a gateway's removal leaves a message that another gateway is just reporting`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let file = try start(rig, server)
      report(rig, "gone")
      report(rig, "other", #"{"kind":"channel","channel":"0011223344556677","sender_time":8,"text":"newest"}"#)
      // What a batch of a gateway does, until its end some seconds later: the message is known, and gets one more hearer.
      let batch = try server.session(
        """
        BEGIN; INSERT INTO messages(position, identity, at, body)
        SELECT 1, identity, at, body FROM messages WHERE body LIKE '%hello%' ON CONFLICT(identity) DO NOTHING;
        INSERT INTO heard(message, gateway, at, body)
        SELECT position, 'stay', 1, '{"gateway":"stay"}' FROM messages WHERE body LIKE '%hello%';
        SELECT pg_sleep(4); COMMIT
        """)
      try untilTrue("the batch") {
        try server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
      }
      let removal = try Program.own("meshpost-hub", ["gateways", "remove", "--config", file, "--yes", "gone"])
      #expect(try removal.ended() == 0)
      #expect(try batch.ended() == 0)
      #expect(
        removal.lines.contains("removed gone, 1 events, 0 messages that nobody else heard"), "\(removal.lines)")
      let left = try messages(rig)
      #expect(left.first?["body"]?["text"]?.string == "hello", "\(left)")
      #expect(left.first?["heard"]?.array?.map { $0["gateway"]?.string } == ["stay"], "\(left)")
    }

    @Test func `a purge leaves no report alone that a batch is just adding`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let file = try start(rig, server)
      report(rig, "g")
      report(rig, "h", #"{"kind":"channel","channel":"0011223344556677","sender_time":8,"text":"newest"}"#)
      try server.execute("UPDATE messages SET at = 1600000000000 WHERE body LIKE '%hello%'")
      // What a batch of a gateway does, until its end some seconds later.
      let batch = try server.session(
        """
        BEGIN; INSERT INTO messages(position, identity, at, body)
        SELECT 1, identity, at, body FROM messages WHERE body LIKE '%hello%' ON CONFLICT(identity) DO NOTHING;
        INSERT INTO heard(message, gateway, at, body)
        SELECT position, 'late', 1, '{"gateway":"late"}' FROM messages WHERE body LIKE '%hello%';
        SELECT pg_sleep(4); COMMIT
        """)
      try untilTrue("the batch") {
        try server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
      }
      let purge = try Program.own(
        "meshpost-hub",
        ["purge", "--config", file, "--messages", "--older-than", "1y", "--trust-clock", "--more-than-half"])
      #expect(try purge.ended() == 0, "\(purge.lines)")
      #expect(try batch.ended() == 0)
      #expect(purge.lines.last == "deleted 1 messages", "\(purge.lines)")
      let alone = "SELECT count(*) FROM heard WHERE message NOT IN (SELECT position FROM messages)"
      #expect(try server.value(alone) == "0")
      #expect(try server.value("SELECT count(*) FROM heard") == "1")
    }

    @Test(arguments: [false, true])
    func `a deletion waits for a gateway that is just reporting the message, or deleting it`(_ deletes: Bool) throws {
      let rig = try Rig()
      let server = try PostgresServer()
      _ = try start(rig, server)
      let (descriptor, taken) = try LoopbackPort.take()
      close(descriptor)
      let other = try start(rig, server, port: Int(taken))
      defer { withExtendedLifetime(other) {} }
      report(rig, "a")
      report(rig, "b", deletes ? Self.message : #"{"kind":"direct","sender_time":1,"text":"else"}"#)
      report(rig, "c", #"{"kind":"channel","channel":"0011223344556677","sender_time":8,"text":"newest"}"#)
      /// A batch with the gateway's second event.
      func post(_ gateway: String, _ kind: String, _ body: String, at port: Int) throws -> Program {
        let event = #"{"seq":2,"at":2,"trusted":true,"kind":"\#(kind)","body":\#(body)}"#
        return try Program(
          "/usr/bin/curl",
          [
            "-s", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}\\n", "-H", "Authorization: Bearer \(Rig.token)",
            "-d",
            #"{"epoch":"e","events":[\#(event)]}"#, "http://127.0.0.1:\(port)/v1/gateways/\(gateway)/events",
          ])
      }
      func waiting() throws -> String {
        try server.value("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
      }
      let deletion = #"{"events":[{"seq":1,"at":1}]}"#
      // The last thing that the batch of `b` writes is its gateway's row: it has looked at the message, and stays open.
      let holder = try server.session("BEGIN; SELECT 1 FROM gateways WHERE id = 'b' FOR UPDATE; SELECT pg_sleep(600)")
      let asleep = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
      try untilTrue("the row to be locked") { try server.value("SELECT count(*) \(asleep)") == "1" }
      let open = try post("b", deletes ? "deletion" : "message", deletes ? deletion : Self.message, at: rig.hubPort)
      try untilTrue("the batch to be open") { try waiting() == "1" }
      let own = try post("a", "deletion", deletion, at: Int(taken))
      try untilTrue("the deletion") { try own.lines.contains("200") || waiting() == "2" }
      _ = try server.value("SELECT pg_terminate_backend(pid) \(asleep)")
      holder.kill9()
      #expect(try open.ended() == 0 && open.lines == ["200"])
      _ = try own.ended()
      // On a slow machine the wait was too long: its gateway sends it again.
      if own.lines == ["503"] {
        let again = try post("a", "deletion", deletion, at: Int(taken))
        #expect(try again.ended() == 0 && again.lines == ["200"])
      } else {
        #expect(own.lines == ["200"])
      }
      let left = try messages(rig).filter { $0["body"]?["text"]?.string == "hello" }
      let hearers = left.flatMap { $0["heard"]?.array ?? [] }.compactMap { $0["gateway"]?.string }
      let expected: [String] = deletes ? [] : ["b"]
      #expect(hearers == expected)
      #expect(try server.value("SELECT count(*) FROM messages WHERE body LIKE '%hello%'") == (deletes ? "0" : "1"))
    }

    @Test func `a repeated command whose text was deleted is answered`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      _ = try start(rig, server)
      func command() -> HTTPResponse? {
        let body = #"{"id":"c1","command":"send","to":"Public","text":"secret","queue":true}"#
        return rig.askHub("POST", "/v1/gateways/g/commands?wait_s=0", body: body)
      }
      func report(_ seq: Int, _ kind: String, _ body: String) {
        let event = #"{"seq":\#(seq),"at":\#(seq),"trusted":true,"kind":"\#(kind)","body":\#(body)}"#
        let batch = #"{"epoch":"e","events":[\#(event)]}"#
        #expect(rig.askHub("POST", "/v1/gateways/g/events", body: batch)?.status == 200)
      }
      #expect(command()?.status == 202)
      report(1, "command", #"{"id":"c1","command":"send","ok":true,"result":{"messages":[{"text":"secret"}]}}"#)
      #expect(command()?.status == 200)
      report(2, "deletion", #"{"events":[{"seq":1,"at":1}]}"#)
      let again = try #require(command())
      #expect(again.status == 200)
      let answer = try JSONValue(parsing: again.body)
      #expect(answer["id"]?.string == "c1" && answer["state"]?.string == "done", "\(answer)")
      #expect(!String(decoding: again.body, as: UTF8.self).contains("secret"))
      // It waits for nobody: the gateway does not get it again.
      #expect(try server.value("SELECT count(*) FROM commands WHERE state = 'queued'") == "0")
    }

    @Test func `a forgotten transaction that hides what comes is an alert that names it`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      _ = try start(rig, server)
      let forgotten = try server.session("BEGIN; SELECT pg_current_xact_id(); SELECT pg_sleep(600)")
      try untilTrue("the transaction") {
        try server.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
      }
      let process = try server.value("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
      report(rig, "g")
      #expect(try messages(rig).isEmpty)
      func alert() throws -> String? {
        let answer = try JSONValue(parsing: rig.askHub("GET", "/v1/alerts")?.body ?? [])
        return answer["alerts"]?.array?.first { $0["rule"]?.string == "hub_database" }?["text"]?.string
      }
      let text = try until("the alert") { try alert() }
      #expect(
        text.contains("until this transaction ends: process \(process) (program psql, database mesh, "), "\(text)")
      #expect(text.hasSuffix(". End it in its program, or by SELECT pg_terminate_backend(\(process))"), "\(text)")
      #expect(rig.hub?.lines.count { $0.contains("shows no new messages") } == 1)
      func ready() throws -> JSONValue { try JSONValue(parsing: rig.askHub("GET", "/readyz", token: nil)?.body ?? []) }
      func page() throws -> JSONValue { try JSONValue(parsing: rig.askHub("GET", "/v1/messages?after=0")?.body ?? []) }
      try untilTrue("what cannot be read is told") { try ready()["messages"]?.string == "hidden" }
      #expect(try ready()["ready"]?.bool == true && page()["hidden"]?.bool == true)
      let doctor = try Program.own("meshpost-hub", ["doctor", "--config", rig.scratch.location("hub.toml")])
      #expect(try doctor.ended() == 1)
      #expect(doctor.lines.contains { $0.contains("hides what gateways have sent since then") }, "\(doctor.lines)")
      try server.execute("SELECT pg_terminate_backend(\(process))")
      forgotten.kill9()
      try untilTrue("the message") { try messages(rig).count == 1 }
      try untilTrue("nothing is hidden") { try ready()["messages"] == nil && page()["hidden"] == nil }
    }

    @Test func `a doctor names a prepared transaction, which no activity of the server shows`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let file = try start(rig, server)
      try server.execute("BEGIN; CREATE TABLE other(a int); PREPARE TRANSACTION 'bank''s'")
      func told() throws -> [String] {
        let doctor = try Program.own("meshpost-hub", ["doctor", "--config", file])
        _ = try doctor.ended()
        return doctor.lines.filter { $0.contains("repared") || $0.contains("PREPARED") }
      }
      var lines: [String] = []
      try untilTrue("the finding") {
        lines = try told()
        return !lines.isEmpty
      }
      #expect(lines.first?.contains("a prepared one has been open for ") == true, "\(lines)")
      #expect(lines.first?.contains("(bank's, database mesh, of hub)") == true, "\(lines)")
      #expect(lines.last?.contains("ROLLBACK PREPARED 'bank''s'") == true, "\(lines)")
      try server.execute("ROLLBACK PREPARED 'bank''s'")
      #expect(try told().isEmpty)
    }
  }
}
