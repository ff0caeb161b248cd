// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Store
import Timing

/// Keeps an upstream's account of bytes, over restarts, too.
///
/// The disk is ahead of the use: bytes are written before they are sent, a part of the allowance at a time. A killed program counts too many, never
/// too few.
final class AllowanceAccount {
  /// The smallest part that is written at once.
  private static let leastPart: Int64 = 2048

  private(set) var allowance: Allowance
  /// The waiting lanes, and whether little is left, as last reported.
  private(set) var told = ByLane(all: false)
  private var isToldLow = false
  /// Seconds by which local time is ahead of UTC.
  var zone: (Int64) -> Int64 = AllowanceAccount.localOffset
  private let name: String
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  /// Bytes of the carrier's counter that are accounted for.
  private var seen: UInt64 = 0
  /// Bytes used since the program began, and bytes that are on disk as used.
  private(set) var total: Int64 = 0
  private var keptThrough: Int64 = 0
  /// The urgency of the write under way; `nil`: there is none.
  private var keeping: When?
  /// Waits for the write. A new period cancels it: the write was for the period before.
  private var keeper: LoopTask?
  private var isTroubled = false
  /// The next batch is larger than the rest of the allowance.
  var isShort = false
  /// Usage is on disk.
  var changed: () -> Void = {}

  init(_ limits: Allowance.Limits, of name: String, store: Store, on loop: EventLoop, log: Log) throws(StoreError) {
    (self.name, self.store, self.loop, self.log) = (name, store, loop, log)
    let kept = try store.allowance(of: name) ?? ""
    // The first word names the lanes that waited.
    let words = kept.utf8.split(separator: UInt8(ascii: " "), maxSplits: 1).map { String(decoding: $0, as: UTF8.self) }
    allowance = Allowance(limits, kept: words.count == 2 ? words[1] : "")
    guard words.count == 2 else { return }
    for lane in Lane.allCases { told[lane] = words[0].utf8.contains(Self.letter(lane)) }
    isToldLow = words[0].utf8.contains(Self.low)
  }

  /// Seconds by which the machine's local time is ahead of UTC at that time.
  private static func localOffset(at seconds: Int64) -> Int64 {
    var (moment, parts) = (time_t(seconds), tm())
    return localtime_r(&moment, &parts) == nil ? 0 : Int64(parts.tm_gmtoff)
  }

  /// The first of the lane's name: `m`, `n` or `p`.
  private static func letter(_ lane: Lane) -> UInt8 { Array(lane.rawValue.utf8)[0] }

  private static let low = UInt8(ascii: "l")

  private func text(ahead: Int64) -> String {
    let letters = Lane.allCases.filter { told[$0] }.map { Self.letter($0) } + (isToldLow ? [Self.low] : [])
    return "\(letters.isEmpty ? "-" : String(decoding: letters, as: UTF8.self)) \(allowance.kept(ahead: ahead))"
  }

  /// The part of the allowance that is written at once.
  private var part: Int64 {
    let daily = min(allowance.limits.daily ?? .max, (allowance.limits.monthly ?? .max) / 10)
    return min(max(daily / 200, Self.leastPart), 1 << 20)
  }

  /// Updates the time and the bytes of the line. True: the waiting lanes, or whether little is left, have changed.
  func look(line: UInt64) -> Bool {
    let wall = loop.wallClock
    let seconds = wall.seconds
    let look = Allowance.Look(local: seconds &+ zone(seconds), isTrusted: wall.isSynchronised, now: loop.now)
    if allowance.pass(look) {
      keeper?.cancel()
      (keptThrough, keeping) = (total, nil)
    }
    // A new carrier counts from zero.
    let used = Int64(clamping: line >= seen ? line - seen : line)
    seen = line
    allowance.count(used)
    total = total &+ used
    // Early, so that no batch has to wait for it.
    if allowance.limits.countsBytes, total > 0, total &+ part / 2 > keptThrough, keeping == nil {
      keep(ahead: part, when: .soon)
    }
    return spent != told || allowance.isLow != isToldLow
  }

  private var spent: ByLane<Bool> {
    ByLane { allowance.isSpent($0) }
  }

  /// True: this many more bytes are on disk as used. False: `changed` reports when they are.
  func isKept(_ bytes: Int64) -> Bool {
    if total &+ bytes <= keptThrough || !allowance.limits.countsBytes { return true }
    if keeping != .now { keep(ahead: bytes &+ part, when: .now) }
    return false
  }

  /// Bytes after which `look` is due.
  var nextLook: Int64 {
    let rooms = Lane.allCases.map { allowance.room($0) - Allowance.least[$0] + 1 }.filter { $0 > 0 }
    return max(512, min(rooms.min() ?? .max, part / 2))
  }

  private func keep(ahead: Int64, when: When) {
    keeping = when
    let (through, text, name) = (total &+ ahead, text(ahead: ahead), name)
    let commit = store.write(when: when) { store throws(SQLiteError) in try store.setAllowance(of: name, text) }
    keeper?.cancel()
    keeper = loop.begin { [weak self] in
      let failure = await commit.failure()
      guard let self, !Task.isCancelled else { return }
      self.keeping = nil
      // A failed write does not stop messages: usage is then counted in memory only.
      self.keptThrough = max(self.keptThrough, through)
      if let failure, !self.isTroubled { self.log.warning("\(name): usage cannot be stored: \(failure)") }
      self.isTroubled = failure != nil
      self.changed()
    }
  }

  /// Records the change, in the journal, too, together with the usage.
  func tell(_ moment: Moment, body: [UInt8]) {
    (told, isToldLow) = (spent, allowance.isLow)
    let text = text(ahead: max(0, keptThrough &- total))
    store.post("which lanes \(name) may send") { [name] store throws(SQLiteError) in
      try store.append(.allowance, at: moment, body: body)
      try store.setAllowance(of: name, text)
    }
  }

  /// At the end: exactly what was used.
  func close(line: UInt64) {
    _ = look(line: line)
    keeper?.cancel()
    let text = text(ahead: 0)
    store.post(when: .soon, "what \(name) has used") { [name] store throws(SQLiteError) in
      try store.setAllowance(of: name, text)
    }
  }
}
