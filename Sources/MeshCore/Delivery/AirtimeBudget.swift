// SPDX-License-Identifier: MIT

import Timing

/// What this gateway may put on the air: milliseconds and messages within any hour, for everything and for each channel.
///
/// A sliding window, not a bucket: no hour, wherever it begins, holds more than the limit. Bounded: uses are
/// remembered one by one for an hour, and there can be no more of them than `Limits.messages`.
public struct AirtimeBudget: Equatable, Sendable {
  public static let window: Duration = .seconds(3600)

  public struct Limits: Equatable, Sendable {
    /// Milliseconds on the air within an hour. 180 s are 5 %.
    public var airtime: Int64 = 180_000
    public var messages = 600
    /// The same for one channel, which all its members receive.
    public var channelAirtime: Int64 = 60_000
    public var channelMessages = 60

    public init() {}
  }

  public struct Use: Equatable, Sendable {
    public var at: MonotonicTime
    /// Milliseconds.
    public var airtime: Int64
    /// `nil`: counts for the whole alone.
    public var channel: String?

    public init(at: MonotonicTime, airtime: Int64, channel: String?) {
      self.at = at
      self.airtime = max(0, airtime)
      self.channel = channel
    }
  }

  public var limits: Limits
  /// Oldest first.
  private var uses: [Use] = []

  public init(_ limits: Limits, uses: [Use] = []) {
    self.limits = limits
    self.uses = uses.sorted { $0.at < $1.at }
  }

  /// What counts, oldest first: for a budget that takes the place of this one.
  public var remembered: [Use] { uses }

  /// Milliseconds and messages of the last hour.
  public func used(now: MonotonicTime, channel: String? = nil) -> (airtime: Int64, messages: Int) {
    var (airtime, messages): (Int64, Int) = (0, 0)
    for use in uses where isInWindow(use, now) && (channel == nil || use.channel == channel) {
      airtime = airtime &+ use.airtime
      messages += 1
    }
    return (airtime, messages)
  }

  private func isInWindow(_ use: Use, _ now: MonotonicTime) -> Bool { use.at + Self.window > now }

  /// Records a transmission.
  public mutating func charge(_ airtime: Int64, channel: String?, now: MonotonicTime) {
    uses.removeAll { $0.at + Self.window <= now }
    uses.append(Use(at: now, airtime: airtime, channel: channel))
  }

  /// Nothing went out: what was recorded last of that kind does not count.
  public mutating func giveBack(_ airtime: Int64, channel: String?) {
    guard let place = uses.lastIndex(where: { $0.airtime == airtime && $0.channel == channel }) else { return }
    uses.remove(at: place)
  }

  /// When so much fits: `now`, later, or `nil` for never.
  public func fits(
    _ airtime: Int64, channel: String?, _ priority: DeliveryPriority, now: MonotonicTime
  ) -> MonotonicTime? {
    guard let whole = fits(airtime, limits.airtime, limits.messages, priority, now, { _ in true }) else { return nil }
    guard let channel else { return whole }
    let own = fits(airtime, limits.channelAirtime, limits.channelMessages, priority, now) { $0.channel == channel }
    return own.map { max($0, whole) }
  }

  private func fits(
    _ airtime: Int64, _ limit: Int64, _ messages: Int, _ priority: DeliveryPriority, _ now: MonotonicTime,
    _ counts: (Use) -> Bool
  ) -> MonotonicTime? {
    let maxAirtime = limit / 100 &* priority.share
    // A share of few messages is still one.
    let maxMessages = max(min(1, messages), messages * Int(priority.share) / 100)
    guard airtime <= maxAirtime, maxMessages > 0 else { return nil }
    let counted = uses.filter { isInWindow($0, now) && counts($0) }
    var (sum, count) = (counted.reduce(0) { $0 &+ $1.airtime }, counted.count)
    var at = now
    for use in counted where sum &+ airtime > maxAirtime || count >= maxMessages {
      sum = sum &- use.airtime
      count -= 1
      at = use.at + Self.window
    }
    return at
  }
}
