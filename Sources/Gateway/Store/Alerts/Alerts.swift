// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// A stored alert. Source: docs/alerts.md.
public struct StoredAlert: Equatable, Sendable {
  public var id: Int64
  /// The rule's name, and the name of the subject; empty: the rule has only one.
  public var rule: String
  public var subject: String
  /// Text for people.
  public var text: String
  public var value: Double?
  /// Milliseconds since 1970, by the clock at that time. `endedAt` `nil`: it is open.
  public var beganAt: Int64
  public var endedAt: Int64?
  public var acknowledgedAt: Int64?
  public var acknowledgedBy: String?
  public var note: String?
  /// How often the alert has returned within a day of its end.
  public var returns: Int
  /// The end in the store's steady time (`Store.elapsed`).
  public var endedElapsed: Int64?

  public init(
    id: Int64, rule: String, subject: String, text: String, value: Double? = nil, beganAt: Int64, endedAt: Int64? = nil,
    returns: Int = 0
  ) {
    (self.id, self.rule, self.subject, self.text, self.value) = (id, rule, subject, text, value)
    (self.beganAt, self.endedAt, self.returns) = (beganAt, endedAt, returns)
  }
}

/// Alerts and their events: a row and its event are one transaction, so each beginning and each end is reported once.
extension Store {
  /// The number of ended alerts that are kept.
  public static let maxEndedAlerts: Int64 = 1000

  /// The event of an alert. Alerts of battery and supply have their own kind and fields.
  public struct AlertEvent {
    public var kind: EventKind
    public var fields: (inout JSONWriter) -> Void

    public init(_ kind: EventKind = .alert, _ fields: @escaping (inout JSONWriter) -> Void = { _ in }) {
      (self.kind, self.fields) = (kind, fields)
    }
  }

  /// Within a `write`: the alert begins. `alert.id` is ignored. Does nothing if one of its rule and subject is open.
  public func beginAlert(_ alert: StoredAlert, _ event: AlertEvent, at moment: Moment) throws(SQLiteError) {
    guard try openAlert(alert.rule, alert.subject) == nil else { return }
    let alert = asItIsNow(alert)
    try database.run(
      "INSERT INTO alerts(rule, subject, text, value, began_at, returns) VALUES (?, ?, ?, ?, ?, ?)", .text(alert.rule),
      .text(alert.subject), .text(alert.text), alert.value.map { .real($0) } ?? .null, .integer(alert.beganAt),
      .integer(Int64(alert.returns)))
    guard let kept = try openAlert(alert.rule, alert.subject) else { return }
    try append(event.kind, at: moment, body: Self.body(kept, "begin", event))
  }

  /// Within a `write`: the alert ends. Does nothing if none is open. `elapsed`: now, in steady time.
  public func endAlert(
    _ rule: String, _ subject: String, _ event: AlertEvent, elapsed: Int64, at moment: Moment
  ) throws(SQLiteError) {
    guard var alert = try openAlert(rule, subject) else { return }
    alert.endedAt = moment.milliseconds
    try database.run(
      "UPDATE alerts SET ended_at = ?, ended_elapsed = ?, text = ?, value = ? WHERE id = ?",
      .integer(moment.milliseconds), .integer(elapsed), .text(alert.text), alert.value.map { .real($0) } ?? .null,
      .integer(alert.id))
    try database.run(
      """
      DELETE FROM alerts WHERE ended_at IS NOT NULL AND id <=
      (SELECT id FROM alerts WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET \(Self.maxEndedAlerts))
      """)
    try append(event.kind, at: moment, body: Self.body(alert, "end", event))
  }

