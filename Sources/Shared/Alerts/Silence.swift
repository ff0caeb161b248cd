// SPDX-License-Identifier: MIT

import Timing

/// Finds nodes and gateways that are silent for too long. Pure.
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

  /// The last contact of the name; `nil`: it is not watched.
  public func heard(_ name: Name) -> MonotonicTime? { lines[name]?.heard }

  /// Watches a name with a contact at this time. If it is watched already, the later contact counts.
  public mutating func listen(for name: Name, heard: MonotonicTime, limit: Duration) {
    lines[name] = Line(heard: max(heard, lines[name]?.heard ?? heard), limit: limit)
  }

  /// Skips the time from `begin` to `end`, in which no contact was possible: it does not count as silence. Names that were not late at `begin` have
  /// at least `least` after it; late names stay late.
  public mutating func pass(from begin: MonotonicTime, to end: MonotonicTime, least: Duration) {
    for (name, line) in lines {
      let heard = line.heard + (end - begin)
      let isLate = begin - line.heard >= line.limit
      lines[name]?.heard = isLate ? heard : min(end, max(heard, end + (least - line.limit)))
    }
  }

  public mutating func ignore(_ name: Name) { lines[name] = nil }

  /// Notes a contact. False: the name is not watched.
  @discardableResult
  public mutating func hear(_ name: Name, at time: MonotonicTime) -> Bool {
    guard let line = lines[name] else { return false }
    lines[name]?.heard = max(time, line.heard)
    return true
  }

  public func isLate(_ name: Name, now: MonotonicTime) -> Bool {
    lines[name].map { now - $0.heard >= $0.limit } ?? false
  }

  /// When the next name becomes late that was not late at the last check, `looked`. If that time has passed, check again now.
  public func due(after looked: MonotonicTime) -> MonotonicTime? {
    lines.values.map { $0.heard + $0.limit }.filter { $0 > looked }.min()
  }
}
