// SPDX-License-Identifier: MIT

import Alerts
import JSON
import SQLite

/// An alert of a gateway, or of the hub itself.
struct HubAlert: Sendable, Equatable {
  var id: Int64 = 0
  /// Empty: the hub's own.
  var gateway: String
  var rule: String
  var subject: String
  var text: String
  /// Milliseconds since 1970; for a gateway's alert by its clock.
  var beganAt: Int64
  var endedAt: Int64?
  var acknowledgedAt: Int64?
  var acknowledgedBy: String?
  var note: String?
  /// How often the alert came back within a day; for an event-driven alert, the number of its events.
  var returns: Int = 0

  var json: JSONObject {
    [
      "id": id, "gateway": gateway.isEmpty ? nil : gateway, "rule": rule, "subject": subject.isEmpty ? nil : subject,
      "text": text, "began_at": beganAt, "ended_at": endedAt, "acknowledged_at": acknowledgedAt,
      "acknowledged_by": acknowledgedBy, "note": note,
    ]
  }
}

enum HubAlertChange: Sendable {
  case begins(HubAlert, at: Int64)
  /// Ends the open alert with the same gateway, rule and subject.
  case ends(HubAlert, at: Int64)
}

/// Alerts of gateways and of hubs. Gateway, rule, subject and begin identify an alert: the database has it once, for any order and number of its
/// events, and any number of hubs.
extension HubStore {
  /// Most stored ended alerts of all gateways; of one gateway, which itself stores as many; and most open alerts of one gateway.
  private static let mostAlerts: Int64 = 20_000
  private static let mostOfGateway: Int64 = 1000
  private static let mostOpen = Int64(AlertBoard.maxSubjects)
  private static let lostRows = 100
  /// A state is newer than an alert's last event only if it came later by more than this many milliseconds.
  private static let settled: Int64 = 60_000
  private static let columns = """
    id, gateway, rule, subject, text, began_at, ended_at, acknowledged_at, acknowledged_by, note, returns
    """

  /// The rules that gateways report.
  private static let ofGateways =
    "rule NOT IN (\(AlertRule.ofHubs.map { "'\($0.rawValue)'" }.joined(separator: ", ")))"

  static func alertChange(_ id: Int64) -> HubChange { HubChange(gateway: "", bucket: "alert/\(id)", seq: 0) }

  // MARK: Reports of gateways

  /// Stores a report, within a transaction that has locked the gateway.
  func storeAlert(_ report: AlertReport, of gateway: String, now: Int64) throws(HubDatabaseError) {
    try database.insert(
      into: "alerts",
      [
        "gateway": gateway, "rule": report.rule, "subject": report.subject, "began_at": report.since,
        "text": report.text, "returns": 0, "told_at": now,
      ], "ON CONFLICT(gateway, rule, subject, began_at) DO UPDATE SET told_at = excluded.told_at")
    let place: [any SQLBindable] = [gateway, report.rule, report.subject, report.since]
    let began = "WHERE gateway = ?1 AND rule = ?2 AND subject = ?3 AND began_at"
    let (change, values): (String, [any SQLBindable]) =
      switch report.state {
      // Only one alert is open at a time: the end of an older one was lost.
      case .begin: ("ended_at = ?5 \(began) < ?4 AND ended_at IS NULL", [report.at])
      // The text of the end has the extreme value.
      case .end: ("ended_at = ?5, text = ?6 \(began) = ?4 AND ended_at IS NULL", [report.at, report.text])
      // The gateway's word about somebody who was at it: no person here has a name with a colon.
      case .acknowledged:
        (
          "acknowledged_at = ?5, acknowledged_by = ?6, note = ?7 \(began) = ?4 AND acknowledged_at IS NULL",
          [report.at, "\(gateway): \(report.by ?? "")", report.note]
        )
      }
    try database.run("UPDATE alerts SET \(change)", place + values)
    let id = try database.first("SELECT id FROM alerts \(began) = ?4", place) { $0.integer(0) }
    guard let id else { return }
    announce(Self.alertChange(id))
    if report.state != .end { try endExcessAlerts(of: gateway, at: report.at) }
    try forgetAlerts(of: gateway)
  }

