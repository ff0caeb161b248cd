// SPDX-License-Identifier: MIT

import Timing

/// When a connection needs a ping, as rarely as the path and the broker allow, and what the answer shows about the path. Pure.
struct PingSchedule {
  /// The idle time that the path supports; `nil`: no pings.
  private(set) var silences: KeepAlive?
  /// The negotiated keep-alive; `nil`: none.
  private let agreed: Duration?
  private var lastSent: MonotonicTime
  private var lastHeard: MonotonicTime
  /// The silence before a ping that has no answer yet.
  private var pingedAfter: Duration?

  /// The broker has accepted the client.
  init(_ silences: KeepAlive?, agreed: Duration?, now: MonotonicTime) {
    (self.silences, self.agreed) = (silences, agreed)
    (lastSent, lastHeard) = (now, now)
  }

  var isPending: Bool { pingedAfter != nil }

  /// When to send the next ping, unless something else is sent before; `nil`: never.
  var due: MonotonicTime? { [silences?.interval, agreed].compactMap(\.self).min().map { lastSent + $0 } }

  mutating func sent(now: MonotonicTime) { lastSent = now }
  mutating func heard(now: MonotonicTime) { lastHeard = now }
  mutating func pinged(now: MonotonicTime) { pingedAfter = now - max(lastSent, lastHeard) }

  mutating func answered(now: MonotonicTime) {
    // A shorter silence proves nothing about a longer one.
    if let silence = pingedAfter, let interval = silences?.interval, silence >= interval * 9 / 10 {
      silences?.answered(now: now)
    }
    pingedAfter = nil
  }

  /// Further facts about the loss of a broker: after which silence a ping had no answer.
  mutating func unanswered(now: MonotonicTime) -> String {
    guard let silence = pingedAfter, silences?.unanswered(after: silence, now: now) == true, let silences else {
      return ""
    }
    return " after a silence of \(Int(silence.inSeconds)) s; \(silences)"
  }
}
