// SPDX-License-Identifier: MIT

import SQLite

/// The gateway's schema. Steps are never changed once released.
enum Schema {
  static let migrations = [
    Migration(number: 1, sql: first), Migration(number: 2, sql: messaging), Migration(number: 3, sql: updates),
    Migration(number: 4, sql: clients), Migration(number: 5, sql: search),
    Migration(number: 6, sql: eviction), Migration(number: 7, sql: regions), Migration(number: 8, sql: waiting),
    Migration(number: 9, sql: steadyTime), Migration(number: 10, sql: radios),
    Migration(number: 11, sql: unspacedScripts), Migration(number: 12, sql: lanes),
    Migration(number: 13, sql: events), Migration(number: 14, sql: messagesOnce),
    Migration(number: 15, sql: conversations), Migration(number: 16, sql: mutes),
    Migration(number: 17, sql: alerts), Migration(number: 18, sql: ends),
    Migration(number: 19, sql: seen), Migration(number: 20, sql: removedUpstreams),
    Migration(number: 21, sql: commandAges), Migration(number: 22, sql: merges),
    Migration(number: 23, sql: ways), Migration(number: 24, sql: airtimeHours),
    Migration(number: 25, sql: moreRegions), Migration(number: 26, sql: nodeCare),
    Migration(number: 27, sql: nodeSnapshots), Migration(number: 28, sql: said),
    Migration(number: 29, sql: concern), Migration(number: 30, sql: deletions),
  ]

  /// `journal.seq` is not AUTOINCREMENT: the newest row is never deleted, so numbers are never reused.
  private static let first = """
    CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE contacts(
      key BLOB PRIMARY KEY, type INTEGER NOT NULL, flags INTEGER NOT NULL, path_length INTEGER, path BLOB,
      name BLOB NOT NULL, last_advert INTEGER NOT NULL, latitude INTEGER NOT NULL, longitude INTEGER NOT NULL,
      last_modified INTEGER NOT NULL, on_radio INTEGER NOT NULL, first_seen INTEGER NOT NULL, last_heard INTEGER
    ) WITHOUT ROWID;
    CREATE TABLE channels(
      slot INTEGER PRIMARY KEY, name BLOB NOT NULL, secret BLOB NOT NULL, digest TEXT NOT NULL);
    CREATE TABLE messages(
      id INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, sender BLOB, sender_name BLOB,
      channel TEXT, slot INTEGER, text_type INTEGER NOT NULL, sender_time INTEGER, author BLOB, text BLOB NOT NULL,
      snr INTEGER, path_length INTEGER NOT NULL, data_type INTEGER, at INTEGER NOT NULL, trusted INTEGER NOT NULL,
      copies INTEGER NOT NULL DEFAULT 1);
    CREATE TABLE journal(
      seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, trusted INTEGER NOT NULL, kind TEXT NOT NULL,
      body BLOB NOT NULL, checksum INTEGER NOT NULL);
    CREATE TABLE cursors(upstream TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE trims(first INTEGER PRIMARY KEY, last INTEGER NOT NULL, reason TEXT NOT NULL);
    CREATE TABLE dead_letters(
      id INTEGER PRIMARY KEY AUTOINCREMENT, upstream TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
      kind TEXT NOT NULL, body BLOB NOT NULL, event_at INTEGER NOT NULL, trusted INTEGER NOT NULL,
      status INTEGER NOT NULL, reason TEXT NOT NULL, retry INTEGER NOT NULL DEFAULT 0, UNIQUE(upstream, seq));
    """

