// SPDX-License-Identifier: MIT

import SQLite

/// An event that an upstream understood and refused, or that an operator skipped.
public struct DeadLetter: Equatable, Sendable {
  public var id: Int64
  public var upstream: String
  public var event: JournalEvent
  /// The HTTP status or a similar code, and the server's words.
  public var status: Int
  public var reason: String
  /// How often a retry was requested since the event was refused.
  public var marks: Int64

  /// The reason of an event that an operator skipped begins so, and its status is 0.
  public static let skippedReason = "an operator skipped it: "
}

/// How many dead letters an upstream has.
public struct DeadLetterCounts: Equatable, Sendable {
  public var refused: Int64 = 0
  /// Skipped by an operator.
  public var skipped: Int64 = 0

  public var all: Int64 { refused + skipped }

  public init() {}
}

extension Store {
  /// Within a `write`: the upstream has permanently refused this event. `tried`: the marks of the dead letter when it
  /// was sent again. A later mark requests another attempt, because this refusal may be older than a repair. False: it was
  /// sent again, and an operator has dropped it meanwhile.
  @discardableResult
  public func bury(
    _ event: JournalEvent, upstream: String, status: Int, reason: String, at: Int64, tried: Int64 = 0
  ) throws(SQLiteError) -> Bool {
    deadLetterChanges &+= 1
    return try database.run(
      """
      INSERT INTO dead_letters(upstream, seq, at, kind, body, event_at, trusted, status, reason)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
      ON CONFLICT(upstream, seq) DO UPDATE SET status = excluded.status, reason = excluded.reason, at = excluded.at,
      body = excluded.body, retry = max(0, retry - ?10) WHERE retry >= 0 OR ?10 = 0
      """, .text(upstream), .integer(event.seq), .integer(at), .text(event.kind), .blob(event.body),
      .integer(event.at), .integer(event.trusted ? 1 : 0), .integer(Int64(status)), .text(reason),
      .integer(tried)) > 0
  }

  /// Within a `write`: another attempt has failed, and is neither the server's refusal nor the last one. One that an operator skipped stays that.
  public func noteFailure(ofDeadLetter seq: Int64, of upstream: String, reason: String) throws(SQLiteError) {
    try database.run(
      """
      UPDATE dead_letters SET status = 0,
        reason = CASE WHEN status = 0 AND substr(reason, 1, length(?4)) = ?4 THEN ?4 || ?3 ELSE ?3 END
      WHERE upstream = ?1 AND seq = ?2 AND retry >= 0 AND reason NOT IN (?3, ?4 || ?3)
      """, .text(upstream), .integer(seq), .text(reason), .text(DeadLetter.skippedReason))
  }

  /// Within a `write`: the upstream has accepted the event after all.
  public func removeDeadLetter(upstream: String, seq: Int64) throws(SQLiteError) {
    deadLetterChanges &+= 1
    try database.run("DELETE FROM dead_letters WHERE upstream = ? AND seq = ?", .text(upstream), .integer(seq))
  }

  /// Marks dead letters for another attempt; returns their number. `upstream` `nil`: of every upstream; `seq`: only
  /// that event. `kept`: those among them that get no new mark.
  public func retryDeadLetters(
    of upstream: String?, seq: Int64? = nil, except kept: [(upstream: String, seq: Int64)] = []
  ) throws(StoreError) -> Int {
    var count = 0
    write { (store) throws(SQLiteError) in
      count = try store.database.run(
        "UPDATE dead_letters SET retry = retry + 1 WHERE retry >= 0 AND (?1 IS NULL OR upstream = ?1) AND (?2 IS NULL OR seq = ?2)",
        .optional(upstream), .optional(seq))
      for letter in kept {
        count -= try store.database.run(
          "UPDATE dead_letters SET retry = retry - 1 WHERE retry > 0 AND upstream = ? AND seq = ?",
          .text(letter.upstream), .integer(letter.seq))
      }
    }
    try commitNow()
    return count
  }

  /// The number of dropped letters that are remembered for an upstream, so that they are not reported as received.
  private static let maxDropped = 10_000

  /// Drops an upstream's dead letters, or with `seq` one of them; returns their number. Only their seqs are kept.
  public func dropDeadLetters(of upstream: String, seq: Int64? = nil) throws(StoreError) -> Int {
    var count = 0
    deadLetterChanges &+= 1
    write { (store) throws(SQLiteError) in
      count = try store.drop("?2 IS NULL OR seq = ?2", of: upstream, seq)
    }
    try commitNow()
    return count
  }

