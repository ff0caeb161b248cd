// SPDX-License-Identifier: MIT

import JSON

/// Lists of messages are bounded, and so is the number of messages for a returning gateway. The reporting gateways share both: gateways with few
/// messages keep all, and the others keep the same number, the newest of each. So a gateway that reports thousands of messages, or a stolen token,
/// displaces only its own messages.
extension HubStore {
  /// Most gateways with lost messages: in an answer, and in the database.
  private static let mostNamed: Int64 = 16
  private static let mostKept: Int64 = 64

  static func isOfMessages(_ bucket: String) -> Bool { isShared(bucket) || bucket.utf8.elementsEqual(heardBucket.utf8) }

  /// The share of each gateway if there is room for `most` messages; `nil`: there is room for all.
  static func share(of most: Int64, _ counts: [Int64]) -> Int64? {
    var left = most
    for (place, count) in counts.sorted().enumerated() {
      let share = left / Int64(counts.count - place)
      // At least the newest message of each gateway stays.
      if count > share { return max(1, share) }
      left -= count
    }
    return nil
  }

  /// SQL: the numbers of a list's updates, and the rank of each among those of the same gateway, 1 for the newest. `@1`, `@2`: the list; `range`:
  /// further conditions.
  private static func ranked(_ range: String = "") -> String {
    """
    (SELECT source, seq, row_number() OVER (PARTITION BY source ORDER BY seq DESC) AS nth FROM updates
    WHERE gateway = @1 AND bucket = @2 AND source <> ''\(range)) AS ranked
    """
  }

  // MARK: Trimming

  /// Counts each gateway's updates in a list.
  func countingUpdates(_ place: BucketKey, _ row: @escaping (Int64) -> Void) -> HubCall {
    HubCall(
      "SELECT count(*) FROM updates WHERE gateway = @1 AND bucket = @2 AND source <> '' GROUP BY source",
      values: place.values
    ) { row($0.integer(0)) }
  }

  /// Deletes the updates beyond a share, and stores their gateways.
  func trimming(_ place: BucketKey, to share: Int64) -> [HubCall] {
    let list = place.values
    return [
      HubCall(
        """
        INSERT INTO lost_updates(gateway, bucket, source, through)
        SELECT @1, @2, source, max(seq) FROM \(Self.ranked()) WHERE nth > @3 GROUP BY source
        ON CONFLICT(gateway, bucket, source) DO UPDATE SET through = excluded.through
        """, values: list + [share]),
      // By the stored numbers: without statistics of the table, a server would compare each number with all others.
      HubCall(
        """
        DELETE FROM updates WHERE gateway = @1 AND bucket = @2 AND source <> '' AND seq <= (
        SELECT l.through FROM lost_updates l WHERE l.gateway = @1 AND l.bucket = @2 AND l.source = updates.source)
        """, values: list),
      HubCall(
        """
        UPDATE buckets SET first = (SELECT min(seq) FROM updates WHERE gateway = @1 AND bucket = @2)
        WHERE gateway = @1 AND name = @2
        """, values: list),
      HubCall(
        """
        DELETE FROM lost_updates WHERE gateway = @1 AND bucket = @2 AND source NOT IN (
        SELECT source FROM lost_updates WHERE gateway = @1 AND bucket = @2
        ORDER BY through DESC, source LIMIT \(Self.mostKept))
        """, values: list),
    ]
  }

  // MARK: Reading

  /// The updates that a page leaves out between two numbers.
  struct LeftOut {
    var count: Int64 = 0
    var gateways: [String] = []

    var json: JSONObject { ["count": count, "gateways": gateways] }
  }

  /// The share of each other gateway if a reader gets `most` updates of a list behind `after`.
  func share(
    of most: Int64, _ place: BucketKey, after: Int64, until: Int64, of gateway: String
  ) throws(HubDatabaseError) -> Int64? {
    var counts: [Int64] = []
    let call = HubCall(
      """
      SELECT count(*) FROM updates
      WHERE gateway = @1 AND bucket = @2 AND source <> '' AND seq > @3 AND seq <= @4 AND source <> @5 GROUP BY source
      """, values: place.values + [after, until, gateway]
    ) { counts.append($0.integer(0)) }
    try database.read([call])
    return Self.share(of: most, counts)
  }

  /// SQL for a page: only updates within the share `@7` of those behind `@3`, up to `@4`.
  static let withinShare = " AND seq IN (SELECT seq FROM \(ranked(" AND seq > @3 AND seq <= @4")) WHERE nth <= @7)"

  /// The stored gateways whose updates behind a number have left a list.
  func findingLostSources(_ place: BucketKey, after: Int64, _ row: @escaping (String) -> Void) -> HubCall {
    HubCall(
      """
      SELECT source FROM lost_updates WHERE gateway = @1 AND bucket = @2 AND through > @3
      ORDER BY through DESC, source LIMIT \(Self.mostNamed)
      """, values: place.values + [after]
    ) { row($0.text(0)) }
  }

  /// The updates between `after` and `last` that the pages of a list do not have, except those before `first`: they have left the list, or exceed the
  /// `share` of the updates from `after` to `end`. `lost`: the gateways whose updates have left the list.
  func leftOut(
    of place: BucketKey, after: Int64, first: Int64, last: Int64, end: Int64, share: Int64?, lost: [String]
  ) throws(HubDatabaseError) -> LeftOut {
    let begin = max(after, first - 1)
    guard last > begin, share != nil || !lost.isEmpty else { return LeftOut() }
    var leftOut = LeftOut(count: last - begin)
    var calls = [
      HubCall(
        "SELECT count(*) FROM updates WHERE gateway = @1 AND bucket = @2 AND seq > @3 AND seq <= @4",
        values: place.values + [begin, last]
      ) { leftOut.count -= $0.integer(0) }
    ]
    if let share {
      let call = HubCall(
        """
        SELECT source, count(*) FROM \(Self.ranked(" AND seq > @3 AND seq <= @4"))
        WHERE nth > @5 AND seq <= @6 GROUP BY source ORDER BY count(*) DESC, source
        """, values: place.values + [after, end, share, last]
      ) {
        leftOut.count += $0.integer(1)
        leftOut.gateways.append($0.text(0))
      }
      calls.append(call)
    }
    try database.read(calls)
    if leftOut.count > 0 {
      let known = Set(leftOut.gateways)
      leftOut.gateways += lost.filter { !known.contains($0) }
    }
    leftOut.gateways = Array(leftOut.gateways.prefix(Int(Self.mostNamed)))
    return leftOut
  }
}
