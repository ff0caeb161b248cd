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
        "SELECT s.gateway, s.name FROM @rows JOIN states s ON s.gateway = v.gateway",
        [("gateway", .texts(gateways))]
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
        """
        INSERT INTO states(gateway, name, at, body) SELECT v.gateway, v.name, v.at, v.body FROM @rows WHERE true
        ON CONFLICT(gateway, name) DO UPDATE SET at = excluded.at, body = excluded.body
        """,
        [
          ("gateway", .texts(newest.map(\.gateway))), ("name", .texts(newest.map(\.name))),
          ("at", .integers(newest.map(\.at))), ("body", .texts(newest.map(\.body))),
        ])
      try database.perform([upsert], begins: false, ends: true)
      return kept
    }
  }

  /// All states of a gateway: `{"NAME": {"at": …, "body": {…}}, …}`
  public func states(of gateway: String) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM states WHERE gateway = ?1 ORDER BY name LIMIT ?2"
    let fit = try fitting("SELECT \(bytes("body")) \(filter)", [.text(gateway), .integer(HubBounds.states)])
    let found: [(String, Int64, String)] = try database.rows(
      "SELECT name, at, body \(filter)", [.text(gateway), .integer(Int64(fit.rows))]
    ) { ($0.text(0), $0.integer(1), $0.text(2)) }
    return JSONWriter.object { json in
      for (name, at, body) in found {
        json.objectField(name) { json in
          json.field("at", at)
          json.field("body", json: Array(body.utf8))
        }
      }
    }
  }
}
