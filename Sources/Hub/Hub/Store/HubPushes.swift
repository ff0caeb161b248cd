// SPDX-License-Identifier: MIT

import JSON

/// A browser that gets pushes, of a person who is signed in there.
struct PushSubscription: Sendable, Equatable {
  /// Made of the address, which is a secret of browser, hub and push service.
  var id: String
  var person: String
  /// The digest of the session's token.
  var session: String
  /// What the person calls it.
  var device: String
  /// The address at the push service.
  var endpoint: String
  /// The browser's public key, and the secret with which it is used (RFC 8291 § 2): Base64 for URLs.
  var key: String
  var auth: String
  var wantsAlerts: Bool
  /// Digests of channels, `*` for all messages.
  var channels: [String]
  /// What is not newer was pushed, or was not chosen.
  var message: Int64 = 0
  var alert: Int64 = 0
  var createdAt: Int64 = 0
  var pushedAt: Int64?
  var nextAt: Int64 = 0
  var failures: Int64 = 0
  var failingSince: Int64?
  var error: String?

  static let everyMessage = "*"

  static func id(of endpoint: String) -> String { String(HubStore.digest(endpoint).prefix(32)) }

  var json: JSONObject {
    [
      "id": id, "person": person, "device": device, "alerts": wantsAlerts, "channels": channels,
      "created_at": createdAt, "pushed_at": pushedAt, "failing_since": failingSince, "error": error,
    ]
  }
}

/// Subscriptions, and what there is to push.
extension HubStore {
  static let mostPushesOfOne: Int64 = 10
  static let mostPushes: Int64 = 1000
  private static let columns = """
    s.person, s.session, s.device, s.endpoint, s.key, s.auth, s.alerts, s.channels, s.message, s.alert, s.created_at,
    s.pushed_at, s.next_at, s.failures, s.failing_since, s.error, s.id
    """
  /// Open and unused for no longer than since `?1`, at `?2`.
  private static let signedIn = """
    JOIN web_sessions w ON w.digest = s.session WHERE w.used_at >= ?1 AND coalesce(w.ends_at, ?2) >= ?2
    """

  private static func subscription(_ row: any HubRow) -> PushSubscription {
    func number(_ column: Int) -> Int64? { row.textIfAny(column).flatMap { Int64($0) } }
    // `try?`: stored by `subscribe`.
    let channels = (try? JSONValue(parsing: row.text(7)))?.array?.compactMap(\.string) ?? []
    return PushSubscription(
      id: row.text(16), person: row.text(0), session: row.text(1), device: row.text(2), endpoint: row.text(3),
      key: row.text(4), auth: row.text(5), wantsAlerts: row.integer(6) == 1, channels: channels,
      message: row.integer(8), alert: row.integer(9), createdAt: row.integer(10), pushedAt: number(11),
      nextAt: row.integer(12), failures: row.integer(13), failingSince: number(14), error: row.textIfAny(15))
  }

  /// The key by which push services know the hubs of this database; `made`: it, if there is none yet.
  func pushKey(made: String) throws(HubDatabaseError) -> String {
    try transaction { () throws(HubDatabaseError) in
      try database.lock("push key")
      if let known = try storedPushKey() { return known }
      try database.insert(into: "push_key", ["place": 1, "key": made])
      return made
    }
  }

  func storedPushKey() throws(HubDatabaseError) -> String? {
    try database.first("SELECT key FROM push_key WHERE place = 1") { $0.text(0) }
  }

  /// Stores a subscription, in place of an earlier one of this browser. It begins behind the present message and alert. `false`: the person, or all
  /// together, have as many as there may be.
  func subscribe(_ wanted: PushSubscription, at now: Int64) throws(HubDatabaseError) -> Bool {
    let (message, alert) = (try newestPosition(), try newestAlert())
    return try transaction { () throws(HubDatabaseError) in
      try database.lock("pushes")
      try database.run("DELETE FROM push_subscriptions WHERE session NOT IN (SELECT digest FROM web_sessions)")
      try database.run("DELETE FROM push_subscriptions WHERE id = ?1", wanted.id)
      let own = try database.number("SELECT count(*) FROM push_subscriptions WHERE person = ?1", wanted.person)
      let all = try database.number("SELECT count(*) FROM push_subscriptions")
      guard own < Self.mostPushesOfOne, all < Self.mostPushes else { return false }
      try database.insert(
        into: "push_subscriptions",
        [
          "id": wanted.id, "person": wanted.person, "session": wanted.session, "device": wanted.device,
          "endpoint": wanted.endpoint, "key": wanted.key, "auth": wanted.auth, "alerts": wanted.wantsAlerts,
          "channels": JSONValue.array(wanted.channels.map { .string($0) }).text, "message": message, "alert": alert,
          "created_at": now,
        ])
      return true
    }
  }

