// SPDX-License-Identifier: MIT

/// A token bucket: `most` at once, and one more in each interval. Pure.
public struct Ration: Sendable, Equatable {
  /// The bucket's size.
  public let most: Int64
  /// The time until one token is added.
  public let interval: Duration
  private var left: Int64
  private var countedAt: MonotonicTime?

  public init(most: Int64, oneIn interval: Duration) {
    (self.most, self.interval, left) = (max(1, most), max(.nanoseconds(1), interval), max(1, most))
  }

  /// For log lines at most once an hour.
  public static var hourly: Ration { Ration(most: 1, oneIn: .seconds(3600)) }

  /// Whether a token is there.
  public mutating func hasOne(at now: MonotonicTime) -> Bool {
    guard let countedAt, left < most else {
      countedAt = now
      return true
    }
    let more = (now - countedAt).wholeNanoseconds / interval.wholeNanoseconds
    if more > 0 {
      left = min(most, left + min(more, most))
      self.countedAt = countedAt + .nanoseconds(more * interval.wholeNanoseconds)
    }
    return left > 0
  }

  /// Whether all tokens are there.
  public func isFull(at now: MonotonicTime) -> Bool {
    var then = self
    _ = then.hasOne(at: now)
    return then.left >= most
  }

  /// Takes a token. False: there is none.
  public mutating func take(at now: MonotonicTime) -> Bool {
    guard hasOne(at: now) else { return false }
    left -= 1
    return true
  }

  /// Takes tokens, also in advance, and returns how long to wait until they are there.
  public mutating func wait(for count: Int64 = 1, at now: MonotonicTime) -> Duration {
    _ = hasOne(at: now)
    left = max(-count, left - count)
    guard left < 0, let countedAt else { return .zero }
    return .nanoseconds(interval.wholeNanoseconds * -left) + (countedAt - now)
  }
}
