// SPDX-License-Identifier: MIT

import PageServer

/// The hub's tables, in steps that are never changed once released. Written for SQLite; what PostgreSQL calls otherwise is
/// replaced.
enum HubSchema {
  enum Dialect { case sqlite, postgres }

  /// The version of the tables that this program makes and knows.
  static var newest: Int { steps(.sqlite).count }

  static func steps(_ dialect: Dialect) -> [(number: Int, sql: String)] {
    let all = [
      journals, joined, lanes, positions, dialect == .sqlite ? updatesInRows : "SELECT 1", pages, alerts, access,
      dialect == .sqlite ? "SELECT 1" : links, gatewayChannels(dialect),
      steadyClock, journeyKey, reading, tokenGateways, retention, replaced, told, contactClocks, wantedHearers,
      sources(dialect), queueClock, settled,
    ]
    return all.enumerated().map { index, sql in
      (index + 1, dialect == .sqlite ? sql.replacing("@ID", with: "INTEGER PRIMARY KEY AUTOINCREMENT") : postgres(sql))
    }
  }

  private static func postgres(_ sql: String) -> String {
    sql.replacing(" INTEGER", with: " BIGINT").replacing(") WITHOUT ROWID", with: ")")
      .replacing("@ID", with: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
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

  /// `buckets.gateway` and `updates.gateway` are empty for what all gateways share. `updates.body` is empty when a newer
  /// one has taken its place. `messages.position` orders them as they were first heard.
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

  /// Each lane's position; NULL, and 0 for messages: nothing of it. What is there came in the order of the whole journal. The
  /// column is renamed, not only added to: a hub of an older version that still runs would count a batch of one lane for
  /// all of them, and so fails instead.
  private static let lanes = """
    ALTER TABLE epochs RENAME COLUMN acknowledged TO messages;
    ALTER TABLE epochs ADD COLUMN nodes INTEGER;
    ALTER TABLE epochs ADD COLUMN packets INTEGER;
    UPDATE epochs SET nodes = messages, packets = messages WHERE messages > 0
    """

  /// Only a gateway's own updates are looked for by their ids: those of a channel stay.
  ///
  /// On PostgreSQL a joined message's position is made of its transaction's number and this base: `HubDatabase.nextPosition`.
  private static let positions = """
    CREATE TABLE positions(base INTEGER NOT NULL);
    INSERT INTO positions VALUES (0);
    DROP INDEX updates_by_id;
    CREATE INDEX updates_by_id ON updates(gateway, bucket, id) WHERE gateway <> ''
    """

  /// Who may use the pages (`hash`: of the password), their sessions (`digest`: of the token), and who did what.
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

  /// Alerts of gateways and of hubs (`gateway` is empty). `told_at`: when its last event came, by the hub's clock.
  private static let alerts = """
    CREATE TABLE alerts(
      id @ID, gateway TEXT NOT NULL, rule TEXT NOT NULL, subject TEXT NOT NULL, began_at INTEGER NOT NULL,
      text TEXT NOT NULL, returns INTEGER NOT NULL, told_at INTEGER NOT NULL, ended_at INTEGER,
      acknowledged_at INTEGER, acknowledged_by TEXT, note TEXT, UNIQUE(gateway, rule, subject, began_at));
    CREATE INDEX alerts_open ON alerts(gateway) WHERE ended_at IS NULL
    """

  /// `identity`: of somebody who signs in by OpenID Connect, the issuer and the subject. `ends_at`: of a session that ends even when it is used.
  /// `known_browsers`: in which somebody has signed in; they are digests, as sessions are. `token_uses`: to a day.
  private static let access = """
    ALTER TABLE people ADD COLUMN identity TEXT;
    CREATE UNIQUE INDEX people_by_identity ON people(identity);
    ALTER TABLE web_sessions ADD COLUMN ends_at INTEGER;
    CREATE TABLE known_browsers(
      digest TEXT PRIMARY KEY, person TEXT NOT NULL, used_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX known_browsers_by_person ON known_browsers(person, used_at);
    CREATE TABLE token_uses(name TEXT PRIMARY KEY, used_at INTEGER NOT NULL) WITHOUT ROWID
    """

  /// Which gateways are linked to each hub (`links`: JSON), as of when. It is of the present alone, so the server need not keep it through a crash.
  private static let links = """
    CREATE UNLOGGED TABLE hub_links(
      hub TEXT PRIMARY KEY, told_at INTEGER NOT NULL, version INTEGER NOT NULL, links TEXT NOT NULL)
    """

  /// SQLite keeps a table without row numbers as an index, in which a text of more than a quarter of a page has a page of its own: nearly
  /// all updates had. PostgreSQL knows no such tables.
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

  /// Time that has surely passed, and what the clock showed then: milliseconds since 1970, one row.
  private static let steadyClock = "CREATE TABLE steady_clock(elapsed INTEGER NOT NULL, wall INTEGER NOT NULL)"

  /// What shows that a sign-in by OpenID Connect was begun at a hub of this database. It is drawn by lot when the table is made.
  private static var journeyKey: String {
    "CREATE TABLE journey_key(key TEXT NOT NULL); INSERT INTO journey_key VALUES ('\(WebSessions.token())')"
  }

  /// For readers: who heard a node; commands of all gateways by their time.
  private static let reading = """
    CREATE INDEX contacts_by_key ON contacts(key, gateway);
    CREATE INDEX commands_by_time ON commands(created_at, gateway, id)
    """

  /// Which tokens for any gateway belong to which, by their digests. Gateways that were there before may go on with any: the empty one.
  private static let tokenGateways = """
    CREATE TABLE token_gateways(
      token TEXT NOT NULL, gateway TEXT NOT NULL, bound_at INTEGER NOT NULL,
      PRIMARY KEY(token, gateway)) WITHOUT ROWID;
    CREATE INDEX token_gateways_by_gateway ON token_gateways(gateway);
    INSERT INTO token_gateways(token, gateway, bound_at) SELECT '', id, 0 FROM gateways
    """

  /// How far `[retention]` has come with each thing: `through` is a date, `at` when that was, `held` the rows that wait since `held_since` for
  /// an operator's word. Milliseconds since 1970.
  private static let retention = """
    CREATE TABLE retention(
      name TEXT PRIMARY KEY, through INTEGER NOT NULL, at INTEGER NOT NULL, held INTEGER NOT NULL DEFAULT 0,
      held_since INTEGER NOT NULL DEFAULT 0, held_through INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID
    """

  /// Of an id only the newest update is looked for: of a document that is edited again and again thousands are replaced ones.
  private static let replaced = """
    DROP INDEX updates_by_id;
    CREATE INDEX updates_by_id ON updates(gateway, bucket, id) WHERE gateway <> '' AND body <> ''
    """

  /// When a message came first, and when it may have been sent by the report that tells it best, 0: unknown. Milliseconds since 1970. What was there
  /// before stays as it is: nothing is later than 0.
  private static let told = """
    ALTER TABLE messages ADD COLUMN arrived INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE messages ADD COLUMN sent INTEGER NOT NULL DEFAULT 0
    """

  /// Whether the clock that says when a gateway heard of a contact is to be trusted. None was heard of later than any gateway was here.
  private static let contactClocks = """
    ALTER TABLE contacts ADD COLUMN trusted INTEGER NOT NULL DEFAULT 1;
    UPDATE contacts SET at = (SELECT max(last_seen) FROM gateways) WHERE at > (SELECT max(last_seen) FROM gateways)
    """

  /// Gateways that take only messages that these others have heard: whoever hears one first hides it from them otherwise.
  private static let wantedHearers = """
    CREATE TABLE wanted_hearers(
      hearer TEXT NOT NULL, gateway TEXT NOT NULL, PRIMARY KEY(hearer, gateway)) WITHOUT ROWID;
    CREATE INDEX wanted_hearers_by_gateway ON wanted_hearers(gateway)
    """

  /// `updates.source`: of a message, the gateway that told of it. `lost_updates`: whose messages a list has no longer, all or some up to a number.
  private static func sources(_ dialect: Dialect) -> String {
    let gateway = dialect == .sqlite ? "json_extract(body, '$.gateway')" : "body::json ->> 'gateway'"
    return """
      ALTER TABLE updates ADD COLUMN source TEXT NOT NULL DEFAULT '';
      UPDATE updates SET source = coalesce(\(gateway), '') WHERE (gateway = '' OR bucket = 'heard') AND body <> '';
      CREATE INDEX updates_by_source ON updates(gateway, bucket, source, seq) WHERE source <> '';
      CREATE TABLE lost_updates(
        gateway TEXT NOT NULL, bucket TEXT NOT NULL, source TEXT NOT NULL, through INTEGER NOT NULL,
        PRIMARY KEY(gateway, bucket, source)) WITHOUT ROWID
      """
  }

  /// Time that has surely passed for commands in their queues, `elapsed`, as of each boot of a hub's machine: `uptime` since it. `wall`: what a clock that is right
  /// showed then. Milliseconds.
  private static let queueClock = """
    CREATE TABLE queue_clock(
      boot TEXT PRIMARY KEY, elapsed INTEGER NOT NULL, uptime INTEGER NOT NULL, wall INTEGER) WITHOUT ROWID
    """

  /// `settled`: where a message is told best beyond what others take of that gateway, when it may have been sent by what was told within that, -1: nothing was.
  /// `beyond`: such updates.
  private static let settled = """
    ALTER TABLE messages ADD COLUMN settled INTEGER;
    ALTER TABLE updates ADD COLUMN beyond INTEGER NOT NULL DEFAULT 0
    """

  /// Which channels each gateway has told of: that it has joined them, or of a message there. Of others it gets nothing.
  private static func gatewayChannels(_ dialect: Dialect) -> String {
    let channel = dialect == .sqlite ? "json_extract(e.body, '$.channel')" : "e.body::json ->> 'channel'"
    return """
      CREATE TABLE gateway_channels(
        gateway TEXT NOT NULL, channel TEXT NOT NULL, PRIMARY KEY(gateway, channel)) WITHOUT ROWID;
      INSERT INTO gateway_channels(gateway, channel)
        SELECT h.gateway, m.channel FROM heard h JOIN messages m ON m.position = h.message WHERE m.channel IS NOT NULL
        UNION SELECT e.gateway, \(channel) FROM gateways g JOIN events e ON e.gateway = g.id AND e.kind = 'channel'
        WHERE \(channel) IS NOT NULL
      """
  }
}
