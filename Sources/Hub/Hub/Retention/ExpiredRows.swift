// SPDX-License-Identifier: MIT

import SQLite

/// Decides which rows have expired, from rows in the order of arrival: pure.
struct ExpiredRows: Equatable {
  struct Row: Equatable {
    var id: Int64
    /// Milliseconds since 1970; `nil`: the row has no usable date.
    var at: Int64?
  }

  var ids: [Int64] = []
  /// Whether all later rows are younger, or there are none.
  var isLast = false
  /// The dates of the old rows that have one.
  var dates: ClosedRange<Int64>?

  /// 1 January 2020: a clock before this was never set. Source: none; no MeshCore radio is older.
  static let earliest: Int64 = 1_577_836_800_000
  /// A clock that is ahead by more than this is wrong: a day, in milliseconds.
  private static let ahead: Int64 = 86_400_000

  /// The date of a row, if it is plausible. `latest`: the latest possible time.
  static func date(_ at: Int64, isTrusted: Bool, latest: Int64) -> Int64? {
    isTrusted && at >= earliest && at <= latest + ahead ? at : nil
  }

  /// `limit`: the limit of the query for `rows`; `next`: the first date after them.
  init(_ rows: [Row], before cutoff: Int64, limit: Int, next: () throws(HubDatabaseError) -> Int64?)
    throws(HubDatabaseError)
  {
    var old = 0
    isLast = rows.count < limit
    for (index, row) in rows.enumerated() {
      guard let at = row.at else { continue }
      guard at < cutoff else {
        isLast = true
        break
      }
      old = index + 1
    }
    if !isLast, old == 0 {
      // No row has a date: the next date decides.
      if let at = try next(), at < cutoff { old = rows.count } else { isLast = true }
    }
    ids = rows.prefix(old).map(\.id)
    for at in rows.prefix(old).compactMap(\.at) { dates = at.within(dates) }
  }
}

extension Int64 {
  /// The smallest range that also contains this number.
  func within(_ range: ClosedRange<Int64>?) -> ClosedRange<Int64> {
    range.map { Swift.min($0.lowerBound, self)...Swift.max($0.upperBound, self) } ?? self...self
  }
}

/// The queries and deletions of a purge, each of them short.
extension HubStore {
  func gateway(after id: String, only: String?) throws(HubDatabaseError) -> String? {
    try database.first("SELECT min(id) FROM gateways WHERE id > ?1 AND (CAST(?2 AS TEXT) IS NULL OR id = ?2)", id, only)
    { $0.textIfAny(0) } ?? nil
  }

  /// The next kind with events: the index makes it fast, however many events there are.
  func kind(of gateway: String, after kind: String) throws(HubDatabaseError) -> String? {
    try database.first("SELECT min(kind) FROM events WHERE gateway = ?1 AND kind > ?2", gateway, kind) {
      $0.textIfAny(0)
    } ?? nil
  }

  func oldEvents(
    of gateway: String, _ kind: String, after: Int64, before cutoff: Int64, latest: Int64, limit: Int
  ) throws(HubDatabaseError) -> ExpiredRows {
    let source = "SELECT id, at, trusted FROM events WHERE gateway = ?1 AND kind = ?2 AND id > ?3"
    let rows = try database.rows("\(source) ORDER BY id LIMIT ?4", [gateway, kind, after, limit]) { row in
      let date = ExpiredRows.date(row.integer(1), isTrusted: row.integer(2) != 0, latest: latest)
      return ExpiredRows.Row(id: row.integer(0), at: date)
    }
    return try ExpiredRows(rows, before: cutoff, limit: limit) { () throws(HubDatabaseError) in
      try oldestEvent(of: gateway, kind, after: rows.last?.id ?? after, latest: latest)
    }
  }

  /// The first date among some of the rows.
  func oldestEvent(
    of gateway: String, _ kind: String, after: Int64, latest: Int64
  ) throws(HubDatabaseError) -> Int64? {
    var found: Int64?
    try database.each(
      """
      SELECT at FROM events WHERE gateway = ?1 AND kind = ?2 AND id > ?3 AND trusted = 1 ORDER BY id LIMIT 100
      """, [gateway, kind, after]
    ) { (row) throws(HubDatabaseError) in
      found = ExpiredRows.date(row.integer(0), isTrusted: true, latest: latest)
      return found == nil
    }
    return found
  }

  /// The number of events of a kind, for a purge's share.
  func eventRows(of gateway: String?, _ kind: String) throws(HubDatabaseError) -> Int {
    Int(
      try database.number(
        "SELECT count(*) FROM events WHERE (CAST(?1 AS TEXT) IS NULL OR gateway = ?1) AND kind = ?2", gateway, kind))
  }

  /// The misspelt kinds: no gateway of this version sends them, and no stored event has them.
  public func unknown(_ kinds: [String]) throws(HubDatabaseError) -> [String] {
    var unknown: [String] = []
    for kind in kinds where !KnownKinds.all.contains(kind) {
      // The index orders kinds by gateway.
      let isThere = try database.number(
        "SELECT 1 FROM gateways g WHERE EXISTS (SELECT 1 FROM events e WHERE e.gateway = g.id AND e.kind = ?1) LIMIT 1",
        kind)
      if isThere == 0 { unknown.append(kind) }
    }
    return unknown
  }