  /// `condition`: of the letters to drop; `?2` is `value`. Returns their number.
  private func drop(_ condition: String, of upstream: String, _ value: Int64?) throws(SQLiteError) -> Int {
    let count = try database.run(
      """
      UPDATE dead_letters SET retry = -1, body = x'', reason = ''
        WHERE upstream = ?1 AND retry >= 0 AND (\(condition))
      """, .text(upstream), .optional(value))
    try database.run(
      """
      DELETE FROM dead_letters WHERE upstream = ?1 AND retry < 0 AND seq <=
        (SELECT seq FROM dead_letters WHERE upstream = ?1 AND retry < 0
          ORDER BY seq DESC LIMIT 1 OFFSET \(Self.maxDropped))
      """, .text(upstream))
    return count
  }

  /// The most dead letters of an upstream.
  private static let maxDeadLetters: Int64 = 10_000
  /// So many are dropped at once: each time, all are counted.
  private static let droppedAtOnce: Int64 = 100

  /// Within a `write`, after `bury`: drops the oldest events among an upstream's dead letters if these are too many.
  /// Returns the number of dropped ones.
  public func boundDeadLetters(of upstream: String) throws(SQLiteError) -> Int {
    let name = Array(upstream.utf8)
    if let total = deadLetterTotals[name], total < Self.maxDeadLetters {
      deadLetterTotals[name] = total + 1
      return 0
    }
    // Some may have been removed since.
    let total =
      try database.value(
        "SELECT count(*) FROM dead_letters WHERE upstream = ? AND retry >= 0", .text(upstream))?.integer ?? 0
    deadLetterTotals[name] = total
    guard total > Self.maxDeadLetters else { return 0 }
    let dropped = try drop(
      """
      seq <= (SELECT seq FROM dead_letters WHERE upstream = ?1 AND retry >= 0 ORDER BY seq DESC LIMIT 1 OFFSET ?2)
      """, of: upstream, Self.maxDeadLetters - Self.droppedAtOnce)
    deadLetterTotals[name] = total - Int64(dropped)
    return dropped
  }

  /// Dead letters in the order in which they became such, optionally only those marked for another attempt. `after`: from
  /// the one behind this id. `lanes`: only of these lanes, where gaps belong to the first lane. Return false to stop.
  public func eachDeadLetter(
    of upstream: String? = nil, after: Int64 = 0, marked: Bool = false, lanes: [Lane] = Lane.allCases,
    limit: Int = .max, _ row: (DeadLetter) -> Bool
  ) throws(StoreError) {
    let kinds = lanes == Lane.allCases ? "true" : lanes.map { "(\($0.condition))" }.joined(separator: " OR ")
    try translating { () throws(SQLiteError) in
      try database.each(
        """
        SELECT id, upstream, seq, event_at, trusted, kind, body, status, reason, retry
        FROM dead_letters
        WHERE (?1 IS NULL OR upstream = ?1) AND retry >= ?2 AND id > ?4 AND (\(kinds)) ORDER BY id LIMIT ?3
        """, [.optional(upstream), .integer(marked ? 1 : 0), .integer(Int64(clamping: limit)), .integer(after)]
      ) { (statement) throws(SQLiteError) in
        row(
          DeadLetter(
            id: statement.integer(0), upstream: statement.text(1),
            event: JournalEvent(
              seq: statement.integer(2), at: statement.integer(3), trusted: statement.integer(4) != 0,
              kind: statement.text(5), body: statement.blob(6)),
            status: Int(statement.integer(7)), reason: statement.text(8), marks: max(0, statement.integer(9))))
      }
    }
  }

  /// Whether the upstream has refused the event, even if the dead letter was dropped.
  public func isDeadLetter(_ seq: Int64, of upstream: String) throws(StoreError) -> Bool {
    try letter(seq, of: upstream) != nil
  }

  /// The state of an event that was refused.
  public enum LetterState: Equatable, Sendable { case dead, dropped }

  /// `nil`: the upstream did not refuse it.
  public func letter(_ seq: Int64, of upstream: String) throws(StoreError) -> LetterState? {
    try value("SELECT retry FROM dead_letters WHERE upstream = ? AND seq = ?", .text(upstream), .integer(seq))
      .map { ($0.integer ?? 0) < 0 ? .dropped : .dead }
  }

  /// `isTold`: without letters about alerts, because an alert about these would cause more of them.
  public func deadLetterCounts(of upstream: String, isTold: Bool = false) throws(StoreError) -> DeadLetterCounts {
    var counts = DeadLetterCounts()
    let untold = isTold ? [EventKind.alert.rawValue, EventKind.power.rawValue] : ["", ""]
    try every(
      """
      SELECT status = 0 AND substr(reason, 1, length(?2)) = ?2, count(*) FROM dead_letters
      WHERE upstream = ?1 AND retry >= 0 AND kind NOT IN (?3, ?4) GROUP BY 1
      """, [.text(upstream), .text(DeadLetter.skippedReason), .text(untold[0]), .text(untold[1])]
    ) { row in
      if row.integer(0) == 0 { counts.refused = row.integer(1) } else { counts.skipped = row.integer(1) }
    }
    return counts
  }
}
