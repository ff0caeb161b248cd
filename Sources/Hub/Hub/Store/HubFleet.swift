// SPDX-License-Identifier: MIT

import Documents
import JSON
import SQLite

/// A gateway in the fleet, as readers see it: its last state, and an operator's notes.
struct FleetRow: Sendable {
  var gateway: String
  var lastSeen: Int64
  var events: Int64
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

  var name: String { alias ?? radio ?? gateway }

  /// `linkedAt`: the opening of its link; `nil`: it has none. `figures`: `nil`: they could not be counted.
  func json(linkedAt: Int64?, _ figures: FleetFigures.Figures?, alerts: OpenAlerts) -> JSONObject {
    let counts = figures.map { (messages: $0.messages[gateway] ?? 0, nodes: $0.nodes[gateway] ?? 0) }
    let wanting = needs(isLinked: linkedAt != nil, alerts)
    let told = wanting.map(\.rawValue)
    return [
      "gateway": gateway, "radio": radio, "name": name, "linked": linkedAt != nil, "link_since": linkedAt,
      "last_seen": lastSeen, "events": events, "version": version, "link": link, "model": model, "radio_key": radioKey,
      "radio_state": radioState, "sync": sync, "clock_trusted": clockTrusted, "battery_mv": batteryMillivolts,
      "power": power, "pending": pending, "error": error, "store_error": storeError,
      "position": position.map { ["lat": $0.lat, "lon": $0.lon] as JSONObject }, "note": note,
      "tags": tags.isEmpty ? nil : tags, "messages_today": counts?.messages,
      "nodes": counts?.nodes,
      "last_message": lastMessage.map {
        ["at": $0.at, "text": $0.text, "sender_name": $0.sender, "channel_name": $0.channel] as JSONObject
      }, "alerts": alerts.count, "alert_rules": alerts.rules.keys.sorted(),
      "needs": told, "rank": alerts.rank(wanting), "state_at": stateAt,
    ]
  }
}

extension HubStore {
  /// Largest body that is parsed for a row, and the longest text that a row shows, in bytes.
  private static let fleetBody = 8192
  private static let fleetText = 512

