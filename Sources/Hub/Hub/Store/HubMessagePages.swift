// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// The query of a list: which rows, and from which end.
struct ListQuery: Sendable {
  /// Ascending, behind this row; `nil`: descending, from `before` or from the newest.
  var after: Int64?
  var before: Int64?
  var limit = 100
  /// Milliseconds since 1970, both inclusive.
  var since: Int64?
  var until: Int64?
  var words: SearchTerms?
  /// Of the sender's name.
  var from: SearchTerms?
  var channel: String?
  var gateway: String?
  var kind: String?

  var isNewestFirst: Bool { after == nil }
  fileprivate var order: String { isNewestFirst ? "DESC" : "ASC" }
  fileprivate var comparison: String { isNewestFirst ? "<" : ">" }
  /// The row before the first; the largest number of all: it begins at the newest.
  fileprivate var start: Int64 { after ?? before ?? .max }
  /// Whether a body has the words, its sender's name those of it, and an event the channel.
  fileprivate func isIn(_ body: String, ofEvent: Bool) -> Bool {
    guard words != nil || from != nil || ofEvent else { return true }
    // `try?`: stored values were valid JSON when they arrived.
    guard let body = try? JSONValue(parsing: body) else { return false }
    if ofEvent, let channel, body["channel"]?.string?.utf8.elementsEqual(channel.utf8) != true { return false }
    if let from, !from.match(sender: body) { return false }
    return words?.match(message: body) ?? true
  }
  fileprivate var isOfTime: Bool { since != nil || until != nil }
  private var isOfContent: Bool { words != nil || from != nil || channel != nil }
  fileprivate var isFiltered: Bool { isOfTime || isOfContent }
  /// Of messages: whether their times alone decide.
  fileprivate var isOfTimeAlone: Bool { isOfTime && !isOfContent && gateway == nil }
}

/// Pages of messages and events from either end, filtered. An answer reads a bounded number of rows: it has the rows it found, and `next` to
/// continue.
extension HubStore {
  /// Rows whose texts are in memory at once, and the largest body that is searched.
  private static let searchBatch = 64
  static let maxSearchedBytes = 16 * 1024
  /// A gateway's clock is assumed to be wrong by less than this.
  private static let clockError: Int64 = 86_400_000

  private struct Found {
    var rows: [Int64] = []
    /// Where the next page begins; `nil`: this was the last.
    var next: Int64?
  }

  /// Messages of all gateways: `{"messages": [{"position", "body", "heard"}], "next"}`.
  func messages(_ query: ListQuery) throws(HubDatabaseError) -> [UInt8] {
    let words = (query.words?.words ?? []) + (query.from?.words ?? [])
    let slots = SearchBlock.slots(words: words, channel: query.channel)
    let found = try slots.isEmpty ? findWithoutContent(query) : find(query, in: slots)
    let list = try joined(found.rows)
    return JSONWriter.object(["messages": list.map { RawJSON($0.json) }, "next": found.next])
  }

  private func findWithoutContent(_ query: ListQuery) throws(HubDatabaseError) -> Found {
    let heard = "(SELECT sum(\(bytes("h.body"))) FROM heard h WHERE h.message = m.position)"
    return try find(
      query, from: "messages", key: "position", scan: scan(query), came: "came",
      filter: "(CAST(?5 AS TEXT) IS NULL OR m.channel = ?5)", values: [query.channel, query.gateway],
      size: "\(bytes("b.body")) + coalesce(\(heard), 0)")
  }

  /// The messages with the query's words and of its channel, by their slots.
  private func find(_ query: ListQuery, in slots: [Int64]) throws(HubDatabaseError) -> Found {
    let budget = ReadBudget()
    var looked = Candidates()
    if let few = try positionsOfTime(query) {
      looked.positions = few
    } else {
      looked = try candidates(
        slots, from: query.start, isNewestFirst: query.isNewestFirst, most: ReadBudget.mostRows, budget)
      if let since = query.since, query.isNewestFirst, try haveCome(looked.positions, before: since - Self.clockError) {
        looked.next = nil
      }
    }
    let (rows, last, isFull) = try search(query, looked.positions, "messages", "position", budget)
    let isWhole = looked.next == nil && last == looked.positions.last
    return Found(rows: rows, next: isFull && !isWhole ? last : looked.next)
  }

