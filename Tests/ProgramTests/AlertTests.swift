// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Alerts of gateways, to everybody who is to have them, each begin and each end once.
  @Suite struct Alerts {
    private static let server = """
      \(Program.say)
      import http.server, json
      class Handler(http.server.BaseHTTPRequestHandler):
          def do_POST(self):
              body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
              say("got " + json.dumps(body))
              self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
          def log_message(self, *_): pass
      server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
      print("port", server.server_address[1], flush=True)
      server.serve_forever()
      """

    /// Rule and state of each alert among events, in order; by the events' identity, as a server may get one twice.
    private static func told(_ events: [JSONValue]) -> [String] {
      var seen: Set<Int64> = []
      return events.compactMap { event in
        guard event["kind"]?.string == "alert" || event["kind"]?.string == "power", let seq = event["seq"]?.integer,
          seen.insert(seq).inserted
        else { return nil }
        return "\(event["body"]?["rule"]?.string ?? "?") \(event["body"]?["state"]?.string ?? "?")"
      }
    }

    private static func open(_ rig: Rig) throws -> [String] {
      try rig.status()?["alerts"]?.array?.compactMap { $0["rule"]?.string } ?? []
    }

    private static func row(_ rig: Rig, _ rule: String) throws -> JSONValue? {
      let answer = try JSONValue(parsing: rig.control("GET", "/v1/alerts")?.body ?? [])
      return answer["alerts"]?.array?.first { $0["rule"]?.string == rule }
    }

    @Test
    func
      `a radio that dies, and its return, are told to hub, broker, webhook and Home Assistant once, also after kills`()
      throws
    {
      let rig = try Rig()
      let broker = try TestBroker(rig)
      let hook = try Program(Program.python, ["-c", Self.server])
      let port = try hook.line(with: "port ").split(separator: " ").last.map(String.init) ?? ""
      let subscriber = try broker.subscriber("counter", ["-v", "-t", "meshpost/#", "-t", "homeassistant/meshpost/#"])
      try rig.startHub()
      try rig.startRadio()
      rig.writeGatewayConfiguration(
        extra: """
          [[upstream]]
          name = "broker"
          kind = "mqtt"
          url = "mqtt://127.0.0.1:\(broker.port)"
          home_assistant = true
          [[upstream]]
          name = "hook"
          kind = "webhook"
          url = "http://127.0.0.1:\(port)/"
          kinds = ["alert"]
          [alerts]
          clock_wrong = false
          disk_full = false
          radio_lost_after_s = 1
          radio_lost_over_s = 1
          """)
      try rig.startGateway()
      try rig.waitForSync()
      rig.killRadio()
      try untilTrue("the alert: \(rig.gateway?.lines ?? [])") { try Self.open(rig) == ["radio_lost"] }
      let posted = {
        hook.lines.filter { $0.hasPrefix("got ") }.compactMap { try? JSONValue(parsing: String($0.dropFirst(4))) }
      }
      // Who was told of it has it from the disk: a kill before that commit is another case.
      try untilTrue("it to be told: \(hook.lines)") { Self.told(posted()) == ["radio_lost begin"] }
      rig.gateway?.kill9()
      try rig.startGateway()
      try untilTrue("the gateway to answer") { try rig.status() != nil }
      #expect(try Self.open(rig) == ["radio_lost"], "what was open is open")
      func events(_ topic: String) -> [JSONValue] {
        subscriber.lines.filter { $0.contains(topic) }.compactMap { line in
          // `try?`: other lines.
          try? JSONValue(parsing: String(line.split(separator: " ", maxSplits: 1).last ?? ""))
        }
      }
      try untilTrue("the begin everywhere: \(hook.lines) \(subscriber.lines.suffix(9))") {
        try Self.told(rig.hubRows("events")) == ["radio_lost begin"]
          && Self.told(events("/alert ")) == ["radio_lost begin"]
          && Self.told(posted()) == ["radio_lost begin"] && events("/alerts ").last?["open"]?.integer == 1
      }
      rig.hub?.kill9()
      let id = try #require(try Self.row(rig, "radio_lost")?["id"]?.integer)
      #expect(try rig.meshpost("alerts", "acknowledge", "\(id)", "--by", "ana", "--note", "on my way").code == 0)
      #expect(try rig.meshpost("alerts").lines.first?.contains("acknowledged by ana: on my way") == true)
      try rig.startRadio()
      try untilTrue("its end: \(rig.gateway?.lines ?? [])") { try Self.open(rig).isEmpty }
      try rig.startHub()
      let all = ["radio_lost begin", "radio_lost acknowledged", "radio_lost end"]
      func atHub() throws -> [String] { try Self.told(rig.hubRows("events")).filter { $0.hasPrefix("radio_lost") } }
      try untilTrue("begin, acknowledgement and end everywhere, once") {
        try atHub() == all && Self.told(events("/alert ")) == all && Self.told(posted()) == all
          && events("/alerts ").last?["open"]?.integer == 0
      }
      let row = try #require(try Self.row(rig, "radio_lost"))
      #expect(row["ended_at"] != nil && row["acknowledged_by"]?.string == "ana", "\(row)")
      let rules = try rig.meshpost("alerts", "rules").lines
      #expect(rules.contains { $0.hasPrefix("radio_lost") && $0.contains("1 second") })
      let metrics = String(decoding: rig.control("GET", "/metrics")?.body ?? [], as: UTF8.self)
      #expect(metrics.contains("meshpost_alerts{rule=\"radio_lost\"} 0") && !metrics.contains("rule=\"clock_wrong\""))
      #expect(rig.control("POST", "/v1/alerts/acknowledge")?.status == 400)
      #expect(try rig.meshpost("alerts", "acknowledge", "99999").code != 0)
    }

    @Test func `a dead upstream, a full disk and dead letters begin and end; what is switched off is silent`() throws {
      let rig = try Rig()
      try rig.startRadio()
      func configure(_ more: String) {
        rig.writeGatewayConfiguration(
          extra: """
            [[hook]]
            name = "no"
            kinds = ["message"]
            run = ["/bin/grep", "-qv", "nobody takes"]
            \(geteuid() == 0 ? "user = \"nobody\"" : "")
            [alerts]
            clock_wrong = false
            backlogged_after_s = 5
            backlogged_over_s = 0
            disk_full_over_s = 0
            \(more)
            """)
      }
      configure("")
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("dm r1 r0 nobody takes this")
      rig.radio?.write("dm r1 r0 this is taken")
      try untilTrue("both: \(rig.gateway?.lines ?? [])") { try Set(Self.open(rig)) == ["backlogged", "dead_letters"] }
      #expect(try Self.row(rig, "backlogged")?["subject"]?.string == "hub")
      #expect(try Self.row(rig, "dead_letters")?["subject"]?.string == "hook/no")
      // More room is wanted than any disk has.
      configure("disk_free = \"1048576 GiB\"")
      rig.gateway?.send(SIGHUP)
      try untilTrue("the disk: \(rig.gateway?.lines ?? [])") { try Self.open(rig).contains("disk_full") }
      configure("disk_free = 0\ndead_letters = false")
      rig.gateway?.send(SIGHUP)
      try untilTrue("room again, and one rule less") { try Self.open(rig) == ["backlogged"] }
      try rig.startHub()
      try untilTrue("the hub has it: \(rig.gateway?.lines.suffix(5) ?? [])") { try Self.open(rig).isEmpty }
      var told: [String] = []
      try untilTrue("all at the hub: \(told)") {
        told = Self.told(try rig.hubRows("events"))
        return told.count == 6
      }
      #expect(told.filter { $0.hasPrefix("backlogged") } == ["backlogged begin", "backlogged end"])
      #expect(told.filter { $0.hasPrefix("disk") } == ["disk_full begin", "disk_full end"])
      #expect(told.filter { $0.hasPrefix("dead") } == ["dead_letters begin", "dead_letters end"])
    }

    @Test func `a disk that takes nothing is told when it takes something again, as begun and over`() throws {
      let rig = try Rig()
      let place = rig.scratch.location("small")
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
      let mounted = try Program("/bin/mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", place])
      guard try mounted.ended() == 0 else { return }
      defer { _ = try? Program("/bin/umount", ["-l", place]).ended() }
      try rig.startHub()
      try rig.startRadio(["--queue", "1000"])
      rig.writeGatewayConfiguration(extra: "[alerts]\nclock_wrong = false\ndisk_free = 0\ndisk_full_over_s = 0")
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write(
        "gw.toml", text.replacingOccurrences(of: rig.scratch.location("gw.db"), with: "\(place)/gw.db"))
      try rig.startGateway()
      try rig.waitForSync()
      let filler = "\(place)/filler"
      _ = try Program("/bin/dd", ["if=/dev/zero", "of=\(filler)", "bs=1k"]).ended()
      for number in 0..<20 { rig.radio?.write("dm r1 r0 \(number) \(String(repeating: "much ", count: 24))") }
      try rig.gateway?.line(with: "alert: nothing can be written")
      unlink(filler)
      try rig.gateway?.line(with: "alert over: disk_full")
      func alerts() throws -> [JSONValue] {
        try JSONValue(parsing: rig.control("GET", "/v1/alerts")?.body ?? [])["alerts"]?.array ?? []
      }
      try untilTrue("the row: \(try alerts()) \(rig.gateway?.lines.suffix(8) ?? [])") {
        try alerts().contains { $0["rule"]?.string == "disk_full" && $0["ended_at"] != nil }
      }
      #expect(try alerts().count { $0["rule"]?.string == "disk_full" } == 1)
    }

    @Test func `a node that is named for it, and silent, is told; when it is heard, that is over`() throws {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration(
        extra: "[alerts]\nclock_wrong = false\ndisk_full = false\nnodes = [\"r1\"]\nnode_silent_after_s = 2")
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the alert: \(rig.gateway?.lines ?? [])") { try Self.open(rig).contains("node_silent") }
      let text = try Self.row(rig, "node_silent")?["text"]?.string ?? ""
      #expect(text == "r1 has not been heard for 2 seconds")
      rig.gateway?.kill9()
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try Self.open(rig).contains("node_silent"), "over a restart, too")
      // It is heard, and then silent again, until it is heard again.
      rig.radio?.write("advert r1")
      try rig.gateway?.line(with: "alert over: node_silent")
      let isAgain = { try Self.row(rig, "node_silent")?["ended_at"] == nil }
      try untilTrue("it is silent again: \(rig.gateway?.lines ?? [])") { try isAgain() }
      rig.writeGatewayConfiguration(extra: "[alerts]\nclock_wrong = false\ndisk_full = false")
      rig.gateway?.send(SIGHUP)
      try untilTrue("nobody listens for it any more") { try Self.open(rig).isEmpty }
    }

    @Test func `what was lost is over after its time, also when a kill is in between`() throws {
      let rig = try Rig()
      func configure(_ over: Int) {
        rig.writeGatewayConfiguration(
          extra: "[alerts]\nclock_wrong = false\ndisk_full = false\njournal_loss_over_s = \(over)",
          store: "journal_max_size = \"1 MiB\"")
      }
      configure(86_400)
      try rig.startRadio(["--queue", "100000"])
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 0 8000")
      try untilTrue("the loss: \(rig.gateway?.lines ?? [])") { try Self.open(rig).contains("journal_loss") }
      let text = try Self.row(rig, "journal_loss")?["text"]?.string ?? ""
      #expect(text.hasSuffix(" events were deleted that hub had not received") && text.prefix(1) != "0", "\(text)")
      try untilTrue("all was handed over") { try rig.radioStats()["queued"]?.integer == 0 }
      rig.gateway?.kill9()
      configure(1)
      try rig.startGateway()
      try untilTrue("its end: \(rig.gateway?.lines ?? [])") { try !Self.open(rig).contains("journal_loss") }
    }

    @Test func `a node for which the radio has no place is told of, until there is one`() throws {
      let rig = try Rig()
      rig.writeGatewayConfiguration(
        extra:
          "[contacts]\nevict = false\n[alerts]\nclock_wrong = false\ndisk_full = false\ncontacts_full_after_s = 0\ncontacts_full_over_s = 0"
      )
      try rig.startRadio(["--max-contacts", "40", "--contacts", "40"], isKnown: false)
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try Self.open(rig) == [], "full, and nobody was refused")
      rig.radio?.write("advert r1")
      try untilTrue("the alert: \(rig.gateway?.lines ?? [])") { try Self.open(rig) == ["contacts_full"] }
      let name =
        try rig.meshpost("contacts", "--on-radio", "--json").lines.lazy
        .compactMap { try JSONValue(parsing: $0)["key"]?.string }.first ?? ""
      #expect(try rig.meshpost("contact", "remove", name).code == 0)
      try untilTrue("its end: \(rig.gateway?.lines ?? [])") { try Self.open(rig).isEmpty }
      try untilTrue("the hub to know both") {
        try Self.told(rig.hubRows("events")) == ["contacts_full begin", "contacts_full end"]
      }
    }

    @Test func `a radio whose queue was full is told of, with how much, at the hub, too`() throws {
      let rig = try Rig()
      rig.writeGatewayConfiguration(extra: "[alerts]\nclock_wrong = false\ndisk_full = false")
      try rig.startRadio(["--queue", "16"])
      try rig.startHub()
      rig.radio?.write("inject r0 0 24")
      try untilTrue("a full queue") { try rig.radioStats()["queued"]?.integer == 16 }
      try rig.startGateway()
      try untilTrue("the alert: \(rig.gateway?.lines ?? [])") { try Self.open(rig) == ["radio_queue_full"] }
      try untilTrue("the hub to know") { try Self.told(rig.hubRows("events")) == ["radio_queue_full begin"] }
      let events = try rig.hubRows("events")
      let gap = try #require(events.firstIndex { $0["kind"]?.string == "radio_gap" })
      #expect(events[gap]["body"]?["waited"]?.integer == 16 && events[gap]["body"]?["lost"] == nil)
      #expect(events[..<gap].count { $0["kind"]?.string == "message" } == 16, "behind those that came")
    }

    @Test func `a radio that hands over no messages is told of as long as it does not`() throws {
      let rig = try Rig(), radio = try ScriptedRadio { _, _ in }
      radio.withholds = true
      rig.link = "tcp:127.0.0.1:\(radio.port)"
      rig.writeGatewayConfiguration(
        extra:
          "[alerts]\nclock_wrong = false\ndisk_full = false\nmessages_stuck_after_s = 1\nmessages_stuck_over_s = 0")
      try rig.startGateway()
      try untilTrue("the alert: \(rig.gateway?.lines ?? [])") { try Self.open(rig) == ["messages_stuck"] }
      #expect(try Self.row(rig, "messages_stuck")?["text"]?.string?.contains("nothing more is received") == true)
      radio.withholds = false
      try untilTrue("its end: \(rig.gateway?.lines ?? [])") { try Self.open(rig).isEmpty }
    }

    @Test func `a rule that is switched on finds what is wrong already`() throws {
      let rig = try Rig()
      func configure(_ rule: String) {
        rig.writeGatewayConfiguration(
          extra: "[alerts]\nclock_wrong = false\ndisk_full = false\nradio_lost_after_s = 0\n\(rule)")
      }
      configure("radio_lost = false")
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      rig.killRadio()
      try untilTrue("the radio is away") { try rig.status()?["radio"]?["state"]?.string == "down" }
      #expect(try Self.open(rig).isEmpty)
      configure("")
      rig.gateway?.send(SIGHUP)
      try untilTrue("the alert: \(rig.gateway?.lines ?? [])") { try Self.open(rig) == ["radio_lost"] }
    }

    @Test func `Home Assistant shows no alerts that the filter denies, and forgets those it had`() throws {
      let rig = try Rig()
      let broker = try TestBroker(rig)
      func configure(_ filter: String) {
        rig.writeGatewayConfiguration(
          extra: """
            [[upstream]]
            name = "broker"
            kind = "mqtt"
            url = "mqtt://127.0.0.1:\(broker.port)"
            home_assistant = true
            \(filter)
            [alerts]
            clock_wrong = false
            disk_full = false
            radio_lost_after_s = 0
            """)
      }
      configure("")
      try rig.startGateway()
      let subscriber = try broker.subscriber("home", ["-v", "-t", "homeassistant/#"])
      try subscriber.line(with: "radio_lost")
      configure(#"kinds = ["telemetry"]"#)
      rig.gateway?.send(SIGHUP)
      // Retained no more: the empty one is told to who is there.
      try untilTrue("both are gone: \(subscriber.lines)") {
        subscriber.lines.contains { $0.hasSuffix("/alerts/config (null)") }
          && subscriber.lines.contains { $0.hasSuffix("/alerts (null)") }
      }
      #expect(try Self.open(rig) == ["radio_lost"])
    }
  }
}
