// SPDX-License-Identifier: MIT

import EventLoop
import SQLite

/// A clock for the age of queued commands: time that has surely passed, also while the hub does not run, and independent of changes of the wall
/// clock.
///
/// Within a boot it continues from the last mark by the machine's time since boot, which nobody can set. Across a boot the wall clock counts if it
/// was synchronised before and is synchronised now, but for at most `longestAway`; otherwise no time has passed. Each hub on a database stores its
/// own mark.
extension HubStore {
  /// A machine's clocks at one moment.
  public struct ClockReading: Sendable {
    /// The boot, and milliseconds since then.
    var boot: String
    var uptime: Int64
    /// Milliseconds since 1970, and whether the clock is synchronised.
    var wall: Int64
    var isSynchronised: Bool

    /// This machine's clocks.
    public static var now: ClockReading {
      let clocks = LinuxClocks()
      return ClockReading(
        boot: clocks.boot, uptime: clocks.sinceBoot, wall: clocks.wallMilliseconds,
        isSynchronised: clocks.isWallSynchronised)
    }
  }

  /// The queues' clock at one moment of a boot.
  struct Mark {
    var boot: String
    /// Milliseconds of the queues' clock.
    var elapsed: Int64
    var uptime: Int64
    /// The wall clock then, if it has been synchronised in this boot.
    var wall: Int64?

    init(_ row: any HubRow) {
      (boot, elapsed, uptime) = (row.text(0), row.integer(1), row.integer(2))
      wall = row.textIfAny(3).flatMap { Int64($0) }
    }

    init(boot: String, elapsed: Int64, uptime: Int64, wall: Int64?) {
      (self.boot, self.elapsed, self.uptime, self.wall) = (boot, elapsed, uptime, wall)
    }
  }

  /// A mark so much older than the newest is useless.
  private static let oldestMark: Int64 = 60 * 86_400_000

  static let marks = "SELECT boot, elapsed, uptime, wall FROM queue_clock"

  /// The mark for now, after these; `nil`: there are none.
  static func mark(_ clocks: ClockReading, after marks: [Mark]) -> Mark? {
    guard !marks.isEmpty else { return nil }
    let own = marks.first { !clocks.boot.isEmpty && $0.boot.utf8.elementsEqual(clocks.boot.utf8) }
    let passed = own.map { max(0, clocks.uptime - $0.uptime) } ?? 0
    var mark = Mark(boot: clocks.boot, elapsed: 0, uptime: clocks.uptime, wall: own?.wall.map { $0 + passed })
    if let own { mark.elapsed = own.elapsed + passed }
    for other in marks where own.map({ !$0.boot.utf8.elementsEqual(other.boot.utf8) }) ?? true {
      var away: Int64 = 0
      // Once in a boot: after that the boot's own time counts.
      if clocks.isSynchronised, own?.wall == nil, let wall = other.wall {
        away = min(max(0, clocks.wall - wall), longestAway)
      }
      mark.elapsed = max(mark.elapsed, other.elapsed + away)
    }
    if clocks.isSynchronised { mark.wall = clocks.wall }
    return mark
  }

  /// Within a transaction: stores a mark, and returns the time of the queues' clock.
  func keepMark(_ clocks: ClockReading) throws(HubDatabaseError) -> Int64 {
    let marks = try database.rows(Self.marks) { Mark($0) }
    var mark = Self.mark(clocks, after: marks)
    if mark == nil {
      // Commands without marks, from an older hub, have surely waited since then.
      let newest = try number("SELECT max(at) FROM buckets WHERE name = 'commands'")
      let begin = newest > 0 ? newest : clocks.wall
      mark = Mark(
        boot: clocks.boot, elapsed: begin, uptime: clocks.uptime, wall: clocks.isSynchronised ? clocks.wall : nil)
    }
    guard let mark else { return 0 }
    try database.insert(
      into: "queue_clock", ["boot": mark.boot, "elapsed": mark.elapsed, "uptime": mark.uptime, "wall": mark.wall],
      "ON CONFLICT(boot) DO UPDATE SET \(excluded("elapsed", "uptime", "wall"))")
    if marks.count > 1 {
      try database.run("DELETE FROM queue_clock WHERE elapsed < ?1", mark.elapsed - Self.oldestMark)
    }
    return mark.elapsed
  }

  /// Stores a mark for now. Frequent marks limit the loss of a boot without a synchronised clock.
  func keepMark() throws(HubDatabaseError) {
    try database.transaction { () throws(HubDatabaseError) in _ = try keepMark(.now) }
  }
}