  /// All positions behind the query's start of the messages of its time; `nil`: its time has too many, or it is of the reports of a gateway.
  private func positionsOfTime(_ query: ListQuery) throws(HubDatabaseError) -> [Int64]? {
    guard query.isOfTime, query.gateway == nil else { return nil }
    let settled = database.unsettledPosition.map { "AND position < \($0)" } ?? ""
    let (first, last) = ("CAST(?1 AS BIGINT)", "CAST(?2 AS BIGINT)")
    let period = HubSchema.periodOfMessage
    // Those on the other side of the start are counted: looking for the rest of them could be looking at all.
    let found = try database.rows(
      """
      SELECT position FROM messages WHERE \(period("at")) >= \(period(first)) AND \(period("at")) <= \(period(last))
      AND at >= \(first) AND at <= \(last) \(settled) LIMIT ?3
      """,
      [query.since ?? Int64(HubSchema.timeOfEmptied) + 1, query.until ?? Int64.max, ReadBudget.mostRows + 1]
    ) { $0.integer(0) }
    guard found.count <= ReadBudget.mostRows else { return nil }
    return query.isNewestFirst
      ? found.filter { $0 < query.start }.sorted(by: >) : found.filter { $0 > query.start }.sorted()
  }

  /// Whether the last of these messages came before this time, as far as that is known: no later row is newer.
  private func haveCome(_ positions: [Int64], before time: Int64) throws(HubDatabaseError) -> Bool {
    let rows = Array(positions.suffix(Self.searchBatch))
    var newest: Int64?
    try database.read([
      HubCall(
        "SELECT m.arrived FROM @rows JOIN messages m ON m.position = v.position", ["position": rows]
      ) { row in
        let arrived = row.integer(0)
        newest = max(newest ?? 0, arrived == 0 ? .max : arrived)
      }
    ])
    return newest.map { $0 < time } ?? false
  }

  /// The messages to look at, by the index that leaves out most of them: those of a gateway, with the times of its own reports; those of a time; all.
  private func scan(_ query: ListQuery) -> String {
    func settled(_ position: String) -> String { database.unsettledPosition.map { "AND \(position) < \($0)" } ?? "" }
    func came(_ message: String) -> String {
      "CASE WHEN \(message).arrived = 0 THEN \(message).at ELSE \(message).arrived END AS came"
    }
    if query.gateway != nil {
      // A report whose message another transaction deleted meanwhile counts as a row: fewer rows than asked for are the last ones.
      return """
        SELECT r.message AS position, r.at, x.channel, \(came("x")) FROM (SELECT h.message, h.at FROM heard h
        WHERE h.gateway = ?6 AND h.message \(query.comparison) ?1 \(settled("h.message"))
        ORDER BY h.message \(query.order) LIMIT ?2) r LEFT JOIN messages x ON x.position = r.message
        """
    }
    guard query.isOfTimeAlone else {
      return """
        SELECT position, at, channel, \(came("messages")) FROM messages
        WHERE position \(query.comparison) ?1 AND identity <> \(Self.identityOfEmptied) \(settled("position"))
        """
    }
    // Takes the rows from each period in turn: late reports have high positions and early times.
    let period = HubSchema.periodOfMessage
    let first = "coalesce(CAST(?3 AS BIGINT), \(HubSchema.timeOfEmptied + 1))"
    let last = "coalesce(CAST(?4 AS BIGINT), \(Int64.max))"
    let each = """
      FROM messages x WHERE \(period("x.at")) = p.period AND x.position \(query.comparison) ?1 \(settled("x.position"))
      AND x.at >= \(first) AND x.at <= \(last) ORDER BY x.position \(query.order) LIMIT ?2
      """
    return """
      WITH RECURSIVE p(period) AS (SELECT min(\(period("at"))) FROM messages WHERE \(period("at")) >= \(period(first))
      UNION ALL SELECT (SELECT min(\(period("n.at"))) FROM messages n WHERE \(period("n.at")) > p.period) FROM p
      WHERE p.period <= \(period(last)))
      SELECT e.position, e.at, e.channel, \(came("e"))
      FROM p \(joinRows("messages", "position", ["position", "at", "channel", "arrived"], each))
      WHERE p.period <= \(period(last))
      """
  }

