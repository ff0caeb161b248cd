// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// A gateway's latest state with a name.
struct GatewayState: Sendable {
  let gateway: String
  let name: String
  /// When it arrived, milliseconds since 1970.
  let at: Int64
  let body: String
}

/// States of gateways, the latest of each name.
extension HubStore {
  /// Stores states. Returns for each, in order, whether it is stored: the number of a gateway's names is limited.
  func keep(_ states: [GatewayState]) throws(HubDatabaseError) -> [Bool] {
    try database.retrying { () throws(HubDatabaseError) in
      let gateways = Set(states.map(\.gateway)).sorted()
      var names: [String: Set<String>] = [:]
      let known = HubCall(
        "SELECT s.gateway, s.name FROM @rows JOIN states s ON s.gateway = v.gateway", ["gateway": gateways]
      ) { names[$0.text(0), default: []].insert($0.text(1)) }
      try database.perform(database.locking(gateways) + [known], begins: true, ends: false)
      var kept: [Bool] = []
      var rows: [[String]: GatewayState] = [:]
      for state in states {
        let own = names[state.gateway] ?? []
        let fits = own.contains(state.name) || own.count < HubBounds.states
        kept.append(fits)
        guard fits else { continue }
        names[state.gateway, default: []].insert(state.name)
        rows[[state.gateway, state.name]] = state
      }
      let newest = Array(rows.values)
      let upsert = HubCall(
        into: "states",
        [
          "gateway": newest.map(\.gateway), "name": newest.map(\.name), "at": newest.map(\.at),
          "body": newest.map(\.body),
        ], "ON CONFLICT(gateway, name) DO UPDATE SET \(excluded("at", "body"))")
      try database.perform([upsert], begins: false, ends: true)
      return kept
    }
  }

  /// All states of a gateway: `{"NAME": {"at": …, "body": {…}}, …}`
  public func states(of gateway: String) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM states WHERE gateway = ?1 ORDER BY name"
    let page = try page("name, at, body", sizes: ["body"], filter, [gateway], limit: Int(HubBounds.states)) {
      ($0.text(0), ["at": $0.integer(1), "body": RawJSON($0.text(2))] as JSONObject)
    }
    return JSONWriter.object(JSONObject(page.rows))
  }
}