  /// Sent messages, reactions, and readings of nodes. `reactions.target` and `.message`: a message's id or, if
  /// negative, that of an outgoing message.
  private static let messaging = """
    CREATE TABLE outgoing(
      id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, origin TEXT NOT NULL, priority INTEGER NOT NULL,
      kind TEXT NOT NULL, recipient BLOB, channel TEXT, text BLOB NOT NULL, state TEXT NOT NULL, reason TEXT,
      sender_time INTEGER, attempt INTEGER NOT NULL, tries INTEGER NOT NULL, floods INTEGER NOT NULL,
      codes BLOB NOT NULL, created_at INTEGER NOT NULL, created_trusted INTEGER NOT NULL, lifetime INTEGER NOT NULL,
      ended_at INTEGER, round_trip INTEGER, heard INTEGER NOT NULL, airtime INTEGER NOT NULL);
    CREATE INDEX outgoing_live ON outgoing(id) WHERE ended_at IS NULL;
    CREATE TABLE airtime(at INTEGER NOT NULL, milliseconds INTEGER NOT NULL, channel TEXT);
    CREATE TABLE reactions(
      id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, hash TEXT NOT NULL, sender TEXT NOT NULL,
      emoji TEXT NOT NULL, target INTEGER, message INTEGER NOT NULL, at INTEGER NOT NULL,
      UNIQUE(conversation, hash, sender, emoji));
    CREATE INDEX reactions_waiting ON reactions(conversation, hash) WHERE target IS NULL;
    CREATE INDEX reactions_target ON reactions(target) WHERE target IS NOT NULL;
    CREATE TABLE readings(
      id INTEGER PRIMARY KEY, node BLOB NOT NULL, kind TEXT NOT NULL, at INTEGER NOT NULL, trusted INTEGER NOT NULL,
      body BLOB NOT NULL);
    """

  /// Data from hubs: the position in each bucket, commands, documents. `commands.answer`: empty until answered;
  /// `documents.seq`: the event of our last edit, 0 if the hub's edit is later.
  private static let updates = """
    CREATE TABLE buckets(
      upstream TEXT NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER, since INTEGER NOT NULL,
      PRIMARY KEY(upstream, name)) WITHOUT ROWID;
    CREATE TABLE commands(
      number INTEGER PRIMARY KEY AUTOINCREMENT, upstream TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
      at INTEGER NOT NULL, answer BLOB, UNIQUE(upstream, id));
    CREATE INDEX commands_waiting ON commands(upstream, number) WHERE answer IS NULL;
    CREATE TABLE documents(
      key TEXT PRIMARY KEY, value TEXT, updated_at INTEGER NOT NULL, by_hub INTEGER NOT NULL,
      seq INTEGER NOT NULL) WITHOUT ROWID;
    """

  /// Programs that share the radio, and the last message that each has received.
  private static let clients = """
    CREATE TABLE clients(name TEXT PRIMARY KEY, message INTEGER NOT NULL, used_at INTEGER NOT NULL) WITHOUT ROWID;
    """

  /// The search index. The texts stay in `messages`: the index reads them through the view. `place` has the sender, the
  /// author in a room, and the channel, each as one word. The index's page size fits the database's.
  private static let search = """
    CREATE VIEW message_words AS SELECT id,
      CASE kind WHEN 'datagram' THEN '' ELSE CAST(text AS TEXT) END AS text,
      ifnull(CAST(sender_name AS TEXT), '') AS sender,
      ifnull('s' || lower(hex(sender)), '') || ifnull(' a' || lower(hex(author)), '') || ifnull(' c' || channel, '')
        AS place
      FROM messages;
    CREATE VIRTUAL TABLE words USING fts5(
      text, sender, place, content = 'message_words', content_rowid = 'id',
      tokenize = 'unicode61 remove_diacritics 2');
    INSERT INTO words(words, rank) VALUES ('pgsz', 960);
    """

  /// The approximate time of the last direct message from or to a node (written once a day), and whether the node was
  /// removed from the radio's table to make room.
  private static let eviction = """
    ALTER TABLE contacts ADD COLUMN talked_at INTEGER;
    ALTER TABLE contacts ADD COLUMN evicted INTEGER NOT NULL DEFAULT 0;
    """

  /// The region of a channel's messages: a name, or `*` for none. `channel`: the digest of the secret.
  private static let regions = """
    CREATE TABLE channel_regions(channel TEXT PRIMARY KEY, region TEXT NOT NULL) WITHOUT ROWID;
    """

