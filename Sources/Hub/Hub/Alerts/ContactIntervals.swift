// SPDX-License-Identifier: MIT

import Alerts
import Timing

/// When gateways were heard last, and for how long each may be silent: pure.
///
/// What the database says of a last contact is of clocks that may be set: only that it has changed counts here, and when that was seen. A gateway
/// that keeps a link is expected to be heard within a fixed time. Others send when they have something, or once a day: of these the longest pause
/// between contacts counts, four times.
struct ContactIntervals {
  /// The pause that is allowed to a gateway without a link whose pauses are not known yet.
  private static let unknown: Duration = .seconds(86_400)
  private static let patience = 4
  /// Who has been heard for so long without a link keeps none any more.
  static let linkMemory: Duration = .seconds(86_400)

  private struct Habit {
    var seen: Int64
    /// The longest pause; an old one counts less with each contact.
    var pause: Duration?
    /// Whether the gateway was heard since the hub started.
    var wasHeard = false
    /// When it was linked last, as far as this hub has seen.
    var linked: MonotonicTime?
  }

  private var habits: [String: Habit] = [:]
  private var silence = Silence<String>()

  var gateways: [String] { Array(habits.keys) }

  /// What is known of a gateway now. `hasLink`: it had one within a day before it was heard last, as the database knows. `isLinked`: it is linked
  /// here, and so there.
  mutating func look(
    _ gateway: String, seen: Int64, hasLink: Bool, isLinked: Bool, least: Duration, now: MonotonicTime
  ) {
    guard var habit = habits[gateway] else {
      habits[gateway] = Habit(seen: seen, wasHeard: isLinked, linked: hasLink || isLinked ? now : nil)
      silence.listen(for: gateway, heard: now, limit: limit(nil, hasLink || isLinked, least))
      return
    }
    if habit.seen != seen || isLinked {
      if habit.seen != seen, habit.wasHeard, let before = silence.heard(gateway) {
        let faded = (habit.pause ?? .zero) * 19 / 20
        habit.pause = max(now - before, faded)
      }
      (habit.seen, habit.wasHeard) = (seen, true)
      silence.hear(gateway, at: now)
    }
    let heard = silence.heard(gateway) ?? now
    if isLinked { habit.linked = now }
    let keepsLink = hasLink || habit.linked.map { heard - $0 <= Self.linkMemory } ?? false
    habits[gateway] = habit
    silence.listen(for: gateway, heard: heard, limit: limit(habit.pause, keepsLink, least))
  }

  /// Nobody was listened for in between: the database was away, or this hub stood still. Contacts of that time are not known, so it is no
  /// pause of anybody, and nobody is silent because of it.
  mutating func pass(from begin: MonotonicTime, to end: MonotonicTime, least: Duration) {
    silence.pass(from: begin, to: end, least: least)
  }

  private func limit(_ pause: Duration?, _ hasLink: Bool, _ least: Duration) -> Duration {
    guard !hasLink else { return least }
    return pause.map { max(least, $0 * Self.patience) } ?? max(least, Self.unknown)
  }

  /// Gateways that are no more.
  mutating func keep(only gateways: Set<String>) {
    for gateway in habits.keys where !gateways.contains(gateway) {
      habits[gateway] = nil
      silence.ignore(gateway)
    }
  }

  func isLate(_ gateway: String, now: MonotonicTime) -> Bool { silence.isLate(gateway, now: now) }

  /// Whether it was heard since the hub began: what was silent before is not taken for well before that.
  func wasHeard(_ gateway: String) -> Bool { habits[gateway]?.wasHeard ?? false }

  func heard(_ gateway: String) -> MonotonicTime? { silence.heard(gateway) }
  func lastContact(_ gateway: String) -> Int64? { habits[gateway]?.seen }
}
