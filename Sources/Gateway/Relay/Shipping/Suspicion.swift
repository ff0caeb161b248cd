// SPDX-License-Identifier: MIT

/// Finds the event over which a server hangs up again and again, or which it refuses. Pure.
///
/// A lost connection says little: the line may be bad, or the server in trouble. So nothing counts against an event until it was alone under way
/// `maxAlone` times, and the server hung up (or kept silent) each time. Then another event is sent, if possible one that the server has had before:
/// if that fails, the server is in trouble, or that event is bad, too: after `againAlone` more times the next one is sent. If it passes, and the suspect fails once more right after, the suspect is
/// proven.
///
/// A refusal says more: after the first, another event is sent. A server during a deployment, or a portal in front of it, refuses everything, and so
/// does a hook whose interpreter is being upgraded, or whose disk is full: no event is at fault then. Others that were refused until one passed are
/// proven, too, when they are refused again in their turn: a server that refuses most of what it gets still gets everything else.
///
/// A server that fails over an event without refusing it (500) says no more than a lost connection, and may never say more. It counts as a refusal
/// once an operator has asked to skip the event.
struct Suspicion: Equatable {
  static let maxAlone = 5
  /// So many times before each further other event.
  static let againAlone = 2

  /// The suspected event.
  private(set) var seq: Int64?
  private var alone = 0
  private var hasAnotherPassed = false
  private var hasAnotherFailed = false
  /// The server hung up over the suspect, at least once.
  private(set) var isHangUp = false
  /// How often another event failed to show that the server takes any, and which did: these come again after all others.
  private(set) var failedProofs = 0
  private(set) var failedOthers: Set<Int64> = []
  /// Other events that the server refused, before and after it has taken one.
  private var refusedToo: Set<Int64> = []
  private var provenToo: Set<Int64> = []
  /// An operator has asked to skip the suspect, and maybe named it: then no other event needs to pass.
  private(set) var isAsked = false
  private var isNamed = false
  /// At this number, further ones need a proof of their own.
  private static let mostToo = 256

  /// Nothing else is under way while an event is suspected.
  var isActive: Bool { seq != nil }
  /// The suspect is sent alone.
  var wantsAlone: Bool { alone > 0 || hasAnotherPassed || hasAnotherFailed }
  /// Another event is to show whether the server takes any.
  var wantsProof: Bool { alone >= Self.maxAlone && !hasAnotherPassed && !isNamed }
  /// The next try may come soon: it is not known yet that the server is in trouble.
  var isUrgent: Bool { seq != nil && alone < Self.maxAlone && !hasAnotherFailed }

  /// The server hung up over a batch of `count` events, and took none of them. True: its only event is proven to be the reason.
  mutating func hungUp(first: Int64, count: Int) -> Bool {
    // An operator's wish shortens only the proof by the server's own answers.
    if seq != first || isAsked { self = Suspicion(seq: first) }
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
    if seq != event { self = Suspicion(seq: event, provenToo: provenToo) }
    if hasAnotherPassed || provenToo.contains(event) {
      self = Suspicion(provenToo: provenToo.union(refusedToo))
      return true
    }
    alone = Self.maxAlone
    return false
  }

  /// An operator asks to skip this event: another one is sent now, and then this one once more. `isNamed`: only this one.
  mutating func askedToSkip(_ event: Int64, isNamed: Bool = false) {
    if seq != event { self = Suspicion(seq: event, provenToo: provenToo) }
    (alone, hasAnotherPassed, isAsked, self.isNamed) = (Self.maxAlone, false, true, isNamed)
  }

  /// The operator has an answer: from now on a failure proves nothing again.
  mutating func answeredOperator() { (isAsked, isNamed) = (false, false) }

  /// The server failed over this event, which was alone, or refused it. `isOnly`: there is no other event to send. True: it may be skipped.
  mutating func failed(_ event: Int64, isOnly: Bool) -> Bool {
    guard isAsked, seq == event, hasAnotherPassed || isOnly || isNamed else { return false }
    self = Suspicion(provenToo: provenToo.union(refusedToo))
    return true
  }

  mutating func anotherPassed() { hasAnotherPassed = true }

  /// `other`: the event that was sent; `nil`: an empty batch.
  mutating func anotherFailed(_ other: Int64?, isRefused: Bool) {
    if let other, !failedOthers.insert(other).inserted || failedOthers.count > Self.mostToo { failedOthers = [other] }
    if isRefused, let refused = other, refusedToo.count + provenToo.count < Self.mostToo { refusedToo.insert(refused) }
    // The neighbour may be a second event of its kind: the next other one is tried sooner than the first.
    (alone, hasAnotherPassed, hasAnotherFailed) = (isHangUp ? Self.maxAlone - Self.againAlone : 0, false, true)
    failedProofs &+= 1
  }

  /// The server has everything up to here.
  mutating func advanced(to through: Int64) {
    if let seq, through >= seq { self = Suspicion(provenToo: provenToo) }
    provenToo = provenToo.filter { $0 > through }
  }

  /// Where to look for the next event that is to show whether the server takes any: behind the last one that passed, then all over what waits. Next
  /// to a refused event are often more of its kind. `ahead`: the last event that the server took out of turn. `last`: the journal's end.
  func nextProof(ahead: Int64?, last: Int64) -> Int64 {
    guard let seq else { return last }
    guard failedProofs > 0 else { return max(seq, ahead ?? seq) }
    // Halves, quarters, eighths: the number's bits in reverse.
    var (share, part, number) = (0.0, 0.5, failedProofs)
    while number > 0 {
      if number & 1 == 1 { share += part }
      (part, number) = (part / 2, number >> 1)
    }
    return seq + Int64(Double(max(0, last - seq)) * share)
  }
}
