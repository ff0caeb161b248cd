// SPDX-License-Identifier: MIT

import Companion

/// What to ask of the radio's contact list, and what it means when it ends: pure.
///
/// A full list the first time, after another radio or a clock that went back, when the radio was started since the last one or did not know a
/// contact (what it had not written was gone then, and totals may fit all the same), when totals do not fit, and once a day;
/// else what changed since the watermark, one second before it, because two changes may share a second
/// (docs/protocol/companion.md § 9.1). A full list alone shows removed contacts, and only if it was complete.
struct ContactSync {
  enum Kind: Equatable { case full, incremental(since: UInt32) }

  enum Verdict: Equatable {
    /// Everything said is kept; `missing`: contacts not in the set are gone from the radio.
    case complete(watermark: UInt32, removeMissing: Bool)
    /// The list does not fit what is known: a full one is needed.
    case again
    /// Frames were lost repeatedly: continue with what was received, remove nothing.
    case giveUp(watermark: UInt32)
  }

  /// Milliseconds between full lists.
  static let fullEvery: Int64 = 24 * 3600 * 1000
  /// Tries at a full list whose count does not fit its total.
  static let maxTries = 3

  let kind: Kind
  private let previous: UInt32
  private let tries: Int
  /// Keys of a full list, by which removed contacts are noticed; freed with the list.
  private(set) var seen: Set<PublicKey> = []
  /// A node was added or removed meanwhile: the total of the start no longer counts.
  var changedMeanwhile = false

  /// `radioClock` behind the watermark: the radio's clock was reset, and lastmods with it. `started`: when the radio was at the latest,
  /// by the clock of `now`, if it is known.
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

  /// The list ended. `known` is how many contacts the store has on the radio now.
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
