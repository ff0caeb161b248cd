// SPDX-License-Identifier: MIT

/// Timeouts of HTTP requests. Pure; times are milliseconds of any monotonic clock.
///
/// A client that has not shown who it is has 10 s for a complete request, and between requests. One that has may send a body over a
/// slow line, with progress every 10 s, at `leastRate` on average. Whoever it is: an answer is taken at `leastRate`, too, in each half
/// minute in which something of it waits.
public struct RequestWatch: Equatable, Sendable {
  /// Milliseconds for the request of a stranger.
  public static let patience: Int64 = 10_000
  /// Milliseconds that a known client may be idle between requests.
  static let longestIdle: Int64 = 75_000
  static let longestStall: Int64 = 30_000
  static let longestFarewell: Int64 = 2_000
  /// Bytes a second.
  static let leastRate: Int64 = 64

  private var beganAt: Int64
  private var movedAt: Int64
  private var bytes: Int64 = 0
  private var isReading = false
  private var isAnswering = false
  /// What was taken at `movedAt`.
  private var taken: Int64 = 0
  private var hungUpAt: Int64?

  public init(now: Int64) {
    beganAt = now
    movedAt = now
  }

  /// A request's head is there.
  public mutating func began(now: Int64) {
    self = RequestWatch(now: now)
    isReading = true
    isAnswering = true
  }

  /// Some of its body.
  public mutating func received(_ count: Int, now: Int64) {
    bytes += Int64(count)
    movedAt = now
  }

  /// The client sends nothing more. Nearly always it is gone; one that only says so gets its answer within `longestFarewell`.
  public mutating func hungUp(now: Int64) { hungUpAt = now }

  /// All of it is there.
  public mutating func ended(now: Int64) {
    isReading = false
    movedAt = now
  }

  /// The answer is complete, though not all of it may have gone out.
  public mutating func answered(now: Int64) {
    isAnswering = false
    movedAt = now
  }

  /// Between two requests.
  public var isIdle: Bool { !isReading && !isAnswering }

  /// `waiting`: bytes for the client that it has not taken; `taken`: those that it has, of all answers. False: timed out.
  public mutating func mayGoOn(now: Int64, isKnown: Bool, waiting: Int, taken: Int64) -> Bool {
    if isReading {
      guard isKnown else { return now - beganAt < Self.patience }
      let elapsed = now - beganAt
      return now - movedAt < Self.patience && (elapsed < Self.patience || bytes >= elapsed / 1000 * Self.leastRate)
    }
    if let hungUpAt, isAnswering, waiting == 0, now - hungUpAt >= Self.longestFarewell { return false }
    // Answered, but not all of it taken: the client is still at it.
    if isAnswering || waiting > 0 {
      if waiting == 0 || taken - self.taken >= Self.longestStall / 1000 * Self.leastRate {
        (self.taken, movedAt) = (taken, now)
      }
      return now - movedAt < Self.longestStall
    }
    return now - movedAt < (isKnown ? Self.longestIdle : Self.patience)
  }
}