  /// Within a `write`: acknowledges an alert, the first time. `nil`: there is none with this id.
  public func acknowledgeAlert(
    _ id: Int64, by person: String, note: String?, at moment: Moment
  ) throws(SQLiteError) -> StoredAlert? {
    guard let alert = try alert(id) else { return nil }
    guard alert.acknowledgedAt == nil else { return alert }
    try database.run(
      "UPDATE alerts SET acknowledged_at = ?, acknowledged_by = ?, note = ? WHERE id = ?",
      .integer(moment.milliseconds), .text(person), .optional(note), .integer(id))
    guard let seen = try self.alert(id) else { return nil }
    try append(.alert, at: moment, body: Self.body(seen, "acknowledged", AlertEvent()))
    return seen
  }

  /// The number of alerts that are repeated at once, each of some 400 bytes: they must not fill the journal.
  private static let maxToldAgain = 64

  /// Open alerts whose beginning was journaled in this range.
  func openAlerts(toldAfter seq: Int64, through last: Int64) throws(SQLiteError) -> [StoredAlert] {
    var ids: [Int64] = []
    guard settings.journalMaxSize >= 1024 * Int64(Self.maxToldAgain) else { return [] }
    try database.each(
      "SELECT body FROM journal WHERE seq > ? AND seq <= ? AND kind = '\(EventKind.alert.rawValue)'",
      [.integer(seq), .integer(last)]
    ) { (row) throws(SQLiteError) in
      // `try?`: a damaged event counts as lost.
      guard let body = try? JSONValue(parsing: row.blob(0)), body["state"]?.string == "begin",
        let id = body["id"]?.integer, !ids.contains(id)
      else { return true }
      ids.append(id)
      return ids.count < Self.maxToldAgain
    }
    var open: [StoredAlert] = []
    for id in ids { if let alert = try alert(id), alert.endedAt == nil { open.append(alert) } }
    return open
  }

  /// Within a `write`: journals the beginning again, which was deleted before every upstream had it.
  func tellAgain(_ alert: StoredAlert, at moment: Moment) throws(SQLiteError) {
    try append(.alert, at: moment, body: Self.body(alert, "begin", AlertEvent { $0.field("again", true) }))
  }

  private static func body(_ alert: StoredAlert, _ state: String, _ event: AlertEvent) -> [UInt8] {
    JSONWriter.object { json in
      event.fields(&json)
      json.field("id", alert.id)
      json.field("rule", alert.rule)
      json.field("subject", alert.subject.isEmpty ? nil : alert.subject)
      if event.kind == .alert { json.field("state", state) }
      json.field("since", alert.beganAt)
      json.field("text", alert.text)
      json.field("value", alert.value)
      json.field("by", state == "acknowledged" ? alert.acknowledgedBy : nil)
      json.field("note", state == "acknowledged" ? alert.note : nil)
    }
  }

  // MARK: The present words

  /// The text and number of an open alert. A growing number is shown from here, and stored with the end.
  struct AlertWords: Equatable {
    var text: String
    var value: Double?
  }

  /// Sets the words of an alert that is open, or about to begin.
  public func alertSays(_ rule: String, _ subject: String, _ text: String, _ value: Double?) {
    let (key, words) = (Self.alertKey(rule, subject), AlertWords(text: text, value: value))
    guard alertWords[key] != words else { return }
    (alertWords[key], hasNewAlertWords) = (words, true)
  }

  /// The end of the alert is on disk.
  public func alertIsOver(_ rule: String, _ subject: String) { alertWords[Self.alertKey(rule, subject)] = nil }

  /// Stores the words of open alerts with the next transaction. Call it now and then, at the end, and when a number
  /// could not be determined again.
  public func keepAlertWords() {
    guard hasNewAlertWords else { return }
    hasNewAlertWords = false
    transactions.writeAlong("what alerts say") { store throws(SQLiteError) in
      let open = try store.database.rows("SELECT \(Self.alertColumns) FROM alerts WHERE ended_at IS NULL") { row in
        store.alert(row)
      }
      for alert in open {
        try store.database.run(
          "UPDATE alerts SET text = ?, value = ? WHERE id = ?", .text(alert.text),
          alert.value.map { .real($0) } ?? .null, .integer(alert.id))
      }
    }
  }

