// SPDX-License-Identifier: MIT

import Store
import Timing

/// How a link to the radio ended.
struct LinkEnd {
  /// When the gateway noticed it.
  var at: MonotonicTime
  /// When it sent the first command after the last frame of the radio; `nil`: none.
  var silentSince: MonotonicTime?
  /// The line itself ended, so that announcements may be lost with it; it is noticed within this time, unless the
  /// gateway stood still. `nil`: the radio did not answer.
  var noticedWithin: Duration?
}

/// Knowledge about the radio's starts. A restart empties its queue, and the radio has acknowledged the direct messages
/// in it: if no gateway read the queue before, they may be lost. Pure.
struct RadioStarts {
  /// A radio reports whole seconds, and its link comes up or ends a moment after its start.
  static let exactness: Duration = .seconds(3)
  /// The clock of a radio without a quartz gains or loses this part.
  private static let drift = 2000.0
  /// The firmware counts milliseconds in 32 bits.
  static let turn: Duration = .milliseconds(1 << 32)
  /// A radio that starts at most this long before or after the machine has its power from the same source: until the
  /// power failed, the gateway read its queue.
  private static let power: Duration = .seconds(60)

  /// The start as it was when the radio was last connected, in this run or an earlier one.
  private var known: RadioStart?
  /// The end of the last link of this run.
  private var left: LinkEnd?

  /// Another radio than the last one is connected, or the first one. `kept`: its start as an earlier run knew it.
  mutating func connected(kept: RadioStart?) { (known, left) = (kept, nil) }

  mutating func disconnected(_ end: LinkEnd) { left = end }

  /// The last report showed a restart.
  private(set) var wasRestart = false

  /// The radio reports its start. True: it was restarted while no gateway read its queue. That also holds if the link
  /// stayed up: nobody knows whether the line passed its announcements.
  mutating func started(_ start: RadioStart, now: MonotonicTime) -> Bool {
    defer { (known, left) = (start, nil) }
    wasRestart = false
    guard let known, let time = start.time, isAnew(start, time, after: known, now: now) else { return false }
    wasRestart = true
    guard let left else {
      let isPowered = !isOlderThanMachine(time) && time < MonotonicTime(seconds: 0) + Self.power
      return known.time != nil || !isPowered
    }
    if let limit = left.noticedWithin, time + limit < left.at { return true }
    return time > (left.silentSince ?? left.at) + Self.exactness
  }

  /// The start in a form for the store; `nil`: the store has it.
  func news(after kept: RadioStart?, now: MonotonicTime) -> RadioStart? {
    guard let known, let time = known.time else { return nil }
    guard let kept, kept.time != nil, !isAnew(known, time, after: kept, now: now) else { return known }
    return nil
  }

  private func isOlderThanMachine(_ time: MonotonicTime) -> Bool { time + Self.power < MonotonicTime(seconds: 0) }

  private func isAnew(_ start: RadioStart, _ time: MonotonicTime, after known: RadioStart, now: MonotonicTime) -> Bool {
    guard let before = known.time else {
      // Over a restart of the machine nobody knows how much time has passed.
      return !isOlderThanMachine(time) || start.uptime + Self.exactness < known.uptime
    }
    let tolerance = Self.tolerance(over: now - before)
    return (time - before).inSeconds > tolerance && Self.turns(from: before, to: time, tolerance) == 0
  }

  /// By how many turns of the counter a start is a known one; 0: it is another one, or the same without a turn.
  static func turns(from before: MonotonicTime, to time: MonotonicTime, _ tolerance: Double) -> Double {
    let later = (time - before).inSeconds
    let turns = (later / turn.inSeconds).rounded()
    return turns > 0 && abs(later - turns * turn.inSeconds) <= tolerance ? turns : 0
  }

  /// By how many seconds two reports of one start may differ.
  static func tolerance(over time: Duration) -> Double { exactness.inSeconds + max(0, time.inSeconds) / drift }
}
