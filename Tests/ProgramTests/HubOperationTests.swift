// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A hub's reports about itself, and an operator's commands while it serves.
  @Suite struct HubOperation {
    /// The connection to a database: when stopped, it drops all packets.
    private static let network = """
      import asyncio, sys
      async def pipe(reader, writer):
          try:
              while data := await reader.read(65536): writer.write(data); await writer.drain()
          except Exception: pass
          writer.close()
      async def serve(reader, writer):
          try: up = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
          except OSError: return writer.close()
          await asyncio.gather(pipe(reader, up[1]), pipe(up[0], writer))
      async def main():
          server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
          print("ready", flush=True)
          await server.serve_forever()
      asyncio.run(main())
      """

    private static let day: Int64 = 86_400_000
    private static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

    /// A batch of adverts; ages in days.
    private func ship(_ rig: Rig, _ gateway: String, from first: Int, _ ages: [Int]) throws {
      let events = ages.enumerated().map { index, days in
        let at = Self.now - Int64(days) * Self.day
        return #"{"seq":\#(first + index),"at":\#(at),"trusted":true,"kind":"advert","body":{"key":"k\#(index)"}}"#
      }
      let body = #"{"epoch":"e","lane":"nodes","events":[\#(events.joined(separator: ","))]}"#
      try #require(rig.askHub("POST", "/v1/gateways/\(gateway)/events", body: body)?.status == 200)
    }

    private func command(_ rig: Rig, _ arguments: String...) throws -> (code: Int32, lines: [String]) {
      let program = try Program.own(
        "meshpost-hub", [arguments[0], "--config", rig.scratch.location("hub.toml")] + arguments.dropFirst())
      let code = try program.ended()
      return (code, program.lines)
    }

    private func reason(_ rig: Rig) throws -> String? {
      guard let answer = rig.askHub("GET", "/readyz", token: nil) else { return "no answer" }
      let json = try JSONValue(parsing: answer.body)
      #expect(json["ready"]?.bool == (answer.status == 200))
      return answer.status == 200 ? nil : json["reason"]?.string
    }

    private func metric(_ rig: Rig, _ name: String) throws -> String? {
      let answer = try #require(rig.askHub("GET", "/metrics"))
      #expect(answer.status == 200)
      let lines = String(decoding: answer.body, as: UTF8.self).split(separator: "\n")
      return lines.first { $0.hasPrefix(name + " ") }.map { String($0.dropFirst(name.utf8.count + 1)) }
    }

    @Test func `while the database hangs a hub reports at once that it is not ready, and is ready again afterwards`()
      throws
    {
      let rig = try Rig()
      let server = try PostgresServer()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      let network = try Program(Program.python, ["-c", Self.network, "\(port)", "\(server.port)"])
      try network.line(with: "ready")
      let text = try String(contentsOfFile: rig.scratch.location("hub.toml"), encoding: .utf8)
      _ = rig.scratch.write(
        "hub.toml",
        text.replacingOccurrences(of: rig.scratch.location("hub.db"), with: "postgresql://hub@127.0.0.1:\(port)/mesh"))
      try rig.startHub()
      try untilTrue("readiness") { try reason(rig) == nil }
      try ship(rig, "g", from: 1, [1])
      #expect(try metric(rig, "meshpost_hub_database_up") == "1")

      network.send(SIGSTOP)
      try untilTrue("the hub to notice") { try reason(rig) == "database_silent" }
      for _ in 0..<50 { #expect(try reason(rig) == "database_silent") }
      #expect(try metric(rig, "meshpost_hub_database_up") == "0")
      #expect(rig.askHub("GET", "/healthz", token: nil)?.status == 200)
      network.send(SIGCONT)
      try untilTrue("readiness again") { try reason(rig) == nil }
      try ship(rig, "g", from: 2, [1])

      network.kill9()
      try untilTrue("the hub to notice") { try reason(rig) == "database_down" }
    }

    @Test func `a copy of the database file alone is complete at the first moment and after a stop`()
      throws
    {
      let rig = try Rig()
      try rig.startHub()
      let tables = """
        import shutil, sqlite3, sys
        shutil.copy(sys.argv[1], sys.argv[1] + ".copy")
        database = sqlite3.connect(sys.argv[1] + ".copy")
        try: print("there are", database.execute("SELECT count(*) FROM events").fetchone()[0], flush=True)
        except sqlite3.OperationalError as error: print(error, flush=True)
        """
      func copied() throws -> String {
        let program = try Program(Program.python, ["-c", tables, rig.scratch.location("hub.db")])
        _ = try program.ended()
        return program.lines.joined()
      }
      try untilTrue("tables") { try copied() == "there are 0" }
      let batch = #"{"epoch":"e","events":[{"seq":1,"at":1,"kind":"x","body":{}}]}"#
      #expect(rig.askHub("POST", "/v1/gateways/g/events", body: batch)?.status == 200)
      rig.hub?.send(SIGTERM)
      #expect(try rig.hub?.ended() == 0)
      #expect(try copied() == "there are 1")
    }

    @Test func `metrics need a token, and count the received events`() throws {
      let rig = try Rig()
      try rig.startHub()
      try ship(rig, "g", from: 1, [1, 1, 1])
      #expect(rig.askHub("GET", "/metrics", token: nil)?.status == 401)
      #expect(try metric(rig, #"meshpost_hub_events_total{lane="nodes"}"#) == "3")
      #expect(try metric(rig, #"meshpost_hub_logins_refused_total{reason="unknown"}"#) == "1")
      // The number of lines is the same with a hundred gateways as with one.
      let before = rig.askHub("GET", "/metrics")?.body.split(separator: 0x0A).count
      for number in 0..<100 { try ship(rig, "g\(number)", from: 1, [1]) }
      #expect(rig.askHub("GET", "/metrics")?.body.split(separator: 0x0A).count == before)
    }

    @Test func `a gateway that is removed while the hub serves is unknown, and comes again as a new one`() throws {
      let rig = try Rig()
      try rig.startHub()
      func remove(_ gateway: String) throws -> Int32 {
        try Program.own(
          "meshpost-hub", ["gateways", "remove", "--config", rig.scratch.location("hub.toml"), "--yes", gateway]
        ).ended()
      }
      for gateway in ["hill", "lake"] { try ship(rig, gateway, from: 1, [3, 2, 1]) }
      #expect(try remove("nobody") == 67)
      #expect(try remove("hill") == 0)
      #expect(rig.askHub("GET", "/v1/gateways/hill/events")?.status == 404)
      #expect(rig.askHub("GET", "/v1/gateways/lake/events")?.status == 200)
      #expect(try remove("hill") == 67)
      try ship(rig, "hill", from: 1, [3, 2, 1])
      let answer = try #require(rig.askHub("GET", "/v1/gateways/hill/events"))
      #expect(try JSONValue(parsing: answer.body)["events"]?.array?.count == 3)
    }

    @Test func `a backup under load restores a whole hub without missing or duplicate events`() throws {
      let rig = try Rig()
      try rig.startRadio(["--queue", "100000", "--contacts", "5"])
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 400 2000")
      try untilTrue("some messages at the hub") { try rig.hubRows("events").count > 100 }
      let backup = rig.scratch.location("copy.db")
      let made = try command(rig, "backup", backup)
      #expect(made.code == 0, "\(made.lines)")
      let mode = try FileManager.default.attributesOfItem(atPath: backup)[.posixPermissions] as? Int
      #expect(mode == 0o600)
      #expect(try command(rig, "backup", backup).code == 73, "an existing file stays")
      let left = try FileManager.default.contentsOfDirectory(atPath: rig.scratch.folder.path())
      #expect(left.filter { $0.hasPrefix("copy.db") } == ["copy.db"])

      // Events after the backup are lost with the disk.
      try rig.radio?.line(with: "\"injected\"")
      try untilTrue("more at the hub") { try rig.hubRows("events").count > 400 }
      rig.hub?.kill9()
      for suffix in ["", "-wal", "-shm"] {
        // `try?`: not all of these files exist.
        try? FileManager.default.removeItem(atPath: rig.scratch.location("hub.db" + suffix))
      }
      try FileManager.default.copyItem(atPath: backup, toPath: rig.scratch.location("hub.db"))
      try rig.startHub()
      try rig.waitForAllAtHub(messages: 2000)
      let events = try rig.hubRows("events")
      let seqs = events.compactMap { $0["seq"]?.integer }
      let last = try rig.status()?["store"]?["last_seq"]?.integer ?? 0
      #expect(seqs.sorted() == Array(1...max(1, last)), "each event once")
      #expect(Rig.isInOrder(events))
      #expect(try Set(rig.hubTexts()).count == 2000)
    }

    @Test func `old events are deleted while a gateway sends, nothing else is lost, and nothing is sent again`()
      throws
    {
      let rig = try Rig()
      try rig.startRadio(["--queue", "100000", "--contacts", "5"])
      try rig.startHub()
      for round in 0..<30 { try ship(rig, "old", from: round * 200 + 1, [Int](repeating: 200 - round, count: 200)) }
      try ship(rig, "old", from: 6001, [1, 1])
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 200 1000")
      try untilTrue("some messages at the hub") { try rig.hubRows("events").count > 50 }

      #expect(try command(rig, "purge", "--older-than", "90d").code == 64, "not without a word")
      let mistyped = try command(rig, "purge", "--older-than", "90d", "--kind", "mesage", "--yes")
      let words = mistyped.lines.joined()
      #expect(mistyped.code == 64 && words.contains("expected radio, message, channel"), "\(words)")
      #expect(rig.askHub("GET", "/v1/gateways/old/events?kind=mesage")?.status == 400)
      #expect(rig.askHub("GET", "/v1/gateways/old/events?kind=telemetry")?.status == 200, "there is no telemetry yet")
      let said = try command(rig, "purge", "--older-than", "90d", "--messages", "--dry-run")
      #expect(said.lines.last == "would delete 6000 events", "\(said.lines)")
      #expect(said.lines.contains("advert: 6000 of 6002 (99 %)"), "\(said.lines)")
      #expect(said.lines.contains { $0.hasPrefix("from 20") && $0.contains(" to 20") }, "\(said.lines)")
      let refused = try command(rig, "purge", "--older-than", "90d", "--messages", "--yes")
      #expect(refused.code == 64 && refused.lines.contains { $0.contains("--more-than-half") }, "\(refused.lines)")
      let done = try command(rig, "purge", "--older-than", "90d", "--messages", "--more-than-half")
      #expect(done.lines.last == "deleted 6000 events" && done.code == 0, "\(done.lines)")
      let old = try JSONValue(parsing: #require(rig.askHub("GET", "/v1/gateways/old?epoch=e")).body)
      #expect(old["lanes"]?["nodes"]?.integer == 6002 && old["events"]?.integer == 6002)

      try rig.radio?.line(with: "\"injected\"")
      try rig.waitForAllAtHub(messages: 1000)
      let seqs = try rig.hubRows("events").compactMap { $0["seq"]?.integer }
      let last = try rig.status()?["store"]?["last_seq"]?.integer ?? 0
      #expect(seqs.sorted() == Array(1...max(1, last)))

      let stats = try JSONValue(parsing: command(rig, "stats", "--json").lines.joined())
      #expect(stats["gateways"]?.integer == 2)
      let events = stats["tables"]?.array?.first { $0["table"]?.string == "events" }
      #expect(events?["rows"]?.integer == Int64(seqs.count + 2))
      #expect(stats["top"]?.array?.first?["gateway"]?.string == "old")
    }

    @Test func `purge, stats, doctor and a dump work on PostgreSQL`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      let text = try String(contentsOfFile: rig.scratch.location("hub.toml"), encoding: .utf8)
      func configure(_ address: String) {
        _ = rig.scratch.write(
          "hub.toml", text.replacingOccurrences(of: rig.scratch.location("hub.db"), with: address))
      }
      configure(server.address)
      chmod(rig.scratch.location("token"), 0o600)
      try rig.startHub()
      for round in 0..<5 { try ship(rig, "old", from: round * 200 + 1, [Int](repeating: 200 - round, count: 200)) }
      try ship(rig, "old", from: 1001, [1, 1])
      let done = try command(
        rig, "purge", "--older-than", "90d", "--messages", "--contacts", "--commands", "--more-than-half")
      #expect(done.lines.last == "deleted 1000 events, 198 contacts" && done.code == 0, "\(done.lines)")
      let stats = try command(rig, "stats")
      #expect(stats.code == 0 && stats.lines.contains { $0.contains("old: 1002 events") }, "\(stats.lines)")

      try server.execute("ALTER ROLE hub SET synchronous_commit = off")
      let doctor = try command(rig, "doctor", "--json")
      let findings = try JSONValue(parsing: doctor.lines.joined())["findings"]?.array ?? []
      let words = findings.compactMap { $0["words"]?.string }
      #expect(doctor.code == 1)
      #expect(words.contains { $0.contains("synchronous_commit is off") }, "\(words)")
      #expect(words.contains { $0.contains("idle_in_transaction_session_timeout is off") }, "\(words)")
      #expect(words.contains { $0.contains("it is ready on 127.0.0.1") }, "\(words)")

      let dump = rig.scratch.location("hub.dump")
      let made = try command(rig, "backup", dump)
      #expect(made.code == 0, "\(made.lines)")
      rig.hub?.kill9()
      try server.restore(dump, as: "copy")
      configure(server.address.replacingOccurrences(of: "/mesh", with: "/copy"))
      try rig.startHub()
      let old = try JSONValue(parsing: #require(rig.askHub("GET", "/v1/gateways/old?epoch=e")).body)
      #expect(old["lanes"]?["nodes"]?.integer == 1002)
      try ship(rig, "old", from: 1003, [0])
      let page = try JSONValue(parsing: #require(rig.askHub("GET", "/v1/gateways/old/events")).body)
      #expect(page["events"]?.array?.compactMap { $0["seq"]?.integer } == [1001, 1002, 1003])
    }

    @Test func `a dump that stalls is ended, and leaves nothing behind`() throws {
      let rig = try Rig()
      let server = try PostgresServer()
      rig.writeHubConfiguration(database: server.address)
      try rig.startHub()
      try ship(rig, "g", from: 1, [1])
      let lock = try server.session("BEGIN; LOCK TABLE events; SELECT pg_sleep(600)")
      try untilTrue("the lock") {
        try server.value("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted") == "1"
      }
      let backup = rig.scratch.location("hub.dump")
      let made = try command(rig, "backup", "--patience", "2", backup)
      #expect(made.code == 74 && made.lines.contains { $0.contains("nothing more came for 2 s") }, "\(made.lines)")
      let left = try FileManager.default.contentsOfDirectory(atPath: rig.scratch.folder.path())
      #expect(left.filter { $0.hasPrefix("hub.dump") }.isEmpty, "\(left)")
      lock.kill9()
      try server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%' AND pid <> pg_backend_pid()"
      )
      try untilTrue("its session to end") {
        try server.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'meshpost-hub backup'") == "0"
      }
      let again = try command(rig, "backup", backup)
      #expect(again.code == 0, "\(again.lines)")
      #expect(try command(rig, "backup", "--patience", "0", backup).code == 64)
    }

    @Test func `the doctor of a hub whose database file was removed says what that means, and what to do`() throws {
      let rig = try Rig()
      try rig.startHub()
      try ship(rig, "g", from: 1, [0])
      try FileManager.default.removeItem(atPath: rig.scratch.location("hub.db"))
      try untilTrue("the hub to notice") { try reason(rig) == "database_lost" }
      let doctor = try command(rig, "doctor")
      #expect(doctor.code == 1)
      #expect(
        doctor.lines.contains { $0.contains("the database file was removed or replaced: what the hub takes now is") },
        "\(doctor.lines)")
      #expect(doctor.lines.contains { $0.contains("put the file or a backup back") }, "\(doctor.lines)")
    }

    @Test func `the doctor of an unconfigured hub names each problem and its place`() throws {
      let rig = try Rig()
      let missing = try command(rig, "doctor")
      #expect(missing.code == 1)
      #expect(missing.lines.contains { $0.contains("no such file") }, "\(missing.lines)")
      #expect(missing.lines.contains { $0.contains("no answer on 127.0.0.1 port \(rig.hubPort)") })
      rig.writeHubConfiguration(extra: "prot = 1")
      let wrong = try command(rig, "doctor")
      #expect(wrong.code == 1 && wrong.lines.contains { $0.contains("prot is not a known key") }, "\(wrong.lines)")
      #expect(try command(rig, "stats").code == 78)
    }
  }
}