  /// All subscriptions, or those of one person, in the order of their ids.
  func pushSubscriptions(of person: String?) throws(HubDatabaseError) -> [PushSubscription] {
    let filter = person == nil ? "" : "WHERE s.person = ?2"
    var values: [any SQLBindable] = [Self.mostPushes]
    if let person { values.append(person) }
    return try database.rows(
      "SELECT \(Self.columns) FROM push_subscriptions s \(filter) ORDER BY s.id LIMIT ?1", values,
      read: Self.subscription)
  }

  /// The subscriptions of people who are signed in where they subscribed.
  func livePushes(since: Int64, at now: Int64) throws(HubDatabaseError) -> [PushSubscription] {
    try database.rows(
      "SELECT \(Self.columns) FROM push_subscriptions s \(Self.signedIn) ORDER BY s.id LIMIT ?3",
      [since, now, Self.mostPushes], read: Self.subscription)
  }

  /// `person`: only if it is theirs. `false`: there is none.
  func endPush(_ id: String, of person: String? = nil) throws(HubDatabaseError) -> Bool {
    try transaction { () throws(HubDatabaseError) in
      try database.run(
        "DELETE FROM push_subscriptions WHERE id = ?1 AND person = coalesce(CAST(?2 AS TEXT), person)", id, person) > 0
    }
  }

  /// Takes a subscription for one attempt: of several hubs, the first gets it. Until `until`, none tries it again.
  func takePush(_ one: PushSubscription, until: Int64) throws(HubDatabaseError) -> Bool {
    try transaction { () throws(HubDatabaseError) in
      try database.run(
        "UPDATE push_subscriptions SET next_at = ?4 WHERE id = ?1 AND created_at = ?2 AND next_at = ?3", one.id,
        one.createdAt, one.nextAt, until) > 0
    }
  }

  /// Stores how far subscriptions are for which there was nothing.
  func skipPushes(_ pushes: [PushSubscription]) throws(HubDatabaseError) {
    guard !pushes.isEmpty else { return }
    try transaction { () throws(HubDatabaseError) -> Void in
      for one in pushes {
        try database.run(
          """
          UPDATE push_subscriptions SET message = ?4, alert = ?5 WHERE id = ?1 AND created_at = ?2 AND next_at = ?3
          """, one.id, one.createdAt, one.nextAt, one.message, one.alert)
      }
    }
  }

