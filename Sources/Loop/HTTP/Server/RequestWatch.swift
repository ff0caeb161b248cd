// SPDX-License-Identifier: MIT

/// Timeouts of HTTP requests. Pure; times are milliseconds of any monotonic clock.
///
/// A client that has not shown who it is has 10 s for a complete request, and 10 s between requests. A known client may
/// send a body over a slow line, with progress every 10 s and `leastRate` on average. Every client must take an answer
/// at `leastRate`, too, in each half minute in which part of it waits.
public struct RequestWatch: Equatable, Sendable {
  /// Milliseconds that a stranger has for a request.
  public static let patience: Int64 = 10_000
  /// Milliseconds that a known client may be idle between requests.
  static let longestIdle: Int64 = 75_000
  static let longestStall: Int64 = 30_000
  static let longestFarewell: Int64 = 2_000
  /// Bytes per second.
  static let leastRate: Int64 = 64

  private var beganAt: Int64
  private var movedAt: Int64
  private var bytes: Int64 = 0
  private var isReading = false
  private var isAnswering = false
  /// Bytes that the client had taken at `movedAt`.
  private var taken: Int64 = 0
  private var hungUpAt: Int64?

  public init(now: Int64) {
    beganAt = now
    movedAt = now
  }

  /// A request's head has arrived.
  public mutating func began(now: Int64) {
    self = RequestWatch(now: now)
    isReading = true
    isAnswering = true
  }

  /// A piece of the request's body has arrived.
  public mutating func received(_ count: Int, now: Int64) {
    bytes += Int64(count)
    movedAt = now
  }

  /// The client will send nothing more. Nearly always it is gone; if it only has closed its sending side, it gets its
  /// answer within `longestFarewell`.
  public mutating func hungUp(now: Int64) { hungUpAt = now }

  /// The request is complete.
  public mutating func ended(now: Int64) {
    isReading = false
    movedAt = now
  }

  /// The answer is complete, though the client may not have taken all of it.
  public mutating func answered(now: Int64) {
    isAnswering = false
    movedAt = now
  }

  /// Whether the connection is between two requests.
  public var isIdle: Bool { !isReading && !isAnswering }

  /// `waiting`: bytes that the client has not taken yet; `taken`: bytes of all answers that it has taken. False: timed
  /// out.
  public mutating func mayGoOn(now: Int64, isKnown: Bool, waiting: Int, taken: Int64) -> Bool {
    if isReading {
      guard isKnown else { return now - beganAt < Self.patience }
      let elapsed = now - beganAt
      return now - movedAt < Self.patience && (elapsed < Self.patience || bytes >= elapsed / 1000 * Self.leastRate)
    }
    if let hungUpAt, isAnswering, waiting == 0, now - hungUpAt >= Self.longestFarewell { return false }
    // The answer is complete, but the client is still reading it.
    if isAnswering || waiting > 0 {
      if waiting == 0 || taken - self.taken >= Self.longestStall / 1000 * Self.leastRate {
        (self.taken, movedAt) = (taken, now)
      }
      return now - movedAt < Self.longestStall
    }
    return now - movedAt < (isKnown ? Self.longestIdle : Self.patience)
  }
}