  /// A gateway's events: `{"events" or "messages": [{"id", "epoch", "seq", "at", "trusted", "kind", "body"}], "next"}`.
  func events(of gateway: String, _ query: ListQuery) throws(HubDatabaseError) -> [UInt8] {
    let found = try find(
      query, from: "events", key: "id",
      scan: query.kind == nil
        ? eventsOfAllKinds(query)
        : "SELECT id, at FROM events WHERE gateway = ?5 AND kind = ?6 AND id \(query.comparison) ?1", filter: "TRUE",
      values: [gateway, query.kind], size: bytes("b.body"))
    var bodies: [Int64: JSONObject] = [:]
    try database.read([
      HubCall(
        "SELECT e.id, e.epoch, e.seq, e.at, e.trusted, e.kind, e.body FROM @rows JOIN events e ON e.id = v.id",
        ["id": found.rows]
      ) { row in
        bodies[row.integer(0)] = [
          "id": row.integer(0), "epoch": row.text(1), "seq": row.integer(2), "at": row.integer(3),
          "trusted": row.integer(4) != 0, "kind": row.text(5), "body": RawJSON(row.text(6)),
        ]
      }
    ])
    let list = query.kind == "message" ? "messages" : "events"
    return JSONWriter.object([list: found.rows.compactMap { bodies[$0] }, "next": found.next])
  }

  /// Takes the rows from each kind in turn, as the index orders a gateway's events by kind.
  private func eventsOfAllKinds(_ query: ListQuery) -> String {
    let each =
      "FROM events x WHERE x.gateway = ?5 AND x.kind = k.kind AND x.id \(query.comparison) ?1 ORDER BY x.id \(query.order) LIMIT ?2"
    return """
      WITH RECURSIVE k(kind) AS (SELECT min(kind) FROM events WHERE gateway = ?5 UNION ALL
      SELECT (SELECT min(n.kind) FROM events n WHERE n.gateway = ?5 AND n.kind > k.kind) FROM k WHERE k.kind IS NOT NULL)
      SELECT e.id, e.at FROM k \(joinEvents(each))
      """
  }

  /// SQL: joins the events `e` that a query of events `x` selects for each row of the table before it. `events`: that query, from FROM.
  func joinEvents(_ events: String) -> String { joinRows("events", "id", ["id", "at", "body"], events) }

  /// SQL: joins the rows `e` of a table that a query of its rows `x` selects for each row of the table before it. `rows`: that query, from FROM.
  private func joinRows(_ table: String, _ key: String, _ columns: [String], _ rows: String) -> String {
    database.supportsLateral
      ? "CROSS JOIN LATERAL (SELECT \(columns.map { "x.\($0)" }.joined(separator: ", ")) \(rows)) e"
      : "JOIN \(table) e ON e.\(key) IN (SELECT x.\(key) \(rows))"
  }

