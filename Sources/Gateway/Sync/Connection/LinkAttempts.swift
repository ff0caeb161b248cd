// SPDX-License-Identifier: MIT

import EventLoop
import Timing
import Transport

/// Decides when the gateway opens a lost link again, depending on how it was lost. Pure.
struct LinkAttempts {
  /// After a link was up for this long, the next failure restarts the back-off.
  private static let goodLink: Duration = .seconds(60)

  private var backoff = Backoff(first: .seconds(1), limit: .seconds(60))
  private var contest = LinkContest()
  /// When the link came up; `nil` while it is down.
  private(set) var upSince: MonotonicTime?
  /// When the link before this one had come up; `nil`: there was none.
  private var wasUpSince: MonotonicTime?
  /// When the link came up that the radio closed, until the radio tells whether it ran on.
  private var closedSince: MonotonicTime?
  /// A link was closed from the radio's side, and the radio ran on: another program may have been connected meanwhile.
  private var isTaken = false
  /// Next attempt while the link is down; `nil`: the link reports when it is up again.
  private(set) var next: MonotonicTime?

  mutating func linkUp(now: MonotonicTime) { upSince = now }

  mutating func forgetContest() { contest = LinkContest() }

  /// The radio tells over this link when it started, at the latest. A start after the link before had come up explains
  /// why that one ended.
  mutating func radioStarted(at start: MonotonicTime) {
    if let closedSince {
      isTaken = isTaken || start <= closedSince
      self.closedSince = nil
    }
    guard let wasUpSince else { return }
    if start > wasUpSince { forgetContest() } else { contest.ranOn() }
  }

  /// Whether another program may have been connected to the radio since this was last asked, and may have read messages.
  mutating func wasTaken() -> Bool {
    defer { isTaken = false }
    return isTaken
  }

  /// `wasMet`: the radio's handshake was done. Returns the reason to show (`.takenAway` if another program took the
  /// radio), and how long to leave the radio to that program.
  mutating func lost(
    _ failure: LinkError, wasMet: Bool, healsItself: Bool, now: MonotonicTime,
    using random: inout some RandomNumberGenerator
  ) -> (LinkError, truce: Duration?) {
    let lifetime = upSince.map { now - $0 }
    wasUpSince = upSince ?? wasUpSince
    if wasMet, case .closedByPeer = failure { closedSince = closedSince ?? upSince }
    (upSince, next) = (nil, healsItself ? nil : now)
    guard let lifetime else {
      contest.wasAway()
      return (failure, nil)
    }
    if wasMet, lifetime > Self.goodLink { backoff.reset() }
    guard case .closedByPeer(let peer) = failure else {
      contest.lost(after: lifetime)
      return (failure, nil)
    }
    let truce = contest.closed(after: lifetime, using: &random)
    return (truce == nil ? failure : .takenAway(peer), truce)
  }

  /// Returns the pause before the next attempt. `truce`: for so long the radio is left to another program.
  mutating func wait(
    _ truce: Duration?, now: MonotonicTime, using random: inout some RandomNumberGenerator
  ) -> Duration {
    let wait = truce ?? backoff.next(using: &random)
    next = now + wait
    return wait
  }
}

/// Limits log lines about the link: one for each state, even if it is entered repeatedly for the same reason, and few
/// if the state changes often.
struct LinkNews {
  private var failure: String?
  private var flaps = FlapLimit()

  /// The state changes too often for a line each.
  var isFlapping: Bool { flaps.isQuiet }

  /// Returns true if the link was up before, or down for another reason.
  mutating func isNews(_ error: LinkError) -> Bool {
    defer { failure = "\(error)" }
    return failure != "\(error)"
  }

  mutating func linkUp() { failure = nil }

  mutating func tell(_ level: Log.Level, _ words: String, to log: Log, now: MonotonicTime) {
    let (isWorthIt, missed) = flaps.changed(now: now)
    if missed > 0 { log.notice("radio link: \(missed) more changes in the last hour") }
    log.log(isWorthIt ? level : .debug, words)
    if isWorthIt, flaps.isQuiet { log.notice("radio link: flapping; further changes counted, not logged") }
  }
}
