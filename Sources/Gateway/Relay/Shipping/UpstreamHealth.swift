// SPDX-License-Identifier: MIT

import EventLoop
import Timing

struct UpstreamTrouble: Equatable {
  /// An operator has to act.
  var isStopped: Bool
  var reason: String
}

/// The health of an upstream: its trouble, the time for which events wait, and the log's lines about it.
final class UpstreamHealth {
  /// Whether the server takes events. `trouble` does not show this: it ends with each new connection, even if the server takes nothing on it.
  private enum Acceptance: Equatable { case untried, takes, refuses(reason: String) }

  private let name: String
  private let log: Log
  private let loop: EventLoop
  weak var observer: (any UpstreamObserver)?
  /// The logged trouble; `nil` once the server answers.
  private(set) var trouble: UpstreamTrouble? {
    didSet { if trouble != oldValue { observer?.upstreamTroubleChanged() } }
  }
  private var acceptance = Acceptance.untried {
    didSet { if isRefusing != Self.refuses(oldValue) { observer?.upstreamTroubleChanged() } }
  }
  private var unrest = Unrest()
  var starts = FreshStarts()
  /// Since when events wait without an acknowledgement; `nil`: none wait.
  private var waitsSince: MonotonicTime?
  /// Milliseconds since 1970.
  private(set) var lastSuccess: Int64?
  private(set) var batches: UInt64 = 0

  /// After so long without an acknowledgement, an upstream with waiting events is stuck even without trouble.
  private static let longestSilence: Duration = .seconds(60)

  init(_ name: String, on loop: EventLoop, log: Log) { (self.name, self.loop, self.log) = (name, loop, log) }

  static func isLong(_ silence: Duration) -> Bool { silence >= longestSilence }

  private static func refuses(_ acceptance: Acceptance) -> Bool {
    if case .refuses = acceptance { true } else { false }
  }
  private var isRefusing: Bool { Self.refuses(acceptance) }

  // MARK: Events

  func eventsWait() { if waitsSince == nil { waitsSince = loop.now } }
  func nothingWaits() { waitsSince = nil }
  func batchTaken() { batches &+= 1 }
  func succeeded() { lastSuccess = loop.wallClock.milliseconds }

  /// The server takes events: it has taken some, or refuses one for good.
  func takesEvents() { acceptance = .takes }

  /// The server acknowledged events, and `pending` are left.
  func acknowledged(pending: Int64) {
    recovered(pending: pending, hasTaken: true)
    waitsSince = pending > 0 ? loop.now : nil
  }

  /// The progress of waiting events. Callers do not ask for an upstream that may not send.
  func progress(pending: Int64) -> Relay.Progress {
    switch acceptance {
    case .refuses(let reason): return .stuck(events: pending, reason: reason)
    case .untried, .takes:
      // An earlier acknowledgement says nothing about the events that wait now.
      if let silence { return .stuck(events: pending, reason: silence) }
      return acceptance == .takes ? .fine : .unknown
    }
  }

  /// Events wait, and nothing was acknowledged for long; `nil`: it is not so.
  var silence: String? {
    guard let waitsSince, Self.isLong(loop.now - waitsSince) else { return nil }
    return "nothing was acknowledged for \(Int((loop.now - waitsSince).inSeconds)) s"
  }

  // MARK: The log

  /// There is a connection, or events were taken.
  func recovered(pending: Int64, hasTaken: Bool = false) {
    let before = trouble
    trouble = nil
    let isFruitless = unrest.isFruitless
    if before != nil || (hasTaken && isFruitless), hasTaken || pending == 0 || !isFruitless {
      if unrest.comesBack(at: loop.now) {
        log.notice("\(name): connected again; events to send: \(pending)")
      } else {
        unrest.timer = loop.schedule(after: Unrest.calm) { [weak self] in self?.holdsAgain() }
      }
    }
    if hasTaken || pending == 0 {
      (unrest.fruitless, unrest.isFruitless) = (nil, false)
    } else if let before {
      unrest.fruitless = before
    }
  }

  /// The connection came and went, but has held for a while.
  private func holdsAgain() {
    guard trouble == nil else { return }
    log.notice("\(name): the connection holds again")
    unrest = Unrest()
  }

  /// Logs a trouble once, not with each try, even if the server answers each connection and takes nothing, or a little each time.
  func report(_ state: Shipment.State) {
    let now: UpstreamTrouble
    switch state {
    case .waiting(_, let reason), .busy(_, let reason): now = UpstreamTrouble(isStopped: false, reason: reason)
    case .stopped(_, let reason): now = UpstreamTrouble(isStopped: true, reason: reason)
    case .greeting, .asking, .testing, .ready: return
    }
    acceptance = .refuses(reason: now.reason)
    guard now != trouble else { return }
    trouble = now
    unrest.timer?.cancel()
    if now == unrest.fruitless, !now.isStopped {
      guard !unrest.isFruitless else { return }
      unrest.isFruitless = true
      log.warning("\(name): \(now.reason), again: it can be reached, and takes nothing. Retrying automatically")
      return
    }
    unrest.isFruitless = false
    if now.isStopped {
      unrest = Unrest()
      log.error("\(name): stopped: \(now.reason). \(UpstreamStatus.remedyOfStop)")
      return
    }
    switch unrest.goes(at: loop.now) {
    case .first: log.warning("\(name): \(now.reason). Retrying automatically")
    case .again:
      log.warning(
        "\(name): \(now.reason), again: the connection comes and goes (logged at most once an hour). Retrying automatically"
      )
    case .often(let times):
      log.warning("\(name): \(now.reason): the connection came and went (\(times)× since this was logged last)")
    case .untold: break
    }
  }

  func end() {
    unrest.timer?.cancel()
    observer = nil
  }
}
