// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Store
import Timing

/// A hub sends messages of a channel only to gateways that have reported the channel.
extension BucketSync {
  /// The hub does not know that this gateway has the channel; a new or restored hub may have forgotten it. Reports the
  /// channel, at most once in `pollInterval`. Returns true if the bucket has to wait until the hub knows, because this
  /// gateway has a position in it.
  func joins(_ bucket: String, _ from: CatchUp.Position) -> Bool {
    if joined[bucket].map({ loop.now - $0.told >= Self.pollInterval }) ?? true { announce(bucket) }
    guard from.since > 0 || from.seq > 0, var join = joined[bucket] else { return false }
    held[bucket] = loop.now + join.tries.next(using: &random)
    joined[bucket] = join
    catchUp.hold(bucket)
    return true
  }

  private func announce(_ bucket: String) {
    var (channel, region): (Channel?, String?)
    store.ifReadable {
      try store.eachChannel { if bucket == "channel/\($0.secret.digest)" { channel = channel ?? $0 } }
      region = try channel.flatMap { try store.region(ofChannel: $0.secret.digest) }
    }
    guard let channel else { return }
    let tries = joined[bucket]?.tries ?? Backoff(first: Self.firstPause, limit: Self.pollInterval)
    joined[bucket] = (loop.now, tries)
    guard announcements.take(at: loop.now) else { return }
    log.notice(
      "\(upstream): the hub does not know that this gateway has the channel \(channel.name.string): telling it")
    store.write { [moment] store throws(SQLiteError) in
      _ = try store.append(.channel, at: moment, body: EventBody.channel(channel, region: region))
    }
  }

  var joinWords: String? {
    held.keys.filter { joined[$0] != nil }.min().map { "the hub does not know yet that this gateway has \($0)" }
  }
}
