// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// Nodes, channels and commands over all gateways.
extension HubStore {
  /// Rows of the index that are read at once. A node has one for each of its gateways.
  private static let rowsAtOnce = 500
  /// Channels of one gateway whose names are read, and of its channels without other gateways those in a full list; most channels in the list; most
  /// channels that are read.
  private static let channelsOfOne = 64
  private static let channelsShown = 1000
  private static let channelsLookedAt = 20_000
  /// Most gateways of one node, the latest hearer first; and the largest parsed record, in bytes.
  private static let maxHearers = 100
  private static let recordBytes = 8192

  private struct Hearing {
    let gateway: String
    let at: Int64
    let body: JSONValue
  }

  /// `{"nodes": [{"key", "name", "kind", "lat", "lon", "heard": [{"gateway", "at", "snr", "hops"}]}], "next"}`, by key.
  func nodes(after: String, limit: Int, words: SearchTerms?) throws(HubDatabaseError) -> [UInt8] {
    var (last, rows, isAtEnd, isFull, budget) = (after, 0, false, false, ReadBudget())
    var list = JSONWriter()
    try list.array { (json) throws(HubDatabaseError) in
      while !isAtEnd, !isFull, !budget.isSpent {
        let some = try nodeKeys(after: last)
        budget.count(some.rows)
        let keys = words == nil ? Array(some.keys.prefix(limit - rows)) : some.keys
        isAtEnd = some.isAtEnd && keys.count == some.keys.count
        let hearings = try hearings(of: keys)
        for key in keys {
          if let heard = hearings[key], Self.matches(heard, key, words) {
            let node = Self.node(key, heard)
            isFull = rows > 0 && json.bytes.count + node.count >= Self.pageBytes
            if isFull { break }
            json.raw(node)
            rows += 1
          }
          last = key
          isFull = rows == limit
          if isFull { break }
        }
      }
    }
    return JSONWriter.object(["nodes": RawJSON(list.bytes), "next": isFull || !isAtEnd ? last : nil])
  }

  /// The next nodes, all of whose rows are among the next `rowsAtOnce`; of a node with more rows than that, itself.
  private func nodeKeys(
    after: String
  ) throws(HubDatabaseError) -> (keys: [String], rows: Int, isAtEnd: Bool) {
    var (keys, rows) = ([String](), 0)
    let next = "SELECT key FROM contacts WHERE key > ?1 ORDER BY key LIMIT \(Self.rowsAtOnce)"
    try database.every(next, [after]) { row in
      rows += 1
      let key = row.text(0)
      if keys.last.map({ !$0.utf8.elementsEqual(key.utf8) }) ?? true { keys.append(key) }
    }
    let isAtEnd = rows < Self.rowsAtOnce
    if !isAtEnd, keys.count > 1 { keys.removeLast() }
    return (keys, rows, isAtEnd)
  }

  private func hearings(of keys: [String]) throws(HubDatabaseError) -> [String: [Hearing]] {
    var found: [String: [Hearing]] = [:]
    let body = "CASE WHEN \(bytes("c.body")) <= \(Self.recordBytes) THEN c.body ELSE '{}' END AS body"
    try database.read([
      HubCall(
        """
        SELECT key, gateway, at, body FROM (SELECT c.key, c.gateway, c.at, \(body),
        row_number() OVER (PARTITION BY c.key ORDER BY c.trusted DESC, c.at DESC, c.gateway) AS number
        FROM @rows JOIN contacts c ON c.key = v.key) r WHERE number <= \(Self.maxHearers) ORDER BY key, number
        """, ["key": keys]
      ) { row in
        // `try?`: stored values were valid JSON when they arrived.
        guard let body = try? JSONValue(parsing: row.text(3)) else { return }
        found[row.text(0), default: []].append(Hearing(gateway: row.text(1), at: row.integer(2), body: body))
      }
    ])
    return found
  }

  private static func matches(_ heard: [Hearing], _ key: String, _ words: SearchTerms?) -> Bool {
    guard let words else { return true }
    // Nearly all gateways give a node the same name. Names that are canonically equal are found by the same words.
    return words.match(Set(heard.compactMap { $0.body["name"]?.string }) + [key])
  }

  private static func node(_ key: String, _ heard: [Hearing]) -> [UInt8] {
    let newest = heard.first?.body ?? .null
    let position = heard.lazy.compactMap { FleetRow.position(in: $0.body) }.first
    return JSONWriter.object([
      "key": key, "name": HubBounds.cut(newest["name"]?.string, HubBounds.nameBytes) ?? "",
      "kind": HubBounds.cut(newest["type"]?.string, HubBounds.nameBytes) ?? "none", "lat": position?.lat,
      "lon": position?.lon,
      "heard": heard.map { hearing -> JSONObject in
        [
          "gateway": hearing.gateway, "at": Self.heardAt(hearing.body, hearing.at), "snr": hearing.body["snr"]?.number,
          "hops": hearing.body["hops"]?.count,
        ]
      },
    ])
  }

