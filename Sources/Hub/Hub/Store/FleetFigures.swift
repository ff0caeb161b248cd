// SPDX-License-Identifier: MIT

import SQLite

/// Counts over the fleet. Each count reads a day's messages, so all readers share one count a minute.
actor FleetFigures {
  struct Figures: Sendable, Equatable {
    /// Messages of the last 24 hours, by gateway.
    var messages: [String: Int64] = [:]
    /// Contacts, by gateway.
    var nodes: [String: Int64] = [:]
    /// Messages of the last 24 hours, each counted once: all, and by the start of the hour.
    var total: Int64 = 0
    var hours: [Int64: Int64] = [:]
  }

  private static let keeps: Int64 = 60_000
  private let count: @Sendable (Int64) async throws -> Figures
  private var known: (at: Int64, figures: Figures)?
  private var asking: Task<Figures, any Error>?

  /// `count`: the figures of the day before that time.
  init(_ count: @escaping @Sendable (Int64) async throws -> Figures) { self.count = count }

  func now(_ now: Int64 = HubClock.now) async throws -> Figures {
    if let known, (0..<Self.keeps).contains(now - known.at) { return known.figures }
    if let asking { return try await asking.value }
    let task = Task { [count] in try await count(now) }
    asking = task
    defer { asking = nil }
    let figures = try await task.value
    known = (now, figures)
    return figures
  }
}

extension HubStore {
  private static let hour: Int64 = 3_600_000
  /// Messages in one step, and most steps: a day with more messages has only the newest in its counts.
  private static let counted: Int64 = 20_000
  private static let mostSteps = 50

  func figures(now: Int64) throws(HubDatabaseError) -> FleetFigures.Figures {
    var figures = FleetFigures.Figures()
    // Whole hours, so that the oldest hour is complete, too.
    let since = (now / Self.hour - 23) * Self.hour
    var top = Int64.max
    for _ in 0..<Self.mostSteps {
      var (lowest, count, newest) = (Int64(0), Int64(0), Int64(0))
      try database.each(
        """
        SELECT min(m.position), count(*), max(m.came) FROM
        (SELECT position, CASE WHEN arrived = 0 THEN at ELSE arrived END AS came FROM messages WHERE position < ?1 ORDER BY position DESC LIMIT ?2) m
        """, [.integer(top), .integer(Self.counted)]
      ) { (row) throws(HubDatabaseError) in
        (lowest, count, newest) = (row.integer(0), row.integer(1), row.integer(2))
        return false
      }
      guard count > 0, newest >= since else { break }
      let values = [lowest, top, since, now + Self.hour].map(SQLiteValue.integer)
      try database.every(
        """
        SELECT gateway, count(*) FROM heard WHERE message >= ?1 AND message < ?2 AND at >= ?3 AND at <= ?4 GROUP BY gateway
        """, values
      ) { row in
        figures.messages[row.text(0), default: 0] += row.integer(1)
      }
      try database.every(
        """
        SELECT at / \(Self.hour), count(*) FROM messages WHERE position >= ?1 AND position < ?2 AND at >= ?3 AND at <= ?4
        GROUP BY at / \(Self.hour)
        """, values
      ) { row in
        figures.hours[row.integer(0) * Self.hour, default: 0] += row.integer(1)
        figures.total += row.integer(1)
      }
      guard count == Self.counted else { break }
      top = lowest
    }
    figures.nodes = try database.dictionary("SELECT gateway, count(*) FROM contacts GROUP BY gateway") {
      ($0.text(0), $0.integer(1))
    }
    return figures
  }
}
