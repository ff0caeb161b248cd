// SPDX-License-Identifier: MIT

import Timing

/// A contact list in progress: START, records, END. Source: docs/protocol/companion.md § 9.1.
struct ContactIteration: Equatable {
  /// After this time without a record, the list counts as broken.
  static let silence: Duration = .seconds(5)
  /// So many contacts at most are added while a list comes.
  static let mostAdded: UInt32 = 64

  let id: UInt64
  /// The count in START: the size of the whole table, regardless of the request.
  let total: UInt32
  private(set) var received: UInt32 = 0
  private(set) var deadline: MonotonicTime

  init(id: UInt64, total: UInt32, now: MonotonicTime) {
    self.id = id
    self.total = total
    deadline = now + Self.silence
  }

  mutating func recordCame(now: MonotonicTime) {
    received &+= 1
    // Of a list that has outgrown its table the end was lost: further records do not keep it open.
    if received <= total || received - total <= Self.mostAdded { deadline = now + Self.silence }
  }
}
