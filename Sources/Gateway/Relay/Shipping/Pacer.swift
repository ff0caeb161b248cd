// SPDX-License-Identifier: MIT

import Timing

/// Decides how many bytes may be under way on a connection: so many that the line is never idle, and so few that what is
/// sent next is not behind seconds of other things. Pure.
///
/// It begins with one event. While answers come hardly later than the quickest one did, as much again may be under way; when they
/// come much later, bytes wait in front of the line: fewer then. No rate is assumed, and no round trip: both may change at any time.
///
/// A silence is no queue. A line that was cut, and one that has become slow, look alike in the first answer after it: that answer says
/// nothing. Half as much may be under way until what was sent after it is answered, and tells; a second silence in a row is slowness.
struct Pacer: Equatable {
  /// Waiting in front of the line up to which more is sent, and beyond which less.
  static let allowedDelay: Duration = .milliseconds(900)
  static let late: Duration = .milliseconds(1800)
  /// In small parts less has to wait to keep the line busy.
  private static let allowedDelayInParts: Duration = .milliseconds(500)
  private static let lateInParts: Duration = .milliseconds(1000)
  /// A smaller window has no small parts: each costs headers.
  private static let dividedFrom = 6000
  /// After so long without a full line its speed counts as unknown.
  static let lasting: Duration = .seconds(600)

  /// It is not known yet what a silence was; `before`: the window that the line had.
  private struct Doubt: Equatable {
    var before: Int
  }

  /// Bytes under way; one event always may.
  private(set) var window = 1
  /// How long an answer takes when none of our data is queued.
  private var base: Duration?
  /// What was sent before it was under the window of before.
  private var shrunkAt: MonotonicTime?
  private var answeredAt: MonotonicTime?
  /// What any path takes in a second or two, or what this one has taken before: the window comes there in longer steps. A hub whose flushes take
  /// a second would else have let a gateway wait for eight.
  private static let modest = 4000
  private var known = modest
  /// When the line was last seen to take what the window allows.
  private var provenAt: MonotonicTime?
  /// The end of a silence: what was sent before it has waited for that.
  private var resumedAt: MonotonicTime?
  private var doubt: Doubt?

  /// Into how many batches the window is divided, where so many may be under way: one after another leaves the line idle for a round trip,
  /// two do while the window is no longer than two.
  func parts(_ most: Int) -> Int { most == 1 ? 1 : most > 4 && window >= Self.dividedFrom ? 4 : 2 }

  /// Bytes that may be under way when the other end's kernel has all that was sent: the line is free, and only the answer is due. While a hub's flush
  /// takes seconds, a message does not wait for the answer to the one before it.
  var windowAfterArrival: Int { max(window, known, Self.modest) }

  /// A new connection: it begins with one event again, and is soon at half of what the one before had.
  mutating func reset() {
    var next = Pacer()
    next.known = max(known, max(window, doubt?.before ?? 1) / 2)
    next.provenAt = provenAt
    self = next
  }

  /// `bytes`: of what was answered; `ahead`: of what was under way before it when it was sent. `isSingle`: it was one event. `limit`: bytes
  /// that may ever be under way. `parts`: that the window is divided into. False: it says nothing of the line, as it has waited for the end of a silence.
  @discardableResult
  mutating func answered(
    bytes: Int, ahead: Int, isSingle: Bool, sentAt: MonotonicTime, now: MonotonicTime, limit: Int, parts: Int = 2
  ) -> Bool {
    let silence = now - max(sentAt, answeredAt ?? sentAt)
    answeredAt = now
    if let provenAt, now - provenAt > Self.lasting {
      (window, known, self.provenAt, doubt) = (1, Self.modest, nil, nil)
    }
    if let base, silence > base + Self.late { return wasSilent(for: silence, base, bytes, now) }
    if let resumedAt, sentAt < resumedAt { return false }
    let took = now - sentAt
    var base = min(self.base ?? took, took)
    // The path may have become a longer one: an event that was alone tells what it takes now.
    if ahead == 0, isSingle { base = base + (took - base) / 2 }
    self.base = base
    // What was not limited by the window says nothing about a larger one.
    let wasFull = ahead + bytes >= window / 2
    let waited = took - base
    if waited > (parts > 2 ? Self.lateInParts : Self.late) {
      if let shrunkAt, sentAt < shrunkAt { return true }
      shrink(to: Double(ahead + bytes) * share(of: took, base, parts), now)
      return true
    }
    if wasFull { provenAt = now }
    guard waited <= (parts > 2 ? Self.allowedDelayInParts : Self.allowedDelay) else { return true }
    if wasFull {
      let least = max(window, bytes)
      window = max(least + bytes, min(least + bytes * 3, known))
    }
    if let doubt { window = max(window, doubt.before) }
    doubt = nil
    window = min(window, max(limit, 1))
    return true
  }

  private mutating func wasSilent(for silence: Duration, _ base: Duration, _ bytes: Int, _ now: MonotonicTime) -> Bool {
    resumedAt = now
    guard doubt != nil else {
      doubt = Doubt(before: window)
      window = max(1, window / 2)
      return false
    }
    // What was ahead of it was answered before the silence.
    shrink(to: Double(bytes) * share(of: silence, base), now)
    return true
  }

  /// The share of what was under way that would have been right, given how long it took.
  private func share(of took: Duration, _ base: Duration, _ parts: Int = 2) -> Double {
    min((base + (parts > 2 ? Self.allowedDelayInParts : Self.allowedDelay)).inSeconds / took.inSeconds, 0.8)
  }

  private mutating func shrink(to bytes: Double, _ now: MonotonicTime) {
    window = max(1, Int(min(bytes, Double(window))))
    (known, shrunkAt, provenAt) = (window, now, now)
    // Still slow until something is quick.
    if doubt != nil { doubt = Doubt(before: window) }
  }
}
