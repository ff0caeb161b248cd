// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Alerts of gateways at a real broker. GatewayTests try their other receivers.
  @Suite struct Alerts {
    private static func open(_ rig: Rig) throws -> [String] {
      try rig.status()?["alerts"]?.array?.compactMap { $0["rule"]?.string } ?? []
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
      try subscriber.line(with: #""open":1"#)
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
