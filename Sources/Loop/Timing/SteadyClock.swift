// SPDX-License-Identifier: MIT

/// Time that has certainly passed, in milliseconds, over restarts and despite changes of the wall clock. Pure.
///
/// While the program runs, and over a restart of the program alone, the time since the machine's boot counts, sleep
/// included; changes of the wall clock do not. Over a restart of the machine the wall clock counts, if it was trusted
/// before and is trusted again, and at most `maxAway` for each restart: a clock that is wrong by years makes nothing
/// old at once. If nothing is known, no time has passed. So rows that age by this clock may be kept too long, but are
/// never deleted too early.
public struct SteadyClock: Equatable, Sendable {
  /// Milliseconds since this clock began.
  public private(set) var elapsed: Int64
  /// The last reading of a trusted wall clock plus the time since then; milliseconds since 1970. `nil`: there was none.
  public private(set) var wall: Int64?
  private let maxAway: Int64
  /// The uptime at the last look; `nil`: there was no look yet.
  private var uptime: Int64?
  /// Whether the time that the program was away still has to be added.
  private var wasAway: Bool

  /// Continues from stored values. `uptime`: stored in the present boot; `nil`: the machine has restarted since, or
  /// that is unknown.
  public init(elapsed: Int64 = 0, wall: Int64? = nil, maxAway: Int64, uptime: Int64? = nil) {
    self.elapsed = max(0, elapsed)
    self.wall = wall
    self.maxAway = max(0, maxAway)
    self.uptime = uptime
    wasAway = wall != nil && uptime == nil
  }

  /// Looks at both clocks. `trustedWall`: milliseconds since 1970, `nil` while the clock is not trusted; `uptime`:
  /// milliseconds since the machine's boot.
  public mutating func look(trustedWall: Int64?, uptime: Int64) {
    let passed = Self.distance(from: self.uptime ?? uptime, to: uptime)
    self.uptime = uptime
    elapsed = elapsed.adding(saturating: passed)
    wall = wall?.adding(saturating: passed)
    guard let trustedWall else { return }
    if wasAway, let wall {
      elapsed = elapsed.adding(saturating: min(Self.distance(from: wall, to: trustedWall), maxAway))
    }
    wasAway = false
    wall = trustedWall
  }

  /// At least 0; saturated.
  private static func distance(from earlier: Int64, to later: Int64) -> Int64 {
    max(0, later.subtracting(saturating: earlier))
  }
}
