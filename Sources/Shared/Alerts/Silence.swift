// SPDX-License-Identifier: MIT

import Timing

/// Finds nodes and gateways that were not heard for too long. Pure.
///
/// It only reports late names; `AlertBoard` decides whether an alert begins or ends.
public struct Silence<Name: Hashable & Sendable>: Sendable {
  private struct Line {
    var heard: MonotonicTime
    var limit: Duration
  }

  private var lines: [Name: Line] = [:]

  public init() {}

  public var names: [Name] { Array(lines.keys) }

  /// When the name was heard last; `nil`: it is not watched.
  public func heard(_ name: Name) -> MonotonicTime? { lines[name]?.heard }

  /// Watches a name that was heard at this time. If it is watched already, the later time counts.
  public mutating func listen(for name: Name, heard: MonotonicTime, limit: Duration) {
    lines[name] = Line(heard: max(heard, lines[name]?.heard ?? heard), limit: limit)
  }

  /// Nothing could be received from `begin` to `end`: this time does not count as silence. Names that were not late at `begin` get at least `least`
  /// from now on; late ones stay late.
  public mutating func pass(from begin: MonotonicTime, to end: MonotonicTime, least: Duration) {
    for (name, line) in lines {
      let heard = line.heard + (end - begin)
      let isLate = begin - line.heard >= line.limit
      lines[name]?.heard = isLate ? heard : min(end, max(heard, end + (least - line.limit)))
    }
  }

  public mutating func ignore(_ name: Name) { lines[name] = nil }

  /// A name was heard. False: it is not watched.
  @discardableResult
  public mutating func hear(_ name: Name, at time: MonotonicTime) -> Bool {
    guard let line = lines[name] else { return false }
    lines[name]?.heard = max(time, line.heard)
    return true
  }

  public func isLate(_ name: Name, now: MonotonicTime) -> Bool {
    lines[name].map { now - $0.heard >= $0.limit } ?? false
  }

  /// When the next name becomes late that was not late at the last check, `looked`. The time may have passed already: then check again now.
  public func due(after looked: MonotonicTime) -> MonotonicTime? {
    lines.values.map { $0.heard + $0.limit }.filter { $0 > looked }.min()
  }
}
