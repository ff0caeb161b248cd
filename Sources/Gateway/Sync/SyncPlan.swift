// SPDX-License-Identifier: MIT

import Timing

/// Decides which parts of the sync are due, and when to retry a failed one. Pure.
///
/// The parts are independent: a radio that does not list its contacts can still receive and send messages.
struct SyncPlan {
  /// In the order of the sync.
  enum Part: Int, CaseIterable {
    case contacts, channels, messages

    var phase: SyncState.Phase {
      switch self {
      case .contacts: .contacts
      case .channels: .channels
      case .messages: .messages
      }
    }
  }

  private struct Standing {
    var isDone = false
    var failure: SyncFailure?
    var nextTry: MonotonicTime?
    var backoff: Backoff
  }

  /// The first pause before a retry; later ones are longer.
  private static let first: Duration = .seconds(2)
  /// Retries are rare: a radio that lists contacts hands over no messages, and a broken list costs 5 s.
  private static let limit: Duration = .seconds(600)

  private var standings = Part.allCases.map { _ in Standing(backoff: Backoff(first: first, limit: limit)) }

  /// Each part was tried since the sync began: messages can be sent, even if a part failed.
  private(set) var wasTried = false

  mutating func triedAll() { wasTried = true }

  /// Plans all parts again. Sending stays allowed if it was allowed before.
  mutating func startOver() {
    let before = wasTried
    self = SyncPlan()
    wasTried = before
  }

  func isDone(_ part: Part) -> Bool { standings[part.rawValue].isDone }

  func isDue(_ part: Part, now: MonotonicTime) -> Bool {
    let standing = standings[part.rawValue]
    return !standing.isDone && standing.nextTry.map { now >= $0 } ?? true
  }

  /// When the next part is due; `nil`: all are done.
  var nextTry: MonotonicTime? {
    standings.filter { !$0.isDone }.map { $0.nextTry ?? MonotonicTime(nanoseconds: 0) }.min()
  }

  /// The last attempt failed; this one only does what is left.
  func isRetry(_ part: Part) -> Bool { standings[part.rawValue].failure != nil }

  /// Plans the part again. A failed part keeps the time of its retry, unless `now`.
  mutating func needs(_ part: Part, now: Bool = false) {
    standings[part.rawValue].isDone = false
    if now { standings[part.rawValue].nextTry = nil }
  }

  mutating func succeeded(_ part: Part) {
    standings[part.rawValue].isDone = true
    standings[part.rawValue].failure = nil
    standings[part.rawValue].nextTry = nil
    standings[part.rawValue].backoff.reset()
  }

  /// Returns whether this failure is news: the part did not fail for the same reason before.
  mutating func failed(
    _ part: Part, _ failure: SyncFailure, now: MonotonicTime, using random: inout some RandomNumberGenerator
  ) -> Bool {
    let isNews = standings[part.rawValue].failure != failure
    standings[part.rawValue].isDone = false
    standings[part.rawValue].failure = failure
    standings[part.rawValue].nextTry = now + standings[part.rawValue].backoff.next(using: &random)
    return isNews
  }

  /// The first failed part, and an explanation of all failures.
  var failure: (part: Part, message: String)? {
    let failed = Part.allCases.filter { standings[$0.rawValue].failure != nil }
    guard let first = failed.first else { return nil }
    var words = failed.compactMap { standings[$0.rawValue].failure?.message }.joined(separator: "; ")
    if standings[Part.messages.rawValue].failure == nil { words += "; messages are still received and sent" }
    return (first, words)
  }
}