  /// Whether a message had waited in the radio (seconds at most; -1: unknown), its age by the sender's clock, and how
  /// far a node's clock is ahead of ours (seconds).
  private static let waiting = """
    ALTER TABLE messages ADD COLUMN waited INTEGER;
    ALTER TABLE messages ADD COLUMN age INTEGER;
    ALTER TABLE contacts ADD COLUMN clock_offset INTEGER;
    """

  /// Ages go by time that has certainly passed (`SteadyClock`), not by the wall clock: at time `marks.elapsed`, the
  /// journal had rows up to `marks.seq`. This step counts all air time that was recorded by the wall clock as used now.
  private static let steadyTime = """
    CREATE TABLE marks(seq INTEGER PRIMARY KEY, elapsed INTEGER NOT NULL);
    DELETE FROM airtime WHERE at < (SELECT max(at) FROM airtime) - 3600000;
    UPDATE airtime SET at = 0;
    ALTER TABLE outgoing ADD COLUMN created_elapsed INTEGER NOT NULL DEFAULT 0;
    """

  /// Known radios, and the radio of each row. Existing rows belong to the radio that was synced last, number 1; without
  /// one, to the first radio that is attached. A column with a constant default costs nothing for existing rows, and
  /// one byte for those of number 1. `radio` 0: the row belongs to several radios.
  ///
  /// `radios.first_message`, `.last_message`: the range of its messages' ids (no last one: attached); `.since_message`:
  /// the newest id when it was last attached; `.messages`: the count when it was detached. `outgoing.place`: the newest
  /// received message when ours was accepted, which gives both directions one order independent of clocks.
  /// `contacts.evicted`: the radio whose table the node has left.
  private static let radios = """
    CREATE TABLE radios(
      id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, name BLOB NOT NULL, first_seen INTEGER NOT NULL,
      last_seen INTEGER NOT NULL, first_message INTEGER NOT NULL, last_message INTEGER, since_message INTEGER NOT NULL,
      messages INTEGER NOT NULL);
    INSERT INTO radios SELECT 1, value, x'', 0, 0, 1, NULL, 0, 0 FROM meta WHERE name = 'radio_key';
    ALTER TABLE messages ADD COLUMN radio INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE outgoing ADD COLUMN radio INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE outgoing ADD COLUMN place INTEGER;
    CREATE INDEX outgoing_place ON outgoing(place, id);
    ALTER TABLE contacts ADD COLUMN radio INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE readings ADD COLUMN radio INTEGER NOT NULL DEFAULT 1;
    CREATE TABLE reactions_by_radio(
      id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, hash TEXT NOT NULL, sender TEXT NOT NULL,
      emoji TEXT NOT NULL, target INTEGER, message INTEGER NOT NULL, at INTEGER NOT NULL, radio INTEGER NOT NULL,
      UNIQUE(conversation, hash, sender, emoji, radio));
    INSERT INTO reactions_by_radio
      SELECT *, CASE WHEN length(conversation) = 16 AND sender <> 'self' THEN 0 ELSE 1 END FROM reactions;
    DROP TABLE reactions;
    ALTER TABLE reactions_by_radio RENAME TO reactions;
    CREATE INDEX reactions_waiting ON reactions(conversation, hash) WHERE target IS NULL;
    CREATE INDEX reactions_target ON reactions(target) WHERE target IS NOT NULL;
    CREATE VIEW sent_texts AS SELECT id, CAST(text AS TEXT) AS text FROM outgoing;
    CREATE VIRTUAL TABLE sent_words USING fts5(
      text, content = 'sent_texts', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
    INSERT INTO sent_words(sent_words, rank) VALUES ('pgsz', 960);
    """

