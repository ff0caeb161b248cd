// SPDX-License-Identifier: MIT

import Timing

/// Who is to be heard now and then, and has not been for too long. Pure.
///
/// It only tells who is late: whether that begins an alert, or ends one, `AlertBoard` decides.
public struct Silence<Name: Hashable & Sendable>: Sendable {
  private struct Line {
    var heard: MonotonicTime
    var limit: Duration
  }

  private var lines: [Name: Line] = [:]

  public init() {}

  public var names: [Name] { Array(lines.keys) }

  /// When somebody was heard last; `nil`: nobody listens for them.
  public func heard(_ name: Name) -> MonotonicTime? { lines[name]?.heard }

  /// Listens, from what was heard at that time on. What is listened for keeps what was heard later.
  public mutating func listen(for name: Name, heard: MonotonicTime, limit: Duration) {
    lines[name] = Line(heard: max(heard, lines[name]?.heard ?? heard), limit: limit)
  }

  /// Nobody could be heard from `begin` to `end`: that time counts for nobody as silence. Who was not late by then has at least `least` from
  /// now on; who was late stays so.
  public mutating func pass(from begin: MonotonicTime, to end: MonotonicTime, least: Duration) {
    for (name, line) in lines {
      let heard = line.heard + (end - begin)
      let isLate = begin - line.heard >= line.limit
      lines[name]?.heard = isLate ? heard : min(end, max(heard, end + (least - line.limit)))
    }
  }

  public mutating func ignore(_ name: Name) { lines[name] = nil }

  /// Somebody was heard. False: nobody listens for them.
  @discardableResult
  public mutating func hear(_ name: Name, at time: MonotonicTime) -> Bool {
    guard let line = lines[name] else { return false }
    lines[name]?.heard = max(time, line.heard)
    return true
  }

  public func isLate(_ name: Name, now: MonotonicTime) -> Bool {
    lines[name].map { now - $0.heard >= $0.limit } ?? false
  }

  /// When the next one is late who was not so at the last look, `looked`. It may have passed since: then it is time to look.
  public func due(after looked: MonotonicTime) -> MonotonicTime? {
    lines.values.map { $0.heard + $0.limit }.filter { $0 > looked }.min()
  }
}
