// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// What the log has said of a connection that comes and goes: it is said once, then at most once an hour with how often, and so is its end.
struct Unrest {
  /// A connection that has been there for so long has not come to go.
  static let calm: Duration = .seconds(600)
  private static let pause: Duration = .seconds(3600)
  /// So many times in a row each is said: a server that is restarted twice is none that comes and goes.
  private static let told = 2

  /// What is said of a connection that goes.
  enum Saying: Equatable { case first, again, often(Int), untold }

  /// What ended before a connection that has taken nothing yet.
  var fruitless: UpstreamTrouble?
  /// It came back on that connection, which was logged: what comes and goes like that is not, until events are taken.
  var isFruitless = false
  /// Until it has held for a while.
  var timer: LoopTimer?
  /// Since when it is there; `nil`: it is away.
  private var since: MonotonicTime?
  /// Times that it went soon after it had come, and those that were not said.
  private var (times, untold) = (0, 0)
  private var saidAt: MonotonicTime?

  /// Whether that is said.
  mutating func comesBack(at now: MonotonicTime) -> Bool {
    since = now
    return saidAt == nil
  }

  mutating func goes(at now: MonotonicTime) -> Saying {
    // Another reason of the same absence.
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
