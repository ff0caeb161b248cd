// SPDX-License-Identifier: MIT

import Alerts

/// A node's answers to polls. Pure.
///
/// Polls get lost on the air, on long ways every fifth. So the number in a row that means something depends on how many usually do.
struct PollCourse: Equatable {
  /// A row of losses by chance is to be less likely than this.
  private static let chance = 1e-6
  private static let whole = 1_000_000
  /// Losses in a million that are assumed at least and at most.
  private static let leastLosses = 20_000
  private static let mostLosses = 600_000
  /// A poll counts so much of the whole for the usual losses: the last month of an hourly one is enough.
  private static let memory = 64

  /// Polls in a row without an answer, by their kind.
  var unanswered: [String: Int] = [:]
  /// When the first of them was asked, in the time in which the gateway listened.
  var missedSince: Int64?
  /// How many of a million polls usually get lost.
  var losses = 100_000

  /// A poll was answered, or not. `wasTold`: its silence is told, and so is none of its usual losses.
  mutating func polled(
    _ kind: String, isAnswered: Bool, at time: Int64, wasTold: Bool, _ settings: CareSettings
  ) -> AlertReading {
    if isAnswered {
      if !wasTold { for _ in 0..<min(unanswered[kind] ?? 0, 16) { count(Self.whole) } }
      count(0)
      unanswered[kind] = nil
    } else {
      if unanswered.isEmpty { missedSince = time }
      unanswered[kind] = min((unanswered[kind] ?? 0) + 1, 1_000_000)
    }
    return reading(settings)
  }

  /// Nobody else was heard meanwhile: the radio may be the cause. Two further polls in a row decide.
  mutating func doubt(at time: Int64, _ settings: CareSettings) {
    let most = enough(settings) - 2
    (unanswered, missedSince) = (unanswered.mapValues { min($0, max(0, most)) }, time)
  }

  /// Only these kinds are polled now: there are no answers to others.
  mutating func keep(only kinds: Set<String>) { unanswered = unanswered.filter { kinds.contains($0.key) } }

  func reading(_ settings: CareSettings) -> AlertReading {
    let missing = unanswered.filter { $0.value >= enough(settings) }
    guard !missing.isEmpty else { return unanswered.isEmpty ? .well : .between }
    let most = missing.values.max() ?? 0
    let kinds = missing.keys.sorted().joined(separator: ", ")
    return .bad(text: "it has not answered \(most) polls in a row (\(kinds))", value: Double(most))
  }

  private mutating func count(_ loss: Int) { losses += (loss - losses) / Self.memory }

  func enough(_ settings: CareSettings) -> Int {
    let loss = Double(min(max(losses, Self.leastLosses), Self.mostLosses)) / Double(Self.whole)
    var (row, likelihood) = (0, 1.0)
    while likelihood > Self.chance {
      row += 1
      likelihood *= loss
    }
    return max(settings.unanswered, row)
  }
}
