// SPDX-License-Identifier: MIT

import ControlShapes
import HTTP
import JSON
import Messaging
import Store

/// `/v1/alerts…`: lists and acknowledges alerts. See docs/alerts.md.
struct AlertsAPI {
  private static let mostRows: Int64 = 1000
  private static let usualRows: Int64 = 100
  /// The greatest lengths of a name and of a note, in bytes.
  private static let longestName = 64
  private static let longestNote = 500

  let dependencies: ControlAPI.Dependencies

  /// Alerts, newest first. `state=open`: only open ones; `before`: an id; `limit`.
  func list(_ request: HTTPRequest) throws -> Answer {
    let limit = Int(min(max(ControlAPI.number(request, "limit") ?? Self.usualRows, 1), Self.mostRows))
    let before = ControlAPI.number(request, "before") ?? .max
    let found = try dependencies.store.alerts(before: before, openOnly: request.query["state"] == "open", limit: limit)
    return .json { json in
      json.objects(Shape.Alerts().alerts, found) { Self.write($0, to: &$1) }
      if found.count == limit { json.field(Shape.Alerts().next, found.last?.id) }
    }
  }

  func rules() -> Answer {
    .json { json in
      json.objects(Shape.AlertRules().rules, dependencies.operations.alertRules) { rule, json in
        json.field(Shape.AlertRule().rule, rule.name)
        json.field(Shape.AlertRule().sentence, rule.sentence)
      }
    }
  }

  /// Acknowledges an alert: `{"id","by"?,"note"?}`.
  func acknowledge(_ body: RequestBody) async throws -> Answer {
    guard let id = try body.integer("id", in: 1...JSONValue.wholeNumbers.upperBound) else {
      throw Refusal.invalid("\"id\" is missing")
    }
    let (by, note) = (try body.optional("by") ?? "operator", try body.optional("note"))
    guard !by.isEmpty, by.utf8.count <= Self.longestName, note?.utf8.count ?? 0 <= Self.longestNote else {
      throw Refusal.invalid("by: 1 to \(Self.longestName) bytes; note: at most \(Self.longestNote)")
    }
    let moment = dependencies.synchronizer.now
    var seen: StoredAlert?
    try await dependencies.store.save { store throws(SQLiteError) in
      seen = try store.acknowledgeAlert(id, by: by, note: note, at: moment)
    }
    guard let seen else { throw Refusal.notFound(.alert(id)) }
    return .json { Self.write(seen, to: &$0) }
  }

  static func write(_ alert: StoredAlert, to json: inout JSONWriter) {
    let row = Shape.Alert()
    json.field(row.id, alert.id)
    json.field(row.rule, alert.rule)
    json.field(row.subject, alert.subject.isEmpty ? nil : alert.subject)
    json.field(row.text, alert.text)
    json.field(row.value, alert.value)
    json.field(row.beganAt, alert.beganAt)
    json.field(row.endedAt, alert.endedAt)
    json.field(row.acknowledgedAt, alert.acknowledgedAt)
    json.field(row.acknowledgedBy, alert.acknowledgedBy)
    json.field(row.note, alert.note)
  }
}
