// SPDX-License-Identifier: MIT

import JSON
import SQLite
import UntrustedText

/// Buckets: numbered lists of updates that gateways catch up on. Source: docs/hub-protocol.md.
extension HubStore {
  /// Updates that a shared bucket keeps. A gateway further behind gets the number of missing updates, by sender.
  static let maxShared: Int64 = 10_000
  /// Updates that a gateway's own list of messages of named hearers keeps. A gateway further behind would not forward the older ones.
  static let mostHeardForOne: Int64 = 1000
  static let heardBucket = "heard"
  /// Gateways whose lists go in one turn: batches wait meanwhile.
  private static let forgottenAtOnce = 100
  /// Approximate size of a page's updates.
  private static let bucketPageBytes: Int64 = 256 * 1024

  public struct BucketState: Sendable, Equatable {
    public var bucket: String
    public var seq: Int64
    /// The time of its newest update, in milliseconds since 1970. It increases with seq.
    public var at: Int64
  }

  /// A gateway's position in a bucket.
  public struct Position: Sendable, Equatable {
    public var after: Int64
    /// The time of the update `after`. If the hub's update of that number has another time, the hub has an older copy of its database.
    public var at: Int64?
    /// The gateway has all updates before this time.
    public var since: Int64?
  }

  /// The gateway whose list it is; empty for channels, which all gateways share.
  static func scope(_ bucket: String, _ gateway: String) -> String { isShared(bucket) ? "" : gateway }
  static func isShared(_ bucket: String) -> Bool { bucket.begins(with: "channel/") }

