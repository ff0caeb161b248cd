// SPDX-License-Identifier: MIT

import Escaping
import JSON
import SQLite

/// Buckets: numbered lists of updates that gateways catch up on. Source: docs/hub-protocol.md.
extension HubStore {
  /// Number of updates that are kept of a shared bucket; a gateway further behind learns where they begin.
  static let maxShared: Int64 = 10_000
  /// Bytes of one page's updates, about.
  private static let bucketPageBytes: Int64 = 256 * 1024

  public struct BucketState: Sendable, Equatable {
    public var bucket: String
    public var seq: Int64
    /// Of its newest update, milliseconds since 1970; grows with seq.
    public var at: Int64
  }

  /// A gateway's position in a bucket.
  public struct Position: Sendable, Equatable {
    public var after: Int64
    /// When that update was made; another update with its number means that the hub is an older copy of itself.
    public var at: Int64?
    /// Everything made before this is known.
    public var since: Int64?

    public init(after: Int64, at: Int64? = nil, since: Int64? = nil) {
      self.after = after
      self.at = at
      self.since = since
    }
  }

  /// Whose list it is: channels are everybody's.
  static func scope(_ bucket: String, _ gateway: String) -> String { isShared(bucket) ? "" : gateway }
  static func isShared(_ bucket: String) -> Bool { bucket.begins(with: "channel/") }

