// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Alerts of gateways, at all their receivers: each begin and each end comes once.
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

    /// The rules and states of alert events, in order; by the events' identity, because a server may get one twice.
    private static func alertChanges(_ events: [JSONValue]) -> [String] {
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
          radio_lost_ends_after_s = 1
          """)
      try rig.startGateway()
      try rig.waitForSync()
      rig.killRadio()
      try untilTrue("the alert: \(rig.gateway?.lines ?? [])") { try Self.open(rig) == ["radio_lost"] }
      let posted = {
        hook.lines.filter { $0.hasPrefix("got ") }.compactMap { try? JSONValue(parsing: String($0.dropFirst(4))) }
      }
      // The receiver got it from the disk: a kill before that commit is a different case.
      try untilTrue("the alert to be posted: \(hook.lines)") { Self.alertChanges(posted()) == ["radio_lost begin"] }
      rig.gateway?.kill9()
      try rig.startGateway()
      try untilTrue("the gateway to answer") { try rig.status() != nil }
      #expect(try Self.open(rig) == ["radio_lost"], "an open alert stays open")
      func events(_ topic: String) -> [JSONValue] {
        subscriber.lines.filter { $0.contains(topic) }.compactMap { line in
          // `try?`: other lines are no JSON.
          try? JSONValue(parsing: String(line.split(separator: " ", maxSplits: 1).last ?? ""))
        }
      }
      try untilTrue("the begin everywhere: \(hook.lines) \(subscriber.lines.suffix(9))") {
        try Self.alertChanges(rig.hubRows("events")) == ["radio_lost begin"]
          && Self.alertChanges(events("/alert ")) == ["radio_lost begin"]
          && Self.alertChanges(posted()) == ["radio_lost begin"] && events("/alerts ").last?["open"]?.integer == 1
      }
      rig.hub?.kill9()
      let id = try #require(try Self.row(rig, "radio_lost")?["id"]?.integer)
      #expect(try rig.meshpost("alerts", "acknowledge", "\(id)", "--by", "ana", "--note", "on my way").code == 0)
      #expect(try rig.meshpost("alerts").lines.first?.contains("acknowledged by ana: on my way") == true)
      try rig.startRadio()
      try untilTrue("its end: \(rig.gateway?.lines ?? [])") { try Self.open(rig).isEmpty }
      try rig.startHub()
      let all = ["radio_lost begin", "radio_lost acknowledged", "radio_lost end"]
      func atHub() throws -> [String] {
        try Self.alertChanges(rig.hubRows("events")).filter { $0.hasPrefix("radio_lost") }
      }
      try untilTrue("begin, acknowledgement and end everywhere, once") {
        try atHub() == all && Self.alertChanges(events("/alert ")) == all && Self.alertChanges(posted()) == all
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

    @Test func `an alert about a full disk is stored when the disk has room again, as begun and ended`() throws {
      let rig = try Rig()
      let place = rig.scratch.location("small")
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
      let mounted = try Program("/bin/mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", place])
      guard try mounted.ended() == 0 else { return }
      defer { _ = try? Program("/bin/umount", ["-l", place]).ended() }
      try rig.startHub()
      try rig.startRadio(["--queue", "1000"])
      rig.writeGatewayConfiguration(extra: "[alerts]\nclock_wrong = false\ndisk_free = 0\ndisk_full_ends_after_s = 0")
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

    @Test func `Home Assistant shows no alerts that the filter excludes, and earlier ones are removed`() throws {
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
      // No longer retained: present subscribers get the empty message.
      try untilTrue("both are gone: \(subscriber.lines)") {
        subscriber.lines.contains { $0.hasSuffix("/alerts/config (null)") }
          && subscriber.lines.contains { $0.hasSuffix("/alerts (null)") }
      }
      #expect(try Self.open(rig) == ["radio_lost"])
    }
  }
}
