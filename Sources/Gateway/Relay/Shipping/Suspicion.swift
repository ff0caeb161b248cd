// SPDX-License-Identifier: MIT

/// Finds the event over which a server hangs up again and again, or which it refuses. Pure.
///
/// A lost connection says little: the line may be bad, or the server in trouble. So nothing counts against an event until it was alone under way
/// `maxAlone` times, and the server hung up (or kept silent) each time. Then another event is sent, if possible one that the server has had before:
/// if that fails, the server is in trouble, and everything starts over. If it passes, and the suspect fails once more right after, the suspect is
/// proven.
///
/// A refusal says more: after the first, another event is sent. A server during a deployment, or a portal in front of it, refuses everything, and so
/// does a hook whose interpreter is being upgraded, or whose disk is full: no event is at fault then.
struct Suspicion: Equatable {
  static let maxAlone = 5

  /// The suspected event.
  private(set) var seq: Int64?
  private var alone = 0
  private var hasAnotherPassed = false
  private var hasAnotherFailed = false
  /// The server hung up over the suspect, at least once.
  private(set) var isHangUp = false
  /// Other events that failed to show that the server takes any.
  private(set) var failedProofs = 0

  /// Nothing else is under way while an event is suspected.
  var isActive: Bool { seq != nil }
  /// The suspect is sent alone.
  var wantsAlone: Bool { alone > 0 || hasAnotherPassed || hasAnotherFailed }
  /// Another event is to show whether the server takes any.
  var wantsProof: Bool { alone >= Self.maxAlone && !hasAnotherPassed }
  /// The next try may come soon: it is not known yet that the server is in trouble.
  var isUrgent: Bool { seq != nil && alone < Self.maxAlone && !hasAnotherFailed }

  /// The server hung up over a batch of `count` events, and took none of them. True: its only event is proven to be the reason.
  mutating func hungUp(first: Int64, count: Int) -> Bool {
    if seq != first { self = Suspicion(seq: first) }
    isHangUp = true
    guard count == 1 else { return false }
    if hasAnotherPassed {
      self = Suspicion()
      return true
    }
    alone = min(alone + 1, Self.maxAlone)
    return false
  }

  /// The server refused this event, which was alone. True: it is proven to be the reason.
  mutating func refused(_ event: Int64) -> Bool {
    if seq != event { self = Suspicion(seq: event) }
    if hasAnotherPassed {
      self = Suspicion()
      return true
    }
    alone = Self.maxAlone
    return false
  }

  mutating func anotherPassed() { hasAnotherPassed = true }

  mutating func anotherFailed() {
    (alone, hasAnotherPassed, hasAnotherFailed) = (0, false, true)
    failedProofs &+= 1
  }

  /// The server has everything up to here.
  mutating func advanced(to through: Int64) {
    if let seq, through >= seq { self = Suspicion() }
  }
}
