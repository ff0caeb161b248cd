// SPDX-License-Identifier: MIT

import JSON

/// Lists of messages are bounded, and so is what a gateway fetches of them that was away. Each gateway that told of some has a share of both: those
/// that told of least keep all, and of the others each keeps as many, its newest. So one that tells of thousands, or a stolen token, pushes out its own
/// messages, and no others'.
extension HubStore {
  /// Gateways of which it is told, or kept, that messages of theirs were left out.
  private static let mostNamed: Int64 = 16
  private static let mostKept: Int64 = 64

  static func isOfMessages(_ bucket: String) -> Bool { isShared(bucket) || bucket.utf8.elementsEqual(heardBucket.utf8) }

  /// How many each may have at most, where there is room for `most`; `nil`: there is room for all.
  static func share(of most: Int64, _ counts: [Int64]) -> Int64? {
    var left = most
    for (place, count) in counts.sorted().enumerated() {
      let share = left / Int64(counts.count - place)
      // However many there are, the newest of each stays.
      if count > share { return max(1, share) }
      left -= count
    }
    return nil
  }

  /// SQL: the numbers of a list's updates, and how many newer ones the same gateway told of, from 1. `@1`, `@2`: the list; `range`: more.
  private static func ranked(_ range: String = "") -> String {
    """
    (SELECT source, seq, row_number() OVER (PARTITION BY source ORDER BY seq DESC) AS nth FROM updates
    WHERE gateway = @1 AND bucket = @2 AND source <> ''\(range)) AS ranked
    """
  }

  // MARK: What is kept

  /// How many updates each gateway has in a list.
  func countsCall(_ place: BucketPlace, _ row: @escaping (Int64) -> Void) -> HubCall {
    HubCall(
      "SELECT count(*) FROM updates WHERE gateway = @1 AND bucket = @2 AND source <> '' GROUP BY source",
      values: place.values
    ) { row($0.integer(0)) }
  }

  /// Deletes what is beyond a share, and notes whose that was.
  func trimCalls(_ place: BucketPlace, to share: Int64) -> [HubCall] {
    let list = place.values
    return [
      HubCall(
        """
        INSERT INTO lost_updates(gateway, bucket, source, through)
        SELECT @1, @2, source, max(seq) FROM \(Self.ranked()) WHERE nth > @3 GROUP BY source
        ON CONFLICT(gateway, bucket, source) DO UPDATE SET through = excluded.through
        """, values: list + [.integer(share)]),
      // By what was noted: a server that knows nothing of the table yet compares each number with each otherwise.
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

  // MARK: What a gateway gets

  /// What a page leaves out between two numbers.
  struct LeftOut {
    var count: Int64 = 0
    var gateways: [String] = []

    func write(to json: inout JSONWriter) {
      json.objectField("left_out") { json in
        json.field("count", count)
        json.arrayField("gateways") { json in for gateway in gateways { json.value(gateway) } }
      }
    }
  }

  /// How much one other gateway may have of what is told of a list's updates behind `after`, where that is to be `most`.
  func share(
    of most: Int64, _ place: BucketPlace, after: Int64, until: Int64, of gateway: String
  ) throws(HubDatabaseError) -> Int64? {
    var counts: [Int64] = []
    let call = HubCall(
      """
      SELECT count(*) FROM updates
      WHERE gateway = @1 AND bucket = @2 AND source <> '' AND seq > @3 AND seq <= @4 AND source <> @5 GROUP BY source
      """, values: place.values + [.integer(after), .integer(until), .text(gateway)]
    ) { counts.append($0.integer(0)) }
    try database.read([call])
    return Self.share(of: most, counts)
  }

  /// SQL for a page: only what is within the share, `@7`, of what is behind `@3`, up to `@4`.
  static let withinShare = " AND seq IN (SELECT seq FROM \(ranked(" AND seq > @3 AND seq <= @4")) WHERE nth <= @7)"

  /// Whose updates behind a number are no longer in a list, as far as that is known.
  func lostCall(_ place: BucketPlace, after: Int64, _ row: @escaping (String) -> Void) -> HubCall {
    HubCall(
      """
      SELECT source FROM lost_updates WHERE gateway = @1 AND bucket = @2 AND through > @3
      ORDER BY through DESC, source LIMIT \(Self.mostNamed)
      """, values: place.values + [.integer(after)]
    ) { row($0.text(0)) }
  }

  /// What is not told of a list between `after` and `last`, without what is before `first`: it is no longer there, or beyond the `share` of what is behind
  /// `after`, up to `end`. `lost`: whose updates are no longer there.
  func leftOut(
    of place: BucketPlace, after: Int64, first: Int64, last: Int64, end: Int64, share: Int64?, lost: [String]
  ) throws(HubDatabaseError) -> LeftOut {
    let begin = max(after, first - 1)
    guard last > begin, share != nil || !lost.isEmpty else { return LeftOut() }
    var leftOut = LeftOut(count: last - begin)
    var calls = [
      HubCall(
        "SELECT count(*) FROM updates WHERE gateway = @1 AND bucket = @2 AND seq > @3 AND seq <= @4",
        values: place.values + [.integer(begin), .integer(last)]
      ) { leftOut.count -= $0.integer(0) }
    ]
    if let share {
      let call = HubCall(
        """
        SELECT source, count(*) FROM \(Self.ranked(" AND seq > @3 AND seq <= @4"))
        WHERE nth > @5 AND seq <= @6 GROUP BY source ORDER BY count(*) DESC, source
        """, values: place.values + [.integer(after), .integer(end), .integer(share), .integer(last)]
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
