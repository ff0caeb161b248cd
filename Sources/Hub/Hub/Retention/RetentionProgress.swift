// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import SQLite

/// How far `[retention]` has deleted one part. No run goes much further than the earlier ones: a clock that jumps, or a mistyped age, must not delete
/// a year at once.
///
/// Normally each run advances by the time since the last run. It catches up on at most `most`, a `stride` in each run. If more is overdue, it
/// advances with time, and the rest waits for an operator's decision.
struct RetentionProgress: Equatable, Sendable {
  static let stride: Int64 = 86_400_000
  static let most: Int64 = 8 * 86_400_000

  /// The date up to which rows were deleted, milliseconds since 1970.
  var through: Int64
  /// The time of that run, by time that has surely passed.
  var at: Int64
  /// The number of rows that wait for an operator's decision; the begin of their wait by the hub's clock (0: none wait); and their latest date.
  var held: Int64 = 0
  var heldSince: Int64 = 0
  var heldThrough: Int64 = 0

  /// Whether more is overdue than it catches up on by itself.
  func isOverdue(from cutoff: Int64) -> Bool { cutoff - through > Self.most }

  /// The date up to which a run deletes now.
  func bound(_ cutoff: Int64, at now: Int64) -> Int64 {
    let pace = isOverdue(from: cutoff) ? min(max(now - at, 0), Self.stride) : Self.stride
    return min(cutoff, through + pace)
  }
}

/// Rows that wait for an operator's decision.
public struct HeldRetention: Equatable, Sendable {
  /// At least this many.
  public var rows: Int64
  public var since: Int64
  /// The dates of these rows. The first one is approximate.
  public var first: Int64
  public var last: Int64

  public var message: String {
    "[retention] would delete \(rows)\(rows >= Int64(Self.mostCounted) ? " rows and more" : " rows") at once, of "
      + "\(Self.day(first)) to \(Self.day(last)): far more than its last runs. They are kept until an operator confirms"
  }

  /// `2026-11-25`
  public static func day(_ milliseconds: Int64) -> String {
    Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(.iso8601.year().month().day())
  }

  /// What the operator can do.
  public static let remedy = """
    See whether the clock and `[retention]` are right. `meshpost-hub purge --retention --dry-run` shows what waits, and with `--yes` it goes.
    """

  static let mostCounted = 100_000
}

extension HubStore {
  func retentionProgress() throws(HubDatabaseError) -> [Purge.Part: RetentionProgress] {
    try database.dictionary("SELECT name, through, at, held, held_since, held_through FROM retention") { row in
      let progress = RetentionProgress(
        through: row.integer(1), at: row.integer(2), held: row.integer(3), heldSince: row.integer(4),
        heldThrough: row.integer(5))
      return (Purge.Part(name: row.text(0)), progress)
    }
  }

  /// Stores the progress. Another hub on this database may have deleted more.
  func keep(_ progress: [Purge.Part: RetentionProgress]) throws(HubDatabaseError) {
    try database.transaction { () throws(HubDatabaseError) in
      for (part, own) in progress.sorted(by: { $0.key.name < $1.key.name }) {
        try database.insert(
          into: "retention",
          [
            "name": part.name, "through": own.through, "at": own.at, "held": own.held, "held_since": own.heldSince,
            "held_through": own.heldThrough,
          ],
          """
          ON CONFLICT(name) DO UPDATE SET \(excluded("at", "held", "held_since", "held_through")),
          through = CASE WHEN retention.through > excluded.through THEN retention.through ELSE excluded.through END
          """)
      }
    }
  }

  /// Notes that an operator has deleted all rows beyond `[retention]`.
  public func retentionIsDone(_ retention: Retention, at now: Int64) throws(HubDatabaseError) {
    var progress = try retentionProgress()
    for part in progress.keys {
      progress[part] = retention.age(of: part).map { RetentionProgress(through: now - $0, at: now) }
    }
    try keep(progress)
  }

  /// `nil`: nothing waits.
  public func heldRetention() throws(HubDatabaseError) -> HeldRetention? {
    var held: HeldRetention?
    for own in try retentionProgress().values where own.heldSince > 0 {
      let before = held ?? HeldRetention(rows: 0, since: .max, first: .max, last: 0)
      held = HeldRetention(
        rows: before.rows + own.held, since: min(before.since, own.heldSince),
        first: min(before.first, own.through), last: max(before.last, own.heldThrough))
    }
    return held
  }
}
