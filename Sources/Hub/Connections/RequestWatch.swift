// SPDX-License-Identifier: MIT

/// Timeouts of HTTP requests. Times are milliseconds of any monotonic clock.
///
/// A client without a token has 10 s for a complete request, and between requests. A client with a token may send a body over a
/// slow line, with progress every 10 s, at `leastRate` on average. An answer that is not read for 30 s also times out.
struct RequestWatch: Equatable {
  static let patience: Int64 = 10_000
  /// Milliseconds that a known client may be idle between requests.
  static let longestIdle: Int64 = 75_000
  static let longestStall: Int64 = 30_000
  /// Bytes a second.
  static let leastRate: Int64 = 64

  private var beganAt: Int64
  private var movedAt: Int64
  private var bytes: Int64 = 0
  private var isReading = false
  private var isAnswering = false
  private var left = 0

  init(now: Int64) {
    beganAt = now
    movedAt = now
  }

  /// A request's head is there.
  mutating func began(now: Int64) {
    self = RequestWatch(now: now)
    isReading = true
    isAnswering = true
  }

  /// Some of its body.
  mutating func received(_ count: Int, now: Int64) {
    bytes += Int64(count)
    movedAt = now
  }

  /// All of it is there.
  mutating func ended(now: Int64) {
    isReading = false
    movedAt = now
  }

  mutating func answered(now: Int64) {
    isAnswering = false
    left = 0
    movedAt = now
  }

  var isIdle: Bool { !isReading && !isAnswering }

  /// `buffered`: bytes of the answer that the client has not read. False: timed out.
  mutating func mayGoOn(now: Int64, isKnown: Bool, buffered: Int) -> Bool {
    if isReading {
      guard isKnown else { return now - beganAt < Self.patience }
      let elapsed = now - beganAt
      return now - movedAt < Self.patience && (elapsed < Self.patience || bytes >= elapsed / 1000 * Self.leastRate)
    }
    // Encoded and answered, but not all of it taken: the client is still at it.
    if isAnswering || buffered > 0 {
      if buffered == 0 || buffered != left {
        left = buffered
        movedAt = now
      }
      return now - movedAt < Self.longestStall
    }
    return now - movedAt < (isKnown ? Self.longestIdle : Self.patience)
  }
}