  private func asItIsNow(_ alert: StoredAlert) -> StoredAlert {
    guard let words = alertWords[Self.alertKey(alert.rule, alert.subject)] else { return alert }
    var alert = alert
    (alert.text, alert.value) = (words.text, words.value)
    return alert
  }

  /// As bytes, for an exact comparison.
  private static func alertKey(_ rule: String, _ subject: String) -> [UInt8] { Array("\(rule) \(subject)".utf8) }

  // MARK: Reading

  private static let alertColumns = """
    id, rule, subject, text, value, began_at, ended_at, acknowledged_at, acknowledged_by, note, returns, ended_elapsed
    """

  private func alert(_ row: Statement) -> StoredAlert {
    var alert = StoredAlert(
      id: row.integer(0), rule: row.text(1), subject: row.text(2), text: row.text(3),
      value: row.isNull(4) ? nil : row.real(4), beganAt: row.integer(5), endedAt: row.integerIfAny(6),
      returns: Int(min(max(row.integer(10), 0), 64)))
    (alert.acknowledgedAt, alert.acknowledgedBy) = (row.integerIfAny(7), row.textIfAny(8))
    (alert.note, alert.endedElapsed) = (row.textIfAny(9), row.integerIfAny(11))
    return alert.endedAt == nil ? asItIsNow(alert) : alert
  }

  private func alert(_ id: Int64) throws(SQLiteError) -> StoredAlert? {
    try firstAlert("WHERE id = ?", [.integer(id)])
  }

  private func openAlert(_ rule: String, _ subject: String) throws(SQLiteError) -> StoredAlert? {
    try firstAlert("WHERE ended_at IS NULL AND rule = ? AND subject = ?", [.text(rule), .text(subject)])
  }

  private func firstAlert(_ condition: String, _ values: [SQLiteValue]) throws(SQLiteError) -> StoredAlert? {
    try database.first("SELECT \(Self.alertColumns) FROM alerts \(condition) LIMIT 1", values) { alert($0) }
  }

  /// Alerts with ids below `id`, newest first, including several ended ones of a subject.
  public func alerts(before id: Int64 = .max, openOnly: Bool, limit: Int) throws(StoreError) -> [StoredAlert] {
    try rows(
      "SELECT \(Self.alertColumns) FROM alerts WHERE id < ? AND (? = 0 OR ended_at IS NULL) ORDER BY id DESC LIMIT ?",
      [.integer(id), .integer(openOnly ? 1 : 0), .integer(Int64(clamping: limit))]
    ) { alert($0) }
  }

  // MARK: Times at which nodes were heard

  /// When a watched node was heard last, in steady time, and the `last_heard` of its contact at that moment.
  public struct HeardNode: Equatable, Sendable {
    public var key: [UInt8]
    public var elapsed: Int64
    public var lastHeard: Int64

    public init(key: [UInt8], elapsed: Int64, lastHeard: Int64) {
      (self.key, self.elapsed, self.lastHeard) = (key, elapsed, lastHeard)
    }
  }

  public func heardNodes() throws(StoreError) -> [HeardNode] {
    try rows("SELECT key, elapsed, last_heard FROM heard_nodes") {
      HeardNode(key: $0.blob(0), elapsed: $0.integer(1), lastHeard: $0.integer(2))
    }
  }

  /// Within a `write`: replaces all entries.
  public func setHeardNodes(_ nodes: [HeardNode]) throws(SQLiteError) {
    try database.run("DELETE FROM heard_nodes")
    for node in nodes {
      try database.run(
        "INSERT OR REPLACE INTO heard_nodes(key, elapsed, last_heard) VALUES (?, ?, ?)", .blob(node.key),
        .integer(node.elapsed), .integer(node.lastHeard))
    }
  }
}