  static func isBucket(_ name: String) -> Bool {
    if ["commands", "documents"].contains(name) { return true }
    let digest = name.utf8.dropFirst("channel/".utf8.count)
    return name.utf8.starts(with: "channel/".utf8) && digest.count == 16
      && digest.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0 | 0x20) }
  }

  /// Within a transaction: adds an update; it replaces older ones of the same id.
  @discardableResult
  func push(
    _ bucket: String, of gateway: String, id: String, body: String, now: Int64
  ) throws(HubDatabaseError) -> Int64 {
    let scope = Self.scope(bucket, gateway)
    guard let (seq, at) = try next(bucket, scope, now) else { return 0 }
    // A message is one update for ever.
    if !scope.isEmpty { try supersede(bucket, of: gateway, id: id) }
    try database.run(
      "INSERT INTO updates(gateway, bucket, seq, id, at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)", .text(scope),
      .text(bucket), .integer(seq), .text(id), .integer(at), .text(body))
    if seq % 256 == 0 { try trim(bucket, scope, upTo: seq - Self.maxShared) }
    announce(HubNews(gateway: scope, bucket: bucket, seq: seq))
    return seq
  }

  /// The next number of a bucket, and a time that is later than that of the one before.
  func next(_ bucket: String, _ scope: String, _ now: Int64) throws(HubDatabaseError) -> (seq: Int64, at: Int64)? {
    try database.first(
      """
      INSERT INTO buckets(gateway, name, seq, first, at) VALUES (?1, ?2, 1, 1, ?3)
      ON CONFLICT(gateway, name) DO UPDATE SET seq = buckets.seq + 1,
      at = CASE WHEN buckets.at >= excluded.at THEN buckets.at + 1 ELSE excluded.at END RETURNING seq, at
      """, .text(scope), .text(bucket), .integer(now)
    ) { ($0.integer(0), $0.integer(1)) }
  }

  func supersede(_ bucket: String, of gateway: String, id: String) throws(HubDatabaseError) {
    try database.run(
      "UPDATE updates SET body = '' WHERE gateway = ?1 AND gateway <> '' AND bucket = ?2 AND id = ?3",
      .text(Self.scope(bucket, gateway)), .text(bucket), .text(id))
  }

  /// Trims the oldest updates of a shared bucket; of a gateway's own only replaced ones.
  private func trim(_ bucket: String, _ scope: String, upTo seq: Int64) throws(HubDatabaseError) {
    guard seq > 0 else { return }
    try database.run(
      "DELETE FROM updates WHERE gateway = ?1 AND bucket = ?2 AND seq <= ?3 AND (?1 = '' OR body = '')", .text(scope),
      .text(bucket), .integer(seq))
    if scope.isEmpty {
      try database.run(
        "UPDATE buckets SET first = ?3 WHERE gateway = ?1 AND name = ?2", .text(scope), .text(bucket), .integer(seq + 1)
      )
    }
  }

  // MARK: What gateways ask

  public func bucketStates(_ names: [String], gateway: String) throws(HubDatabaseError) -> [BucketState] {
    var states: [BucketState] = []
    for name in names.prefix(64) where Self.isBucket(name) {
      let state = try bucketState(name, gateway)
      states.append(BucketState(bucket: name, seq: state?.seq ?? 0, at: state?.at ?? 0))
    }
    return states
  }

  /// A list's place: its gateway, or an empty text for what all share, and its name.
  struct BucketPlace: Hashable, Sendable {
    let scope: String
    let name: String

    init(_ name: String, of gateway: String) { (scope, self.name) = (HubStore.scope(name, gateway), name) }
  }

  /// How far these buckets are, those that have anything: asked for at once.
  func standing(of places: [BucketPlace]) throws(HubDatabaseError) -> [HubNews] {
    var found: [HubNews] = []
    let call = HubCall(
      """
      SELECT b.gateway, b.name, b.seq FROM @rows JOIN buckets b ON b.gateway = v.gateway AND b.name = v.name
      WHERE b.seq > 0
      """, [("gateway", .texts(places.map(\.scope))), ("name", .texts(places.map(\.name)))]
    ) { found.append(HubNews(gateway: $0.text(0), bucket: $0.text(1), seq: $0.integer(2))) }
    try database.read([call])
    return found
  }

  private func bucketState(
    _ name: String, _ gateway: String
  ) throws(HubDatabaseError) -> (seq: Int64, first: Int64, at: Int64)? {
    try database.first(
      "SELECT seq, first, at FROM buckets WHERE gateway = ?1 AND name = ?2", .text(Self.scope(name, gateway)),
      .text(name)
    ) { ($0.integer(0), $0.integer(1), $0.integer(2)) }
  }

  /// `{"bucket", "first", "last", "last_at", "more", "updates": [{"seq", "at", "id", "body"}]}`, or, if the
  /// gateway has other updates, `{"bucket", "diverged": true, "resume", "resume_at"}`.
  public func updates(
    _ bucket: String, of gateway: String, from position: Position, until: Int64?, limit: Int
  ) throws(HubDatabaseError) -> [UInt8] {
    let scope = Self.scope(bucket, gateway)
    let state = try bucketState(bucket, gateway) ?? (0, 1, 0)
    let known = try date(of: position.after, bucket, scope)
    if position.after > state.seq || (known != nil && position.at != nil && known != position.at) {
      return try diverged(bucket, scope, since: position.since ?? 0)
    }
    let end = min(until ?? state.seq, state.seq)
    let (list, count, reached) = try read(bucket, scope, gateway, after: position.after, until: end, limit: limit)
    let last = count >= limit || reached.isCut ? reached.seq : max(end, position.after)
    let lastAt = try date(of: last, bucket, scope)
    return JSONWriter.object { json in
      json.field("bucket", bucket)
      json.field("first", state.first)
      json.field("last", last)
      json.field("last_at", lastAt)
      json.field("more", last < end)
      json.field("updates", json: list)
    }
  }

  private func date(of seq: Int64, _ bucket: String, _ scope: String) throws(HubDatabaseError) -> Int64? {
    try database.first(
      "SELECT at FROM updates WHERE gateway = ?1 AND bucket = ?2 AND seq = ?3", .text(scope), .text(bucket),
      .integer(seq)
    ) { $0.integer(0) }
  }

  private func diverged(_ bucket: String, _ scope: String, since: Int64) throws(HubDatabaseError) -> [UInt8] {
    let resume =
      try database.first(
        "SELECT coalesce(max(seq), 0) FROM updates WHERE gateway = ?1 AND bucket = ?2 AND at <= ?3", .text(scope),
        .text(bucket), .integer(since)
      ) { $0.integer(0) } ?? 0
    let at = try date(of: resume, bucket, scope)
    return JSONWriter.object { json in
      json.field("bucket", bucket)
      json.field("diverged", true)
      json.field("resume", resume)
      json.field("resume_at", at)
    }
  }

  /// Messages that the gateway itself received are left out.
  private func read(
    _ bucket: String, _ scope: String, _ gateway: String, after: Int64, until: Int64, limit: Int
  ) throws(HubDatabaseError) -> (list: [UInt8], count: Int, reached: (seq: Int64, isCut: Bool)) {
    let filter = """
      FROM updates u
      WHERE gateway = ?1 AND bucket = ?2 AND seq > ?3 AND seq <= ?4 AND body <> '' AND (?1 <> '' OR NOT EXISTS (
      SELECT 1 FROM heard h JOIN messages m ON m.position = h.message WHERE m.identity = u.id AND h.gateway = ?5))
      ORDER BY seq LIMIT ?6
      """
    let values: [SQLiteValue] = [.text(scope), .text(bucket), .integer(after), .integer(until), .text(gateway)]
    let fit = try fitting(
      "SELECT \(bytes("body")) \(filter)", values + [.integer(Int64(limit))], most: Self.bucketPageBytes)
    var list = JSONWriter()
    var reached = after
    try list.array { (json) throws(HubDatabaseError) in
      try database.each("SELECT seq, at, id, body \(filter)", values + [.integer(Int64(fit.rows))]) {
        (row) throws(HubDatabaseError) in
        reached = row.integer(0)
        json.object { json in
          json.field("seq", row.integer(0))
          json.field("at", row.integer(1))
          json.field("id", row.text(2))
          json.field("body", json: Array(row.text(3).utf8))
        }
        return true
      }
    }
    return (list.bytes, fit.rows, (reached, fit.isCut))
  }
}