  /// Within a transaction: ends the oldest alerts of a gateway with more open alerts than a gateway can have. The gateway has forgotten them.
  private func endExcessAlerts(of gateway: String, at: Int64) throws(HubDatabaseError) {
    try database.run(
      """
      UPDATE alerts SET ended_at = ?2 WHERE gateway = ?1 AND ended_at IS NULL AND \(Self.ofGateways) AND id <=
      (SELECT id FROM alerts WHERE gateway = ?1 AND ended_at IS NULL ORDER BY id DESC LIMIT 1 OFFSET \(Self.mostOpen))
      """, gateway, at)
  }

  /// Within a transaction, now and then: deletes old ended alerts. One gateway's many alerts do not displace those of others.
  private func forgetAlerts(of gateway: String) throws(HubDatabaseError) {
    if alertInterval.isDue(gateway) {
      try database.run(
        """
        DELETE FROM alerts WHERE gateway = ?1 AND ended_at IS NOT NULL AND id <= (SELECT id FROM alerts
        WHERE gateway = ?1 AND ended_at IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET \(Self.mostOfGateway))
        """, gateway)
    }
    // Many gateways with few alerts each may exceed the limit together.
    if alertInterval.isDue("") {
      try database.run(
        """
        DELETE FROM alerts WHERE ended_at IS NOT NULL AND id <= (SELECT id FROM alerts
        WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET \(Self.mostAlerts))
        """)
    }
  }

  /// Ends alerts that a gateway has forgotten, for example with its old database: the gateway's state shows no open alert. A page at a time: batches
  /// wait for the same connection.
  func endLostAlerts(at now: Int64) async throws(HubDatabaseError) {
    var after: Int64 = 0
    while true {
      var (lost, rows) = ([Int64](), 0)
      try database.every(
        """
        SELECT a.id, s.body FROM alerts a JOIN states s ON s.gateway = a.gateway AND s.name = 'gateway'
        WHERE a.ended_at IS NULL AND \(Self.ofGateways) AND s.at > a.told_at + \(Self.settled) AND a.id > ?1
        ORDER BY a.id LIMIT \(Self.lostRows)
        """, [after]
      ) { row in
        (after, rows) = (row.integer(0), rows + 1)
        // `try?`: stored values were valid JSON when they arrived.
        if (try? JSONValue(parsing: row.text(1)))?["alerts"]?.integer == 0 { lost.append(after) }
      }
      try end(lost, at: now)
      guard rows == Self.lostRows else { return }
      await Task.yield()
    }
  }

  private func end(_ lost: [Int64], at now: Int64) throws(HubDatabaseError) {
    guard !lost.isEmpty else { return }
    try transaction { () throws(HubDatabaseError) -> Void in
      for id in lost {
        let count = try database.run("UPDATE alerts SET ended_at = ?2 WHERE id = ?1 AND ended_at IS NULL", id, now)
        if count > 0 { announce(Self.alertChange(id)) }
      }
    }
  }

  // MARK: The hub's own

  /// The lock under which hubs that share the database change alerts, one after another.
  private static let lock = "hub alerts"