  /// The keys of a page's rows. `scan` selects the rows to look at, `filter` those that count; `?1` is the start, `?2` the number of rows to look
  /// at, `?3` and `?4` the times; `values` begin at `?5`. `came`: the column with a row's arrival.
  private func find(
    _ query: ListQuery, from table: String, key: String, scan rows: String, came: String = "at", filter: String,
    values: [any SQLBindable], size: String
  ) throws(HubDatabaseError) -> Found {
    let order = query.order
    let searchesBodies = query.words != nil || query.from != nil || (table == "events" && query.channel != nil)
    let isExact = table == "messages" && query.isOfTimeAlone
    let window = query.isFiltered && !isExact ? Int64(ReadBudget.mostRows) : Int64(query.limit)
    let all: [any SQLBindable] =
      [query.start, window, query.since, query.until] + values
    // Without bodies, which a database might write to a temporary file.
    let scan = "(\(rows) ORDER BY \(key) \(order) LIMIT ?2) m"
    // Each statement names each parameter: a server needs the type of all.
    let named = [("?3", "BIGINT"), ("?4", "BIGINT"), ("?5", "TEXT"), ("?6", "TEXT")].map { name, type in
      "coalesce(CAST(\(name) AS \(type)) = CAST(\(name) AS \(type)), TRUE)"
    }.joined(separator: " AND ")
    let wanted =
      "(CAST(?3 AS BIGINT) IS NULL OR m.at >= ?3) AND (CAST(?4 AS BIGINT) IS NULL OR m.at <= ?4) AND \(filter) AND \(named)"
    let scanned = try database.first(
      "SELECT \(query.isNewestFirst ? "min" : "max")(m.\(key)), count(*), max(m.\(came)) FROM \(scan) WHERE \(named)",
      all
    ) { (last: $0.integer(0), count: $0.integer(1), newest: $0.integer(2)) }
    guard let scanned, scanned.count > 0 else { return Found() }
    var found = Found(next: scanned.count < window ? nil : scanned.last)
    // Rows so much older than `since` end the list: no later row is newer.
    if query.isNewestFirst, let since = query.since, scanned.newest + Self.clockError < since { found.next = nil }
    var (candidates, bytes, last) = ([Int64](), Int64(0), query.start)
    var isFull = false
    let budget = ReadBudget()
    try database.each(
      """
      SELECT m.\(key), \(!searchesBodies ? size : "0") FROM \(scan) JOIN \(table) b ON b.\(key) = m.\(key)
      WHERE \(wanted) ORDER BY m.\(key) \(order) LIMIT ?\(all.count + 1)
      """, all + [searchesBodies ? window : Int64(query.limit)]
    ) { (row) throws(HubDatabaseError) in
      candidates.append(row.integer(0))
      guard !searchesBodies else { return true }
      bytes += min(max(row.integer(1), 0), Self.pageBytes) + 256
      guard found.rows.isEmpty || bytes <= Self.pageBytes else {
        isFull = true
        return false
      }
      found.rows.append(row.integer(0))
      last = row.integer(0)
      isFull = found.rows.count == query.limit
      return !isFull
    }
    if searchesBodies {
      (found.rows, last, isFull) = try search(query, candidates, table, key, budget)
    }
    if isFull, last != scanned.last || scanned.count == window { found.next = last }
    return found
  }

  /// The rows that have the words. `isFull`: the page is full, or the time is over; `last`: the last searched row.
  private func search(
    _ query: ListQuery, _ candidates: [Int64], _ table: String, _ key: String, _ budget: ReadBudget
  ) throws(HubDatabaseError) -> (rows: [Int64], last: Int64, isFull: Bool) {
    var (rows, bytes, last) = ([Int64](), Int64(0), Int64(0))
    let filter: (sql: String, values: [any SQLBindable]) =
      table == "messages" ? Self.filter(query) : (sql: "", values: [])
    var rest = candidates[...]
    while !rest.isEmpty {
      let piece = Array(rest.prefix(Self.searchBatch))
      rest = rest.dropFirst(piece.count)
      var sizes: [Int64: Int64] = [:]
      let size = self.bytes("m.body")
      // A radio carries no larger message.
      try database.read([
        HubCall(
          """
          SELECT m.\(key), CASE WHEN \(size) <= \(Self.maxSearchedBytes) THEN m.body ELSE '' END, \(size)
          FROM @rows JOIN \(table) m ON m.\(key) = v.key \(filter.sql)
          """, ["key": piece], values: filter.values
        ) { if query.isIn($0.text(1), ofEvent: table == "events") { sizes[$0.integer(0)] = $0.integer(2) } }
      ])
      let heard = try table == "messages" ? heardBytes(of: Array(sizes.keys)) : [:]
      for key in piece {
        if let size = sizes[key] {
          bytes += min(size + (heard[key] ?? 0), Self.pageBytes) + 256
          guard rows.isEmpty || bytes <= Self.pageBytes else { return (rows, last, true) }
          rows.append(key)
        }
        last = key
        if rows.count == query.limit { return (rows, last, true) }
      }
      if budget.isLate, !rest.isEmpty { return (rows, last, true) }
    }
    return (rows, last, false)
  }

