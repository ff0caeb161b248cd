// SPDX-License-Identifier: MIT

/// Time that has surely passed, in milliseconds: over restarts, and whatever becomes of the wall clock. Pure.
///
/// While the program runs, the time since the machine's boot counts, sleep included. A wall clock that is set, forwards or
/// back, trusted or not, changes nothing. The same holds over a restart of the program alone. Over one of the machine a wall clock counts that
/// could be trusted before and can be now, and of one restart at most `maxAway`: a clock that is wrong by years makes nothing old at once. Where nothing
/// is known, nothing has passed: what goes by this clock is kept too long, and never given up too early.
public struct SteadyClock: Equatable, Sendable {
  /// Since the clock was begun.
  public private(set) var elapsed: Int64
  /// What a trusted wall clock showed last, carried on by the time since; milliseconds since 1970. `nil`: there was none.
  public private(set) var wall: Int64?
  private let maxAway: Int64
  /// At the last look; `nil`: there was none since the program began.
  private var uptime: Int64?
  /// How long the program was away is not known yet.
  private var wasAway: Bool

  /// Goes on from what was kept. `uptime`: since the boot that the machine still has; `nil`: it has started anew, or nobody can tell.
  public init(elapsed: Int64 = 0, wall: Int64? = nil, maxAway: Int64, uptime: Int64? = nil) {
    self.elapsed = max(0, elapsed)
    self.wall = wall
    self.maxAway = max(0, maxAway)
    self.uptime = uptime
    wasAway = wall != nil && uptime == nil
  }

  /// A look at both clocks. `trustedWall`: milliseconds since 1970, `nil` while the clock cannot be trusted; `uptime`:
  /// milliseconds since the machine's boot.
  public mutating func look(trustedWall: Int64?, uptime: Int64) {
    let passed = Self.distance(from: self.uptime ?? uptime, to: uptime)
    self.uptime = uptime
    elapsed = Self.sum(elapsed, passed)
    wall = wall.map { Self.sum($0, passed) }
    guard let trustedWall else { return }
    if wasAway, let wall { elapsed = Self.sum(elapsed, min(Self.distance(from: wall, to: trustedWall), maxAway)) }
    wasAway = false
    wall = trustedWall
  }

  /// Never below zero; saturated.
  private static func distance(from earlier: Int64, to later: Int64) -> Int64 {
    guard later > earlier else { return 0 }
    let (distance, overflow) = later.subtractingReportingOverflow(earlier)
    return overflow ? .max : distance
  }

  private static func sum(_ time: Int64, _ more: Int64) -> Int64 {
    let (sum, overflow) = time.addingReportingOverflow(more)
    return overflow ? .max : sum
  }
}
