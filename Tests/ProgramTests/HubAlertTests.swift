// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Alerts of the hub itself, on either database, and with another hub beside it.
  @Suite struct HubAlerts {
    private static let rules = """
      [alerts]
      gateway_silent_after_s = 3
      disk_free = 0
      """

    private static func rows(_ rig: Rig, _ query: String = "", port: Int? = nil) throws -> [JSONValue] {
      let answer = try #require(rig.askHub("GET", "/v1/alerts\(query)", port: port))
      return try JSONValue(parsing: answer.body)["alerts"]?.array ?? []
    }

    /// The alerts of a hub that answers; a starting hub does not answer yet.
    private static func silent(_ rig: Rig, _ query: String = "", port: Int? = nil) throws -> [JSONValue] {
      try rows(rig, query, port: port).filter { $0["rule"]?.string == "gateway_silent" }
    }

    /// The gateway's state at the hub; only a link reports it.
    private static func state(_ rig: Rig) throws -> JSONValue? {
      guard let answer = rig.askHub("GET", "/v1/gateways/\(rig.gatewayID ?? "none")/state") else { return nil }
      return try JSONValue(parsing: answer.body)["gateway"]?["body"]
    }

    private static func configure(_ rig: Rig, _ port: Int, _ server: PostgresServer?) -> String {
      rig.scratch.write(
        "hub-\(port).toml",
        """
        port = \(port)
        database = "\(server?.address ?? rig.scratch.location("hub.db"))"
        \(rules)
        [[token]]
        file = "\(rig.scratch.location("token"))"
        access = "all"
        """)
    }

    private static func start(_ file: String) throws -> Program {
      let hub = try Program.own("meshpost-hub", ["serve", "--config", file])
      try hub.line(with: "listening")
      return hub
    }

    @Test(arguments: [false, true])
    func `a gateway that falls silent causes one alert of all hubs, also over a kill, until it is heard`(
      _ isServer: Bool
    ) throws {
      let rig = try Rig()
      let server = isServer ? try PostgresServer() : nil
      let file = Self.configure(rig, rig.hubPort, server)
      rig.hub = try Self.start(file)
      var (other, otherPort) = (Program?.none, Int?.none)
      if isServer {
        let (descriptor, taken) = try LoopbackPort.take()
        close(descriptor)
        otherPort = Int(taken)
        other = try Self.start(Self.configure(rig, Int(taken), server))
      }
      let live = try Program(
        "/usr/bin/curl",
        [
          "-sN", "-H", "Authorization: Bearer \(Rig.token)",
          "http://127.0.0.1:\(otherPort ?? rig.hubPort)/v1/live",
        ], folder: rig.scratch.folder)
      try live.line(with: "event: hello")
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("its state: \(rig.gateway?.lines ?? [])") { try Self.state(rig) != nil }
      #expect(try Self.silent(rig).isEmpty)
      rig.gateway?.kill9()
      try untilTrue("the alert: \(rig.hub?.lines.suffix(5) ?? [])") { try Self.silent(rig).count == 1 }
      // By then each hub has noticed the silence, also the one that was killed.
      try rig.hub?.line(with: "alert: nothing has come from")
      try other?.line(with: "alert: nothing has come from")
      rig.hub?.kill9()
      rig.hub = try Self.start(file)
      let alert = try #require(try Self.silent(rig, "?state=open").first)
      #expect(alert["gateway"]?.string == rig.gatewayID, "\(alert)")
      let id = try #require(alert["id"]?.integer)
      let seen = rig.askHub("POST", "/v1/alerts/\(id)/acknowledge", body: #"{"note":"on my way"}"#, port: otherPort)
      #expect(seen?.status == 200)
      #expect(try Self.silent(rig).first?["note"]?.string == "on my way")
      #expect(rig.askHub("POST", "/v1/alerts/999999/acknowledge", body: "{}")?.status == 404)
      #expect(rig.askHub("POST", "/v1/alerts/\(id)/acknowledge", body: "no")?.status == 400)
      let fleet = try JSONValue(parsing: try #require(rig.askHub("GET", "/v1/fleet")).body)["gateways"]?.array
      #expect(fleet?.first?["alerts"]?.integer == 1, "\(fleet ?? [])")
      try rig.startGateway()
      try untilTrue("its end: \(rig.hub?.lines.suffix(5) ?? [])") { try Self.silent(rig, "?state=open").isEmpty }
      #expect(try Self.silent(rig, port: otherPort).count == 1, "one in all")
      let rules = String(decoding: rig.askHub("GET", "/v1/alerts/rules")?.body ?? [], as: UTF8.self)
      #expect(rules.contains("for 3 seconds"))
      try untilTrue("the metrics") {
        let text = String(decoding: rig.askHub("GET", "/metrics")?.body ?? [], as: UTF8.self)
        return text.contains("meshpost_hub_alerts{rule=\"gateway_silent\"} 0")
      }
      if isServer {
        // The stream outlived the other hub's end.
        try untilTrue("begin, acknowledgement and end in the stream: \(live.lines.suffix(6))") {
          let told = live.lines.filter { $0.contains("\"gateway_silent\"") && $0.hasPrefix("data: ") }
          return told.contains { $0.contains("on my way") && !$0.contains("ended_at") }
            && told.last?.contains("ended_at") == true
        }
      }
    }

    /// As after an outage of its database, during which the contacts of gateways are unknown.
    @Test func `a hub that was stopped counts silence from its return on`() throws {
      let rig = try Rig()
      let (least, round) = (Duration.seconds(8), Duration.seconds(2))
      rig.writeHubConfiguration(extra: "[alerts]\ngateway_silent_after_s = 8\ndisk_free = 0")
      try rig.startHub()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      func isLinked() throws -> Bool {
        let fleet = try JSONValue(parsing: try #require(rig.askHub("GET", "/v1/fleet")).body)["gateways"]?.array
        return fleet?.first?["linked"]?.bool == true
      }
      try untilTrue("its state: \(rig.gateway?.lines ?? [])") { try Self.state(rig) != nil }
      try untilTrue("its link") { try isLinked() }
      rig.gateway?.kill9()
      try untilTrue("its end") { try !isLinked() }
      let left = ContinuousClock.now
      try untilTrue("the hub has looked") { ContinuousClock.now - left > round + .seconds(1) }
      let stopped = ContinuousClock.now
      rig.hub?.send(SIGSTOP)
      // This test needs real time to pass.
      try untilTrue("longer than anybody may be silent") { ContinuousClock.now - stopped > least + .seconds(1) }
      let back = Int64(Date.now.timeIntervalSince1970 * 1000)
      rig.hub?.send(SIGCONT)
      try untilTrue("it is silent all the same: \(rig.hub?.lines ?? [])") { try !Self.silent(rig).isEmpty }
      #expect(try #require(Self.silent(rig).first?["began_at"]?.integer) >= back)
    }

    @Test func `alerts of gateways are at the hub once, over kills of both, and so is the hub's full disk`() throws {
      let rig = try Rig()
      rig.writeHubConfiguration(extra: "[alerts]\ndisk_free = \"1048576 GiB\"")
      try rig.startHub()
      try rig.startRadio()
      rig.writeGatewayConfiguration(
        extra: "[alerts]\nclock_wrong = false\ndisk_full = false\nradio_lost_after_s = 1\nradio_lost_ends_after_s = 1")
      try rig.startGateway()
      try rig.waitForSync()
      rig.killRadio()
      func lost() throws -> [JSONValue] { try Self.rows(rig).filter { $0["rule"]?.string == "radio_lost" } }
      try untilTrue("it at the hub: \(rig.gateway?.lines ?? [])") { try lost().count == 1 }
      rig.hub?.kill9()
      rig.gateway?.kill9()
      try rig.startGateway()
      try rig.startHub()
      let before = try lost()
      #expect(before.count == 1 && before.first?["ended_at"] == nil)
      try rig.startRadio()
      try untilTrue("its end: \(rig.gateway?.lines ?? [])") { try lost().first?["ended_at"] != nil }
      #expect(try lost().count == 1)
      try untilTrue("the disk") { try Self.rows(rig, "?state=open").map { $0["rule"]?.string } == ["hub_disk_full"] }
      #expect(try Self.rows(rig).count == 2)
      try untilTrue("its state, without any") { try Self.state(rig)?["alerts"]?.integer == 0 }
      #expect(rig.askHub("GET", "/v1/alerts?state=some")?.status == 400)
      #expect(rig.askHub("GET", "/v1/alerts", token: nil)?.status == 401)
    }
  }
}