  /// Rows of gateways, by id, in three queries for any number of them. `only`: the rows of these gateways.
  func fleet(after: String = "", limit: Int = 1000, only: [String]? = nil) throws(HubDatabaseError) -> [FleetRow] {
    var rows: [FleetRow] = []
    var call = HubCall("FROM gateways g WHERE g.id > @1 ORDER BY g.id LIMIT @2", values: [after, limit])
    if let only { call = HubCall("FROM @rows JOIN gateways g ON g.id = v.id", ["id": only]) }
    call.sql = "SELECT g.id, g.last_seen, g.events, g.radio \(call.sql)"
    call.row = { row in
      rows.append(
        FleetRow(
          gateway: row.text(0), lastSeen: row.integer(1), events: row.integer(2),
          radio: HubBounds.cut(row.textIfAny(3), HubBounds.nameBytes)))
    }
    try database.read([call])
    guard !rows.isEmpty else { return [] }
    let places = Dictionary(rows.enumerated().map { ($0.element.gateway, $0.offset) }) { first, _ in first }
    let ids: KeyValuePairs<String, any HubColumn> = ["id": rows.map(\.gateway)]
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
        """, ["id": noted.map(\.0), "key": noted.map(\.1)]
      ) { row in
        // `try?`: as above. Earlier versions of the hub stored values that nobody may set.
        guard let place = places[row.text(0)], let value = try? JSONValue(parsing: row.text(2)),
          DocumentKey.allows(row.text(1), value)
        else { return }
        rows[place].take(document: row.text(1), value)
      }
    ])
    return rows
  }

  func gatewayCount() throws(HubDatabaseError) -> Int64 { try number("SELECT count(*) FROM gateways") }

  /// The last events and the last state of each gateway that sent any since this time. 0: none since then. All of them, because nobody asks for one
  /// that was left out again.
  func seen(since: Int64) throws(HubDatabaseError) -> [String: (seen: Int64, state: Int64)] {
    var found: [String: (seen: Int64, state: Int64)] = [:]
    try database.every("SELECT id, last_seen FROM gateways WHERE last_seen >= ?1", [since]) { row in
      found[row.text(0)] = (row.integer(1), 0)
    }
    try database.every("SELECT gateway, at FROM states WHERE name = 'gateway' AND at >= ?1", [since]) { row in
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

/// Counts over the fleet. Each count reads a day's messages, so all readers share one count a minute.
actor FleetFigures {
  struct Figures: Sendable, Equatable {
    /// Messages of the last 24 hours, by gateway.
    var messages: [String: Int64] = [:]
    var nodes: [String: Int64] = [:]
    /// Messages of the last 24 hours, each counted once: all, and by the start of the hour.
    var total: Int64 = 0
    var hours: [Int64: Int64] = [:]
  }

  private static let keeps: Int64 = 60_000
  private let count: @Sendable (Int64) async throws -> Figures
  private var known: (at: Int64, figures: Figures)?
  private var asking: Task<Figures, any Error>?
  private var failedAt: Int64?

  /// `count`: the figures of the day before that time.
  init(_ count: @escaping @Sendable (Int64) async throws -> Figures) { self.count = count }

  /// `nil`: they cannot be counted, for example because a count takes longer than a query may. They are not counted
  /// again for a minute: each reader would wait that long.
  func ifCounted(_ now: Int64 = HubClock.now) async -> Figures? {
    if let failedAt, (0..<Self.keeps).contains(now - failedAt) { return nil }
    do {
      return try await self.now(now)
    } catch {
      failedAt = now
      return nil
    }
  }

  private func now(_ now: Int64) async throws -> Figures {
    if let known, (0..<Self.keeps).contains(now - known.at) { return known.figures }
    if let asking { return try await asking.value }
    let task = Task { [count] in try await count(now) }
    asking = task
    defer { asking = nil }
    let figures = try await task.value
    known = (now, figures)
    return figures
  }
}

extension HubStore {
  private static let hour: Int64 = 3_600_000
  /// Messages in one step, and most steps: a day with more messages has only the newest in its counts.
  private static let counted: Int64 = 20_000
  private static let mostSteps = 50

  func figures(now: Int64) throws(HubDatabaseError) -> FleetFigures.Figures {
    var figures = FleetFigures.Figures()
    // Whole hours, so that the oldest hour is complete, too.
    let since = (now / Self.hour - 23) * Self.hour
    var top = Int64.max
    for _ in 0..<Self.mostSteps {
      var (lowest, count, newest) = (Int64(0), Int64(0), Int64(0))
      try database.each(
        """
        SELECT min(m.position), count(*), max(m.came) FROM
        (SELECT position, CASE WHEN arrived = 0 THEN at ELSE arrived END AS came FROM messages WHERE position < ?1 ORDER BY position DESC LIMIT ?2) m
        """, [top, Self.counted]
      ) { (row) throws(HubDatabaseError) in
        (lowest, count, newest) = (row.integer(0), row.integer(1), row.integer(2))
        return false
      }
      guard count > 0, newest >= since else { break }
      let values = [lowest, top, since, now + Self.hour]
      try database.every(
        """
        SELECT gateway, count(*) FROM heard WHERE message >= ?1 AND message < ?2 AND at >= ?3 AND at <= ?4 GROUP BY gateway
        """, values
      ) { row in
        figures.messages[row.text(0), default: 0] += row.integer(1)
      }
      try database.every(
        """
        SELECT at / \(Self.hour), count(*) FROM messages WHERE position >= ?1 AND position < ?2 AND at >= ?3 AND at <= ?4
        GROUP BY at / \(Self.hour)
        """, values
      ) { row in
        figures.hours[row.integer(0) * Self.hour, default: 0] += row.integer(1)
        figures.total += row.integer(1)
      }
      guard count == Self.counted else { break }
      top = lowest
    }
    figures.nodes = try database.dictionary("SELECT gateway, count(*) FROM contacts GROUP BY gateway") {
      ($0.text(0), $0.integer(1))
    }
    return figures
  }
}
