// SPDX-License-Identifier: MIT

/// Removes a gateway that is gone for good, a few rows at a time: a serving hub works between two steps.
///
/// What others have of it stays theirs: messages that another gateway heard, too, and the lists of other gateways.
extension HubStore {
  /// The tables with rows of one gateway besides its events, each with a column that few of them share.
  private static let rowsOfOne = [
    ("contacts", "key"), ("updates", "seq"), ("lost_updates", "source"), ("buckets", "name"),
    ("wanted_hearers", "hearer"), ("commands", "id"), ("documents", "key"), ("states", "name"), ("alerts", "id"),
    ("gateway_channels", "channel"), ("epochs", "epoch"), ("deleted_messages", "name"),
    ("deletions", "seq"),
  ]
  private static let events = ("events", "id")
  /// A gateway of which something has come in each of so many rounds is there again.
  private static let rounds = 3

  /// Returns the numbers of deleted events, and of messages that nobody else heard. It calls `paused` between steps, with the duration of the last
  /// step; an error from there stops it. The row that makes the gateway known is the last one: after an interruption the same call finishes the
  /// removal. The row stays if the gateway sends meanwhile.
  public func removeGateway(
    _ gateway: String, paused: @Sendable (Duration) async throws -> Void
  ) async throws -> (events: Int, messages: Int) {
    var (events, messages) = (0, 0)
    for _ in 0..<Self.rounds {
      events += try await removeRows(Self.events, of: gateway, paused)
      // Behind the events: those of a batch that comes from now on show that there is more to remove.
      var (last, begun) = (Int64(0), ContinuousClock.now)
      while let step = try await removeHearer(gateway, after: last, paused) {
        (last, messages) = (step.last, messages + step.messages)
        try await paused(ContinuousClock.now - begun)
        begun = .now
      }
      for table in Self.rowsOfOne { _ = try await removeRows(table, of: gateway, paused) }
      if try forget(gateway) { break }
    }
    return (events, messages)
  }

  private func removeRows(
    _ place: (table: String, key: String), of gateway: String, _ paused: @Sendable (Duration) async throws -> Void
  ) async throws -> Int {
    let (table, key) = place
    let its = "FROM \(table) WHERE gateway = ?1"
    // By the number alone if it is no other gateway's: a database might go through all rows of the gateway instead.
    let found = ["events", "alerts"].contains(table) ? "FROM \(table) WHERE" : "\(its) AND"
    var (all, rows) = (0, 1)
    while rows > 0 {
      let begun = ContinuousClock.now
      rows = try database.transaction { () throws(HubDatabaseError) in
        try database.lock(gateway)
        return try database.run("DELETE \(found) \(key) IN (SELECT \(key) \(its) LIMIT \(Purge.step))", gateway)
      }
      all += rows
      try await paused(ContinuousClock.now - begun)
    }
    return all
  }

  /// Deletes the row that makes the gateway known. False: a batch that was under way has stored something meanwhile. Batches take the lock, too.
  private func forget(_ gateway: String) throws(HubDatabaseError) -> Bool {
    try database.transaction { () throws(HubDatabaseError) in
      try database.lock(gateway)
      for (table, _) in [Self.events] + Self.rowsOfOne {
        let rows = try database.number(
          "SELECT count(*) FROM (SELECT 1 FROM \(table) WHERE gateway = ?1 LIMIT 1) one", gateway)
        if rows > 0 { return false }
      }
      try database.run("DELETE FROM gateways WHERE id = ?1", gateway)
      return true
    }
  }

  /// SQL: the identity of a message of which only the position is left. No report has it: an identity of a gateway's own has two slashes.
  static let identityOfEmptied = "'removed/' || CAST(position AS TEXT)"

  /// A step, again if batches under way take long.
  private func removeHearer(
    _ gateway: String, after: Int64, _ paused: @Sendable (Duration) async throws -> Void
  ) async throws -> (last: Int64, messages: Int)? {
    var attempts = 1
    while true {
      let begun = ContinuousClock.now
      do {
        return try removeHearer(gateway, after: after)
      } catch {
        guard error.cause == .heldLock, attempts < Self.mostAttempts else { throw error }
      }
      attempts += 1
      try await paused(ContinuousClock.now - begun)
    }
  }

  /// Forgets that the gateway heard the next messages behind a position, and deletes those that nobody else heard. Of the newest message only the
  /// position stays, as in a purge: readers do not see it, and another gateway that reports the message later adds it again. `nil`: there is no
  /// further message.
  ///
  /// No other transaction stores hearers meanwhile: on a server it would not show that another gateway has just heard a message, too.
  private func removeHearer(
    _ gateway: String, after: Int64
  ) throws(HubDatabaseError) -> (last: Int64, messages: Int)? {
    let its = "SELECT h.message FROM heard h WHERE h.gateway = ?1 AND h.message > ?2"
    let last = try database.number(
      "SELECT coalesce(max(m.message), 0) FROM (\(its) ORDER BY h.message LIMIT \(Purge.step)) m", gateway, after)
    guard last > after else { return nil }
    let own = """
      position IN (\(its) AND h.message <= ?3)
      AND NOT EXISTS (SELECT 1 FROM heard o WHERE o.message = messages.position AND o.gateway <> ?1)
      """
    let deleted = try database.transaction { () throws(HubDatabaseError) in
      try database.perform(database.stoppingMessages(Self.longestWait), begins: false, ends: false)
      let deleted = try database.run(
        "DELETE FROM messages WHERE \(own) AND position < (SELECT max(position) FROM messages)", gateway, after, last)
      let emptied = try database.run(
        """
        UPDATE messages SET body = '', channel = NULL, at = \(HubSchema.timeOfEmptied),
        identity = \(Self.identityOfEmptied) WHERE \(own)
        """, gateway, after, last)
      try database.run("DELETE FROM heard WHERE gateway = ?1 AND message > ?2 AND message <= ?3", gateway, after, last)
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
