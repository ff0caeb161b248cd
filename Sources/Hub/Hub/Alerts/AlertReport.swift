// SPDX-License-Identifier: MIT

import Alerts
import JSON

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