  /// SQL: whether a message `m` is of the query's channel, gateway and time, with the values of its parameters.
  private static func filter(_ query: ListQuery) -> (sql: String, values: [any SQLBindable]) {
    func isOfTime(_ at: String) -> String {
      """
      (CAST(@2 AS BIGINT) IS NULL OR \(at) >= CAST(@2 AS BIGINT)) AND
      (CAST(@3 AS BIGINT) IS NULL OR \(at) <= CAST(@3 AS BIGINT))
      """
    }
    let channel = "WHERE (CAST(@1 AS TEXT) IS NULL OR m.channel = CAST(@1 AS TEXT)) AND"
    let values: [any SQLBindable] = [query.channel, query.since, query.until]
    guard let gateway = query.gateway else { return (sql: "\(channel) \(isOfTime("m.at"))", values: values) }
    let own = "h.message = m.position AND h.gateway = CAST(@4 AS TEXT) AND \(isOfTime("h.at"))"
    return (sql: "\(channel) EXISTS (SELECT 1 FROM heard h WHERE \(own))", values: values + [gateway])
  }

  struct JoinedMessage: Sendable {
    let position: Int64
    /// Its arrival at the hub, which distinguishes it from another message with its position; 0: unknown.
    let arrived: Int64
    let hearers: Int
    let json: [UInt8]
  }

  /// These messages, in this order, with the gateways that heard them.
  func joined(_ positions: [Int64]) throws(HubDatabaseError) -> [JoinedMessage] {
    guard !positions.isEmpty else { return [] }
    var bodies: [Int64: (text: String, at: Int64, arrived: Int64)] = [:]
    try database.read([
      HubCall(
        "SELECT m.position, m.body, m.at, m.arrived FROM @rows JOIN messages m ON m.position = v.position",
        ["position": positions]
      ) { bodies[$0.integer(0)] = ($0.text(1), $0.integer(2), $0.integer(3)) }
    ])
    let hearers = try hearers(of: positions)
    return positions.compactMap { position in
      // One without a text is of a gateway that was removed.
      guard let body = bodies[position], !body.text.isEmpty else { return nil }
      let heard = hearers[position] ?? []
      let json = JSONWriter.object([
        "position": position, "at": body.at, "arrived": body.arrived > 0 ? body.arrived : nil,
        "body": RawJSON(AgreedName.named(body.text, by: heard)), "heard": heard.map { RawJSON($0) },
      ])
      return JoinedMessage(position: position, arrived: body.arrived, hearers: heard.count, json: json)
    }
  }

  // MARK: New messages

  /// The newest readable message; 0: there is none.
  func newestPosition() throws(HubDatabaseError) -> Int64 {
    let settled = database.unsettledPosition.map { "WHERE position < \($0)" } ?? ""
    return try number("SELECT coalesce(max(position), 0) FROM messages \(settled)")
  }

  /// The arrival of the message with this position; `nil`: there is no message, or its arrival is unknown.
  func arrived(_ position: Int64) throws(HubDatabaseError) -> Int64? {
    let found = try database.number("SELECT arrived FROM messages WHERE position = ?1", position)
    return found > 0 ? found : nil
  }

  /// The readable positions behind this one, as many as fit a page.
  func positions(after: Int64, limit: Int) throws(HubDatabaseError) -> [Int64] {
    let settled = database.unsettledPosition.map { "AND position < \($0)" } ?? ""
    var (found, bytes) = ([Int64](), Int64(0))
    try database.each(
      "SELECT position, \(self.bytes("body")) FROM messages WHERE position > ?1 \(settled) ORDER BY position LIMIT ?2",
      [after, limit]
    ) { (row) throws(HubDatabaseError) in
      bytes += row.integer(1)
      guard found.isEmpty || bytes <= Self.pageBytes else { return false }
      found.append(row.integer(0))
      return true
    }
    return found
  }

  /// The messages that a reader has missed since a position.
  struct Missed: Sendable {
    let count: Int64
    /// The arrival of the message at that position.
    let arrived: Int64?
  }

  /// Counts the messages behind a position, up to `most`.
  func missed(after: Int64, upTo most: Int64) throws(HubDatabaseError) -> Missed {
    let count = try database.number(
      "SELECT count(*) FROM (SELECT position FROM messages WHERE position > ?1 ORDER BY position LIMIT ?2) m", after,
      most)
    return Missed(count: count, arrived: try arrived(after))
  }

  /// The number of hearers of each message from this one on.
  func hearerCounts(from position: Int64) throws(HubDatabaseError) -> [Int64: Int] {
    try database.dictionary(
      "SELECT message, count(*) FROM heard WHERE message >= ?1 GROUP BY message LIMIT 20000", [position]
    ) { ($0.integer(0), Int($0.integer(1))) }
  }
}
