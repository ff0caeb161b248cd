// SPDX-License-Identifier: MIT

import Alerts
import Hummingbird
import JSON
import PrometheusText

/// `/v1/alerts…`. Source: docs/alerts.md.
extension HubAPI {
  /// Most gateways of one list, and most alerts that are acknowledged together.
  private static let mostAtOnce = 1000

  func alertList(_ call: Call) async throws -> Response {
    let state = call.query("state") ?? "all"
    guard state == "all" || state == "open" else { throw BadQuery("state is open or all") }
    // The hub's own alerts have an empty one.
    let gateways = call.query("gateway").map { $0.split(separator: ",", omittingEmptySubsequences: false) } ?? []
    guard gateways.count <= Self.mostAtOnce else { throw BadQuery("gateway: at most \(Self.mostAtOnce) ids") }
    let wanted = gateways.map(String.init)
    let (found, hasMore) = try await stores.readers.ask(call.holder) {
      try $0.alerts(
        before: try call.bound("before") ?? .max, openOnly: state == "open", gateways: wanted,
        rule: call.query("rule"), limit: try call.pageLimit())
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
    guard let alert = try await acknowledge([id], body, call).first else {
      return Self.refusal(.notFound, "no such alert")
    }
    return Self.json(alert.json)
  }

  /// Several at once, such as those of one outage.
  func acknowledgeAlerts(_ call: Call) async throws -> Response {
    guard let body = try await object(of: call) else { return Self.refusal(.badRequest, "expected a JSON object") }
    let ids = (body["ids"]?.array ?? []).map(\.integer)
    guard (1...Self.mostAtOnce).contains(ids.count), !ids.contains(nil) else {
      return Self.refusal(.badRequest, "ids: 1 to \(Self.mostAtOnce) ids of alerts")
    }
    let found = try await acknowledge(ids.compactMap { $0 }, body, call)
    return Self.json(["alerts": found.map(\.json)])
  }

  private func acknowledge(_ ids: [Int64], _ body: JSONValue, _ call: Call) async throws -> [HubAlert] {
    let note = body["note"]
    guard note == nil || note == .null || note?.string != nil, note?.string?.utf8.count ?? 0 <= AlertReport.textBytes
    else { throw BadQuery("note: a text of at most \(AlertReport.textBytes) bytes") }
    let found = try await stores.writer.acknowledgeAlerts(ids, by: call.author, note: note?.string, at: HubClock.now)
    guard let first = found.first else { return [] }
    let others = found.dropFirst().map(\.id)
    try await self.note(
      "alert", call,
      [
        "id": first.id, "others": others.isEmpty ? nil : others,
        "gateway": first.gateway.isEmpty ? nil : first.gateway, "rule": first.rule,
      ])
    return found
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