  /// Letters of scripts without spaces become separate words (`SearchWords`). If no message has such letters, the indexes are kept;
  /// otherwise they are rebuilt step by step.
  private static let unspacedScripts = """
    INSERT INTO words(words) SELECT 'delete-all'
      WHERE EXISTS(SELECT 1 FROM message_words WHERE spaced(text) <> text OR spaced(sender) <> sender);
    DELETE FROM meta WHERE name = 'search_indexed'
      AND EXISTS(SELECT 1 FROM message_words WHERE spaced(text) <> text OR spaced(sender) <> sender);
    INSERT INTO sent_words(sent_words) SELECT 'delete-all' WHERE EXISTS(SELECT 1 FROM sent_texts WHERE spaced(text) <> text);
    DELETE FROM meta WHERE name = 'search_indexed_sent'
      AND EXISTS(SELECT 1 FROM sent_texts WHERE spaced(text) <> text);
    """

  /// Cursors by lane: `cursors.seq` is that of `messages`; NULL in another lane means the same value. `trims`: by lane,
  /// with the number of events. Earlier ranges count for the first lane.
  private static let lanes = """
    ALTER TABLE cursors ADD COLUMN nodes INTEGER;
    ALTER TABLE cursors ADD COLUMN packets INTEGER;
    ALTER TABLE trims RENAME TO old_trims;
    CREATE TABLE trims(
      lane TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, reason TEXT NOT NULL,
      PRIMARY KEY(lane, first)) WITHOUT ROWID;
    INSERT INTO trims SELECT 'messages', first, last, last - first + 1, reason FROM old_trims;
    DROP TABLE old_trims;
    """

  /// The event with a message's text, and for a sent message the event of its newest state. NULL: from before this
  /// step.
  private static let events = """
    ALTER TABLE messages ADD COLUMN seq INTEGER;
    ALTER TABLE outgoing ADD COLUMN seq INTEGER;
    ALTER TABLE outgoing ADD COLUMN newest_seq INTEGER;
    """

  /// A received message is written once: rows after `meta.before_events` are events of the journal themselves, and
  /// contain the additional data of the event. `event_start`: bytes of such events before this one. `event_radio`: the
  /// radio in the event. `meta.journal_from`: events before it have left the journal.
  ///
  /// `identities` lags behind, up to `meta.identified`. The table is created again, because the unique index of the old
  /// one cannot be dropped.
  private static let messagesOnce = """
    CREATE TABLE messages_once(
      id INTEGER PRIMARY KEY, identity BLOB NOT NULL, kind TEXT NOT NULL, sender BLOB, sender_name BLOB,
      channel TEXT, slot INTEGER, text_type INTEGER NOT NULL, sender_time INTEGER, author BLOB, text BLOB NOT NULL,
      snr INTEGER, path_length INTEGER NOT NULL, data_type INTEGER, at INTEGER NOT NULL, trusted INTEGER NOT NULL,
      copies INTEGER NOT NULL DEFAULT 1, waited INTEGER, age INTEGER, radio INTEGER NOT NULL DEFAULT 1, seq INTEGER,
      event_start INTEGER, channel_name BLOB, author_name BLOB, event_radio INTEGER, checksum INTEGER);
    INSERT INTO messages_once
      SELECT id, identity, kind, sender, sender_name, channel, slot, text_type, sender_time, author, text, snr,
        path_length, data_type, at, trusted, copies, waited, age, radio, seq, NULL, NULL, NULL, NULL, NULL
      FROM messages;
    CREATE TABLE identities(identity BLOB PRIMARY KEY, message INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO identities SELECT identity, id FROM messages;
    INSERT INTO meta VALUES ('before_events', (SELECT ifnull(max(id), 0) FROM messages));
    INSERT INTO meta VALUES ('identified', (SELECT ifnull(max(id), 0) FROM messages));
    INSERT INTO meta VALUES ('journal_from', (SELECT ifnull(min(seq), 1) FROM journal));
    DROP VIEW message_words;
    DROP TABLE messages;
    ALTER TABLE messages_once RENAME TO messages;
    CREATE VIEW message_words AS SELECT id,
      CASE kind WHEN 'datagram' THEN '' ELSE CAST(text AS TEXT) END AS text,
      ifnull(CAST(sender_name AS TEXT), '') AS sender,
      ifnull('s' || lower(hex(sender)), '') || ifnull(' a' || lower(hex(author)), '') || ifnull(' c' || channel, '')
        AS place
      FROM messages;
    """

