// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// Limits the log's lines about a connection that comes and goes: one about it, then at most one an hour with a count, and one when the connection
/// holds.
struct Unrest {
  /// A connection that has lasted this long is stable.
  static let calm: Duration = .seconds(600)
  private static let pause: Duration = .seconds(3600)
  /// The number of short connections in a row after which lines are limited: a server that is restarted twice does not come and go.
  private static let told = 2

  /// The log's line about a lost connection.
  enum Saying: Equatable { case first, again, often(Int), untold }

  /// The trouble before the present connection, which has taken nothing yet.
  var fruitless: UpstreamTrouble?
  /// The same trouble came back on that connection, and was logged: it is not logged again until events are taken.
  var isFruitless = false
  /// Runs until the connection has held for a while.
  var timer: LoopTimer?
  /// Since when there is a connection; `nil`: there is none.
  private var since: MonotonicTime?
  /// Connections that were lost soon, and those of them that were not logged.
  private var (times, untold) = (0, 0)
  private var saidAt: MonotonicTime?

  /// Whether to log it.
  mutating func comesBack(at now: MonotonicTime) -> Bool {
    since = now
    return saidAt == nil
  }

  mutating func goes(at now: MonotonicTime) -> Saying {
    // Another reason for the same loss.
    guard let since else { return saidAt == nil ? .first : .untold }
    self.since = nil
    guard now - since < Self.calm else {
      (times, untold, saidAt) = (0, 0, nil)
      return .first
    }
    times += 1
    guard times >= Self.told else { return .first }
    guard let saidAt else {
      self.saidAt = now
      return .again
    }
    untold += 1
    guard now - saidAt >= Self.pause else { return .untold }
    defer { (self.saidAt, untold) = (now, 0) }
    return .often(untold)
  }
}
