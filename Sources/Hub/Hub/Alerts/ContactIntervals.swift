// SPDX-License-Identifier: MIT

import Alerts
import Glibc
import Timing

/// When gateways were last heard, and for how long each may be silent: pure.
///
/// Somebody may set the clocks behind the last contact in the database. So only its changes count here, at the time when this hub sees them. A linked
/// gateway has to make contact within a fixed time. Other gateways send when they have events, or once a day: each may be silent for four times its
/// longest pause. Time shortens that pause, and not the number of contacts: a lively hour says nothing about the nights.
struct ContactIntervals {
  /// The allowed pause of a gateway without a link, until its pauses are known. Each gateway makes contact once a day: a longer silence is an outage, and
  /// counts as a pause of a day. Otherwise the next outage would be told after four times the last one.
  private static let unknown: Duration = .seconds(86_400)
  private static let patience = 4
  /// In this time of contacts the longest pause becomes half as long.
  private static let halfLife: Duration = .seconds(7 * 86_400)
  /// A shorter time between two contacts is no pause: a gateway that comes with a backlog sends many batches, one after the other.
  private static func shortestPause(_ least: Duration) -> Duration { min(.seconds(60), least / 2) }
  /// A gateway that makes contact without a link for this long counts as a gateway without links.
  static let linkMemory: Duration = .seconds(86_400)

  private struct Contact {
    var seen: Int64
    /// The longest pause, as time has shortened it.
    var pause: Duration?
    /// Whether the gateway was heard since the hub started.
    var wasHeard = false
    /// The first contact that this hub saw.
    var first: MonotonicTime?
    /// When this hub last saw it linked.
    var linked: MonotonicTime?
  }

  private var contacts: [String: Contact] = [:]
  private var silence = Silence<String>()

  var gateways: [String] { Array(contacts.keys) }

  /// Notes the present contact data of a gateway. `hasLink`: the database shows a link within a day before the last contact. `isLinked`: it is linked
  /// to this hub, and therefore heard now.
  mutating func update(
    _ gateway: String, seen: Int64, hasLink: Bool, isLinked: Bool, least: Duration, now: MonotonicTime
  ) {
    guard var contact = contacts[gateway] else {
      contacts[gateway] = Contact(seen: seen, wasHeard: isLinked, linked: hasLink || isLinked ? now : nil)
      silence.listen(for: gateway, heard: now, limit: limit(nil, hasLink || isLinked, least))
      return
    }
    if contact.seen != seen || isLinked {
      if contact.seen != seen, contact.wasHeard, let before = silence.heard(gateway) {
        let time = now - before
        let share: Double = exp2(-time.inSeconds / Self.halfLife.inSeconds)
        let shortest = Self.shortestPause(least)
        if time >= shortest {
          contact.pause = max(min(time, Self.unknown), contact.pause.map { $0 * share } ?? .zero)
        } else if let pause = contact.pause {
          contact.pause = pause * share
        } else if let first = contact.first, now - first >= Self.unknown {
          // No backlog takes a day: this gateway makes contact all the time.
          contact.pause = shortest
        }
      }
      (contact.seen, contact.wasHeard, contact.first) = (seen, true, contact.first ?? now)
      silence.hear(gateway, at: now)
    }
    let heard = silence.heard(gateway) ?? now
    if isLinked { contact.linked = now }
    let keepsLink = hasLink || contact.linked.map { heard - $0 <= Self.linkMemory } ?? false
    contacts[gateway] = contact
    silence.listen(for: gateway, heard: heard, limit: limit(contact.pause, keepsLink, least))
  }

  /// Skips a time in which nobody listened: the database was unavailable, or this hub stood still. Contacts in that time are unknown, so it counts
  /// neither as a pause nor as silence.
  mutating func skip(from begin: MonotonicTime, to end: MonotonicTime, least: Duration) {
    silence.pass(from: begin, to: end, least: least)
    for (gateway, contact) in contacts { contacts[gateway]?.first = contact.first.map { $0 + (end - begin) } }
  }

  private func limit(_ pause: Duration?, _ hasLink: Bool, _ least: Duration) -> Duration {
    guard !hasLink else { return least }
    return pause.map { max(least, $0 * Self.patience) } ?? max(least, Self.unknown)
  }

  /// Forgets all other gateways.
  mutating func keep(only gateways: Set<String>) {
    for gateway in contacts.keys where !gateways.contains(gateway) {
      contacts[gateway] = nil
      silence.ignore(gateway)
    }
  }

  func isLate(_ gateway: String, now: MonotonicTime) -> Bool { silence.isLate(gateway, now: now) }

  /// Whether the gateway made contact since the hub started. Before that, it counts neither as silent nor as well.
  func wasHeard(_ gateway: String) -> Bool { contacts[gateway]?.wasHeard ?? false }

  func heard(_ gateway: String) -> MonotonicTime? { silence.heard(gateway) }
  func lastContact(_ gateway: String) -> Int64? { contacts[gateway]?.seen }
}