  /// The list of conversations, which lags behind like the search indexes, and the read positions. `name`: in the form
  /// of `ConversationName`. `message`: the newest received one; `sent_place`, `sent`: the position of our newest one.
  /// `received`: the number of received messages; `mention`: the newest that mentions us. `read_*`: the read position,
  /// and the number of messages received up to it.
  private static let conversations = """
    CREATE TABLE conversations(
      radio INTEGER NOT NULL, name TEXT NOT NULL, message INTEGER NOT NULL DEFAULT 0, sent_place INTEGER NOT NULL DEFAULT 0,
      sent INTEGER NOT NULL DEFAULT 0, received INTEGER NOT NULL DEFAULT 0, mention INTEGER NOT NULL DEFAULT 0,
      read_message INTEGER NOT NULL DEFAULT 0, read_sent INTEGER NOT NULL DEFAULT 0,
      read_received INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(radio, name)) WITHOUT ROWID;
    """

  /// Whether the conversation is muted.
  private static let mutes = """
    ALTER TABLE conversations ADD COLUMN muted INTEGER NOT NULL DEFAULT 0;
    """

  /// Alerts, and times at which watched nodes were heard. `elapsed`: steady time (`Store.elapsed`), independent of the
  /// wall clock.
  private static let alerts = """
    CREATE TABLE alerts(
      id INTEGER PRIMARY KEY AUTOINCREMENT, rule TEXT NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL, value REAL,
      began_at INTEGER NOT NULL, ended_at INTEGER, ended_elapsed INTEGER, returns INTEGER NOT NULL,
      acknowledged_at INTEGER, acknowledged_by TEXT, note TEXT);
    CREATE UNIQUE INDEX alerts_open ON alerts(rule, subject) WHERE ended_at IS NULL;
    CREATE TABLE heard_nodes(key BLOB PRIMARY KEY, elapsed INTEGER NOT NULL, last_heard INTEGER NOT NULL) WITHOUT ROWID;
    """

  /// After `meta.whole_ends_from`, the event of a sent message's end contains the whole message; `ended_seq` is that
  /// event.
  private static let ends = """
    ALTER TABLE outgoing ADD COLUMN ended_seq INTEGER;
    INSERT INTO meta VALUES ('whole_ends_from',
      max((SELECT ifnull(max(seq), 0) FROM journal), (SELECT ifnull(max(seq), 0) FROM messages)));
    """

  /// When a node was last heard or had a conversation, in steady time (`Store.elapsed`). Unknown for existing nodes:
  /// counted from now.
  private static let seen = """
    ALTER TABLE contacts ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
    UPDATE contacts SET seen = ifnull((SELECT value FROM meta WHERE name = 'elapsed'), 0);
    """

  /// Facts about an upstream besides its cursor. `given_up`: events deleted before it had them; `too_old`: events that
  /// were too old for it. `told`: the newest acknowledged event of each lane, `messages,nodes,packets`; `told_before`:
  /// the same when this epoch began. `removed`: the order of removal, NULL if configured; `removed_at`: milliseconds
  /// since 1970; `removed_pending`: no longer used.
  private static let removedUpstreams = """
    ALTER TABLE cursors ADD COLUMN given_up INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE cursors ADD COLUMN too_old INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE cursors ADD COLUMN told TEXT;
    ALTER TABLE cursors ADD COLUMN told_before TEXT;
    ALTER TABLE cursors ADD COLUMN removed INTEGER;
    ALTER TABLE cursors ADD COLUMN removed_at INTEGER;
    ALTER TABLE cursors ADD COLUMN removed_pending INTEGER;
    """

