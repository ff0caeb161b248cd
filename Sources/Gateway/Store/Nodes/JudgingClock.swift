// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Timing

/// Whether this machine's clock may judge, and set, the clocks of others.
extension Store {
  private static let proofName = "clock_proof"

  /// The present time; `trusted` only if it may judge and set other clocks.
  public var judgingNow: Moment {
    lookAtClock()
    return Moment(
      milliseconds: clocks.wallMilliseconds, trusted: clocks.isWallSynchronised && clockProof.doubt == nil)
  }

  /// Why it may not, although it is synchronised; `nil`: it may.
  public var clockDoubt: ClockProof.Doubt? {
    lookAtClock()
    return clockProof.doubt
  }

  /// In memory only, so it is allowed within a `write`.
  func lookAtClock() {
    prove {
      $0.look(wall: clocks.wallMilliseconds, sinceBoot: clocks.sinceBoot, isSynchronised: clocks.isWallSynchronised)
    }
  }

  private func prove(_ change: (inout ClockProof) -> Void) {
    let before = clockProof
    change(&clockProof)
    if clockProof.believesAnotherTime(than: before) { hasStaleOffsets = true }
  }

  /// Seconds by which our clock is ahead of the one with which the clocks of others were compared last; `nil`: unknown.
  var aheadOfCompared: Int64? {
    lookAtClock()
    switch clockProof.doubt {
    case _ where hasStaleOffsets: return nil
    case nil: return 0
    case .moved(let milliseconds): return min(max(milliseconds / 1000, -(1 << 40)), 1 << 40)
    case .contradicted: return nil
    }
  }

  /// The clock of a node that may say something about ours. `offset`: seconds that it is ahead. `before`: the offset that was known, and how far it may have
  /// walked since; `nil`: none.
  public func heardClock(of key: PublicKey, offset: Int64, before: (offset: Int64, walk: Int64)?) {
    lookAtClock()
    guard clockProof.wantsVotes, let vote = Self.vote(clockProof.doubt, offset, before, clocks.wallMilliseconds / 1000)
    else { return }
    prove { $0.heard(vote, from: key.prefix.value) }
  }

  /// Seconds within which a clock is right. Adverts come late.
  private static let rightness: Int64 = 60
  /// 1 November 2026: a clock of an earlier time was lost, as by a repeater without power, and says nothing.
  private static let earliest: Int64 = 1_793_491_200

  private static func vote(
    _ doubt: ClockProof.Doubt?, _ offset: Int64, _ before: (offset: Int64, walk: Int64)?, _ now: Int64
  ) -> ClockProof.Vote? {
    guard offset.magnitude < 1 << 40, now.magnitude < 1 << 50, now + offset >= earliest else { return nil }
    if case .moved(let milliseconds) = doubt {
      let moved = min(max(milliseconds / 1000, -(1 << 40)), 1 << 40)
      let right = UInt64(min(rightness, max(3, Int64(moved.magnitude) / 4)))
      let (isRight, wasRight) = (offset.magnitude <= right, (offset + moved).magnitude <= right)
      return isRight == wasRight ? nil : isRight ? .agrees : .contradicts
    }
    if offset.magnitude <= UInt64(rightness) { return .agrees }
    guard let before, before.offset.magnitude < 1 << 40 else { return nil }
    return (offset - before.offset).magnitude <= UInt64(max(0, before.walk)) ? .agrees : .contradicts
  }

  /// A person has compared this machine's clock, and says that it is right. False: it is not synchronised, and the right time, which comes later, would be
  /// the one that is doubted.
  @discardableResult
  public func confirmClock() -> Bool {
    guard clocks.isWallSynchronised else { return false }
    prove { $0.confirm(wall: clocks.wallMilliseconds, sinceBoot: clocks.sinceBoot) }
    keepClockProof()
    return true
  }

  /// Stores it with the next write, if it has changed. Not within a `write`.
  public func keepClockProof() {
    let kept = clockProof.kept
    if hasStaleOffsets {
      transactions.writeAlong("clock_offsets") { store throws(SQLiteError) in
        try store.database.run("UPDATE contacts SET clock_offset = NULL WHERE clock_offset IS NOT NULL")
        store.hasStaleOffsets = false
      }
    }
    guard kept != keptClockProof, !clocks.boot.isEmpty else { return }
    keptClockProof = kept
    let text = ([clocks.boot] + kept.map(String.init)).joined(separator: "\n")
    transactions.writeAlong(Self.proofName) { store throws(SQLiteError) in
      try store.setMeta(Self.proofName, .text(text))
    }
  }

  func loadClockProof() throws(StoreError) -> ClockProof {
    let words = (try meta(Self.proofName)?.text ?? "").split(separator: "\n")
    guard let boot = words.first, boot.utf8.elementsEqual(clocks.boot.utf8) else { return ClockProof() }
    return ClockProof(kept: words.dropFirst().prefix(3).compactMap { Int64($0) })
  }
}

extension ClockProof.Doubt {
  /// For people, with what to do.
  public var words: String { "\(what). \(Self.remedy)" }

  public var what: String {
    let what =
      switch self {
      case .moved(let milliseconds):
        "this machine's clock was set \(Self.span(milliseconds.magnitude / 1000)) \(milliseconds < 0 ? "back" : "forward"), "
          + "and nothing shows yet that it is right now"
      case .contradicted(let count):
        "since this machine was started its clock differs from \(count) node\(count == 1 ? "" : "s") by another amount than before"
      }
    return "\(what): it judges and sets no other clock"
  }

  public static let remedy =
    "Compare it with another clock, and set it, or say that it is right: meshpost node clock --clock-is-right"

  private static func span(_ seconds: UInt64) -> String {
    switch seconds {
    case 172_800...: "\(seconds / 86_400) days"
    case 7200...: "\(seconds / 3600) h \(seconds / 60 % 60) min"
    case 120...: "\(seconds / 60) min"
    default: "\(seconds) s"
    }
  }
}
