// SPDX-License-Identifier: MIT

import Timing

/// How often somebody may guess. Pure: time is an argument.
///
/// Guesses are counted by where they come from, so that who guesses does not lock out the others; and all together, for who has many addresses.
/// An address from which somebody has signed in is spared the second count.
public struct GuessLimit {
  /// Wrong guesses before the first pause; each further one doubles it.
  static let freeOfOne = 5
  static let freeOfAll = 50
  static let longestPause: Duration = .seconds(300)
  /// Without a wrong guess for so long, earlier ones are forgotten.
  static let memory: Duration = .seconds(3600)
  /// Addresses that are remembered; then the one that was heard of longest ago is forgotten.
  static let mostAddresses = 64

  private struct Count {
    var wrong = 0
    var lastAt: MonotonicTime
    var pausedUntil: MonotonicTime

    init(now: MonotonicTime) { (lastAt, pausedUntil) = (now, now) }

    mutating func add(free: Int, now: MonotonicTime) {
      if now - lastAt > GuessLimit.memory { wrong = 0 }
      lastAt = now
      wrong = min(wrong + 1, free + 20)
      guard wrong > free else { return }
      let pause = Duration.seconds(1 << min(wrong - free, 12))
      pausedUntil = now + min(pause, GuessLimit.longestPause)
    }
  }

  private var ofOne: [String: Count] = [:]
  private var ofAll: Count?
  private var known: [String] = []

  public init() {}

  /// How long nobody may try from there; `nil`: now.
  public func pause(of address: String, now: MonotonicTime) -> Duration? {
    var until = now
    if let one = ofOne[address] { until = max(until, one.pausedUntil) }
    if let ofAll, !known.contains(address) { until = max(until, ofAll.pausedUntil) }
    return until > now ? until - now : nil
  }

  public mutating func guessedWrong(from address: String, now: MonotonicTime) {
    var one = ofOne[address] ?? Count(now: now)
    one.add(free: Self.freeOfOne, now: now)
    ofOne[address] = one
    while ofOne.count > Self.mostAddresses, let oldest = ofOne.min(by: { $0.value.lastAt < $1.value.lastAt })?.key {
      ofOne[oldest] = nil
    }
    var all = ofAll ?? Count(now: now)
    all.add(free: Self.freeOfAll, now: now)
    ofAll = all
  }

  public mutating func guessedRight(from address: String) {
    ofOne[address] = nil
    known.removeAll { $0 == address }
    known.append(address)
    if known.count > Self.mostAddresses { known.removeFirst() }
  }
}