  func storeAlertChanges(_ changes: [HubAlertChange]) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.lock(Self.lock)
      for change in changes {
        switch change {
        case .begins(let alert, let now): try begin(alert, at: now)
        case .ends(let alert, let now): try end(alert, at: now)
        }
      }
    }
  }

  /// Begins an alert, unless one with its gateway, rule and subject is open, or another hub stored the same one.
  private func begin(_ alert: HubAlert, at now: Int64) throws(HubDatabaseError) {
    guard try openAlert(alert.gateway, alert.rule, alert.subject) == nil else { return }
    let added = try database.insert(
      into: "alerts",
      [
        "gateway": alert.gateway, "rule": alert.rule, "subject": alert.subject, "began_at": alert.beganAt,
        "text": alert.text, "returns": alert.returns, "told_at": now,
      ], "ON CONFLICT(gateway, rule, subject, began_at) DO NOTHING")
    guard added > 0, let id = try openAlert(alert.gateway, alert.rule, alert.subject) else { return }
    announce(Self.alertChange(id))
    try forgetAlerts(of: alert.gateway)
  }

  /// Within a transaction that has locked the gateway: reports a conflict. Further conflicts are in the same row: `returns` counts them.
  func reportConflict(of gateway: String, _ text: String, _ count: Int, at now: Int64) throws(HubDatabaseError) {
    guard alertsOnConflicts, count > 0 else { return }
    try report(.gatewayConflict, of: gateway, text, count, at: now)
  }

  func reportRefusedGateways(_ text: String, _ count: Int, at now: Int64) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.lock(Self.lock)
      try report(.gatewaysRefused, of: "", text, count, at: now)
    }
  }

  private func report(
    _ rule: AlertRule, of gateway: String, _ text: String, _ count: Int, at now: Int64
  ) throws(HubDatabaseError) {
    try begin(HubAlert(gateway: gateway, rule: rule.rawValue, subject: "", text: text, beganAt: now), at: now)
    guard let id = try openAlert(gateway, rule.rawValue, "") else { return }
    try database.run("UPDATE alerts SET told_at = ?2, returns = returns + ?3 WHERE id = ?1", id, now, count)
    announce(Self.alertChange(id))
  }

  func reportContestedLink(of gateway: String, at now: Int64) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.lock(gateway)
      try reportConflict(
        of: gateway,
        "two gateways with the id \(gateway) take the link from each other, or send in turn: was a card copied?", 1,
        at: now)
    }
  }

  /// Ends event-driven alerts without events since `time`.
  func endIdleAlerts(_ rule: AlertRule, since time: Int64, at now: Int64) throws(HubDatabaseError) {
    let quiet = try database.rows(
      "SELECT id FROM alerts WHERE ended_at IS NULL AND rule = ?1 AND told_at <= ?2", [rule.rawValue, time]
    ) { $0.integer(0) }
    try end(quiet, at: now)
  }

  private func end(_ alert: HubAlert, at now: Int64) throws(HubDatabaseError) {
    guard let id = try openAlert(alert.gateway, alert.rule, alert.subject) else { return }
    try database.run("UPDATE alerts SET ended_at = ?2 WHERE id = ?1", id, now)
    announce(Self.alertChange(id))
  }

  private func openAlert(
    _ gateway: String, _ rule: String, _ subject: String
  ) throws(HubDatabaseError) -> Int64? {
    try database.first(
      "SELECT id FROM alerts WHERE gateway = ?1 AND rule = ?2 AND subject = ?3 AND ended_at IS NULL", gateway, rule,
      subject
    ) { $0.integer(0) }
  }

  // MARK: Reading

  private static func alert(_ row: any HubRow) -> HubAlert {
    func time(_ column: Int) -> Int64? { row.textIfAny(column).flatMap { Int64($0) } }
    var text = row.text(4)
    let rule = AlertRule(rawValue: row.text(2))
    // One conflict is named by the text. Of refused gateways the text names an example.
    if rule?.isEventDriven == true, row.integer(10) > (rule == .gatewaysRefused ? 0 : 1) {
      text += "; \(row.integer(10)) so far"
    }
    return HubAlert(
      id: row.integer(0), gateway: row.text(1), rule: row.text(2), subject: row.text(3), text: text,
      beganAt: row.integer(5), endedAt: time(6), acknowledgedAt: time(7), acknowledgedBy: row.textIfAny(8),
      note: row.textIfAny(9), returns: Int(min(max(row.integer(10), 0), 64)))
  }

  func alert(_ id: Int64) throws(HubDatabaseError) -> HubAlert? {
    try database.first("SELECT \(Self.columns) FROM alerts WHERE id = ?1", id, read: Self.alert)
  }

  /// The newest first, as many as fit a page. `gateways`: only theirs; empty: of all.
  func alerts(
    before id: Int64, openOnly: Bool, gateways: [String] = [], rule: String? = nil, limit: Int
  ) throws(HubDatabaseError) -> (alerts: [HubAlert], hasMore: Bool) {
    var filter = "FROM alerts WHERE id < ?1"
    var values: [any SQLBindable] = [id]
    if openOnly { filter += " AND ended_at IS NULL" }
    if !gateways.isEmpty {
      filter += " AND gateway IN (\(gateways.indices.map { "?\($0 + 2)" }.joined(separator: ", ")))"
      for gateway in gateways { values.append(gateway) }
    }
    if let rule {
      values.append(rule)
      filter += " AND rule = ?\(values.count)"
    }
    let page = try page(
      Self.columns, sizes: ["text", "note", "subject"], filter + " ORDER BY id DESC", values, limit: limit,
      read: Self.alert)
    return (page.rows, page.hasMore)
  }

  /// The open alerts of these gateways, or of all for an empty list; the hub's own are under an empty name.
  func openAlerts(of gateways: [String]) throws(HubDatabaseError) -> [String: OpenAlerts] {
    let wanted = Set(gateways)
    var open: [String: OpenAlerts] = [:]
    try database.every(
      "SELECT gateway, rule, count(*) FROM alerts WHERE ended_at IS NULL GROUP BY gateway, rule"
    ) { row in
      let gateway = row.text(0)
      guard wanted.isEmpty || wanted.contains(gateway) else { return }
      open[gateway, default: OpenAlerts()].rules[row.text(1)] = row.integer(2)
    }
    return open
  }

  /// The numbers of open alerts by rule, and of all that nobody has acknowledged.
  func alertCensus() throws(HubDatabaseError) -> HubAlerts.Census {
    let rules = try database.dictionary("SELECT rule, count(*) FROM alerts WHERE ended_at IS NULL GROUP BY rule") {
      ($0.text(0), $0.integer(1))
    }
    return HubAlerts.Census(
      rules: rules,
      unacknowledged: try number("SELECT count(*) FROM alerts WHERE ended_at IS NULL AND acknowledged_at IS NULL"))
  }

  /// A gateway's last contact, in milliseconds since 1970, and whether it has sent a state lately, which needs a link.
  struct Contact: Sendable {
    var gateway: String
    var seen: Int64
    var hasLink: Bool
  }

  func lastContacts(after id: String, limit: Int) throws(HubDatabaseError) -> [Contact] {
    try database.rows(
      """
      SELECT g.id, g.last_seen, s.at FROM gateways g LEFT JOIN states s ON s.gateway = g.id AND s.name = 'gateway'
      WHERE g.id > ?1 ORDER BY g.id LIMIT ?2
      """, [id, limit]
    ) { row in
      let told = row.textIfAny(2).flatMap { Int64($0) }
      let seen = max(row.integer(1), told ?? 0)
      // Only a link carries states.
      let hasLink = told.map { seen - $0 <= ContactIntervals.linkMemory.components.seconds * 1000 } ?? false
      return Contact(gateway: row.text(0), seen: seen, hasLink: hasLink)
    }
  }

  /// Notes a contact of quiet gateways that are linked to this hub: other hubs on the database do not know of the link.
  func noteLinked(_ gateways: [String], quietSince: Int64, at now: Int64) throws(HubDatabaseError) {
    guard !gateways.isEmpty else { return }
    try database.write([
      HubCall(
        """
        UPDATE gateways SET last_seen = CAST(@1 AS BIGINT)
        WHERE id IN (SELECT v.id FROM @rows) AND last_seen < CAST(@2 AS BIGINT)
        """, ["id": gateways.sorted()], values: [now, quietSince])
    ])
  }
}