  static func isBucket(_ name: String) -> Bool {
    if ["commands", "documents", heardBucket].contains(name) { return true }
    let digest = name.utf8.dropFirst("channel/".utf8.count)
    return name.utf8.starts(with: "channel/".utf8) && digest.count == 16
      && digest.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0 | 0x20) }
  }

  /// Within a transaction: adds an update, which replaces older ones of the same id.
  @discardableResult
  func push(
    _ bucket: String, of gateway: String, id: String, body: String, now: Int64
  ) throws(HubDatabaseError) -> Int64 {
    let scope = Self.scope(bucket, gateway)
    guard let (seq, at) = try next(bucket, scope, now) else { return 0 }
    // A message has only one update.
    if !scope.isEmpty { try supersede(bucket, of: gateway, id: id) }
    try database.insert(
      into: "updates", ["gateway": scope, "bucket": bucket, "seq": seq, "id": id, "at": at, "body": body])
    if seq % 256 == 0 { try trim(bucket, scope, upTo: seq - Self.maxShared) }
    announce(HubChange(gateway: scope, bucket: bucket, seq: seq))
    return seq
  }

  /// The next number of a bucket, with a time later than the previous one.
  func next(_ bucket: String, _ scope: String, _ now: Int64) throws(HubDatabaseError) -> (seq: Int64, at: Int64)? {
    try database.first(
      """
      INSERT INTO buckets(gateway, name, seq, first, at) VALUES (?1, ?2, 1, 1, ?3)
      ON CONFLICT(gateway, name) DO UPDATE SET seq = buckets.seq + 1,
      at = CASE WHEN buckets.at >= excluded.at THEN buckets.at + 1 ELSE excluded.at END RETURNING seq, at
      """, scope, bucket, now
    ) { ($0.integer(0), $0.integer(1)) }
  }

  func supersede(_ bucket: String, of gateway: String, id: String) throws(HubDatabaseError) {
    try database.run(
      """
      UPDATE updates SET body = '' WHERE gateway = ?1 AND gateway <> '' AND bucket = ?2 AND id = ?3 AND body <> ''
      """, Self.scope(bucket, gateway), bucket, id)
  }

  /// Deletes the oldest updates of a shared bucket; of a gateway's own bucket only replaced ones.
  private func trim(_ bucket: String, _ scope: String, upTo seq: Int64) throws(HubDatabaseError) {
    guard seq > 0 else { return }
    try database.run(
      "DELETE FROM updates WHERE gateway = ?1 AND bucket = ?2 AND seq <= ?3 AND (?1 = '' OR body = '')", scope, bucket,
      seq)
    if scope.isEmpty {
      try database.run("UPDATE buckets SET first = ?3 WHERE gateway = ?1 AND name = ?2", scope, bucket, seq + 1)
    }
  }

  // MARK: Queries of gateways

  /// A gateway's query for the states of these buckets. It leaves out invalid names, and names after the first 64.
  struct BucketQuery: Sendable {
    let places: [BucketKey]
    let gateway: String

    init(_ names: [String], of gateway: String) {
      places = names.prefix(64).filter(HubStore.isBucket).map { BucketKey($0, of: gateway) }
      self.gateway = gateway
    }
  }

  /// The states of a gateway's buckets, and the named hearers that the hub knows.
  struct BucketQueryResult: Sendable {
    var states: [BucketState]
    var hearers: Set<String>
  }

  /// The hearers whose messages a gateway takes; empty: it takes all messages.
  struct WantedHearers: Sendable {
    let gateway: String
    let hearers: [String]
  }

  func setWantedHearers(_ changes: [WantedHearers]) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) in
      // In one order, against deadlocks between hubs.
      for change in changes.sorted(by: { $0.gateway < $1.gateway }) {
        try database.lock(change.gateway)
        try database.run("DELETE FROM wanted_hearers WHERE gateway = ?1", change.gateway)
        for hearer in change.hearers {
          try database.insert(into: "wanted_hearers", ["hearer": hearer, "gateway": change.gateway])
        }
      }
    }
  }

  /// Deletes the named hearers and the lists of some gateways without a token and without a contact since then: nobody reads these lists. A gateway
  /// that returns names its hearers again.
  func forgetHearers(
    of holders: (own: Set<String>, tokens: Set<String>), unseenSince: Int64
  ) throws(HubDatabaseError) -> [String] {
    let asking = try database.rows(
      """
      SELECT DISTINCT w.gateway FROM wanted_hearers w LEFT JOIN gateways g ON g.id = w.gateway
      WHERE coalesce(g.last_seen, 0) < ?1 ORDER BY w.gateway
      """, [unseenSince]
    ) { $0.text(0) }.filter { !holders.own.contains($0) }
    guard !asking.isEmpty else { return [] }
    let bound = Set(try tokenBindings().filter { holders.tokens.contains($0.token) }.map(\.gateway))
    let gone = Array(asking.filter { !bound.contains($0) }.prefix(Self.forgottenAtOnce))
    for gateway in gone {
      try transaction { () throws(HubDatabaseError) in
        try database.lock(gateway)
        try database.run("DELETE FROM wanted_hearers WHERE gateway = ?1", gateway)
        try database.run("DELETE FROM updates WHERE gateway = ?1 AND bucket = ?2", gateway, Self.heardBucket)
        try database.run("DELETE FROM lost_updates WHERE gateway = ?1 AND bucket = ?2", gateway, Self.heardBucket)
        try database.run(
          "UPDATE buckets SET first = seq + 1 WHERE gateway = ?1 AND name = ?2", gateway, Self.heardBucket)
      }
    }
    return gone
  }

  /// The states of many gateways' buckets in one query: after a restart the whole fleet asks.
  func states(of questions: [BucketQuery]) throws(HubDatabaseError) -> [BucketQueryResult] {
    var found: [BucketKey: BucketState] = [:]
    var hearers: [String: Set<String>] = [:]
    let places = Array(Set(questions.flatMap(\.places)))
    var calls = [
      HubCall(
        "SELECT w.gateway, w.hearer FROM @rows JOIN wanted_hearers w ON w.gateway = v.gateway",
        ["gateway": Array(Set(questions.map(\.gateway)))]
      ) { hearers[$0.text(0), default: []].insert($0.text(1)) }
    ]
    if !places.isEmpty {
      let call = HubCall(
        "SELECT b.gateway, b.name, b.seq, b.at FROM @rows JOIN buckets b ON b.gateway = v.gateway AND b.name = v.name",
        ["gateway": places.map(\.scope), "name": places.map(\.name)]
      ) {
        let place = BucketKey(scope: $0.text(0), name: $0.text(1))
        found[place] = BucketState(bucket: place.name, seq: $0.integer(2), at: $0.integer(3))
      }
      calls.append(call)
    }
    try database.read(calls)
    return questions.map { question in
      let states = question.places.map { found[$0] ?? BucketState(bucket: $0.name, seq: 0, at: 0) }
      return BucketQueryResult(states: states, hearers: hearers[question.gateway] ?? [])
    }
  }

  /// The place of a list: its gateway, or an empty text for a shared list, and its name.
  struct BucketKey: Hashable, Sendable {
    let scope: String
    let name: String

    init(_ name: String, of gateway: String) { self.init(scope: HubStore.scope(name, gateway), name: name) }
    init(scope: String, name: String) { (self.scope, self.name) = (scope, name) }

    var values: [any SQLBindable] { [scope, name] }

    /// Names are compared byte by byte.
    static func == (left: Self, right: Self) -> Bool {
      left.name.utf8.elementsEqual(right.name.utf8) && left.scope.utf8.elementsEqual(right.scope.utf8)
    }

    func hash(into hasher: inout Hasher) {
      for byte in scope.utf8 { hasher.combine(byte) }
      for byte in name.utf8 { hasher.combine(byte) }
    }
  }

  /// The states of these buckets, in one query; empty buckets are left out.
  func bucketChanges(of places: [BucketKey]) throws(HubDatabaseError) -> [HubChange] {
    var found: [HubChange] = []
    let call = HubCall(
      """
      SELECT b.gateway, b.name, b.seq FROM @rows JOIN buckets b ON b.gateway = v.gateway AND b.name = v.name
      WHERE b.seq > 0
      """, ["gateway": places.map(\.scope), "name": places.map(\.name)]
    ) { found.append(HubChange(gateway: $0.text(0), bucket: $0.text(1), seq: $0.integer(2))) }
    try database.read([call])
    return found
  }

  /// `{"bucket", "first", "last", "last_at", "more", "now", "updates": [{"seq", "at", "id", "age_ms", "body"}]}`, or, if the gateway has other updates,
  /// `{"bucket", "diverged": true, "resume", "resume_at"}`. `most`: about how many messages all pages up to the end may have, shared among their
  /// gateways; `left_out` in a page reports those that exceed it, and those that the list has lost. `"joined": false`: the gateway has not reported
  /// that channel, and gets no messages of it.
  public func updates(
    _ bucket: String, of gateway: String, from position: Position, until: Int64?, limit: Int, most: Int64? = nil,
    clocks: ClockReading = .now
  ) throws(HubDatabaseError) -> [UInt8] {
    let scope = Self.scope(bucket, gateway)
    let list = BucketKey(scope: scope, name: bucket)
    let place = list.values
    let isOfMessages = Self.isOfMessages(bucket)
    let share =
      try isOfMessages
      ? most.flatMap { (most) throws(HubDatabaseError) in
        try self.share(of: most, list, after: position.after, until: until ?? .max, of: gateway)
      } : nil
    // Leaves out messages that the gateway itself received, and messages of channels that it does not know.
    let filter = """
      FROM updates u
      WHERE gateway = @1 AND bucket = @2 AND seq > @3 AND seq <= @4 AND body <> '' AND (@1 <> '' OR NOT EXISTS (
      SELECT 1 FROM heard h JOIN messages m ON m.position = h.message WHERE m.identity = u.id AND h.gateway = @5)
      AND EXISTS (SELECT 1 FROM gateway_channels c WHERE c.gateway = @5 AND c.channel = substr(@2, 9)))
      \(share == nil ? "" : Self.withinShare) ORDER BY seq LIMIT @6
      """
    func rows(until: Int64, limit: Int) -> [any SQLBindable] {
      place + [position.after, until, gateway, limit]
        + (share.map { [$0] } ?? [])
    }
    // Two queries in any case: each is a round trip to the server.
    var (seq, first) = (Int64(0), Int64(1))
    var known: Int64?
    var isJoined = !Self.isShared(bucket)
    // Whether the gateway has reported the channel. A new or a restored hub may not know that.
    let findingChannel = HubCall(
      "SELECT 1 FROM gateway_channels WHERE gateway = @1 AND channel = substr(@2, 9)", values: [gateway, bucket]
    ) { _ in isJoined = true }
    var fit = PageFit(most: Self.bucketPageBytes)
    var (lost, marks) = ([String](), [Mark]())
    let isOfCommands = bucket.utf8.elementsEqual("commands".utf8)
    try database.read(
      [
        HubCall("SELECT seq, first FROM buckets WHERE gateway = @1 AND name = @2", values: place) {
          (seq, first) = ($0.integer(0), $0.integer(1))
        },
        HubCall(Self.dateOfUpdate, values: place + [position.after]) { known = $0.integer(0) },
        HubCall("SELECT seq, \(bytes("body")) \(filter)", values: rows(until: until ?? .max, limit: limit)) {
          // A newer update than the bucket's number is on the next page.
          if $0.integer(0) <= seq { fit.add($0.integer(1)) }
        },
      ] + (isJoined ? [] : [findingChannel])
        + (isOfMessages ? [findingLostSources(list, after: position.after) { lost.append($0) }] : [])
        + (isOfCommands ? [HubCall(Self.marks) { marks.append(Mark($0)) }] : []))
    if position.after > seq || (known != nil && position.at != nil && known != position.at) {
      return try diverged(bucket, scope, since: position.since ?? 0)
    }
    let end = max(min(until ?? seq, seq), position.after)
    var updates: [JSONObject] = []
    var reached: (seq: Int64, at: Int64?) = (position.after, known)
    var endDate = known
    if end > position.after {
      let time = isOfCommands ? Self.mark(clocks, after: marks)?.elapsed ?? 0 : nil
      var calls = [HubCall(Self.dateOfUpdate, values: place + [end]) { endDate = $0.integer(0) }]
      if fit.rows > 0 {
        calls.append(
          HubCall("SELECT seq, at, id, body \(filter)", values: rows(until: end, limit: fit.rows)) { row in
            reached = (row.integer(0), row.integer(1))
            updates.append([
              "seq": row.integer(0), "at": row.integer(1), "id": row.text(2),
              "age_ms": time.map { max(0, $0 - row.integer(1)) }, "body": RawJSON(row.text(3)),
            ])
          })
      }
      try database.read(calls)
    }
    // Further updates are on the next page; without them the page reaches the end.
    let last: (seq: Int64, at: Int64?) = fit.rows >= limit || fit.isCut ? reached : (end, endDate)
    let leftOut = try self.leftOut(
      of: list, after: position.after, first: first, last: last.seq, end: end, share: share, lost: lost)
    let tellsLeftOut = leftOut.count > 0 || (isOfMessages && most != nil)
    return JSONWriter.object([
      "bucket": bucket, "first": first, "last": last.seq, "last_at": last.at, "more": last.seq < end,
      "joined": isJoined ? nil : false, "left_out": tellsLeftOut ? leftOut.json : nil,
      "now": isOfMessages && !updates.isEmpty ? HubClock.now : nil, "updates": updates,
    ])
  }

  private static let dateOfUpdate = "SELECT at FROM updates WHERE gateway = @1 AND bucket = @2 AND seq = @3"

  private func diverged(_ bucket: String, _ scope: String, since: Int64) throws(HubDatabaseError) -> [UInt8] {
    // A gateway that takes a command or a document again changes nothing, and few of them are in force. The time
    // `since` could hide those that came between the hub's restoration and this question.
    if ["commands", "documents"].contains(bucket) {
      return JSONWriter.object(["bucket": bucket, "diverged": true, "resume": 0])
    }
    let resume = try database.first(
      "SELECT seq, at FROM updates WHERE gateway = ?1 AND bucket = ?2 AND at <= ?3 ORDER BY seq DESC LIMIT 1", scope,
      bucket, since
    ) { ($0.integer(0), $0.integer(1)) }
    return JSONWriter.object(["bucket": bucket, "diverged": true, "resume": resume?.0 ?? 0, "resume_at": resume?.1])
  }
}
