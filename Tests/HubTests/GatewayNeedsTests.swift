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
    // The place of `disk_full` in the order of rules.
    #expect(told["rank"]?.integer == 7)
    let well = try JSONValue(parsing: JSONWriter.object(row().json(linkedAt: 1, nil, alerts: OpenAlerts())))
    #expect(well["rank"] == nil)
  }

  @Test func `sixty gateways in any order stand by the worst of what they need and of their alerts`() {
    let troubles: [(group: Int, needs: [GatewayNeed], rules: [String])] = [
      (0, [.silent], []), (0, [], ["gateway_silent"]), (1, [.clock, .radio], []),
      (1, [], ["node_silent", "radio_lost"]),
      (2, [], ["node_silent", "journal_loss"]), (3, [.power], ["node_noisy"]), (4, [], ["clock_wrong"]),
      (5, [], ["node_noisy"]), (6, [], ["of_a_newer_gateway"]), (7, [], []),
    ]
    var random = SystemRandomNumberGenerator()
    for _ in 0..<20 {
      let some = (0..<60).map { troubles[$0 % troubles.count] }.shuffled(using: &random)
      let ranked = some.map { one in
        let alerts = OpenAlerts(rules: Dictionary(uniqueKeysWithValues: one.rules.map { ($0, 2) }))
        return (group: one.group, rank: alerts.rank(one.needs) ?? .max)
      }
      let groups = ranked.sorted { $0.rank < $1.rank }.map(\.group)
      #expect(groups == groups.sorted())
    }
  }
}

extension HubStore {
  /// The numbers of open alerts, by gateway.
  func alertCounts(of gateways: [String]) throws(HubDatabaseError) -> [String: Int64] {
    try openAlerts(of: gateways).mapValues(\.count)
  }
}
