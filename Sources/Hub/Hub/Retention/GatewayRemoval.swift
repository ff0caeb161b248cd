// SPDX-License-Identifier: MIT

/// Removes a gateway that is gone for good, a few rows at a time: a serving hub works between two steps.
///
/// What others have of it stays theirs: messages that another gateway heard, too, and the lists of other gateways.
extension HubStore {
  /// The tables with rows of one gateway, each with a column that few of them share. The row that makes it known is the last one: after an
  /// interruption the same call finishes the removal.
  private static let rowsOfOne = [
    ("events", "id"), ("contacts", "key"), ("updates", "seq"), ("lost_updates", "source"), ("buckets", "name"),
    ("wanted_hearers", "hearer"), ("commands", "id"), ("documents", "key"), ("states", "name"), ("alerts", "id"),
    ("gateway_channels", "channel"), ("epochs", "epoch"), ("gateways", "id"),
  ]

  /// Returns the numbers of deleted events, and of messages that nobody else heard. It calls `paused` between steps, with the duration of the last
  /// step; an error from there stops it.
  public func removeGateway(
    _ gateway: String, paused: @Sendable (Duration) async throws -> Void
  ) async throws -> (events: Int, messages: Int) {
    var (events, messages, last) = (0, 0, Int64(0))
    var begun = ContinuousClock.now
    while let step = try removeHearer(gateway, after: last) {
      (last, messages) = (step.last, messages + step.messages)
      try await paused(ContinuousClock.now - begun)
      begun = .now
    }
    for (table, key) in Self.rowsOfOne {
      let its = "FROM \(table) WHERE \(table == "gateways" ? "id" : "gateway") = ?1"
      // By the number alone if it is no other gateway's: a database might go through all rows of the gateway instead.
      let found = ["events", "alerts", "gateways"].contains(table) ? "FROM \(table) WHERE" : "\(its) AND"
      var rows = 1
      while rows > 0 {
        begun = .now
        rows = try database.transaction { () throws(HubDatabaseError) in
          try database.run("DELETE \(found) \(key) IN (SELECT \(key) \(its) LIMIT \(Purge.step))", gateway)
        }
        if table == "events" { events += rows }
        try await paused(ContinuousClock.now - begun)
      }
    }
    return (events, messages)
  }

  /// SQL: the identity of a message of which only the position is left. No report has it: an identity of a gateway's own has two slashes.
  static let identityOfEmptied = "'removed/' || CAST(position AS TEXT)"

  /// Forgets that the gateway heard the next messages behind a position, and deletes those that nobody else heard. Of the newest message only the
  /// position stays, as in a purge: readers do not see it, and another gateway that reports the message later adds it again. `nil`: there is no
  /// further message.
  private func removeHearer(
    _ gateway: String, after: Int64
  ) throws(HubDatabaseError) -> (last: Int64, messages: Int)? {
    let next = "SELECT position FROM messages WHERE position > ?1 ORDER BY position LIMIT \(Purge.step)"
    let last = try database.number("SELECT coalesce(max(m.position), 0) FROM (\(next)) m", after)
    guard last > after else { return nil }
    func heard(_ comparison: String) -> String {
      "EXISTS (SELECT 1 FROM heard h WHERE h.message = messages.position AND h.gateway \(comparison) ?3)"
    }
    let deleted = try database.transaction { () throws(HubDatabaseError) in
      let own = "position > ?1 AND position <= ?2 AND \(heard("=")) AND NOT \(heard("<>"))"
      let deleted = try database.run(
        "DELETE FROM messages WHERE \(own) AND position < (SELECT max(position) FROM messages)", after, last, gateway)
      let emptied = try database.run(
        """
        UPDATE messages SET body = '', channel = NULL, at = 0, identity = \(Self.identityOfEmptied) WHERE \(own)
        """, after, last, gateway)
      try database.run("DELETE FROM heard WHERE message > ?1 AND message <= ?2 AND gateway = ?3", after, last, gateway)
      return deleted + emptied
    }
    return (last, deleted)
  }

  /// Ends the tokens for any gateway that are bound to this one, and returns their number: from then on they belong to nobody. A serving hub goes on
  /// until it reads its tokens again.
  public func endBindings(of gateway: String) throws(HubDatabaseError) -> Int {
    try database.transaction { () throws(HubDatabaseError) in
      try database.lock(Self.tokensLock)
      let its = "FROM token_gateways WHERE gateway = ?1"
      let count = try database.number("SELECT count(*) \(its) AND token <> ''", gateway)
      try database.run(
        """
        INSERT INTO token_gateways(token, gateway, bound_at) SELECT token, '', bound_at \(its) AND token <> ''
        ON CONFLICT(token, gateway) DO NOTHING
        """, gateway)
      try database.run("DELETE \(its)", gateway)
      return Int(count)
    }
  }
}
