// SPDX-License-Identifier: MIT

import Companion
import Timing

/// Limits messages of each other gateway: so many a minute, two minutes' worth at once. Pure.
struct SourceRates {
  /// The most sources to remember: the one that is silent for longest is forgotten.
  private static let most = 256
  private static let minutes = 2

  private struct Source {
    /// The messages that it may send at the time `at`.
    var allowance: Double
    var at: MonotonicTime
    /// Refused messages since the last log line.
    var refused = 0
    var toldAt: MonotonicTime?
  }

  private var sources: [Text: Source] = [:]
  /// The last messages that were charged. If the disk refuses a page of a hub, its messages come again.
  private var charged: [Text] = []
  /// More than a page has.
  private static let mostCharged = 256

  enum Verdict: Equatable {
    case allowed
    /// `told`: the number of refused messages to log now; `nil`: log nothing.
    case refused(told: Int?)
  }

  /// `key`: the message, which is charged once.
  mutating func take(_ name: String, _ key: String, perMinute: Int, now: MonotonicTime) -> Verdict {
    let key = Text(key)
    if charged.contains(key) { return .allowed }
    let (name, most) = (Text(name), Double(perMinute * Self.minutes))
    var source = sources[name] ?? Source(allowance: most, at: now)
    source.allowance = min(most, source.allowance + (now - source.at).inSeconds / 60 * Double(perMinute))
    source.at = now
    defer {
      if sources[name] == nil, sources.count >= Self.most, let oldest = sources.min(by: { $0.value.at < $1.value.at }) {
        sources[oldest.key] = nil
      }
      sources[name] = source
    }
    guard source.allowance < 1 else {
      source.allowance -= 1
      charged.append(key)
      if charged.count > Self.mostCharged { charged.removeFirst() }
      return .allowed
    }
    source.refused += 1
    guard source.toldAt.map({ now - $0 >= .seconds(3600) }) ?? true else { return .refused(told: nil) }
    let count = source.refused
    (source.refused, source.toldAt) = (0, now)
    return .refused(told: count)
  }
}
