// SPDX-License-Identifier: MIT

import JSON
import Store

/// Decides which events are too old for an upstream. They count as taken.
///
/// An event's age is the time since it was sent, as far as it is known: until its arrival, by the event's data on the radio's queue and the sender's
/// clock; since then, by a clock that was right then and now, within the bounds of one that cannot be set.
public struct AgeLimit: Equatable, Sendable {
  /// Seconds; `nil`: none is too old.
  public var oldest: Int64?
  /// Messages that were queued in the radio for an unknown time pass.
  public var takesWaited: Bool
  /// Programs act on events that pass: an unknown age is too old.
  public var isStrict: Bool

  public init(oldest: Int64?, takesWaited: Bool = true, isStrict: Bool = false) {
    self.oldest = oldest
    self.takesWaited = takesWaited
    self.isStrict = isStrict
  }

  /// The time at which an age is judged.
  struct Present {
    var wall: Moment
    /// Milliseconds since the machine's boot.
    var now: Int64
    var times: JournalTimes
  }

  func passes(_ event: JournalEvent, _ present: Present) -> Bool {
    guard event.kind != EventKind.gap.rawValue else { return true }
    let since = present.times.age(of: event, wall: present.wall, now: present.now)
    if oldest != nil, isStrict, since == nil { return false }
    if isOver(since ?? 0) { return false }
    guard event.kind == EventKind.message.rawValue, let body = event.json else { return true }
    let age = Self.plus(Self.seconds(body["age_s"]), since)
    if isOver(age ?? 0) { return false }
    guard body["waited"]?.bool == true else { return true }
    let longest = Self.plus(Self.seconds(body["waited_s"]), since)
    if let longest, oldest != nil, !isOver(longest) { return true }
    return takesWaited && (age != nil || longest.map { !isOver($0) } ?? true)
  }

  private func isOver(_ seconds: Int64) -> Bool { oldest.map { seconds > $0 } ?? false }

  /// At most a hundred years: the disk may hold any number.
  private static func seconds(_ value: JSONValue?) -> Int64? {
    value?.integer.map { min(max($0, 0), 3_200_000_000) }
  }

  private static func plus(_ seconds: Int64?, _ since: Int64?) -> Int64? { seconds.map { $0 + (since ?? 0) } }
}