  /// The channels of all gateways: `{"channels": [{"channel", "name", "gateways", "newest_at"}], "more"}`, by the newest message. A full list has the
  /// channels that most gateways have; of those that only one gateway has, it has that gateway's newest.
  func channels() throws(HubDatabaseError) -> [UInt8] {
    var found: [String: FoundChannel] = [:]
    try database.every(
      """
      SELECT channel, count(*) AS number, min(gateway) FROM gateway_channels GROUP BY channel
      ORDER BY number DESC, channel LIMIT \(Self.channelsLookedAt)
      """
    ) { found[$0.text(0)] = FoundChannel(gateways: $0.integer(1), one: $0.text(2)) }
    // A shared channel has a bucket, with the time of its newest update.
    try database.read([
      HubCall(
        "SELECT v.channel, b.at FROM @rows JOIN buckets b ON b.gateway = '' AND b.name = 'channel/' || v.channel",
        ["channel": Array(found.keys)]
      ) { found[$0.text(0)]?.newest = $0.integer(1) }
    ])
    let shown = Self.shown(found)
    let isCut = shown.count < found.count
    found = shown
    // Each gateway has one vote: its last name event, else what it says as a hearer of the newest messages. One gateway alone names no channel that
    // most others have, too. A channel that is found too late is shown without its name.
    let told = try channelNames()
    let budget = ReadBudget()
    for (digest, channel) in found {
      var names = told[digest] ?? [:]
      defer { if names.count * 2 >= channel.gateways { found[digest]?.name = Self.agreed(names.values) } }
      guard names.count < channel.gateways, !budget.isLate else { continue }
      var heard: [String: String] = [:]
      try database.every(
        """
        SELECT h.gateway, h.body
        FROM (SELECT id FROM updates WHERE gateway = '' AND bucket = ?1 ORDER BY seq DESC LIMIT 16) u
        JOIN messages m ON m.identity = u.id JOIN heard h ON h.message = m.position
        ORDER BY h.message DESC LIMIT 400
        """, ["channel/\(digest)"]
      ) { row in
        // `try?`: as above.
        let name = (try? JSONValue(parsing: row.text(1)))?["channel_name"]?.string
        if heard[row.text(0)] == nil { heard[row.text(0)] = name }
      }
      names.merge(heard) { told, _ in told }
    }
    let sorted = found.sorted { ($0.value.newest ?? 0, $1.key) > ($1.value.newest ?? 0, $0.key) }
    return JSONWriter.object([
      "channels": sorted.map { found -> JSONObject in
        [
          "channel": found.key, "name": found.value.name, "gateways": found.value.gateways,
          "newest_at": found.value.newest,
        ]
      }, "more": isCut ? true : nil,
    ])
  }

  private struct FoundChannel {
    var name: String?
    var gateways: Int64
    /// One of those gateways.
    var one: String
    var newest: Int64?
  }

  /// Limits a full list: invented channels of one gateway do not displace those of others.
  private static func shown(_ all: [String: FoundChannel]) -> [String: FoundChannel] {
    guard all.count > channelsShown else { return all }
    var own: [String: Int] = [:]
    let best = all.sorted {
      ($0.value.gateways, $0.value.newest ?? 0, $1.key) > ($1.value.gateways, $1.value.newest ?? 0, $0.key)
    }.filter { channel in
      guard channel.value.gateways == 1 else { return true }
      own[channel.value.one, default: 0] += 1
      return own[channel.value.one, default: 0] <= channelsOfOne
    }
    return Dictionary(uniqueKeysWithValues: best.prefix(channelsShown).map { ($0.key, $0.value) })
  }

  private static func agreed(_ names: some Sequence<String>) -> String? {
    var agreed = AgreedName()
    for name in names { agreed.add(name) }
    return agreed.name
  }

  /// What gateways call their channels, as many as are found in time: by digest and gateway, the last name that each gave.
  private func channelNames() throws(HubDatabaseError) -> [String: [String: String]] {
    var names: [String: [String: (id: Int64, name: String)]] = [:]
    let join = joinEvents(
      "FROM events x WHERE x.gateway = g.id AND x.kind = 'channel' ORDER BY x.id DESC LIMIT \(Self.channelsOfOne)")
    let budget = ReadBudget()
    try database.each(
      "SELECT e.id, e.body, g.id FROM gateways g \(join) WHERE \(bytes("e.body")) <= 1024 LIMIT 100000", []
    ) { (row) throws(HubDatabaseError) in
      let (id, gateway) = (row.integer(0), row.text(2))
      // `try?`: stored values were valid JSON when they arrived.
      if let body = try? JSONValue(parsing: row.text(1)), let digest = body["channel"]?.string,
        let name = HubBounds.cut(body["name"]?.string, HubBounds.nameBytes), names[digest]?[gateway]?.id ?? -1 < id
      {
        names[digest, default: [:]][gateway] = (id, name)
      }
      return !budget.isLate
    }
    return names.mapValues { $0.mapValues(\.name) }
  }

  /// A command and its gateway.
  struct OwnedCommand: Sendable {
    var gateway: String
    var command: Command
  }

