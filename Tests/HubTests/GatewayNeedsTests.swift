// SPDX-License-Identifier: MIT

import JSON
import Testing

@testable import Hub

@Suite struct GatewayNeedsTests {
  private func row(_ change: (inout FleetRow) -> Void = { _ in }) -> FleetRow {
    var row = FleetRow(gateway: "hill", lastSeen: 100_000_000, events: 1, radio: nil)
    change(&row)
    return row
  }

  private func alerts(_ rules: String...) -> OpenAlerts {
    OpenAlerts(rules: Dictionary(uniqueKeysWithValues: rules.map { ($0, 1) }))
  }

  @Test func `a gateway without a link needs what its alerts tell`() {
    let needs = row().needs(isLinked: false, alerts("radio_lost", "battery_low", "clock_wrong", "backlogged"))
    #expect(needs == [.radio, .power, .clock])
    #expect(row().needs(isLinked: false, OpenAlerts()) == [], "a pause between two contacts is no silence")
    #expect(row().needs(isLinked: false, alerts("gateway_silent")) == [.silent])
    #expect(row().needs(isLinked: true, alerts("gateway_silent")) == [], "it is here")
  }

  @Test func `a state counts without a link, too, until it is old or the gateway is silent`() {
    func lost(stateAt: Int64) -> FleetRow {
      row { row in (row.radioState, row.clockTrusted, row.stateAt) = ("down", false, stateAt) }
    }
    #expect(lost(stateAt: 99_000_000).needs(isLinked: false, OpenAlerts()) == [.radio, .clock])
    #expect(lost(stateAt: 1_000_000).needs(isLinked: false, OpenAlerts()) == [])
    #expect(lost(stateAt: 1_000_000).needs(isLinked: true, OpenAlerts()) == [.radio, .clock])
    #expect(lost(stateAt: 99_000_000).needs(isLinked: false, alerts("gateway_silent")) == [.silent])
  }

  @Test func `a radio that is back is not lost, although its alert lasts some minutes`() {
    let back = row { row in (row.radioState, row.stateAt) = ("up", 99_000_000) }
    #expect(back.needs(isLinked: true, alerts("radio_lost")) == [])
  }

  @Test func `a row tells what it needs, and the rules of its alerts`() throws {
    let full = row { row in (row.power, row.storeError) = ("low", "no space") }
    let open = OpenAlerts(rules: ["node_silent": 2, "backlogged": 1])
    let told = try JSONValue(parsing: JSONWriter.object(full.json(linkedAt: 1, nil, alerts: open)))
    #expect(told["alerts"]?.integer == 3)
    #expect(told["alert_rules"]?.array?.compactMap(\.string) == ["backlogged", "node_silent"])
    #expect(told["needs"]?.array?.compactMap(\.string) == ["store", "power"])
  }
}

extension HubStore {
  /// The numbers of open alerts, by gateway.
  func alertCounts(of gateways: [String]) throws(HubDatabaseError) -> [String: Int64] {
    try openAlerts(of: gateways).mapValues(\.count)
  }
}
