// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Timing

/// What a radio has handed over since its queue was last empty: only all of it together says whether the queue was full.
public struct QueueCounts: Equatable, Sendable {
  /// Messages that it handed over.
  public var taken: Int
  /// Messages that it hinted at.
  public var hints: Int
  /// Questions without an answer, each of which may have cost a message.
  public var unanswered: Int
  /// It is asked for the next: whoever finds this on the disk does not know what became of that question.
  public var isAsked: Bool
  /// When its reading began, if that has not ended: a radio that was started since has forgotten what it had.
  public var began: MonotonicTime?

  public init(
    taken: Int = 0, hints: Int = 0, unanswered: Int = 0, isAsked: Bool = false, began: MonotonicTime? = nil
  ) {
    (self.taken, self.hints, self.unanswered, self.isAsked) = (taken, hints, unanswered, isAsked)
    self.began = began
  }
}

extension Store {
  private static func name(ofQueue radio: PublicKey) -> String { "queue \(radio.hex)" }

  /// What was kept of a radio's queue, if that was not empty since.
  public func queueCounts(of radio: PublicKey) throws(StoreError) -> QueueCounts? {
    guard let bytes = try meta(Self.name(ofQueue: radio))?.blob else { return nil }
    let words = String(decoding: bytes, as: UTF8.self).split(separator: " ", maxSplits: 4)
    let counts = words.prefix(4).compactMap { Int($0) }
    // Of an older program without the last, and without the word behind it, which is no number: that program leaves it out.
    guard (3...4).contains(counts.count), counts.allSatisfy({ (0...Int(Int32.max)).contains($0) }) else { return nil }
    return QueueCounts(
      taken: counts[0], hints: counts[1], unanswered: counts[2], isAsked: counts.last == 1 && counts.count == 4,
      began: words.count > 4 ? began(words[4]) : nil)
  }

  /// `NANOSECONDS@BOOT`. Of an earlier boot nobody knows how long ago that was. It was before this one; a radio that has its power from this machine
  /// is started a moment before it, and runs for longer.
  private func began(_ word: Substring) -> MonotonicTime? {
    let parts = word.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2, let nanoseconds = Int64(parts[0]) else { return nil }
    let isSameBoot = !parts[1].isEmpty && parts[1].utf8.elementsEqual(clocks.boot.utf8)
    return isSameBoot ? MonotonicTime(nanoseconds: nanoseconds) : MonotonicTime(seconds: -60)
  }

  /// Within a `write`.
  func forgetQueues() throws(SQLiteError) { try database.run("DELETE FROM meta WHERE name GLOB 'queue *'") }

  /// Keeps them with the next transaction, which usually is that of the message: they cost no flush of their own.
  public func keep(_ counts: QueueCounts, ofQueue radio: PublicKey) {
    let name = Self.name(ofQueue: radio)
    writeAlong(name) { store throws(SQLiteError) in
      if counts == QueueCounts() {
        try store.database.run("DELETE FROM meta WHERE name = ?", .text(name))
      } else {
        var words = "\(counts.taken) \(counts.hints) \(counts.unanswered) \(counts.isAsked ? 1 : 0)"
        if let began = counts.began { words += " \(began.nanoseconds)@\(store.clocks.boot)" }
        try store.setMeta(name, .blob(Array(words.utf8)))
      }
    }
  }
}
