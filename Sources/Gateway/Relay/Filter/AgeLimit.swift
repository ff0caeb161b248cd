// SPDX-License-Identifier: MIT

import JSON
import Store
import Timing

/// Which events are too old for an upstream. What is too old counts as taken.
///
/// An event's age is the time since it was sent, as far as one can tell: before it came here, by what the event says of the radio's
/// queue and the sender's clock; and since, by a clock that was right then and now, within what one that cannot be set tells.
public struct AgeLimit: Equatable, Sendable {
  /// Seconds; `nil`: none is too old.
  public var oldest: Int64?
  /// Messages that were queued in the radio for an unknown time pass.
  public var takesWaited: Bool
  /// What passes is acted on: an age that cannot be told is too old.
  public var isStrict: Bool

  public init(oldest: Int64?, takesWaited: Bool = true, isStrict: Bool = false) {
    self.oldest = oldest
    self.takesWaited = takesWaited
    self.isStrict = isStrict
  }

  /// When an event is looked at.
  struct Present {
    var wall: Moment
    var now: MonotonicTime
    var times: JournalTimes
  }

  func passes(_ event: JournalEvent, _ present: Present) -> Bool {
    guard event.kind != EventKind.gap.rawValue else { return true }
    let since = present.times.age(of: event, wall: present.wall, now: present.now)
    if oldest != nil, isStrict, since == nil { return false }
    if isOver(since ?? 0) { return false }
    // `try?`: a body that is no JSON says nothing of its age.
    guard event.kind == EventKind.message.rawValue, let body = try? JSONValue(parsing: event.body) else { return true }
    let age = Self.plus(Self.seconds(body["age_s"]), since)
    if isOver(age ?? 0) { return false }
    guard body["waited"]?.bool == true else { return true }
    let longest = Self.plus(Self.seconds(body["waited_s"]), since)
    if let longest, oldest != nil, !isOver(longest) { return true }
    return takesWaited && (age != nil || longest.map { !isOver($0) } ?? true)
  }

  private func isOver(_ seconds: Int64) -> Bool { oldest.map { seconds > $0 } ?? false }

  /// A hundred years are for ever: what is on disk may hold any number.
  private static func seconds(_ value: JSONValue?) -> Int64? {
    value?.integer.map { min(max($0, 0), 3_200_000_000) }
  }

  private static func plus(_ seconds: Int64?, _ since: Int64?) -> Int64? { seconds.map { $0 + (since ?? 0) } }
}

/// When events were journaled, by a clock that cannot be set; of this program's own life.
struct JournalTimes {
  private static let maxMarks = 256
  /// Events so close to each other share a time: the earlier.
  private static let apart: Duration = .seconds(10)

  /// Events from this one on came at that time or after it.
  private var marks: [(first: Int64, time: MonotonicTime)] = []
  private var last: Int64

  /// `last`: the newest event that there is; when it came is not known.
  init(last: Int64) { self.last = last }

  /// Everything up to this event is in the journal now.
  mutating func committed(through seq: Int64, now: MonotonicTime) {
    guard seq > last else { return }
    defer { last = seq }
    if let newest = marks.last, now - newest.time < Self.apart { return }
    marks.append((last + 1, now))
    // The oldest half is as old as its newest, which is old enough.
    if marks.count > Self.maxMarks { marks.removeFirst(Self.maxMarks / 2) }
  }

  /// Seconds since the event was journaled; `nil`: that cannot be told.
  func age(of event: JournalEvent, wall: Moment, now: MonotonicTime) -> Int64? {
    let most = marks.last { $0.first <= event.seq }.map { Int64(max(0, (now - $0.time).inSeconds)) }
    guard event.trusted, wall.trusted else { return most }
    let (difference, overflow) = wall.milliseconds.subtractingReportingOverflow(event.at)
    guard !overflow else { return most }
    // A clock that was right may be set all the same: an event is as old as one that came before it at most, and as one after it at least.
    let least = marks.first { $0.first > event.seq }.map { Int64(max(0, (now - $0.time).inSeconds)) } ?? 0
    return min(max(difference / 1000, least), most ?? .max)
  }
}