  /// Stores a subscription after an attempt.
  func keepPush(_ one: PushSubscription) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      try database.run(
        """
        UPDATE push_subscriptions SET message = ?3, alert = ?4, pushed_at = ?5, next_at = ?6, failures = ?7,
        failing_since = ?8, error = ?9 WHERE id = ?1 AND created_at = ?2
        """, one.id, one.createdAt, one.message, one.alert, one.pushedAt, one.nextAt, one.failures, one.failingSince,
        one.error)
    }
  }

  // MARK: What there is to push

  func newestAlert() throws(HubDatabaseError) -> Int64 { try number("SELECT coalesce(max(id), 0) FROM alerts") }

  /// How far one look from `after` gets, `through` at the most: a look reads so many messages, and the next goes on there.
  func pushReach(after: Int64, through: Int64, most: Int) throws(HubDatabaseError) -> Int64 {
    guard after < through else { return through }
    let end = try database.first(
      "SELECT position FROM messages WHERE position > ?1 ORDER BY position LIMIT 1 OFFSET ?2", after, most - 1
    ) { $0.integer(0) }
    return min(end ?? through, through)
  }

  /// SQL: whether a message is news: a report says so, or the sender's time, which is in the identity, and which no gateway can set: it would be another
  /// message. `first`: of the parameters, see `newsValues`.
  private static func isNews(_ message: String, _ mark: String = "?", first: Int) -> String {
    func text(_ number: Int) -> String { "CAST(\(mark)\(first + number) AS TEXT)" }
    return """
      (\(message).at > CAST(\(mark)\(first) AS BIGINT) OR \(message).identity NOT LIKE '%/%'
      AND \(message).identity > \(text(1)) AND \(message).identity < \(text(2)))
      """
  }

  /// Later than `since`, and for senders' clocks that are ahead not much later than now. Milliseconds since 1970.
  private static func newsValues(since: Int64, now: Int64) -> [any SQLBindable] {
    func digits(_ time: Int64) -> String {
      let seconds = UInt32(clamping: time / 1000)
      return [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: seconds >> $0) }.hex
    }
    return [since, digits(since), digits(now.addingReportingOverflow(600_000).overflow ? now : now + 600_000)]
  }

  /// The messages of these channels behind `after` up to `through`, and `late` ones, that are news: later than `since`. `nil`: there are none.
  func pushedMessages(
    after: Int64, through: Int64, late: [Int64] = [], since: Int64, now: Int64, channels: [String]
  ) throws(HubDatabaseError) -> PushContent? {
    guard after < through || !late.isEmpty, !channels.isEmpty else { return nil }
    let also = late.isEmpty ? "" : "OR m.position IN (\(late.map { String($0) }.joined(separator: ", ")))"
    // One without a text is of a gateway that was removed.
    var filter = """
      (m.position > ?1 AND m.position <= ?2 \(also)) AND \(Self.isNews("m", first: 3))
      AND \(database.bytes("m.body")) BETWEEN 1 AND \(Self.mostPushedBytes)
      """
    var values: [any SQLBindable] = [after, max(after, through)] + Self.newsValues(since: since, now: now)
    if !channels.contains(PushSubscription.everyMessage) {
      filter += " AND m.channel IN (\(channels.indices.map { "?\($0 + 6)" }.joined(separator: ", ")))"
      for channel in channels { values.append(channel) }
    }
    let found = try database.first(
      "SELECT count(*), coalesce(max(m.position), 0) FROM messages m WHERE \(filter)", values
    ) { (count: $0.integer(0), newest: $0.integer(1)) }
    guard let found, found.count > 0 else { return nil }
    let newest = try joined([found.newest]).first
    return newest.map { PushContent(message: $0, count: Int(found.count)) }
  }

  /// Of the last messages behind `after` up to `through`, those that are no news.
  func oldNews(after: Int64, through: Int64, since: Int64, now: Int64) throws(HubDatabaseError) -> [Int64] {
    try database.rows(
      """
      SELECT m.position FROM (SELECT position, at, identity FROM messages WHERE position > ?1 AND position <= ?2
      ORDER BY position DESC LIMIT \(PushSender.mostMessages)) m WHERE NOT \(Self.isNews("m", first: 3))
      ORDER BY m.position DESC LIMIT \(OldNews.mostOld)
      """, [after, through] + Self.newsValues(since: since, now: now)
    ) { $0.integer(0) }
  }

  /// Of these messages, those that are news by now.
  func news(among positions: [Int64], since: Int64, now: Int64) throws(HubDatabaseError) -> [Int64] {
    guard !positions.isEmpty else { return [] }
    var found: [Int64] = []
    try database.read([
      HubCall(
        "SELECT m.position FROM @rows JOIN messages m ON m.position = v.position WHERE \(Self.isNews("m", "@", first: 1))",
        ["position": positions], values: Self.newsValues(since: since, now: now)
      ) { found.append($0.integer(0)) }
    ])
    return found
  }

  /// A radio carries no larger message.
  private static let mostPushedBytes = 8192

  /// Open alerts that nobody has acknowledged, with numbers behind `after` up to `through`. `nil`: there are none.
  func pushedAlerts(after: Int64, through: Int64) throws(HubDatabaseError) -> PushContent? {
    guard after < through else { return nil }
    let found = try database.first(
      """
      SELECT count(*), coalesce(max(id), 0) FROM alerts
      WHERE id > ?1 AND id <= ?2 AND ended_at IS NULL AND acknowledged_at IS NULL
      """, after, through
    ) { (count: $0.integer(0), newest: $0.integer(1)) }
    guard let found, found.count > 0, let newest = try alert(found.newest) else { return nil }
    return PushContent(alert: newest, count: Int(found.count))
  }
}
