// SPDX-License-Identifier: MIT

import Alerts

/// The open alerts of a gateway.
struct OpenAlerts: Sendable, Equatable {
  /// Their number, by rule.
  var rules: [String: Int64] = [:]

  var count: Int64 { rules.values.reduce(0, +) }
  /// The hub's own rule knows the pauses of each gateway: nothing else judges silence.
  var isSilent: Bool { has(.gatewaySilent) }

  func has(_ rule: AlertRule) -> Bool { rules[rule.rawValue] != nil }

  /// How bad the worst of these alerts and needs is: 0 is the worst; `nil`: there are none. A rule that only newer gateways know is the least.
  func rank(_ needs: [GatewayNeed]) -> Int? {
    let order = AlertRule.byWeight
    let told = rules.keys.map { name in order.firstIndex { $0.rawValue == name } ?? order.count }
    return (told + needs.compactMap { order.firstIndex(of: $0.rule) }).min()
  }
}

/// What a gateway needs of people. What readers are told of it (marks, numbers, filters) is made from this alone.
enum GatewayNeed: String, CaseIterable, Sendable {
  case silent, radio, store, power, clock

  /// The rule of an alert that is as bad.
  var rule: AlertRule {
    switch self {
    case .silent: .gatewaySilent
    case .radio: .radioLost
    case .store: .diskFull
    case .power: .batteryLow
    case .clock: .clockWrong
    }
  }
}

extension FleetRow {
  /// A state of a gateway without a link counts for a day of contacts. In milliseconds.
  private static let stateLasts: Int64 = 86_400_000

  /// By its last state and its open alerts: a gateway that has no link sends its alerts, too. Pure.
  func needs(isLinked: Bool, _ alerts: OpenAlerts) -> [GatewayNeed] {
    let isSilent = !isLinked && alerts.isSilent
    let isCurrent = isLinked || (!isSilent && lastSeen - (stateAt ?? 0) <= Self.stateLasts)
    // The state ends at once, the alert some minutes later.
    let hasRadio = isCurrent ? radioState.map { $0 == "up" } : nil
    let hasTime = isCurrent ? clockTrusted : nil
    return GatewayNeed.allCases.filter { need in
      switch need {
      case .silent: isSilent
      case .radio: !(hasRadio ?? !alerts.has(.radioLost))
      case .store: storeError != nil
      case .power: power == "low" || alerts.has(.batteryLow) || alerts.has(.supplyLow)
      case .clock: !(hasTime ?? !alerts.has(.clockWrong))
      }
    }
  }
}
