// SPDX-License-Identifier: MIT

import SQLite

/// When events were journaled, by the time since the machine's boot, which nobody can set. It survives restarts of the
/// program, but not of the machine.
public struct JournalTimes: Equatable, Sendable {
  /// More than `thinned` leaves of a hundred days; 6 KiB.
  private static let maxMarks = 384
  /// Milliseconds. Events closer than `apart` share the earlier time; times are stored once in `keptApart`.
  private static let (apart, keptApart): (Int64, Int64) = (200, 10_000)
  /// The unit of stored times in milliseconds.
  private static let keptUnit: Int64 = 100

  private struct Mark: Equatable, Sendable {
    /// This event and later ones were journaled at or after the time, earlier ones before it.
    var first: Int64
    var time: Int64
  }

  private let boot: String
  private var marks: [Mark] = []
  private var keptAt: Int64?

  /// `kept`: the stored form, perhaps of another boot.
  public init(boot: String = "", kept: String = "") {
    self.boot = boot
    let parts = kept.split(separator: "\n", omittingEmptySubsequences: false)
    guard !boot.isEmpty, let first = parts.first, first.utf8.elementsEqual(boot.utf8) else { return }
    // Each mark but the first is stored as the difference from the previous one. An older version stored whole numbers
    // with a colon.
    for part in parts.dropFirst() {
      let isStep = part.contains("+")
      let numbers = part.split(separator: isStep ? "+" : ":").map { Int64($0, radix: isStep ? 36 : 10) }
      guard numbers.count == 2, let first = numbers[0], let time = numbers[1], first >= 0, time >= 0 else { continue }
      let before = isStep ? marks.last : nil
      let (seq, isFar) = first.addingReportingOverflow(before?.first ?? 0)
      let (at, isLate) =
        (time.magnitude > 1 << 50)
        ? (0, true) : (time * (isStep ? Self.keptUnit : 1)).addingReportingOverflow(before?.time ?? 0)
      guard !isFar, !isLate, marks.last.map({ $0.first < seq && $0.time <= at }) ?? true else { continue }
      marks.append(Mark(first: seq, time: at))
    }
  }

  /// The next event is journaled. True: its time is new, and worth storing.
  public mutating func comes(_ seq: Int64, at now: Int64) -> Bool {
    // A failed transaction leaves its numbers to later events.
    while let newest = marks.last, newest.first >= seq { marks.removeLast() }
    if let newest = marks.last, now - newest.time < Self.apart { return false }
    marks.append(Mark(first: seq, time: now))
    var part: Int64 = 20
    while marks.count > Self.maxMarks, part > 0 {
      marks = thinned(to: part)
      part /= 2
    }
    if let keptAt, now - keptAt < Self.keptApart { return false }
    keptAt = now
    return true
  }

  /// Removes marks, more of the older ones: a time is wrong by at most this part of the event's age, or by `least`.
  private func thinned(to part: Int64, orBy least: Int64 = 0) -> [Mark] {
    guard let newest = marks.last?.time else { return [] }
    var (left, last): ([Mark], Int64) = ([], 0)
    for index in marks.indices.reversed() {
      // A mark goes if its neighbours are close enough to each other.
      let isBetween = index > 0 && index < marks.count - 1
      if isBetween, newest - marks[index - 1].time <= last + max(last / part, least) { continue }
      last = newest - marks[index].time
      left.append(marks[index])
    }
    return left.reversed()
  }

  /// The stored form: differences, and less exact, because it is written again and again. A restart of the program
  /// takes a second anyway.
  var kept: String {
    var (parts, before) = ([boot], Mark(first: 0, time: 0))
    for mark in thinned(to: 8, orBy: 1000) {
      let time = mark.time / Self.keptUnit
      parts.append("\(String(mark.first - before.first, radix: 36))+\(String(time - before.time, radix: 36))")
      before = Mark(first: mark.first, time: time)
    }
    return parts.joined(separator: "\n")
  }

  /// Seconds since the event was journaled; `nil`: unknown. `now`: milliseconds since the boot.
  public func age(of event: JournalEvent, wall: Moment, now: Int64) -> Int64? {
    age(of: event.seq, Moment(milliseconds: event.at, trusted: event.trusted), wall: wall, now: now)
  }

  /// As above, of the event with this seq, journaled at `at`.
  public func age(of seq: Int64, _ at: Moment, wall: Moment, now: Int64) -> Int64? {
    let most = marks.last { $0.first <= seq }.map { max(0, now - $0.time) / 1000 }
    guard at.trusted, wall.trusted else { return most }
    let (difference, overflow) = wall.milliseconds.subtractingReportingOverflow(at.milliseconds)
    // If the event seems to come from the future, the clock was set since.
    guard !overflow, difference >= 0 || most != nil else { return most }
    // Even a clock that was right may be set. So an event is at most as old as an earlier one, and at least as old as a
    // later one; if no later mark exists, a new one would have been made soon after the last.
    let next = marks.first { $0.first > seq }?.time ?? marks.last.map { $0.time + Self.keptApart }
    let least = next.map { max(0, now - $0) / 1000 } ?? 0
    return min(max(difference / 1000, least), most ?? .max)
  }

  /// Seconds for which the event has been there in this run, if it came before; `nil`: nothing has come since.
  public func leastAge(of seq: Int64, now: Int64) -> Int64? {
    marks.first { $0.first > seq }.map { max(0, now - $0.time) / 1000 }
  }
}

extension Store {
  /// The times of events, and the present in the same unit: milliseconds since the machine's boot.
  public var journalTimes: (times: JournalTimes, now: Int64) { (journalState.times, clocks.sinceBoot) }

  /// Makes the journal store times on disk from now on, because an upstream limits the age of events.
  public func keepJournalTimes() { journalState.keepsTimes = true }

  func loadTimes() throws(StoreError) -> JournalTimes {
    JournalTimes(boot: clocks.boot, kept: try meta("journal_times")?.text ?? "")
  }

  /// Call it within a `write`, before appending an event.
  func noteTime() throws(SQLiteError) {
    guard journalState.times.comes(nextSeq, at: clocks.sinceBoot), journalState.keepsTimes else { return }
    try setMeta("journal_times", .text(journalState.times.kept))
  }
}
