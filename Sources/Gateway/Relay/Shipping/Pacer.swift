// SPDX-License-Identifier: MIT

import Timing

/// Decides how many bytes may be under way on a connection: enough to keep the line busy, but so few that the next event does not wait for seconds
/// behind them. Pure.
///
/// It begins with one event. While answers take hardly longer than the quickest one, the window grows; when they take much longer, bytes wait in
/// front of the line, and the window shrinks. It assumes no rate and no round trip: both may change at any time.
///
/// A silence is not a queue. The first answer after a silence does not show whether the line was cut or has become slow, so it does not count, and
/// the window is halved until a batch that was sent after the silence is answered. A second silence in a row counts as slowness.
struct Pacer: Equatable {
  /// Delays in front of the line up to which the window grows, and beyond which it shrinks.
  static let allowedDelay: Duration = .milliseconds(900)
  static let late: Duration = .milliseconds(1800)
  /// With small batches, a shorter delay keeps the line busy.
  private static let allowedDelayInParts: Duration = .milliseconds(500)
  private static let lateInParts: Duration = .milliseconds(1000)
  /// A smaller window is not divided into four: each batch costs headers.
  private static let dividedFrom = 6000
  /// After so long without a full line, its speed is unknown.
  static let lasting: Duration = .seconds(600)

  /// Bytes that may be under way; one event always may.
  private(set) var window = 1
  /// How long an answer takes when none of our data is queued.
  private var base: Duration?
  /// Batches that were sent before this belong to the larger window.
  private var shrunkAt: MonotonicTime?
  private var answeredAt: MonotonicTime?
  /// Bytes that any path carries in a second or two. Up to this, or to what this path has carried before (`known`), the window grows in longer steps:
  /// with a hub whose flushes take a second, a gateway would otherwise wait for eight.
  private static let modest = 4000
  private var known = modest
  /// When the line last carried a full window.
  private var provenAt: MonotonicTime?
  /// The end of a silence: batches that were sent before it have waited for it.
  private var resumedAt: MonotonicTime?
  /// The window before a silence that is not explained yet.
  private var doubt: Int?

  /// The number of batches into which the window is divided, if `most` may be under way. One batch after another leaves the line idle for a round
  /// trip; two are enough for a small window.
  func parts(_ most: Int) -> Int { most == 1 ? 1 : most > 4 && window >= Self.dividedFrom ? 4 : 2 }

  /// Bytes that may be under way when the other end's kernel has received all sent bytes: the line is free then, and only the answer is due. So a
  /// message does not wait for an earlier answer while a hub's flush takes seconds.
  var windowAfterArrival: Int { max(window, known, Self.modest) }

  /// A new connection begins with one event again, and soon reaches half of the window before it.
  mutating func reset() {
    var next = Pacer()
    next.known = max(known, max(window, doubt ?? 1) / 2)
    next.provenAt = provenAt
    self = next
  }

  /// `bytes`: of the answered batch; `ahead`: bytes that were under way when it was sent. `isSingle`: it was one event. `limit`: the largest window.
  /// `parts`: the batches in the window. False: the answer says nothing about the line, because it waited for the end of a silence.
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
    // The path may have become longer: an event alone on the line shows its present delay.
    if ahead == 0, isSingle { base = base + (took - base) / 2 }
    self.base = base
    // A batch that the window did not limit says nothing about a larger window.
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
    if let doubt { window = max(window, doubt) }
    doubt = nil
    window = min(window, max(limit, 1))
    return true
  }

  private mutating func wasSilent(for silence: Duration, _ base: Duration, _ bytes: Int, _ now: MonotonicTime) -> Bool {
    resumedAt = now
    guard doubt != nil else {
      doubt = window
      window = max(1, window / 2)
      return false
    }
    // The batches ahead of it were answered before the silence.
    shrink(to: Double(bytes) * share(of: silence, base), now)
    return true
  }

  /// The share of the bytes under way that would have been right, given their duration.
  private func share(of took: Duration, _ base: Duration, _ parts: Int = 2) -> Double {
    min((base + (parts > 2 ? Self.allowedDelayInParts : Self.allowedDelay)).inSeconds / took.inSeconds, 0.8)
  }

  private mutating func shrink(to bytes: Double, _ now: MonotonicTime) {
    window = max(1, Int(min(bytes, Double(window))))
    (known, shrunkAt, provenAt) = (window, now, now)
    // The doubt remains until an answer is quick.
    if doubt != nil { doubt = window }
  }
}
