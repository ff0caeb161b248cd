// SPDX-License-Identifier: MIT

import Timing

/// Limits the entries of a faulty or forgetful hub in the journal, because they displace events for other upstreams. Pure.
struct BucketRations {
  /// After a week without a hub, each of 48 channels may have a loss.
  private var losses = Ration(most: 64, oneIn: .seconds(60))
  private var restores = Ration(most: 2, oneIn: .seconds(3600))
  private var documents = Ration(most: 4096, oneIn: .seconds(10))
  /// A new hub has forgotten all 48 channels.
  private var announcements = Ration(most: 64, oneIn: .seconds(300))

  mutating func mayAskForDocuments(at now: MonotonicTime) throws(BucketSync.Trouble) {
    guard documents.hasOne(at: now) else {
      throw BucketSync.Trouble(message: "the hub changes documents too often", isLimit: true)
    }
  }

  mutating func took(documents count: Int, at now: MonotonicTime) {
    for _ in 0..<count { _ = documents.take(at: now) }
  }

  /// Called before a page is applied. If it throws, the page is requested again later.
  mutating func mayKeep(
    _ outcome: CatchUp.Outcome, of bucket: String, at now: MonotonicTime
  ) throws(BucketSync.Trouble) {
    if outcome.lacking > 0 || outcome.hasDiverged { try mayLose(bucket, at: now) }
    if outcome.hasDiverged, bucket == "documents", !restores.take(at: now) {
      throw BucketSync.Trouble(message: "the hub has lost documents, again and again", isLimit: true)
    }
  }

  mutating func mayLose(_ bucket: String, at now: MonotonicTime) throws(BucketSync.Trouble) {
    guard losses.take(at: now) else {
      throw BucketSync.Trouble(message: "the hub has lost updates of \(bucket), again and again", isLimit: true)
    }
  }

  /// Whether another channel may be reported.
  mutating func mayAnnounce(at now: MonotonicTime) -> Bool { announcements.take(at: now) }
}
