// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Timing

/// Counts of a radio's queue since it was last empty: together they show whether the queue was full.
public struct QueueCounts: Equatable, Sendable {
  /// Messages that the radio has handed over.
  public var taken: Int
  /// Messages that the radio has announced.
  public var hints: Int
  /// Requests without an answer; each may have lost a message.
  public var unanswered: Int
  /// A request for the next message is outstanding. If this is found on disk, the fate of that request is unknown.
  public var isAsked: Bool
  /// When reading of the queue began, if it has not ended: a radio that has restarted since has lost its queue.
  public var began: MonotonicTime?

  public init(
    taken: Int = 0, hints: Int = 0, unanswered: Int = 0, isAsked: Bool = false, began: MonotonicTime? = nil
  ) {
    (self.taken, self.hints, self.unanswered, self.isAsked) = (taken, hints, unanswered, isAsked)
    self.began = began
  }
}

/// When a radio started.
public struct RadioStart: Equatable, Sendable {
  /// The latest possible start. `nil`: it was read in an earlier boot of this machine.
  public var time: MonotonicTime?
  /// For how long it had been running when that was read.
  public var uptime: Duration

  public init(time: MonotonicTime?, uptime: Duration) { (self.time, self.uptime) = (time, uptime) }
}

extension Store {
  private static func name(ofStart radio: PublicKey) -> String { "queue start \(radio.hex)" }

  /// The radio's start when it was last connected, if it was stored.
  public func start(of radio: PublicKey) throws(StoreError) -> RadioStart? {
    guard let words = try meta(Self.name(ofStart: radio))?.text?.split(separator: " ", maxSplits: 1),
      words.count == 2, let uptime = Int64(words[0]), (0...Int64(Int32.max)).contains(uptime)
    else { return nil }
    return RadioStart(time: timeOfThisBoot(words[1]), uptime: .seconds(uptime))
  }

  /// Stores the start with the next transaction.
  public func keep(_ start: RadioStart, of radio: PublicKey) {
    guard let time = start.time else { return }
    let name = Self.name(ofStart: radio)
    transactions.writeAlong(name) { store throws(SQLiteError) in
      let uptime = Int64(saturating: start.uptime.inSeconds)
      try store.setMeta(name, .text("\(uptime) \(time.nanoseconds)@\(store.clocks.boot)"))
    }
  }

  private static func name(ofQueue radio: PublicKey) -> String { "queue \(radio.hex)" }

  /// The stored counts of a radio's queue, if it was not empty since.
  public func queueCounts(of radio: PublicKey) throws(StoreError) -> QueueCounts? {
    guard let bytes = try meta(Self.name(ofQueue: radio))?.blob else { return nil }
    let words = String(decoding: bytes, as: UTF8.self).split(separator: " ", maxSplits: 4)
    let counts = words.prefix(4).compactMap { Int($0) }
    // An older program stored fewer fields, and ignores the last word, which is not a number.
    guard (3...4).contains(counts.count), counts.allSatisfy({ (0...Int(Int32.max)).contains($0) }) else { return nil }
    // The time of an earlier boot is only known to be before this boot. A radio powered by this machine starts a moment
    // before it, and so has been running longer.
    return QueueCounts(
      taken: counts[0], hints: counts[1], unanswered: counts[2], isAsked: counts.last == 1 && counts.count == 4,
      began: words.count > 4 ? timeOfThisBoot(words[4]) ?? MonotonicTime(seconds: -60) : nil)
  }

  /// `NANOSECONDS@BOOT`; `nil`: of another boot.
  func timeOfThisBoot(_ word: Substring) -> MonotonicTime? {
    let parts = word.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2, let nanoseconds = Int64(parts[0]), !parts[1].isEmpty,
      parts[1].utf8.elementsEqual(clocks.boot.utf8)
    else { return nil }
    return MonotonicTime(nanoseconds: nanoseconds)
  }

  /// Within a `write`.
  func forgetQueues() throws(SQLiteError) { try database.run("DELETE FROM meta WHERE name GLOB 'queue *'") }

  /// Stores the counts with the next transaction, usually that of the message: they cost no flush of their own.
  public func keep(_ counts: QueueCounts, ofQueue radio: PublicKey) {
    let name = Self.name(ofQueue: radio)
    transactions.writeAlong(name) { store throws(SQLiteError) in
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
