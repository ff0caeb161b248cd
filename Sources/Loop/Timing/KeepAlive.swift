// SPDX-License-Identifier: MIT

/// Decides after how much silence to ping a connection: as rarely as the path allows. Pure.
///
/// A NAT may forget an idle connection after two minutes. A ping after five minutes then goes nowhere, and the link has
/// been dead for three. So an unanswered ping halves the silence, and answers lengthen it again up to the configured
/// maximum; a silence that failed is tried again a day later.
public struct KeepAlive: CustomStringConvertible {
  /// NATs that forget a TCP connection sooner are not expected; more frequent pings would cost more than a new
  /// connection.
  public static let shortest: Duration = .seconds(25)
  /// Answers in a row before a longer silence is tried.
  public static let answersToGrow = 8
  public static let memory: Duration = .seconds(86400)

  /// The longest silence, as configured.
  public let longest: Duration
  public private(set) var interval: Duration
  private var answers = 0
  /// A silence that ended a link, and until when it is avoided.
  private var failed: (silence: Duration, until: MonotonicTime)?

  public init(longest: Duration) {
    self.longest = longest
    interval = longest
  }

  /// A ping after the present silence was answered.
  public mutating func answered(now: MonotonicTime) {
    if let failed, now >= failed.until { self.failed = nil }
    guard interval < longest else { return }
    answers += 1
    guard answers >= Self.answersToGrow else { return }
    answers = 0
    // A tenth below the failed silence, because the clocks of two ends differ.
    let most = failed.map { min(longest, $0.silence * 9 / 10) } ?? longest
    interval = max(interval, min(interval * 5 / 4, most))
  }

  /// A ping after `silence` was not answered. True: the silence is shorter now.
  public mutating func unanswered(after silence: Duration, now: MonotonicTime) -> Bool {
    answers = 0
    // After a shorter silence, the line itself was interrupted, which says nothing about NAT.
    guard silence >= interval * 9 / 10, interval > Self.shortest else { return false }
    failed = (silence, now + Self.memory)
    interval = min(interval, max(Self.shortest, interval / 2))
    return true
  }

  public var description: String { "pinged after \(Int(interval.inSeconds)) s from now on" }
}
