// SPDX-License-Identifier: MIT

import Timing

/// The gateway's limits on the air: milliseconds and messages within any hour, in total and for each channel.
///
/// A sliding window, not a bucket: no hour, whenever it begins, exceeds the limit. Bounded: each use is remembered for
/// an hour, and there cannot be more uses than `Limits.messages`.
public struct AirtimeBudget: Equatable, Sendable {
  public static let window: Duration = .seconds(3600)

  public struct Limits: Equatable, Sendable {
    /// Milliseconds on the air within an hour; 180 s are 5 %.
    public var airtime: Int64 = 180_000
    public var messages = 600
    /// The same for one channel, because all its members receive it.
    public var channelAirtime: Int64 = 60_000
    public var channelMessages = 60

    public init() {}
  }

  public struct Use: Equatable, Sendable {
    public var at: MonotonicTime
    /// Milliseconds.
    public var airtime: Int64
    /// `nil`: counts only towards the total.
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

  /// The uses that count, oldest first, to initialise a budget that replaces this one.
  public var remembered: [Use] { uses }

  /// Milliseconds and messages used in the last hour.
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

  /// Removes the last use of that kind: the transmission was not made.
  public mutating func giveBack(_ airtime: Int64, channel: String?) {
    guard let place = uses.lastIndex(where: { $0.airtime == airtime && $0.channel == channel }) else { return }
    uses.remove(at: place)
  }

  /// Whether this fits when nothing else is sent.
  public func canFit(_ airtime: Int64, _ priority: DeliveryPriority) -> Bool {
    Self.canFit(airtime, limits.airtime, limits.messages, priority)
  }

  private static func canFit(_ airtime: Int64, _ limit: Int64, _ messages: Int, _ priority: DeliveryPriority) -> Bool {
    messages > 0 && airtime <= limit / 100 &* priority.share
  }

  /// The earliest time at which this fits: `now`, later, or `nil` for never.
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
    // A share of a few messages is at least one.
    let maxMessages = max(min(1, messages), messages * Int(priority.share) / 100)
    guard Self.canFit(airtime, limit, messages, priority) else { return nil }
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