/// A gateway's event about one of its alerts: pure. Source: docs/hub-protocol.md, "Alerts".
struct AlertReport: Sendable, Equatable {
  enum State: String, Sendable { case begin, end, acknowledged }

  var rule: String
  var subject: String
  var state: State
  /// When the alert began, milliseconds since 1970 by the gateway's clock. Together with rule and subject it identifies the alert.
  var since: Int64
  var text: String
  var by: String?
  var note: String?
  /// When this event happened, milliseconds since 1970 by the gateway's clock.
  var at: Int64

  static let textBytes = 512
  private static let longestRule = 32

  /// `nil`: the event describes no valid alert. A `power` event of a gateway without alerts has no rule.
  init?(_ event: HubEvent) {
    let body = event.body
    guard let rule = body["rule"]?.string, (1...Self.longestRule).contains(rule.utf8.count),
      rule.utf8.allSatisfy({ (0x61...0x7A).contains($0) || $0 == 0x5F }), !Self.isOfHubs(rule),
      let since = body["since"]?.integer
    else { return nil }
    switch body["state"]?.string {
    case "begin", "low": state = .begin
    case "end", "ok": state = .end
    case "acknowledged": state = .acknowledged
    default: return nil
    }
    (self.rule, self.since, at) = (rule, since, event.at)
    // Without NUL, as databases store it: the identity must not differ from the stored one.
    subject = PostgresHubDatabase.withoutNul(HubBounds.cut(body["subject"]?.string, HubBounds.keyBytes) ?? "")
    text = HubBounds.cut(body["text"]?.string, Self.textBytes) ?? rule
    by = HubBounds.cut(body["by"]?.string, HubBounds.nameBytes)
    note = HubBounds.cut(body["note"]?.string, Self.textBytes)
  }

  /// Gateways must not report a rule of hubs: the alert would look like the hub's own.
  private static func isOfHubs(_ rule: String) -> Bool {
    AlertRule(rawValue: rule).map { AlertRule.ofHubs.contains($0) } ?? false
  }
}
