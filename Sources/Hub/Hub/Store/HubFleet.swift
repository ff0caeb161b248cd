// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// A gateway in the fleet, as readers see it: its last state, and an operator's notes.
struct FleetRow: Sendable {
  var gateway: String
  var lastSeen: Int64
  var events: Int64
  /// The name of its radio.
  var radio: String?
  var radioKey: String?
  var model: String?
  var position: (lat: Double, lon: Double)?
  /// The arrival of its state `gateway`, which has most of the fields below.
  var stateAt: Int64?
  var version: String?
  var link: String?
  var radioState: String?
  var sync: String?
  var clockTrusted: Bool?
  var batteryMillivolts: Int64?
  var pending: Int64?
  /// `low` or `ok`, by its last power event.
  var power: String?
  /// The errors of its radio and of its disk.
  var error: String?
  var storeError: String?
  var alias: String?
  var note: String?
  var tags: [String] = []
  var lastMessage: (at: Int64, text: String?, sender: String?, channel: String?)?

  /// The name to show.
  var name: String { alias ?? radio ?? gateway }

  /// `linkedAt`: the opening of its link; `nil`: it has none.
  func write(linkedAt: Int64?, _ figures: FleetFigures.Figures, alerts: Int64, to json: inout JSONWriter) {
    json.field("gateway", gateway)
    json.field("radio", radio)
    json.field("name", name)
    json.field("linked", linkedAt != nil)
    json.field("link_since", linkedAt)
    json.field("last_seen", lastSeen)
    json.field("events", events)
    json.field("version", version)
    json.field("link", link)
    json.field("model", model)
    json.field("radio_key", radioKey)
    json.field("radio_state", radioState)
    json.field("sync", sync)
    json.field("clock_trusted", clockTrusted)
    json.field("battery_mv", batteryMillivolts)
    json.field("power", power)
    json.field("pending", pending)
    json.field("error", error)
    json.field("store_error", storeError)
    if let position {
      json.objectField("position") { json in
        json.field("lat", position.lat)
        json.field("lon", position.lon)
      }
    }
    json.field("note", note)
    if !tags.isEmpty { json.arrayField("tags") { json in for tag in tags { json.value(tag) } } }
    json.field("messages_today", figures.messages[gateway] ?? 0)
    json.field("nodes", figures.nodes[gateway] ?? 0)
    if let last = lastMessage {
      json.objectField("last_message") { json in
        json.field("at", last.at)
        json.field("text", last.text)
        json.field("sender_name", last.sender)
        json.field("channel_name", last.channel)
      }
    }
    json.field("alerts", alerts)
    json.field("state_at", stateAt)
  }
}

extension HubStore {
  /// Largest body that is parsed for a row, and the longest text that a row shows, in bytes.
  private static let fleetBody = 8192
  private static let fleetText = 512

  /// Rows of gateways, by id, in three queries for any number of them. `only`: the rows of these gateways.
  func fleet(after: String = "", limit: Int = 1000, only: [String]? = nil) throws(HubDatabaseError) -> [FleetRow] {
    var rows: [FleetRow] = []
    let columns = "g.id, g.last_seen, g.events, g.radio"
    func take(_ row: any HubRow) {
      rows.append(
        FleetRow(
          gateway: row.text(0), lastSeen: row.integer(1), events: row.integer(2),
          radio: HubBounds.cut(row.textIfAny(3), HubBounds.nameBytes)))
    }
    if let only {
      try database.read([
        HubCall("SELECT \(columns) FROM @rows JOIN gateways g ON g.id = v.id", [("id", .texts(only))]) { take($0) }
      ])
    } else {
      try database.every(
        "SELECT \(columns) FROM gateways g WHERE g.id > ?1 ORDER BY g.id LIMIT ?2",
        [.text(after), .integer(Int64(limit))]
      ) { row in
        take(row)
      }
    }
    guard !rows.isEmpty else { return [] }
    let places = Dictionary(rows.enumerated().map { ($0.element.gateway, $0.offset) }) { first, _ in first }
    let ids: [(name: String, column: HubColumn)] = [("id", .texts(rows.map(\.gateway)))]
    let small = "CASE WHEN \(bytes("e.body")) <= \(Self.fleetBody) THEN e.body ELSE '{}' END"
    // The index of kinds has the newest event of each kind at its end.
    func newest(_ kind: String, _ use: @escaping (inout FleetRow, Int64, JSONValue) -> Void) -> HubCall {
      HubCall(
        """
        SELECT e.gateway, e.at, \(small) FROM @rows JOIN events e
        ON e.id = (SELECT max(x.id) FROM events x WHERE x.gateway = v.id AND x.kind = '\(kind)')
        """, ids
      ) { row in
        // `try?`: stored values were valid JSON when they arrived.
        guard let place = places[row.text(0)], let body = try? JSONValue(parsing: row.text(2)) else { return }
        use(&rows[place], row.integer(1), body)
      }
    }
    try database.read([
      newest("radio") { row, _, body in row.take(radio: body) },
      newest("power") { row, _, body in row.power = body["state"]?.string == "low" ? "low" : "ok" },
      newest("message") { row, at, body in
        row.lastMessage = (
          at, HubBounds.cut(body["text"]?.string, Self.fleetText),
          HubBounds.cut(body["sender_name"]?.string, HubBounds.nameBytes),
          HubBounds.cut(body["channel_name"]?.string, HubBounds.nameBytes)
        )
      },
      HubCall(
        """
        SELECT e.gateway, e.at, \(small) FROM @rows JOIN states e ON e.gateway = v.id AND e.name = 'gateway'
        """, ids
      ) { row in
        // `try?`: as above.
        guard let place = places[row.text(0)], let body = try? JSONValue(parsing: row.text(2)) else { return }
        rows[place].take(state: body, at: row.integer(1))
      },
    ])
    let keyed = rows.filter { $0.radioKey != nil }
    let noted = keyed.flatMap { row in
      ["alias", "note", "tags"].map { (row.gateway, "node/\(row.radioKey ?? "")/\($0)") }
    }
    try database.read([
      HubCall(
        """
        SELECT d.gateway, d.key, d.value FROM @rows JOIN documents d ON d.gateway = v.id AND d.key = v.key
        WHERE d.value IS NOT NULL
        """,
        [("id", .texts(noted.map(\.0))), ("key", .texts(noted.map(\.1)))]
      ) { row in
        // `try?`: as above.
        guard let place = places[row.text(0)], let value = try? JSONValue(parsing: row.text(2)) else { return }
        rows[place].take(document: row.text(1), value)
      }
    ])
    return rows
  }

