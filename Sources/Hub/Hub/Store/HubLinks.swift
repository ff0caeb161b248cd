// SPDX-License-Identifier: MIT

import JSON

/// Lists of the gateways that are linked to each hub on a server, for `SharedLinkTable`. An SQLite file has one hub and no lists.
extension HubStore {
  struct LinkList: Sendable {
    let hub: String
    let version: Int64
    /// When each link opened, milliseconds since 1970.
    let links: [String: Int64]
  }

  /// Milliseconds without a heartbeat until a list is deleted.
  private static let linkMemory: Int64 = 3_600_000
  /// Milliseconds since 1970 by the server's clock, because hubs' clocks differ.
  private static let serverClock = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"

  func keepLinks(_ links: [String: Int64], version: Int64, of hub: String) throws(HubDatabaseError) {
    let list = JSONWriter.text(JSONObject(links.map { ($0, $1) }))
    try database.write([
      HubCall(
        """
        INSERT INTO hub_links(hub, told_at, version, links)
        VALUES (@1, \(Self.serverClock), CAST(@2 AS BIGINT), @3) ON CONFLICT(hub) DO UPDATE
        SET told_at = excluded.told_at, version = excluded.version, links = excluded.links
        """, values: [hub, version, list]),
      HubCall(
        "DELETE FROM hub_links WHERE told_at < \(Self.serverClock) - CAST(@1 AS BIGINT)", values: [Self.linkMemory]),
    ])
  }

  /// Notes a heartbeat. `false`: the list is missing, or is of another version.
  func confirmLinks(of hub: String, version: Int64) throws(HubDatabaseError) -> Bool {
    var isThere = false
    try database.write([
      HubCall(
        "UPDATE hub_links SET told_at = \(Self.serverClock) WHERE hub = @1 AND version = CAST(@2 AS BIGINT) RETURNING 1",
        values: [hub, version]
      ) { _ in isThere = true }
    ])
    return isThere
  }

  func forgetLinks(of hub: String) throws(HubDatabaseError) {
    try database.write([HubCall("DELETE FROM hub_links WHERE hub = @1", values: [hub])])
  }

  /// The other hubs with a heartbeat within `validity` milliseconds, and the version of each list.
  func linkLists(besides hub: String, validity: Int64) throws(HubDatabaseError) -> [String: Int64] {
    try database.dictionary(
      "SELECT hub, version FROM hub_links WHERE hub <> ?1 AND told_at >= \(Self.serverClock) - CAST(?2 AS BIGINT)",
      [hub, validity]
    ) { ($0.text(0), $0.integer(1)) }
  }

  func links(of hubs: [String]) throws(HubDatabaseError) -> [LinkList] {
    guard !hubs.isEmpty else { return [] }
    var lists: [LinkList] = []
    try database.read([
      HubCall("SELECT l.hub, l.version, l.links FROM @rows JOIN hub_links l ON l.hub = v.hub", ["hub": hubs]) { row in
        // `try?`: only hubs write it.
        let fields = (try? JSONValue(parsing: row.text(2)))?.fields ?? []
        let links = fields.compactMap { name, since in since.integer.map { (name, $0) } }
        lists.append(
          LinkList(hub: row.text(0), version: row.integer(1), links: Dictionary(links) { max($0, $1) }))
      }
    ])
    return lists
  }
}
