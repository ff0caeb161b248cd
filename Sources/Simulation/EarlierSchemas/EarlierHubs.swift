// SPDX-License-Identifier: MIT

extension EarlierSchema {
  /// Of a hub's database in SQLite. Step 3 cannot be undone where a gateway has sent by lane: an older hub had one position for all lanes, and would
  /// not have the events of lanes that are ahead.
  public static let hub = EarlierSchema(undoing: hubSteps(onPostgres: false).filter { $0.number > 3 })

  /// Of a hub's database on PostgreSQL, with step 3, for one whose gateways have sent nothing yet. Its version is in `schema_version`.
  public static let hubOnPostgres = EarlierSchema(undoing: hubSteps(onPostgres: true))

  private static func hubSteps(onPostgres: Bool) -> [(number: Int, sql: String)] {
    [
      (28, "DROP TABLE deleted_messages; DROP TABLE deletions"),
      (27, "DROP TABLE search_blocks; DROP TABLE search_places"),
      (26, "DROP INDEX messages_by_time; DROP INDEX heard_by_gateway"),
      (25, "DROP TABLE push_key; DROP TABLE push_subscriptions"),
      (24, "DROP INDEX states_by_time"),
      (23, "DROP INDEX events_by_message"),
      (22, "ALTER TABLE messages DROP COLUMN settled; ALTER TABLE updates DROP COLUMN beyond"),
      (21, "DROP TABLE queue_clock"),
      (20, "DROP TABLE lost_updates; DROP INDEX updates_by_source; ALTER TABLE updates DROP COLUMN source"),
      (19, "DROP TABLE wanted_hearers"),
      (18, "ALTER TABLE contacts DROP COLUMN trusted"),
      (17, "ALTER TABLE messages DROP COLUMN arrived; ALTER TABLE messages DROP COLUMN sent"),
      (16, "DROP INDEX updates_by_id; \(ownUpdates)"),
      (15, "DROP TABLE retention"),
      (14, "DROP TABLE token_gateways"),
      (13, "DROP INDEX contacts_by_key; DROP INDEX commands_by_time"),
      (12, "DROP TABLE journey_key"),
      (11, "DROP TABLE steady_clock"),
      (10, "DROP TABLE gateway_channels"),
      (9, onPostgres ? "DROP TABLE hub_links" : ""),
      (8, access),
      (7, "DROP TABLE alerts"),
      (6, "DROP TABLE people; DROP TABLE web_sessions; DROP TABLE audit"),
      (5, onPostgres ? "" : updatesWithoutRows),
      (4, "DROP TABLE positions; DROP INDEX updates_by_id; CREATE INDEX updates_by_id ON updates(gateway, bucket, id)"),
      (
        3,
        """
        ALTER TABLE epochs DROP COLUMN nodes; ALTER TABLE epochs DROP COLUMN packets;
        ALTER TABLE epochs RENAME COLUMN messages TO acknowledged
        """
      ),
    ]
  }

  private static let ownUpdates = "CREATE INDEX updates_by_id ON updates(gateway, bucket, id) WHERE gateway <> ''"

  private static let access = """
    DROP TABLE token_uses; DROP TABLE known_browsers; ALTER TABLE web_sessions DROP COLUMN ends_at;
    DROP INDEX people_by_identity; ALTER TABLE people DROP COLUMN identity
    """

  private static let updatesWithoutRows = """
    CREATE TABLE updates_alone(
      gateway TEXT NOT NULL, bucket TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL,
      body TEXT NOT NULL, PRIMARY KEY(gateway, bucket, seq)) WITHOUT ROWID;
    INSERT INTO updates_alone SELECT gateway, bucket, seq, id, at, body FROM updates;
    DROP TABLE updates;
    ALTER TABLE updates_alone RENAME TO updates;
    \(ownUpdates)
    """
}
