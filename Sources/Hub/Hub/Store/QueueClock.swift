// SPDX-License-Identifier: MIT

import EventLoop
import SQLite

/// How long commands stand in their queues: by time that has surely passed, whatever becomes of the clock, also while the hub is stopped.
///
/// It is counted on by the machine's time since its boot, which nobody can set, from the last mark of the same boot. Over a boot the clock counts if it
/// was known to be right before and is now, and never for more than `longestAway`; otherwise nothing has passed. Several hubs on one database leave a mark each.
extension HubStore {
  /// What a machine's clocks show.
  public struct ClockReading: Sendable {
    /// Which boot, and milliseconds since then.
    var boot: String
    var uptime: Int64
    /// Milliseconds since 1970, and whether that is known to be right.
    var wall: Int64
    var isSynchronised: Bool

    /// By this machine.
    public static var now: ClockReading {
      let clocks = LinuxClocks()
      return ClockReading(
        boot: clocks.boot, uptime: clocks.sinceBoot, wall: clocks.wallMilliseconds,
        isSynchronised: clocks.isWallSynchronised)
    }
  }

  /// What the queues' clock showed once, in one boot.
  struct Mark {
    var boot: String
    /// Milliseconds of the queues' clock.
    var elapsed: Int64
    var uptime: Int64
    /// What a clock that was known to be right in this boot shows then.
    var wall: Int64?

    init(_ row: any HubRow) {
      (boot, elapsed, uptime) = (row.text(0), row.integer(1), row.integer(2))
      wall = row.textIfAny(3).flatMap { Int64($0) }
    }

    init(boot: String, elapsed: Int64, uptime: Int64, wall: Int64?) {
      (self.boot, self.elapsed, self.uptime, self.wall) = (boot, elapsed, uptime, wall)
    }
  }

  /// A mark that is so much older than the newest is of no more use.
  private static let oldestMark: Int64 = 60 * 86_400_000

  static let marks = "SELECT boot, elapsed, uptime, wall FROM queue_clock"

  /// What comes after these marks, now; `nil`: there are none.
  static func mark(_ clocks: ClockReading, after marks: [Mark]) -> Mark? {
    guard !marks.isEmpty else { return nil }
    let own = marks.first { !clocks.boot.isEmpty && $0.boot.utf8.elementsEqual(clocks.boot.utf8) }
    let passed = own.map { max(0, clocks.uptime - $0.uptime) } ?? 0
    var mark = Mark(boot: clocks.boot, elapsed: 0, uptime: clocks.uptime, wall: own?.wall.map { $0 + passed })
    if let own { mark.elapsed = own.elapsed + passed }
    for other in marks where own.map({ !$0.boot.utf8.elementsEqual(other.boot.utf8) }) ?? true {
      var away: Int64 = 0
      // Once in a boot: from then on its own time counts.
      if clocks.isSynchronised, own?.wall == nil, let wall = other.wall {
        away = min(max(0, clocks.wall - wall), longestAway)
      }
      mark.elapsed = max(mark.elapsed, other.elapsed + away)
    }
    if clocks.isSynchronised { mark.wall = clocks.wall }
    return mark
  }

  /// Within a transaction: keeps a mark, and returns what the queues' clock shows.
  func keepMark(_ clocks: ClockReading) throws(HubDatabaseError) -> Int64 {
    let marks = try database.rows(Self.marks) { Mark($0) }
    var mark = Self.mark(clocks, after: marks)
    if mark == nil {
      // What was queued by a hub that kept no marks surely waits since now.
      let newest = try database.first("SELECT max(at) FROM buckets WHERE name = 'commands'") { $0.integer(0) } ?? 0
      let begin = newest > 0 ? newest : clocks.wall
      mark = Mark(
        boot: clocks.boot, elapsed: begin, uptime: clocks.uptime, wall: clocks.isSynchronised ? clocks.wall : nil)
    }
    guard let mark else { return 0 }
    try database.run(
      """
      INSERT INTO queue_clock(boot, elapsed, uptime, wall) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT(boot) DO UPDATE SET elapsed = excluded.elapsed, uptime = excluded.uptime, wall = excluded.wall
      """, .text(mark.boot), .integer(mark.elapsed), .integer(mark.uptime), .optional(mark.wall))
    if marks.count > 1 {
      try database.run(
        "DELETE FROM queue_clock WHERE elapsed < ?1", .integer(mark.elapsed - Self.oldestMark))
    }
    return mark.elapsed
  }

  /// Now and then, so that little is lost over a boot without a clock.
  func keepMark() throws(HubDatabaseError) {
    try database.transaction { () throws(HubDatabaseError) in _ = try keepMark(.now) }
  }
}
