// SPDX-License-Identifier: MIT

import Timing

/// Decides how many bytes may be under way on a connection: so many that the line is never idle, and so few that what is
/// sent next is not behind seconds of other things. Pure.
///
/// It begins with one event. While answers come hardly later than the quickest one did, as much again may be under way; when they
/// come much later, bytes wait in front of the line: fewer then. No rate is assumed, and no round trip: both may change at any time.
struct Pacer: Equatable {
  /// Waiting in front of the line up to which more is sent, and beyond which less.
  static let calm: Duration = .milliseconds(900)
  static let late: Duration = .milliseconds(1800)
  /// Bytes under way; one event always may.
  private(set) var window = 1
  /// What an answer takes when nothing of ours is in front of the line.
  private var base: Duration?
  /// What was sent before it was under the window of before.
  private var shrunkAt: MonotonicTime?

  /// A new connection.
  mutating func reset() { self = Pacer() }

  /// `bytes`: of what was answered; `ahead`: of what was under way before it when it was sent. `isSingle`: it was one event. `limit`: bytes
  /// that may ever be under way.
  mutating func answered(
    bytes: Int, ahead: Int, isSingle: Bool, sentAt: MonotonicTime, now: MonotonicTime, limit: Int
  ) {
    let took = now - sentAt
    var base = min(self.base ?? took, took)
    // The path may have become a longer one: an event that was alone tells what it takes now.
    if ahead == 0, isSingle { base = base + (took - base) / 2 }
    self.base = base
    let waited = took - base
    if waited <= Self.calm {
      // What was not limited by the window says nothing about a larger one.
      if ahead + bytes >= window / 2 { window = min(max(window, bytes) + bytes, max(limit, 1)) }
    } else if waited > Self.late {
      if let shrunkAt, sentAt < shrunkAt { return }
      let share = (base + Self.calm).inSeconds / took.inSeconds
      window = max(1, Int(Double(ahead + bytes) * min(share, 0.8)))
      shrunkAt = now
    }
  }
}
