// SPDX-License-Identifier: MIT

import Timing

/// Buckets that wait although they are behind: they repeatedly brought nothing new, the hub does not know yet that this
/// gateway has the channel, the radio may hold the same messages, or this gateway limits them. Pure.
struct BucketHolds {
  private static let fruitlessInterval: Duration = .seconds(30)

  /// Limits pages that bring nothing new, for each bucket: their messages were also received by radio, are not wanted,
  /// or a faulty server repeats them. A busy channel does not delay the other buckets.
  private var fruitless: [String: Ration] = [:]
  /// Channels that were reported to the hub: when, and the pauses between checks whether the hub knows them.
  private var told: [String: (at: MonotonicTime, tries: Backoff)] = [:]
  /// Buckets that wait, until when.
  private var ends: [String: MonotonicTime] = [:]
  /// Buckets that wait until the radio's queue was read: the radio may hold the same messages.
  private var forRadio: Set<String> = []
  private var lines = Ration.hourly
  /// Buckets that this gateway limits: why, and the pauses between attempts.
  private var limited: [String: (reason: String, pauses: Backoff)] = [:]
  private var limitLines = Ration.hourly

  var firstEnd: MonotonicTime? { ends.values.min() }

  /// Ends waits that are over, and returns their buckets.
  mutating func end(at now: MonotonicTime) -> [String] {
    let due = ends.filter { $0.value <= now }.map(\.key)
    for bucket in due { ends[bucket] = nil }
    return due
  }

  // MARK: Pages that bring nothing new

  mutating func wasFruitless(_ bucket: String, at now: MonotonicTime) {
    _ = fruitless[bucket, default: Ration(most: 64, oneIn: Self.fruitlessInterval)].take(at: now)
  }

  /// Returns true if the bucket waits, because it repeatedly brought nothing new.
  mutating func holdIfFruitless(_ bucket: String, at now: MonotonicTime) -> Bool {
    guard fruitless[bucket]?.hasOne(at: now) == false else { return false }
    ends[bucket] = now + Self.fruitlessInterval
    return true
  }

  /// Forgets the limits of other buckets.
  mutating func keepRations(of names: [String]) {
    fruitless = fruitless.filter { names.contains($0.key) }
    limited = limited.filter { names.contains($0.key) }
  }

  /// A line for the log, at most once an hour.
  mutating func line(at now: MonotonicTime) -> String? {
    guard let words = fruitlessWords, lines.take(at: now) else { return nil }
    return "\(words) (logged at most once an hour)"
  }

  // MARK: Channels that the hub does not know

  /// Whether the channel is to be reported, for the first time or again.
  func mustTell(_ bucket: String, at now: MonotonicTime) -> Bool {
    told[bucket].map { now - $0.at >= BucketSync.pollInterval } ?? true
  }

  mutating func told(_ bucket: String, at now: MonotonicTime) {
    let tries = told[bucket]?.tries ?? Backoff(first: BucketSync.firstPause, limit: BucketSync.pollInterval)
    told[bucket] = (now, tries)
  }

  mutating func hubKnows(_ bucket: String) { told[bucket] = nil }

  /// Returns false if the channel was not reported: then the bucket does not wait.
  mutating func holdUntilKnown(
    _ bucket: String, at now: MonotonicTime, using random: inout some RandomNumberGenerator
  ) -> Bool {
    guard let pause = told[bucket]?.tries.next(using: &random) else { return false }
    ends[bucket] = now + pause
    return true
  }

  // MARK: Buckets that this gateway limits

  /// The bucket waits: for `pause`, or longer with each time. Returns a line for the log, at most once an
  /// hour.
  mutating func holdLimited(
    _ bucket: String, _ reason: String, for pause: Duration?, at now: MonotonicTime,
    using random: inout some RandomNumberGenerator
  ) -> String? {
    var pauses = limited[bucket]?.pauses ?? Backoff(first: BucketSync.firstPause, limit: BucketSync.pollInterval)
    let isNew = limited[bucket]?.reason != reason
    ends[bucket] = now + (pause ?? pauses.next(using: &random))
    limited[bucket] = (reason, pauses)
    return isNew && limitLines.take(at: now) ? "\(reason); retrying automatically (logged at most once an hour)" : nil
  }

  /// The bucket has nothing left to fetch.
  mutating func isNotLimited(_ bucket: String) { limited[bucket] = nil }

  // MARK: The radio

  mutating func waitForRadio(_ bucket: String) { forRadio.insert(bucket) }

  /// The radio's queue has been read. Returns the buckets that waited for that.
  mutating func radioWasRead() -> Set<String> {
    defer { forRadio = [] }
    return forRadio
  }

  // MARK: Words

  /// Why buckets wait, for operators.
  func words(radioWasRead: Bool) -> String? {
    let radioWords = "messages of other places wait until the radio's own queue has been read"
    return limited.values.map(\.reason).min() ?? fruitlessWords ?? (forRadio.isEmpty || radioWasRead ? nil : radioWords)
      ?? ends.keys.filter { told[$0] != nil }.min().map { "the hub does not know yet that this gateway has \($0)" }
  }

  private var fruitlessWords: String? {
    ends.keys.filter { told[$0] == nil && limited[$0] == nil }.min().map {
      "\($0) repeatedly brought nothing new: it is fetched once in \(Int(Self.fruitlessInterval.inSeconds)) s"
    }
  }
}
