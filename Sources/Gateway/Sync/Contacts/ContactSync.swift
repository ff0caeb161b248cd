// SPDX-License-Identifier: MIT

import Companion

/// Decides which contact list to request, and what its end means. Pure.
///
/// A full list is requested
/// - the first time, for another radio, or if the radio's or our clock went back,
/// - if the radio was started after the last full list: it may have lost unwritten changes, even if the totals match,
/// - if totals do not match, and once a day.
/// Otherwise, the changes since one second before the watermark are requested, because two changes may share a second
/// (docs/protocol/companion.md § 9.1). Only a complete full list shows which contacts were removed.
struct ContactSync {
  enum Kind: Equatable { case full, incremental(since: UInt32) }

  enum Verdict: Equatable {
    /// All records are stored. `removeMissing`: contacts not in the list are gone from the radio.
    case complete(watermark: UInt32, removeMissing: Bool)
    /// The list contradicts the store: a full list is needed.
    case again
    /// Several lists were incomplete: continue with the received records, remove nothing.
    case giveUp(watermark: UInt32)
  }

  /// Milliseconds between full lists.
  static let fullEvery: Int64 = 24 * 3600 * 1000
  /// Attempts at a full list whose number of records does not match its total.
  static let maxTries = 3

  let kind: Kind
  private let previous: UInt32
  private let tries: Int
  /// Keys in a full list, for finding removed contacts; freed with the list.
  private(set) var seen: Set<PublicKey> = []
  /// A node was added or removed while the list came: its total is out of date.
  var changedMeanwhile = false

  /// A `radioClock` before the watermark means that the radio's clock was set back, and `lastmod` values with it.
  /// `started`: the latest possible start of the radio, in milliseconds of the same clock as `now`; `nil`: unknown.
  init(
    known: (radio: PublicKey, lastModified: UInt32, fullAt: Int64)?, radio: PublicKey, radioClock: UInt32?,
    started: Int64? = nil, now: Int64, tries: Int = 0
  ) {
    self.tries = tries
    guard tries == 0, let known, known.radio == radio, known.lastModified > 0,
      (radioClock ?? .max) >= known.lastModified, (started ?? .min) < known.fullAt, now >= known.fullAt,
      now - known.fullAt < Self.fullEvery
    else {
      kind = .full
      previous = 0
      return
    }
    kind = .incremental(since: known.lastModified - 1)
    previous = known.lastModified
  }

  var command: Command {
    switch kind {
    case .full: .getContacts(since: nil)
    case .incremental(let since): .getContacts(since: since)
    }
  }

  mutating func received(_ contact: Contact) {
    if kind == .full { seen.insert(contact.key) }
  }

  /// The list has ended. `known`: the number of contacts on the radio according to the store.
  func ended(total: UInt32, received: UInt32, lastModified: UInt32, known: Int64) -> Verdict {
    let watermark = max(previous, lastModified)
    switch kind {
    case .incremental:
      return Int64(total) == known || changedMeanwhile
        ? .complete(watermark: watermark, removeMissing: false) : .again
    case .full:
      if received == total { return .complete(watermark: watermark, removeMissing: true) }
      return tries + 1 < Self.maxTries ? .again : .giveUp(watermark: watermark)
    }
  }

  var nextTry: Int { kind == .full ? tries + 1 : 1 }
}
