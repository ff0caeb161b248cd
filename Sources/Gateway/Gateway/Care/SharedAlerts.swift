// SPDX-License-Identifier: MIT

import Alerts
import Companion

/// Bounds the alerts of nodes: of each rule, the first nodes have an alert each, and all further ones share one. Pure.
///
/// A node stays where it is until it is well: an alert of its own that came later would be told twice.
struct SharedAlerts {
  /// The most alerts of single nodes for each rule.
  static let most = 16
  /// The subject of the alert that the others share: no key.
  static let others = "others"
  private static let named = 4

  /// The nodes that have an alert of their own, and whether they are bad now.
  private var own: [AlertRule: [PublicKey: Bool]] = [:]
  /// The others, with their names and in the order in which they came.
  private var shared: [AlertRule: [PublicKey: (place: Int, name: String)]] = [:]
  private var places = 0

  /// After a start: the node has an open alert of its own.
  mutating func restore(_ rule: AlertRule, own key: PublicKey) { own[rule, default: [:]][key] = true }
  /// After a start: the node's trouble is told with that of others.
  mutating func restore(_ rule: AlertRule, shared key: PublicKey, name: String) {
    places += 1
    shared[rule, default: [:]][key] = (places, name)
  }

  func isShared(_ rule: AlertRule, _ key: PublicKey) -> Bool { shared[rule]?[key] != nil }
  func isBad(_ rule: AlertRule, _ key: PublicKey) -> Bool { own[rule]?[key] ?? false || isShared(rule, key) }

  /// Where a node's reading belongs, and how it reads there.
  mutating func place(
    _ rule: AlertRule, _ key: PublicKey, _ name: @autoclosure () -> String, _ reading: AlertReading,
    isOpen: (AlertSubject) -> Bool
  ) -> (AlertSubject, AlertReading) {
    let subject = AlertSubject(rule, key.hex)
    switch reading {
    case .bad(let words, let value, let since):
      if rule.isMoment, !isOpen(AlertSubject(rule, Self.others)) { shared[rule] = nil }
      guard mayHaveOwn(rule, key, isOpen) else {
        if !isShared(rule, key) { restore(rule, shared: key, name: name()) }
        return sharedReading(rule)
      }
      own[rule, default: [:]][key] = true
      return (subject, .bad(text: "\(name()): \(words)", value: value, since: since))
    case .between:
      return isShared(rule, key) ? sharedReading(rule) : (subject, .between)
    case .well:
      if own[rule]?[key] != nil { own[rule]?[key] = false }
      guard isShared(rule, key) else { return (subject, .well) }
      // Who was started anew stays among the others until their alert is over.
      if rule.isMoment { return (AlertSubject(rule, Self.others), .well) }
      shared[rule]?[key] = nil
      return sharedReading(rule)
    }
  }

  private mutating func mayHaveOwn(_ rule: AlertRule, _ key: PublicKey, _ isOpen: (AlertSubject) -> Bool) -> Bool {
    guard !isShared(rule, key) else { return false }
    guard own[rule]?[key] == nil else { return true }
    own[rule] = own[rule]?.filter { $0.value || isOpen(AlertSubject(rule, $0.key.hex)) }
    return own[rule]?.count ?? 0 < Self.most
  }

  /// The node is no longer in care. The reading is that of the others, if it shared their alert.
  mutating func forget(_ rule: AlertRule, _ key: PublicKey) -> (AlertSubject, AlertReading)? {
    own[rule]?[key] = nil
    return shared[rule]?.removeValue(forKey: key).map { _ in sharedReading(rule) }
  }

  private func sharedReading(_ rule: AlertRule) -> (AlertSubject, AlertReading) {
    let subject = AlertSubject(rule, Self.others)
    let others = shared[rule] ?? [:]
    guard !others.isEmpty else { return (subject, .well) }
    // Without sorting all of them: this is read with each report.
    var first: [(place: Int, name: String)] = []
    for one in others.values where first.count < Self.named || one.place < first[Self.named - 1].place {
      first.insert(one, at: first.firstIndex { $0.place > one.place } ?? first.count)
      if first.count > Self.named { first.removeLast() }
    }
    let listed = first.map(\.name).joined(separator: ", ")
    let more = others.count > Self.named ? " and \(others.count - Self.named) more" : ""
    let nodes = "\(others.count) further node\(others.count == 1 ? "" : "s")"
    return (subject, .bad(text: "\(nodes) \(Self.words(rule)): \(listed)\(more)", value: Double(others.count)))
  }

  private static func words(_ rule: AlertRule) -> String {
    switch rule {
    case .nodeBatteryLow: "with a low battery"
    case .nodeBatteryFalling: "whose batteries have been falling for days"
    case .nodeRestarted: "started anew"
    case .nodeNoisy: "that hear much noise"
    case .nodeUnanswering: "that answer no polls"
    case .nodeClockWrong: "with a wrong clock"
    default: "not heard for long"
    }
  }
}

extension AlertRule {
  /// Whether the trouble is over at once: only the alert lasts.
  fileprivate var isMoment: Bool { self == .nodeRestarted }
}
