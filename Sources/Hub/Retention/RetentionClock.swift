// SPDX-License-Identifier: MIT

import EventLoop
import SQLite
import Timing

/// By what a hub judges how old its data is: time that has surely passed, carried on over restarts in its database. A clock that is
/// ahead, or that is set, makes nothing old.
extension HubStore {
  /// For so long a hub may have been away by its clock alone: more may be the clock.
  static let longestAway: Int64 = 7 * 86_400_000
  /// A clock that is ahead of gateways' events by more is not begun with.
  private static let ahead: Int64 = 86_400_000

  /// Milliseconds since 1970 that have surely come; never later than `now`, which this machine's clock shows. `trusts`: an operator says
  /// that it is right. `keeps`: the next start continues from there.
  public func surelyPassed(
    at now: Int64, uptime: Int64 = LinuxClocks().sinceBoot, trusts: Bool = false, keeps: Bool = true
  ) throws(HubDatabaseError) -> Int64 {
    var kept: (elapsed: Int64, wall: Int64)?
    try database.each("SELECT elapsed, wall FROM steady_clock", []) { (row) throws(HubDatabaseError) in
      kept = (row.integer(0), row.integer(1))
      return false
    }
    if trusts {
      steady = SteadyClock(elapsed: now, maxAway: Self.longestAway)
    } else if steady == nil {
      let begun = if let kept { kept.elapsed } else { try beginning(at: now) }
      steady = SteadyClock(elapsed: begun, wall: kept?.wall ?? now, maxAway: Self.longestAway)
    }
    steady?.look(trustedWall: now, uptime: uptime)
    // Another hub on this database may have been there for longer.
    let elapsed = max(steady?.elapsed ?? 0, trusts ? 0 : kept?.elapsed ?? 0)
    if keeps {
      try database.transaction { () throws(HubDatabaseError) in
        try database.run("DELETE FROM steady_clock")
        try database.run("INSERT INTO steady_clock(elapsed, wall) VALUES (?1, ?2)", .integer(elapsed), .integer(now))
      }
    }
    return min(now, elapsed)
  }

  /// What gateways with a clock have said last; 0: nothing. A hub's own clock alone is no proof of the time.
  private func beginning(at now: Int64) throws(HubDatabaseError) -> Int64 {
    var newest: Int64 = 0
    try database.each("SELECT at FROM events WHERE trusted = 1 ORDER BY id DESC LIMIT 1000", []) {
      (row) throws(HubDatabaseError) in
      if row.integer(0) <= now + Self.ahead { newest = max(newest, row.integer(0)) }
      return true
    }
    return newest == 0 ? 0 : min(now, newest + Self.ahead)
  }

  /// Why less is deleted than the clock would have it; `nil`: it is not.
  public static func clockTrouble(_ now: Int64, surely passed: Int64) -> String? {
    let days = (now - passed) / 86_400_000
    guard days >= 2 else { return nil }
    return
      "the clock shows \(days) days more than have surely passed: ages are judged without them, and nothing is deleted for its clock. "
      + "If the clock is right, run `meshpost-hub purge --trust-clock` once"
  }
}