  func joinedRows() throws(HubDatabaseError) -> Int { Int(try number("SELECT count(*) FROM messages")) }

  /// The newest message stays: on SQLite the next message's position follows from it.
  func oldMessages(after: Int64, before cutoff: Int64, latest: Int64, limit: Int) throws(HubDatabaseError)
    -> ExpiredRows
  {
    let source = """
      SELECT position, at FROM messages WHERE position > ?1 AND position < (SELECT max(position) FROM messages)
      ORDER BY position LIMIT ?2
      """
    func rows(_ after: Int64, _ limit: Int) throws(HubDatabaseError) -> [ExpiredRows.Row] {
      try database.rows(source, [after, limit]) { row in
        let date = ExpiredRows.date(row.integer(1), isTrusted: true, latest: latest)
        return ExpiredRows.Row(id: row.integer(0), at: date)
      }
    }
    let found = try rows(after, limit)
    return try ExpiredRows(found, before: cutoff, limit: limit) { () throws(HubDatabaseError) in
      try rows(found.last?.id ?? after, limit).lazy.compactMap(\.at).first
    }
  }

  func delete(_ table: PurgedTable, _ ids: [Int64]) throws(HubDatabaseError) {
    guard !ids.isEmpty else { return }
    let rows: KeyValuePairs<String, any HubColumn> = ["id": ids]
    let calls =
      switch table {
      case .messages:
        // No batch adds a hearer meanwhile: it would not see that the message is going, and the report would stay alone.
        database.stoppingMessages(Self.longestWait) + [
          HubCall("DELETE FROM messages WHERE position IN (SELECT v.id FROM @rows)", rows),
          HubCall("DELETE FROM heard WHERE message IN (SELECT v.id FROM @rows)", rows),
        ]
      case .reports:
        [
          HubCall(
            """
            DELETE FROM heard WHERE message IN (SELECT v.id FROM @rows)
            AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.position = heard.message)
            """, rows)
        ]
      default: [HubCall("DELETE FROM events WHERE id IN (SELECT v.id FROM @rows)", rows)]
      }
    try database.write(calls)
  }

  /// Milliseconds that a step waits for the batches under way, since further batches wait behind it; and how often a step is tried.
  static let (longestWait, mostAttempts) = (2000, 10)

  /// Of the reports behind a message, those of the next messages that are gone, the number of these reports, and where the next step begins; `nil`:
  /// there is nothing more. Purges of earlier versions left them on a server, when a batch added a report meanwhile.
  func lonelyReports(
    after: Int64, limit: Int
  ) throws(HubDatabaseError) -> (messages: [Int64], reports: Int, next: Int64?) {
    var (gone, last, count) = ([Int64](), after, 0)
    try database.every(
      """
      SELECT h.message, CASE WHEN EXISTS (SELECT 1 FROM messages m WHERE m.position = h.message) THEN 0 ELSE 1 END
      FROM (SELECT DISTINCT message FROM heard WHERE message > ?1 ORDER BY message LIMIT ?2) h ORDER BY h.message
      """, [after, limit]
    ) { row in
      (last, count) = (row.integer(0), count + 1)
      if row.integer(1) == 1 { gone.append(last) }
    }
    var reports = 0
    if !gone.isEmpty {
      try database.read([
        HubCall("SELECT count(*) FROM @rows JOIN heard h ON h.message = v.id", ["id": gone]) {
          reports += Int($0.integer(0))
        }
      ])
    }
    return (gone, reports, count == limit ? last : nil)
  }

  /// A page of keys, and the begin of the next page. A contact without a known time stays.
  func oldContacts(
    of gateway: String, after key: String, before cutoff: Int64, limit: Int
  ) throws(HubDatabaseError) -> (keys: [String], next: String?) {
    var (keys, count, last) = ([String](), 0, key)
    try database.every(
      "SELECT key, at FROM contacts WHERE gateway = ?1 AND key > ?2 ORDER BY key LIMIT ?3", [gateway, key, limit]
    ) { row in
      (count, last) = (count + 1, row.text(0))
      if let at = ExpiredRows.date(row.integer(1), isTrusted: true, latest: cutoff), at < cutoff { keys.append(last) }
    }
    return (keys, count == limit ? last : nil)
  }

  /// Deletes contacts, except those that have changed meanwhile.
  func deleteContacts(of gateway: String, _ keys: [String], before cutoff: Int64) throws(HubDatabaseError) {
    guard !keys.isEmpty else { return }
    try database.write([
      HubCall(
        "DELETE FROM contacts WHERE gateway = @1 AND key IN (SELECT v.key FROM @rows) AND at < CAST(@2 AS BIGINT)",
        ["key": keys], values: [gateway, cutoff])
    ])
  }

  /// Deletes or counts old commands in one step: a gateway has at most some thousand.
  func oldCommands(of gateway: String, before cutoff: Int64, deletes: Bool) throws(HubDatabaseError) -> Int {
    let filter = "FROM commands WHERE gateway = ?1 AND state <> 'queued' AND ended_at < ?2"
    guard deletes else {
      return Int(try database.number("SELECT count(*) \(filter)", gateway, cutoff))
    }
    return try database.transaction { () throws(HubDatabaseError) in
      try database.run("DELETE \(filter)", gateway, cutoff)
    }
  }
}
