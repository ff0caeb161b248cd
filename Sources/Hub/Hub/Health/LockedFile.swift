// SPDX-License-Identifier: MIT

import Synchronization

/// Whether another program keeps the SQLite file locked: then readers are answered, and nothing is stored.
final class LockedFile: Sendable {
  static let words =
    "another program has locked the database: readers are answered, and nothing is stored until it is unlocked"
  static let remedy = "End that program: `sudo fuser -v FILE` shows who has the database's file open."
  /// A shorter lock only delays what is written.
  private static let long: Duration = .seconds(20)

  /// The failures since the last write.
  private struct Failures {
    let first: ContinuousClock.Instant
    var last: ContinuousClock.Instant
    var isLong = false
  }

  private let failures = Mutex<Failures?>(nil)

  /// Whether the lock has lasted for long.
  var isLong: Bool { failures.withLock { $0?.isLong ?? false } }

  /// A write has failed because of a lock.
  func note(_ error: HubDatabaseError, at now: ContinuousClock.Instant = .now) {
    let isNews = failures.withLock { failures in
      var known = failures ?? Failures(first: now, last: now)
      let wasLong = known.isLong
      known.last = now
      known.isLong = wasLong || now - known.first > Self.long
      failures = known
      return known.isLong && !wasLong
    }
    if isNews { HubLog.write(.error, "\(Self.words). Gateways keep their events. (\(error))") }
  }

  /// Something was written.
  func wrote() {
    let wasLong = failures.withLock { failures in
      defer { failures = nil }
      return failures?.isLong ?? false
    }
    if wasLong { HubLog.write(.notice, "the database is unlocked") }
  }

  /// Whether the last failure is so long ago that nobody seems to write.
  func isUntested(at now: ContinuousClock.Instant = .now) -> Bool {
    failures.withLock { $0.map { now - $0.last > Self.long } ?? false }
  }
}

extension HubStores {
  /// Tests by a small write whether a lock has ended if nobody else writes, until it is cancelled.
  func testLock() async {
    while !Task.isCancelled {
      // `try?`: the lock notes the failure.
      if lock.isUntested() { try? await writer.keepMark() }
      // `try?`: it is cancelled while it sleeps.
      try? await Task.sleep(for: DatabaseProbe.interval)
    }
  }
}
