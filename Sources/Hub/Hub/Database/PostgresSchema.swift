// SPDX-License-Identifier: MIT

/// The version of tables on a server, which several hubs share: a hub of a newer version may upgrade them at any time.
extension PostgresHubDatabase {
  /// The beginning of each transaction: it keeps the tables as they are until its end, and fails if a newer program has upgraded them. The lock is a
  /// statement of its own: the second one has to see commits during the wait.
  var schemaGuard: [String] {
    guard guardsSchema else { return [] }
    return [
      "SELECT pg_advisory_xact_lock_shared(\(Self.schemaLock))",
      // A text that is no number is an error of the server, so that it performs no later statement.
      """
      SELECT CASE WHEN max(version) > \(HubSchema.newest) THEN ('newer ' || max(version))::bigint ELSE 0 END
      FROM schema_version
      """,
    ]
  }

  /// Translates a failure of the guard.
  func schemaFailure(_ error: HubDatabaseError) -> HubDatabaseError {
    error.kind == .unfit ? .outdated : error
  }

  /// Two numbers: other locks have one.
  private static let schemaLock = "hashtext('meshpost'), hashtext('tables')"

  func migrate() throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      // Hubs that start together take turns, however long the first one takes.
      try execute("SET LOCAL lock_timeout = 0")
      try lock("meshpost schema")
      try execute("CREATE TABLE IF NOT EXISTS schema_version(version BIGINT NOT NULL)")
      let current = try number("SELECT coalesce(max(version), 0) FROM schema_version")
      let steps = HubSchema.steps(.postgres)
      guard current <= Int64(steps.count) else {
        throw HubDatabaseError(
          kind: .other,
          message: "schema version \(current) is newer than this program, which supports up to \(steps.count)")
      }
      // Waits for transactions of hubs with the older version; later ones see the new version.
      if current < Int64(steps.count) { try execute("SELECT pg_advisory_xact_lock(\(Self.schemaLock))") }
      for step in steps where Int64(step.number) > current {
        try execute(step.sql)
        try run("INSERT INTO schema_version(version) VALUES (?1)", .integer(Int64(step.number)))
      }
      // On another server, to which a dump was restored, transactions have smaller numbers.
      try execute(
        """
        UPDATE positions SET base = greatest(base, (SELECT coalesce(max(position), 0) FROM messages) / 1048576 + 1
        - pg_current_xact_id()::text::bigint)
        """)
    }
  }
}