  /// `commands.at`: when a command was sent, in time that has certainly passed here, because the clocks of hub and
  /// gateway may differ.
  private static let commandAges = """
    UPDATE commands SET at = coalesce((SELECT value FROM meta WHERE name = 'elapsed'), 0);
    """

  /// A removed message leaves a mark in the search index for each of its words, until all parts of the index have become
  /// one. Two parts are merged, not four as by default: otherwise an index grows for months, to several times its messages'
  /// words (docs/endurance.md).
  private static let merges = """
    INSERT INTO words(words, rank) VALUES ('automerge', 2);
    INSERT INTO sent_words(sent_words, rank) VALUES ('automerge', 2);
    """

  /// The copies of a message that the radio heard (`HeardCopy`); NULL: none.
  private static let ways = """
    ALTER TABLE messages ADD COLUMN ways BLOB;
    ALTER TABLE outgoing ADD COLUMN ways BLOB;
    """

  /// Air time by hour (since 1970, by the wall clock) and purpose (`AirtimePurpose`). `elapsed`: steady time of the last
  /// change, by which rows are removed.
  private static let airtimeHours = """
    CREATE TABLE airtime_hours(
      hour INTEGER NOT NULL, purpose TEXT NOT NULL, milliseconds INTEGER NOT NULL, packets INTEGER NOT NULL,
      elapsed INTEGER NOT NULL, PRIMARY KEY(hour, purpose)) WITHOUT ROWID;
    """

  /// The region of a message, and of messages to a node, as `RegionChoice.text`; NULL: none is chosen. `carried`: the
  /// regions that a repeater says it carries, with commas.
  private static let moreRegions = """
    ALTER TABLE outgoing ADD COLUMN region TEXT;
    ALTER TABLE contacts ADD COLUMN region TEXT;
    ALTER TABLE contacts ADD COLUMN carried TEXT;
    ALTER TABLE contacts ADD COLUMN carried_at INTEGER;
    """

  /// What is remembered of the nodes in care, as JSON (`NodeRecord`).
  private static let nodeCare = """
    CREATE TABLE node_care(key BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    """

  /// The settings that nodes have told, as JSON.
  private static let nodeSnapshots = """
    CREATE TABLE node_snapshots(id INTEGER PRIMARY KEY AUTOINCREMENT, node BLOB NOT NULL, body BLOB NOT NULL);
    CREATE INDEX node_snapshots_of ON node_snapshots(node, id);
    """

  /// What was said on channels at a time: our own words may come back from another gateway long after.
  private static let said = """
    CREATE INDEX outgoing_said ON outgoing(sender_time) WHERE kind = 'channel';
    """

  /// Whom messages concern: the level of each conversation (`ConversationLevel.column`), and blocked senders: keys, or
  /// their beginnings, with an empty `channel`, and names on a channel. Nothing is unread in a conversation that was
  /// muted: older programs counted there, and their pages left it out.
  private static let concern = """
    ALTER TABLE conversations RENAME COLUMN muted TO level;
    UPDATE conversations SET received = read_received, mention = 0 WHERE level = 1;
    CREATE TABLE blocks(channel TEXT NOT NULL, whom BLOB NOT NULL, PRIMARY KEY(channel, whom)) WITHOUT ROWID;
    """

  /// Deletions under way (`Deletions`): how far each is in messages, sent messages and events, up to where it goes, and how many messages it has deleted.
  /// `conversation`: NULL when all its messages are deleted. What is deleted stays as a row without content: `messages.kind` and `outgoing.state` are
  /// `deleted`, and `outgoing.codes` is the digest of the text.
  private static let deletions = """
    CREATE TABLE deletions(
      id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT, before INTEGER NOT NULL, message INTEGER NOT NULL,
      message_end INTEGER NOT NULL, sent INTEGER NOT NULL, sent_end INTEGER NOT NULL, seq INTEGER NOT NULL,
      seq_end INTEGER NOT NULL, removed INTEGER NOT NULL);
    CREATE INDEX reactions_message ON reactions(message);
    """
}
