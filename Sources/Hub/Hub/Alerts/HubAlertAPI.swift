// SPDX-License-Identifier: MIT

import Alerts
import Hummingbird
import JSON
import PrometheusText

/// `/v1/alerts…`. Source: docs/alerts.md.
extension HubAPI {
  func alertList(_ call: Call) async throws -> Response {
    let state = call.query("state") ?? "all"
    guard state == "all" || state == "open" else { throw BadQuery("state is open or all") }
    let (found, hasMore) = try await stores.readers.ask(call.holder) {
      try $0.alerts(
        before: try call.bound("before") ?? .max, openOnly: state == "open", gateway: call.query("gateway"),
        limit: try call.pageLimit())
    }
    return Self.json(["alerts": found.map(\.json), "next": hasMore ? found.last?.id : nil])
  }

  func alertRules(_ call: Call) async throws -> Response {
    Self.json([
      "rules": watch.rules.map { rule -> JSONObject in ["rule": rule.rule.rawValue, "sentence": rule.sentence] }
    ])
  }

  func acknowledgeAlert(_ call: Call) async throws -> Response {
    guard let id = call.parameters.get("alert").flatMap({ Int64($0) }), id > 0 else {
      return Self.refusal(.notFound, "no such alert")
    }
    guard let body = try await object(of: call) else { return Self.refusal(.badRequest, "expected a JSON object") }
    let note = body["note"]
    guard note == nil || note == .null || note?.string != nil, note?.string?.utf8.count ?? 0 <= AlertReport.textBytes
    else { return Self.refusal(.badRequest, "note: a text of at most \(AlertReport.textBytes) bytes") }
    guard
      let alert = try await stores.writer.acknowledgeAlert(
        id, by: call.author, note: note?.string, at: HubClock.now)
    else { return Self.refusal(.notFound, "no such alert") }
    try await self.note(
      "alert", call,
      ["id": id, "gateway": alert.gateway.isEmpty ? nil : alert.gateway, "rule": alert.rule])
    return Self.json(alert.json)
  }

  /// A rule of a newer gateway that this version does not know counts as `other`: names from outside are no labels.
  func alertMetrics(_ text: inout PrometheusText) {
    let census = watch.census
    text.metric("meshpost_hub_alerts", .gauge, "Open alerts of gateways and hubs, by rule.") { samples in
      guard let census else { return }
      let known = AlertRule.allCases.map(\.rawValue)
      for rule in known { samples.add(Double(census.rules[rule] ?? 0), ("rule", rule)) }
      let others = census.rules.filter { rule, _ in !known.contains(rule) }.values.reduce(0, +)
      samples.add(Double(others), ("rule", "other"))
    }
    text.gauge(
      "meshpost_hub_alerts_unacknowledged", "Open alerts that nobody has acknowledged.", census?.unacknowledged)
  }
}
