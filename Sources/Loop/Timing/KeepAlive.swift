// SPDX-License-Identifier: MIT

/// Decides after how much silence a connection is pinged: as seldom as whatever is on the path keeps an idle connection. Pure.
///
/// A NAT that forgets a connection after two minutes lets the ping of the fifth go nowhere: the link is dead from the second minute on, and nothing
/// reaches the gateway meanwhile. So a ping without an answer halves the silence, and answers lengthen it again, up to what was configured; a
/// silence that failed is tried again a day later.
public struct KeepAlive: CustomStringConvertible {
  /// No NAT that passes TCP at all forgets it sooner, and more pings would cost more than a new connection.
  public static let shortest: Duration = .seconds(25)
  /// Answers in a row, after which a longer silence is tried.
  public static let answersToGrow = 8
  public static let memory: Duration = .seconds(86400)

  /// The longest pause, as configured.
  public let longest: Duration
  public private(set) var interval: Duration
  private var answers = 0
  /// A silence that ended a link, and until when it is not tried again.
  private var failed: (silence: Duration, until: MonotonicTime)?

  /// `longest`: the silence that was configured.
  public init(longest: Duration) {
    self.longest = longest
    interval = longest
  }

  /// A ping after that silence was answered.
  public mutating func answered(now: MonotonicTime) {
    if let failed, now >= failed.until { self.failed = nil }
    guard interval < longest else { return }
    answers += 1
    guard answers >= Self.answersToGrow else { return }
    answers = 0
    // A tenth below what failed: the clocks of two ends are not one.
    let most = failed.map { min(longest, $0.silence * 9 / 10) } ?? longest
    interval = max(interval, min(interval * 5 / 4, most))
  }

  /// A ping after that silence was not answered. False: nothing changes.
  public mutating func unanswered(after silence: Duration, now: MonotonicTime) -> Bool {
    answers = 0
    // A line that is cut anyway says nothing about silence.
    guard silence >= interval * 9 / 10, interval > Self.shortest else { return false }
    failed = (silence, now + Self.memory)
    interval = min(interval, max(Self.shortest, interval / 2))
    return true
  }

  public var description: String { "pinged after \(Int(interval.inSeconds)) s from now on" }
}
