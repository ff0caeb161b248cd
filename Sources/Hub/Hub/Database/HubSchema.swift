// SPDX-License-Identifier: MIT

import PageServer

/// The hub's tables, in steps that never change after their release. The SQL is SQLite's; `postgres` replaces the words that differ.
enum HubSchema {
  enum Dialect { case sqlite, postgres }

  /// The version of the tables that this program creates and knows.
  static let newest = steps(.sqlite).count

  /// Written anew for each database: each has a random key, which is its name, too.
  static func steps(_ dialect: Dialect) -> [(number: Int, sql: String)] {
    let all = [
      journals, joined, lanes, positions, dialect == .sqlite ? updatesInRows : "SELECT 1", pages, alerts, access,
      dialect == .sqlite ? "SELECT 1" : links, gatewayChannels(dialect),
      steadyClock, signInKey, reading, tokenGateways, retention, replaced, told, contactClocks, wantedHearers,
      sources(dialect), queueClock, settled, waysByMessage(dialect), statesByTime, pushes, messagesByTime, search,
      deletions,
    ]
    return all.enumerated().map { index, sql in
      (index + 1, dialect == .sqlite ? sql.replacing("@ID", with: "INTEGER PRIMARY KEY AUTOINCREMENT") : postgres(sql))
    }
  }

