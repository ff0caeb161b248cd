// SPDX-License-Identifier: MIT

import EventLoop
import SQLite
import Timing

/// Time that has surely passed, by one program's count.
struct PassedTime {
  /// Milliseconds since 1970.
  fileprivate(set) var elapsed: Int64
  /// The same, if the clock's account of the hub's absence is right.
  fileprivate var possible: SteadyClock
  /// Milliseconds since the machine's boot, at the last reading.
  fileprivate var uptime: Int64
}

/// The clock for the age of a hub's data: time that has surely passed, continued across restarts through the database. A wall clock that is ahead, or
/// is set, makes no data old.
extension HubStore {
  /// The longest absence that counts by the wall clock: a longer one may be a wrong clock.
  static let longestAway: Int64 = 7 * 86_400_000

  /// Milliseconds since 1970 that have surely come; never later than `now`, the machine's clock. 0: unknown yet. `trusts`: an operator says that the
  /// clock is right. `keeps`: stores the time, so that the next start continues from it.
  ///
  /// While the hub runs, the time since the machine's boot counts. Its absence counts as far as both the hub's clock and a gateway's clock show it,
  /// and only beyond earlier readings of the hub's clock.
  public func surelyPassed(
    at now: Int64, uptime: Int64 = LinuxClocks().sinceBoot, trusts: Bool = false, keeps: Bool = true
  ) throws(HubDatabaseError) -> Int64 {
    // An older hub without events has stored a count from 1970.
    let kept = try database.first("SELECT elapsed, wall FROM steady_clock WHERE elapsed >= ?1", ExpiredRows.earliest) {
      (elapsed: $0.integer(0), wall: $0.integer(1))
    }
    let newest = try newestEvent(before: now)
    if trusts {
      passed = PassedTime(elapsed: now, possible: SteadyClock(elapsed: now, maxAway: 0), uptime: uptime)
    } else if passed == nil {
      guard let begun = kept?.elapsed ?? newest else { return 0 }
      let possible = SteadyClock(elapsed: begun, wall: kept?.wall, maxAway: Self.longestAway)
      passed = PassedTime(elapsed: begun, possible: possible, uptime: uptime)
    }
    guard var time = passed else { return 0 }
    time.possible.look(trustedWall: now, uptime: uptime)
    let counted = time.elapsed + max(0, uptime - time.uptime)
    // Another hub on this database may have run for longer.
    let others = trusts ? 0 : kept?.elapsed ?? 0
    time.elapsed = max(counted, others, min(time.possible.elapsed, newest ?? 0))
    time.uptime = uptime
    passed = time
    if keeps {
      let wall = trusts ? now : max(now, kept?.wall ?? 0)
      try database.transaction { () throws(HubDatabaseError) in
        try database.run("DELETE FROM steady_clock")
        try database.insert(into: "steady_clock", ["elapsed": time.elapsed, "wall": wall])
      }
    }
    return min(now, time.elapsed)
  }

  /// Reads a limited number of events, also if many come from gateways without a clock.
  static let newestEvents =
    "SELECT at FROM (SELECT at, trusted FROM events ORDER BY id DESC LIMIT 1000) AS newest WHERE trusted = 1"

  /// The latest time of events from gateways with a clock; `nil`: there is none.
  private func newestEvent(before now: Int64) throws(HubDatabaseError) -> Int64? {
    var newest: Int64?
    try database.every(Self.newestEvents) { row in
      if (ExpiredRows.earliest...max(now, ExpiredRows.earliest)).contains(row.integer(0)) {
        newest = max(newest ?? 0, row.integer(0))
      }
    }
    return newest
  }

  /// Why the clock deletes less than it shows; `nil`: the clock is fine.
  public static func clockTrouble(_ now: Int64, surely passed: Int64) -> String? {
    let days = (now - passed) / 86_400_000
    guard passed > 0, days >= 2 else { return nil }
    return
      "the clock shows \(days) days more than have surely passed: ages are judged without them, and nothing is deleted for its clock. "
      + "If the clock is right, run `meshpost-hub purge` once with `--trust-clock`"
  }
}