  /// Commands of all gateways, the newest first, before a time in milliseconds, a gateway and an id; as many as fit a page.
  func allCommands(
    before: (at: Int64, gateway: String, id: String)?, limit: Int
  ) throws(HubDatabaseError) -> (rows: [OwnedCommand], hasMore: Bool) {
    let filter = """
      FROM commands WHERE (created_at, gateway, id) < (?1, ?2, ?3) ORDER BY created_at DESC, gateway DESC, id DESC
      """
    let values: [any SQLBindable] = [before?.at ?? Int64.max, before?.gateway ?? "", before?.id ?? ""]
    return try page("\(Self.commandColumns), gateway", sizes: ["body", "answer"], filter, values, limit: limit) {
      OwnedCommand(gateway: $0.text(7), command: Self.command($0))
    }
  }

  /// All commands of a gateway since a time, the oldest first.
  func commands(of gateway: String, since: Int64) throws(HubDatabaseError) -> [Command] {
    let filter = "FROM commands WHERE gateway = ?1 AND (created_at, id) > (?2, ?3) ORDER BY created_at, id"
    var (found, isAtEnd): ([Command], Bool) = ([], false)
    var place: (at: Int64, id: String) = (since, "")
    while !isAtEnd {
      let (rows, hasMore) = try page(
        Self.commandColumns, sizes: ["body", "answer"], filter, [gateway, place.at, place.id],
        limit: Self.commandsAtOnce, read: Self.command)
      found += rows
      if let last = rows.last { place = (last.createdAt, last.id) }
      isAtEnd = !hasMore || rows.isEmpty
    }
    return found
  }

  private static let commandsAtOnce = 100
}

// MARK: Coverage

extension HubStore {
  private static let linksAtOnce = 100
  /// Gateways on the first page, also those that hear nothing.
  private static let gatewaysAtFirst = 1000

  /// Which gateway heard which node, by gateway and node: `{"gateways": […], "links": [{"gateway", "node", "name", "kind", "lat", "lon", "at", "snr",
  /// "hops"}], "next"}`, with the gateways of its links on each page. `since`: only nodes that were heard at this time or later, milliseconds since 1970.
  func coverage(
    after place: (gateway: String, node: String), since: Int64, limit: Int
  ) throws(HubDatabaseError) -> [UInt8] {
    let body = "CASE WHEN \(bytes("body")) <= \(Self.recordBytes) THEN body ELSE '{}' END"
    var (rows, last, isAtEnd, budget) = (0, place, false, ReadBudget())
    var hearers: [String] = []
    var list = JSONWriter()
    try list.array { (json) throws(HubDatabaseError) in
      while !isAtEnd, rows < limit, !budget.isSpent {
        var count = 0
        try database.each(
          """
          SELECT gateway, key, at, \(body) FROM contacts WHERE (gateway, key) > (?1, ?2)
          ORDER BY gateway, key LIMIT \(Self.linksAtOnce)
          """, [last.gateway, last.node]
        ) { (row) throws(HubDatabaseError) in
          count += 1
          last = (row.text(0), row.text(1))
          // `try?`: stored values were valid JSON when they arrived.
          guard let record = try? JSONValue(parsing: row.text(3)) else { return true }
          let at = Self.heardAt(record, row.integer(2))
          guard at >= since else { return true }
          Self.link(last, at, record).write(to: &json)
          if hearers.last != last.gateway { hearers.append(last.gateway) }
          rows += 1
          return rows < limit
        }
        budget.count(count)
        isAtEnd = count < Self.linksAtOnce && rows < limit
      }
    }
    var shown = place.gateway.isEmpty ? try fleet(limit: Self.gatewaysAtFirst) : []
    let known = Set(shown.map(\.gateway))
    hearers.removeAll { known.contains($0) }
    if !hearers.isEmpty { shown += try fleet(only: hearers) }
    let gateways = shown.map {
      ["gateway": $0.gateway, "name": $0.name, "lat": $0.position?.lat, "lon": $0.position?.lon] as JSONObject
    }
    return JSONWriter.object([
      "gateways": gateways, "links": RawJSON(list.bytes), "next": !isAtEnd ? "\(last.gateway)/\(last.node)" : nil,
    ])
  }

  /// When the node was heard: never later than the record's arrival, whatever the gateway's clock says.
  fileprivate static func heardAt(_ record: JSONValue, _ at: Int64) -> Int64 {
    min(record["last_heard"]?.count ?? at, at)
  }

  private static func link(_ place: (gateway: String, node: String), _ at: Int64, _ record: JSONValue) -> JSONObject {
    let position = FleetRow.position(in: record)
    return [
      "gateway": place.gateway, "node": place.node, "name": HubBounds.cut(record["name"]?.string, HubBounds.nameBytes),
      "kind": HubBounds.cut(record["type"]?.string, HubBounds.nameBytes), "lat": position?.lat, "lon": position?.lon,
      "at": at, "snr": record["snr"]?.number, "hops": record["hops"]?.count,
    ]
  }
}
