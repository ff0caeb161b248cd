// SPDX-License-Identifier: MIT

extension EarlierSchema {
  /// Of a gateway's database.
  ///
  /// Step 14 and those before it cannot be undone: since 14 a received message is an event itself, so the journal has no row of it, and nobody has the
  /// bytes that an older program would have written there. What is beside the database stays, even `….held`, which older programs do not know: it may
  /// have messages that the radio has forgotten.
  public static let gateway = EarlierSchema(undoing: [
    (30, "DROP TABLE deletions; DROP INDEX reactions_message; DELETE FROM meta WHERE name = 'deleted_messages'"),
    (
      29,
      // Older programs know no other level than that of a muted conversation.
      """
      DROP TABLE blocks; UPDATE conversations SET level = level = 1;
      ALTER TABLE conversations RENAME COLUMN level TO muted
      """
    ),
    (28, "DROP INDEX outgoing_said"),
    (27, "DROP TABLE node_snapshots; DELETE FROM meta WHERE name IN ('clock_proof', 'clocks_under_way')"),
    (26, "DROP TABLE node_care; DELETE FROM meta WHERE name = 'listened'"),
    (
      25,
      """
      ALTER TABLE outgoing DROP COLUMN region; ALTER TABLE contacts DROP COLUMN region;
      ALTER TABLE contacts DROP COLUMN carried; ALTER TABLE contacts DROP COLUMN carried_at
      """
    ),
    (
      24,
      // Older programs do not tell who may run commands on the radio.
      "DROP TABLE airtime_hours; DELETE FROM meta WHERE name GLOB 'commanders:*'"
    ), (23, ways), (22, merges), (21, commandAges), (20, removedUpstreams),
    (19, "ALTER TABLE contacts DROP COLUMN seen"),
    // Events of ends in the journal keep the whole message, which an older program did not write: it is not looked at.
    (18, "ALTER TABLE outgoing DROP COLUMN ended_seq; DELETE FROM meta WHERE name = 'whole_ends_from'"),
    // The journal keeps the events of alerts. An alert that is open begins again.
    (17, "DROP TABLE alerts; DROP TABLE heard_nodes"),
    (16, "ALTER TABLE conversations DROP COLUMN muted"),
    (
      15,
      """
      DROP TABLE conversations;
      DELETE FROM meta WHERE name IN ('conversations_from', 'conversations_listed', 'conversations_listed_sent')
      """
    ),
  ])

  /// The copies of messages were not kept, and no message was held for its recipient.
  private static let ways = """
    ALTER TABLE messages DROP COLUMN ways; ALTER TABLE outgoing DROP COLUMN ways;
    UPDATE outgoing SET state = 'sent' WHERE state = 'held_for_recipient';
    DELETE FROM meta WHERE name GLOB 'guests:*'
    """

  private static let merges = """
    INSERT INTO words(words, rank) VALUES ('automerge', 4); INSERT INTO sent_words(sent_words, rank) VALUES ('automerge', 4)
    """

  /// The time of a command was the hub's. Of the losses that were told only the journal knew, and the database had no memory of other epochs.
  private static let commandAges = """
    UPDATE commands SET at = at - ifnull((SELECT value FROM meta WHERE name = 'elapsed'), 0)
      + ifnull((SELECT value FROM meta WHERE name = 'elapsed_wall'), 0);
    DELETE FROM meta WHERE name IN ('epoch_boot', 'known_epochs', 'relayed_before_copy', 'lost_epoch', 'untold_losses', 'told_losses')
    """

  /// The position of an upstream that was removed was deleted.
  private static let removedUpstreams = """
    DELETE FROM cursors WHERE removed IS NOT NULL;
    ALTER TABLE cursors DROP COLUMN given_up; ALTER TABLE cursors DROP COLUMN too_old;
    ALTER TABLE cursors DROP COLUMN told; ALTER TABLE cursors DROP COLUMN told_before;
    ALTER TABLE cursors DROP COLUMN removed; ALTER TABLE cursors DROP COLUMN removed_at;
    ALTER TABLE cursors DROP COLUMN removed_pending;
    DELETE FROM meta WHERE name IN ('elapsed_boot', 'elapsed_uptime', 'journal_times')
    """
}
