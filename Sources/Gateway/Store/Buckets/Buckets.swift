// SPDX-License-Identifier: MIT

import SQLite

/// The position in a bucket of a hub. Source: docs/hub-protocol.md.
public struct BucketPosition: Equatable, Sendable {
  /// The last applied update, and when the hub created it.
  public var seq: Int64
  public var at: Int64?
  /// Nothing that the hub created before this time is missing (milliseconds since 1970, by the hub's clock). Never
  /// decreases.
  public var since: Int64

  public init(seq: Int64 = 0, at: Int64? = nil, since: Int64 = 0) {
    self.seq = seq
    self.at = at
    self.since = since
  }
}

/// A command accepted from a server.
public struct QueuedCommand: Equatable, Sendable {
  public var number: Int64
  public var id: String
  /// The request, JSON.
  public var body: [UInt8]
  /// Milliseconds since the command was sent, by clocks that nobody can set.
  public var age: Int64
}

extension Store {
  public func bucket(_ name: String, of upstream: String) throws(StoreError) -> BucketPosition {
    let found = try first(
      "SELECT seq, at, since FROM buckets WHERE upstream = ? AND name = ?", [.text(upstream), .text(name)]
    ) { BucketPosition(seq: $0.integer(0), at: $0.integerIfAny(1), since: $0.integer(2)) }
    return found ?? BucketPosition()
  }

  /// Call it within the `write` that applies the updates up to this position.
  public func setBucket(_ name: String, of upstream: String, to position: BucketPosition) throws(SQLiteError) {
    try database.run(
      """
      INSERT INTO buckets(upstream, name, seq, at, since) VALUES (?, ?, ?, ?, ?)
      ON CONFLICT(upstream, name) DO UPDATE SET seq = excluded.seq, at = excluded.at, since = max(since, excluded.since)
      """, .text(upstream), .text(name), .integer(position.seq), .optional(position.at), .integer(position.since))
  }

  // MARK: Commands

  /// The number of each upstream's answered commands that are kept whole. Of earlier ones the id alone stays, so that a late repetition is refused:
  /// for as long as a command may wait in a hub's queue, in milliseconds, and of a limited number.
  private static let (wholeAnswered, mostAnswered): (Int64, Int64) = (1000, 5000)
  private static let answeredAge: Int64 = 30 * 86_400_000

  /// Within a `write`: stores a command. False: the upstream has sent this id before. `age`: milliseconds in the
  /// server's queue.
  public func queueCommand(
    _ body: [UInt8], id: String, of upstream: String, age: Int64
  ) throws(SQLiteError) -> Bool {
    try database.run(
      "INSERT INTO commands(upstream, id, body, at) VALUES (?, ?, ?, ?) ON CONFLICT(upstream, id) DO NOTHING",
      .text(upstream), .text(id), .blob(body), .integer(elapsedNow - max(0, age))) > 0
  }

  /// Within a `write`: stores the answer to a command, and the command if it was not queued. An answer is never empty.
  public func answerCommand(
    _ id: String, of upstream: String, body: [UInt8], answer: [UInt8]
  ) throws(SQLiteError) {
    try database.run(
      """
      INSERT INTO commands(upstream, id, body, at, answer) VALUES (?, ?, ?, ?, ?)
      ON CONFLICT(upstream, id) DO UPDATE SET answer = excluded.answer
      """, .text(upstream), .text(id), .blob(body), .integer(elapsedNow), .blob(answer))
    let newest =
      try database.value("SELECT max(number) FROM commands WHERE upstream = ?", .text(upstream))?.integer ?? 0
    try database.run(
      """
      DELETE FROM commands WHERE upstream = ?1 AND answer IS NOT NULL AND (number <= ?2 OR (number <= ?3 AND at < ?4))
      """, .text(upstream), .integer(newest - Self.mostAnswered), .integer(newest - Self.wholeAnswered),
      .integer(elapsedNow - Self.answeredAge))
    try database.run(
      """
      UPDATE commands SET body = x'', answer = x'' WHERE upstream = ?1 AND answer IS NOT NULL AND number <= ?2
      AND body <> x''
      """, .text(upstream), .integer(newest - Self.wholeAnswered))
  }

  /// The answer to the command with this id; empty: it is not kept any more; `nil`: unknown, or not answered yet.
  public func commandAnswer(_ id: String, of upstream: String) throws(StoreError) -> [UInt8]? {
    try value("SELECT answer FROM commands WHERE upstream = ? AND id = ?", .text(upstream), .text(id))?.blob
  }

  /// The oldest unanswered command with a greater number.
  public func nextCommand(of upstream: String, after number: Int64, at now: Moment) throws(StoreError) -> QueuedCommand?
  {
    let elapsed = elapsed(at: now)
    return try first(
      """
      SELECT number, id, body, at FROM commands WHERE upstream = ? AND number > ? AND answer IS NULL
      ORDER BY number LIMIT 1
      """, [.text(upstream), .integer(number)]
    ) { row in
      QueuedCommand(number: row.integer(0), id: row.text(1), body: row.blob(2), age: Self.age(row.integer(3), elapsed))
    }
  }

  /// Accepts any stored value, even of a damaged database.
  private static func age(_ at: Int64, _ elapsed: Int64) -> Int64 {
    let (age, overflow) = elapsed.subtractingReportingOverflow(at)
    return overflow ? 0 : max(0, age)
  }

  public func waitingCommands(of upstream: String) throws(StoreError) -> Int64 {
    try value("SELECT count(*) FROM commands WHERE upstream = ? AND answer IS NULL", .text(upstream))?.integer ?? 0
  }
}