  /// The number of gateways, and of those without a link that were not heard since.
  func fleetCounts(heardSince: Int64, linked: [String]) throws(HubDatabaseError) -> (gateways: Int64, silent: Int64) {
    let all = try number("SELECT count(*) FROM gateways")
    var silent = try database.number("SELECT count(*) FROM gateways WHERE last_seen < ?1", .integer(heardSince))
    try database.read([
      HubCall(
        "SELECT 1 FROM @rows JOIN gateways g ON g.id = v.id WHERE g.last_seen < @1", [("id", .texts(linked))],
        values: [.integer(heardSince)]
      ) { _ in silent -= 1 }
    ])
    return (all, max(0, silent))
  }

  /// The last events and the last state of each gateway that sent any since this time. 0: none since then.
  func seen(since: Int64) throws(HubDatabaseError) -> [String: (seen: Int64, state: Int64)] {
    var found: [String: (seen: Int64, state: Int64)] = [:]
    try database.every(
      "SELECT id, last_seen FROM gateways WHERE last_seen >= ?1 LIMIT 10000", [.integer(since)]
    ) { row in
      found[row.text(0)] = (row.integer(1), 0)
    }
    try database.every(
      "SELECT gateway, at FROM states WHERE name = 'gateway' AND at >= ?1 LIMIT 10000", [.integer(since)]
    ) { row in
      found[row.text(0), default: (0, 0)].state = row.integer(1)
    }
    return found
  }
}

extension FleetRow {
  fileprivate mutating func take(radio body: JSONValue) {
    let key = body["key"]?.string
    if let key, key.utf8.count == 64 { radioKey = key }
    model = HubBounds.cut(body["model"]?.string, HubBounds.nameBytes)
    position = Self.position(in: body)
  }

  /// A position; `nil`: it is invalid, or the 0, 0 of a radio without a position.
  static func position(in body: JSONValue) -> (lat: Double, lon: Double)? {
    guard let lat = body["lat"]?.number, let lon = body["lon"]?.number, (-90...90).contains(lat),
      (-180...180).contains(lon), lat != 0 || lon != 0
    else { return nil }
    return (lat, lon)
  }

  fileprivate mutating func take(state told: JSONValue, at: Int64) {
    let body = NumberBounds.bounded(told)
    func text(_ name: String) -> String? { HubBounds.cut(body[name]?.string, HubBounds.nameBytes) }
    stateAt = at
    version = text("version")
    link = text("link")
    radioState = text("radio")
    sync = text("sync")
    clockTrusted = body["clock_trusted"]?.bool
    batteryMillivolts = body["battery_mv"]?.count
    pending = body["pending"]?.count
    error = text("error")
    storeError = text("store_error")
  }

  fileprivate mutating func take(document key: String, _ value: JSONValue) {
    switch key.split(separator: "/").last {
    case "alias": alias = HubBounds.cut(value.string, HubBounds.nameBytes)
    case "note": note = HubBounds.cut(value.string, 1024)
    case "tags": tags = (value.array ?? []).prefix(16).compactMap { HubBounds.cut($0.string, HubBounds.nameBytes) }
    default: break
    }
  }
}