  private static func postgres(_ sql: String) -> String {
    sql.replacing(" INTEGER", with: " BIGINT").replacing(") WITHOUT ROWID", with: ")")
      .replacing("@ID", with: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
  }

  /// A member of a body. PostgreSQL reads no JSON with a NUL in any text, and one event would refuse the whole upgrade, so NULs are taken out. `u0000`
  /// behind a backslash of the text itself is none: JSON has that one twice, and the pair is `chr(1)` meanwhile, which no JSON has.
  private static func text(_ name: String, in body: String, _ dialect: Dialect) -> String {
    dialect == .sqlite
      ? "json_extract(\(body), '$.\(name)')"
      : #"replace(replace(replace(\#(body), '\\', chr(1)), '\u0000', ''), chr(1), '\\')::json ->> '\#(name)'"#
  }

  /// The message that an event of copies names, in a query and in its index: 32 hex digits.
  static func message(ofWays body: String, _ dialect: Dialect) -> String {
    "substr((\(text("identity", in: body, dialect))), 1, 32)"
  }

  private static let journals = """
    CREATE TABLE gateways(
      id TEXT PRIMARY KEY, epoch TEXT NOT NULL, events INTEGER NOT NULL DEFAULT 0, last_seen INTEGER NOT NULL,
      radio TEXT) WITHOUT ROWID;
    CREATE TABLE epochs(
      gateway TEXT NOT NULL, epoch TEXT NOT NULL, acknowledged INTEGER NOT NULL,
      PRIMARY KEY(gateway, epoch)) WITHOUT ROWID;
    CREATE TABLE events(
      id @ID, gateway TEXT NOT NULL, epoch TEXT NOT NULL, seq INTEGER NOT NULL,
      at INTEGER NOT NULL, trusted INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
      UNIQUE(gateway, epoch, seq));
    CREATE INDEX events_by_kind ON events(gateway, kind, id);
    CREATE TABLE contacts(
      gateway TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, at INTEGER NOT NULL,
      PRIMARY KEY(gateway, key)) WITHOUT ROWID
    """

  /// `buckets.gateway` and `updates.gateway` are empty for shared lists. `updates.body` is empty once a newer update has replaced it.
  /// `messages.position` is the order in which messages were first heard. `messages.body` is empty if its only hearer was removed.
  private static let joined = """
    CREATE TABLE buckets(
      gateway TEXT NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL, first INTEGER NOT NULL, at INTEGER NOT NULL,
      PRIMARY KEY(gateway, name)) WITHOUT ROWID;
    CREATE TABLE updates(
      gateway TEXT NOT NULL, bucket TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL,
      body TEXT NOT NULL, PRIMARY KEY(gateway, bucket, seq)) WITHOUT ROWID;
    CREATE INDEX updates_by_id ON updates(gateway, bucket, id);
    CREATE TABLE commands(
      gateway TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL, answer TEXT,
      author TEXT NOT NULL, created_at INTEGER NOT NULL, ended_at INTEGER, PRIMARY KEY(gateway, id)) WITHOUT ROWID;
    CREATE TABLE documents(
      gateway TEXT NOT NULL, key TEXT NOT NULL, value TEXT, updated_at INTEGER NOT NULL, by_hub INTEGER NOT NULL,
      PRIMARY KEY(gateway, key)) WITHOUT ROWID;
    CREATE TABLE states(
      gateway TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL,
      PRIMARY KEY(gateway, name)) WITHOUT ROWID;
    CREATE TABLE messages(
      position INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, channel TEXT, at INTEGER NOT NULL,
      body TEXT NOT NULL);
    CREATE TABLE heard(
      message INTEGER NOT NULL, gateway TEXT NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL,
      PRIMARY KEY(message, gateway)) WITHOUT ROWID
    """

  /// Each lane's position; NULL, and 0 for messages: the hub has no event of the lane. Existing events came in the order of the whole journal. With
  /// the new name of the column, an older hub that still runs fails, and does not count a batch of one lane for all lanes.
  private static let lanes = """
    ALTER TABLE epochs RENAME COLUMN acknowledged TO messages;
    ALTER TABLE epochs ADD COLUMN nodes INTEGER;
    ALTER TABLE epochs ADD COLUMN packets INTEGER;
    UPDATE epochs SET nodes = messages, packets = messages WHERE messages > 0
    """

  /// The index has only a gateway's own updates: the hub never looks up a channel's updates by id.
  ///
  /// On PostgreSQL a message's position is made from its transaction's number and this base: `HubDatabase.nextPosition`.
  private static let positions = """
    CREATE TABLE positions(base INTEGER NOT NULL);
    INSERT INTO positions VALUES (0);
    DROP INDEX updates_by_id;
    CREATE INDEX updates_by_id ON updates(gateway, bucket, id) WHERE gateway <> ''
    """

  /// People who may use the pages (`hash`: of the password), their sessions (`digest`: of the token), and the audit.
  private static let pages = """
    CREATE TABLE people(
      name TEXT PRIMARY KEY, role TEXT NOT NULL, hash TEXT, created_at INTEGER NOT NULL, used_at INTEGER) WITHOUT ROWID;
    CREATE TABLE web_sessions(
      digest TEXT PRIMARY KEY, person TEXT NOT NULL, created_at INTEGER NOT NULL, used_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX web_sessions_by_person ON web_sessions(person, used_at);
    CREATE TABLE audit(
      id @ID, at INTEGER NOT NULL, who TEXT NOT NULL, way TEXT NOT NULL, what TEXT NOT NULL, gateway TEXT,
      detail TEXT NOT NULL)
    """

  /// Alerts of gateways and of hubs (`gateway` is empty). `told_at`: when the last event came, by the hub's clock.
  private static let alerts = """
    CREATE TABLE alerts(
      id @ID, gateway TEXT NOT NULL, rule TEXT NOT NULL, subject TEXT NOT NULL, began_at INTEGER NOT NULL,
      text TEXT NOT NULL, returns INTEGER NOT NULL, told_at INTEGER NOT NULL, ended_at INTEGER,
      acknowledged_at INTEGER, acknowledged_by TEXT, note TEXT, UNIQUE(gateway, rule, subject, began_at));
    CREATE INDEX alerts_open ON alerts(gateway) WHERE ended_at IS NULL
    """

  /// `identity`: the issuer and the subject of a person who signs in by OpenID Connect. `ends_at`: when a session ends even if it is used.
  /// `known_browsers`: digests of tokens of the browsers in which a person has signed in. `token_uses`: to a day.
  private static let access = """
    ALTER TABLE people ADD COLUMN identity TEXT;
    CREATE UNIQUE INDEX people_by_identity ON people(identity);
    ALTER TABLE web_sessions ADD COLUMN ends_at INTEGER;
    CREATE TABLE known_browsers(
      digest TEXT PRIMARY KEY, person TEXT NOT NULL, used_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX known_browsers_by_person ON known_browsers(person, used_at);
    CREATE TABLE token_uses(name TEXT PRIMARY KEY, used_at INTEGER NOT NULL) WITHOUT ROWID
    """

  /// The gateways that are linked to each hub (`links`: JSON), and when the hub last confirmed the list. It is about the present only, so the server
  /// may lose it in a crash.
  private static let links = """
    CREATE UNLOGGED TABLE hub_links(
      hub TEXT PRIMARY KEY, told_at INTEGER NOT NULL, version INTEGER NOT NULL, links TEXT NOT NULL)
    """

  /// SQLite stores a table without row numbers as an index. There, a text of more than a quarter of a page has a page of its own, and nearly all
  /// updates are that long. PostgreSQL has no such tables.
  private static let updatesInRows = """
    CREATE TABLE updates_in_rows(
      gateway TEXT NOT NULL, bucket TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL,
      body TEXT NOT NULL, PRIMARY KEY(gateway, bucket, seq));
    INSERT INTO updates_in_rows(gateway, bucket, seq, id, at, body)
      SELECT gateway, bucket, seq, id, at, body FROM updates ORDER BY gateway, bucket, seq;
    DROP TABLE updates;
    ALTER TABLE updates_in_rows RENAME TO updates;
    CREATE INDEX updates_by_id ON updates(gateway, bucket, id) WHERE gateway <> ''
    """

  /// Time that has surely passed, and the wall clock then: milliseconds since 1970, one row.
  private static let steadyClock = "CREATE TABLE steady_clock(elapsed INTEGER NOT NULL, wall INTEGER NOT NULL)"

  /// The key that proves that a sign-in by OpenID Connect began at a hub of this database. It is random, from the creation of the table.
  private static var signInKey: String {
    "CREATE TABLE journey_key(key TEXT NOT NULL); INSERT INTO journey_key VALUES ('\(WebSessions.token())')"
  }

  /// For readers: nodes by key with their gateways, and commands of all gateways by time.
  private static let reading = """
    CREATE INDEX contacts_by_key ON contacts(key, gateway);
    CREATE INDEX commands_by_time ON commands(created_at, gateway, id)
    """

  /// The gateways of tokens for any gateway, by the tokens' digests. Gateways from before may use any free token: their digest is empty.
  private static let tokenGateways = """
    CREATE TABLE token_gateways(
      token TEXT NOT NULL, gateway TEXT NOT NULL, bound_at INTEGER NOT NULL,
      PRIMARY KEY(token, gateway)) WITHOUT ROWID;
    CREATE INDEX token_gateways_by_gateway ON token_gateways(gateway);
    INSERT INTO token_gateways(token, gateway, bound_at) SELECT '', id, 0 FROM gateways
    """

  /// How far `[retention]` has deleted each part: `through` is a date, `at` is when it was reached, and `held` rows wait since `held_since` for an
  /// operator's decision. Milliseconds since 1970.
  private static let retention = """
    CREATE TABLE retention(
      name TEXT PRIMARY KEY, through INTEGER NOT NULL, at INTEGER NOT NULL, held INTEGER NOT NULL DEFAULT 0,
      held_since INTEGER NOT NULL DEFAULT 0, held_through INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID
    """

  /// The index has only the newest update of each id: a document with many edits has thousands of replaced updates.
  private static let replaced = """
    DROP INDEX updates_by_id;
    CREATE INDEX updates_by_id ON updates(gateway, bucket, id) WHERE gateway <> '' AND body <> ''
    """

  /// When a message first arrived, and when it was sent by the best report, 0: unknown. Milliseconds since 1970. Older messages have 0, which no
  /// report improves.
  private static let told = """
    ALTER TABLE messages ADD COLUMN arrived INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE messages ADD COLUMN sent INTEGER NOT NULL DEFAULT 0
    """

  /// Whether the clock of a contact's time is trusted. No contact can be later than the last message of any gateway to the hub.
  private static let contactClocks = """
    ALTER TABLE contacts ADD COLUMN trusted INTEGER NOT NULL DEFAULT 1;
    UPDATE contacts SET at = (SELECT max(last_seen) FROM gateways) WHERE at > (SELECT max(last_seen) FROM gateways)
    """

  /// The named hearers of gateways that take only their messages.
  private static let wantedHearers = """
    CREATE TABLE wanted_hearers(
      hearer TEXT NOT NULL, gateway TEXT NOT NULL, PRIMARY KEY(hearer, gateway)) WITHOUT ROWID;
    CREATE INDEX wanted_hearers_by_gateway ON wanted_hearers(gateway)
    """

  /// `updates.source`: the gateway that reported a message. `lost_updates`: the gateways whose messages a list has lost, up to a number.
  private static func sources(_ dialect: Dialect) -> String {
    let gateway = text("gateway", in: "body", dialect)
    return """
      ALTER TABLE updates ADD COLUMN source TEXT NOT NULL DEFAULT '';
      UPDATE updates SET source = coalesce(\(gateway), '') WHERE (gateway = '' OR bucket = 'heard') AND body <> '';
      CREATE INDEX updates_by_source ON updates(gateway, bucket, source, seq) WHERE source <> '';
      CREATE TABLE lost_updates(
        gateway TEXT NOT NULL, bucket TEXT NOT NULL, source TEXT NOT NULL, through INTEGER NOT NULL,
        PRIMARY KEY(gateway, bucket, source)) WITHOUT ROWID
      """
  }

  /// Time that has surely passed for queued commands, `elapsed`, at a moment of each boot of a hub's machine, `uptime` after it began. `wall`: the
  /// wall clock then, if it was synchronised. Milliseconds.
  private static let queueClock = """
    CREATE TABLE queue_clock(
      boot TEXT PRIMARY KEY, elapsed INTEGER NOT NULL, uptime INTEGER NOT NULL, wall INTEGER) WITHOUT ROWID
    """

  /// `settled`: for a message whose best update exceeds its gateway's rate limit, the latest sending time of updates within rate limits, -1: there is
  /// none. `beyond`: whether an update exceeds the limit.
  private static let settled = """
    ALTER TABLE messages ADD COLUMN settled INTEGER;
    ALTER TABLE updates ADD COLUMN beyond INTEGER NOT NULL DEFAULT 0
    """

  /// The channels that each gateway has reported: it joined them, or sent a message of them. It gets no messages of other channels.
  private static func gatewayChannels(_ dialect: Dialect) -> String {
    let channel = text("channel", in: "e.body", dialect)
    return """
      CREATE TABLE gateway_channels(
        gateway TEXT NOT NULL, channel TEXT NOT NULL, PRIMARY KEY(gateway, channel)) WITHOUT ROWID;
      INSERT INTO gateway_channels(gateway, channel)
        SELECT h.gateway, m.channel FROM heard h JOIN messages m ON m.position = h.message WHERE m.channel IS NOT NULL
        UNION SELECT e.gateway, \(channel) FROM gateways g JOIN events e ON e.gateway = g.id AND e.kind = 'channel'
        WHERE \(channel) IS NOT NULL
      """
  }

  /// Which gateways have told copies of a message.
  private static func waysByMessage(_ dialect: Dialect) -> String {
    """
    CREATE INDEX events_by_message ON events((\(message(ofWays: "body", dialect))), gateway, id) WHERE kind = 'ways'
    """
  }

  /// When each gateway's state came. Hubs look each second for new ones, and the table has the bodies of all states.
  private static let statesByTime = "CREATE INDEX states_by_time ON states(at, gateway) WHERE name = 'gateway'"

  /// `push_key`: by which push services know this database's hubs; one row, made at first use. `push_subscriptions`: browsers that get pushes.
  /// `session`: the digest of the session's token, with which it ends. `channels`: a JSON array of channels' digests, `*` for all messages. `message`,
  /// `alert`: what is not newer was pushed, or is none of the person's choice. `next_at`: a push is not tried before. Milliseconds since 1970.
  private static let pushes = """
    CREATE TABLE push_key(place INTEGER PRIMARY KEY, key TEXT NOT NULL);
    CREATE TABLE push_subscriptions(
      id TEXT PRIMARY KEY, person TEXT NOT NULL, session TEXT NOT NULL, device TEXT NOT NULL, endpoint TEXT NOT NULL,
      key TEXT NOT NULL, auth TEXT NOT NULL, alerts INTEGER NOT NULL, channels TEXT NOT NULL,
      message INTEGER NOT NULL, alert INTEGER NOT NULL, created_at INTEGER NOT NULL, pushed_at INTEGER,
      next_at INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0, failing_since INTEGER, error TEXT
    ) WITHOUT ROWID;
    CREATE INDEX push_subscriptions_by_person ON push_subscriptions(person);
    CREATE INDEX push_subscriptions_by_session ON push_subscriptions(session)
    """

  /// SQL: the number of the sixteen days of a message's time. A list of any time reads from each period that has messages as many rows as it shows.
  static func periodOfMessage(_ at: String) -> String { "\(at) / 1382400000" }

  /// Messages by time, and in each period by position; and by gateway. A message of which only the position is left has no time.
  private static let messagesByTime = """
    UPDATE messages SET at = \(timeOfEmptied) WHERE identity = \(HubStore.identityOfEmptied);
    CREATE INDEX messages_by_time ON messages((\(periodOfMessage("at"))), position, at);
    CREATE INDEX heard_by_gateway ON heard(gateway, message, at)
    """

  /// Blocks of messages, by the last one's position: `positions` of all as distances, and for each slot its messages (`SearchBlock`).
  private static let search = """
    CREATE TABLE search_blocks(through INTEGER PRIMARY KEY, positions TEXT NOT NULL);
    CREATE TABLE search_places(
      through INTEGER NOT NULL, slot INTEGER NOT NULL, places TEXT NOT NULL, PRIMARY KEY(through, slot))
    """

  /// What each gateway has deleted: identities of messages, and names of events (`GatewayDeletion`). `deletions`: events that are not emptied yet, but in the epochs up to `after`.
  private static let deletions = """
    CREATE TABLE deleted_messages(gateway TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY(gateway, name)) WITHOUT ROWID;
    CREATE TABLE deletions(
      gateway TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, after TEXT NOT NULL,
      PRIMARY KEY(gateway, seq, at)) WITHOUT ROWID
    """

  /// Before every time that a list may begin with.
  static let timeOfEmptied = -(1 << 53)
}

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
        try run("INSERT INTO schema_version(version) VALUES (?1)", step.number)
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
