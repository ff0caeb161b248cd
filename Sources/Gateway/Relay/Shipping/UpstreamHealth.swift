// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// What goes wrong at an upstream.
struct UpstreamTrouble: Equatable {
  /// An operator has to act.
  var isStopped: Bool
  var reason: String
}

/// How an upstream fares: what goes wrong, since when events wait, and what the log has said of it.
final class UpstreamHealth {
  /// Whether the server takes events. One that answers and takes none does not work: `trouble` ends with each connection.
  private enum Acceptance: Equatable { case untried, takes, refuses(reason: String) }

  private let name: String
  private let log: Log
  private let loop: EventLoop
  weak var observer: (any UpstreamObserver)?
  /// What went wrong, and was logged, since something was answered.
  private(set) var trouble: UpstreamTrouble? {
    didSet { if trouble != oldValue { observer?.upstreamTroubleChanged() } }
  }
  private var acceptance = Acceptance.untried {
    didSet { if isRefusing != Self.refuses(oldValue) { observer?.upstreamTroubleChanged() } }
  }
  /// What the log has said of a connection that comes and goes.
  private var unrest = Unrest()
  var starts = FreshStarts()
  /// Since when events wait and none was acknowledged; `nil`: none wait.
  private var waitsSince: MonotonicTime?
  /// Milliseconds since 1970.
  private(set) var lastSuccess: Int64?
  private(set) var batches: UInt64 = 0

  /// So long what waits may go without an acknowledgement, before an upstream without any trouble is said to be stuck.
  private static let longestSilence: Duration = .seconds(60)

  init(_ name: String, on loop: EventLoop, log: Log) { (self.name, self.loop, self.log) = (name, loop, log) }

  private static func refuses(_ acceptance: Acceptance) -> Bool {
    if case .refuses = acceptance { true } else { false }
  }
  private var isRefusing: Bool { Self.refuses(acceptance) }

  // MARK: What happens

  func eventsWait() { if waitsSince == nil { waitsSince = loop.now } }
  func nothingWaits() { waitsSince = nil }
  func batchTaken() { batches &+= 1 }
  func succeeded() { lastSuccess = loop.wallClock.milliseconds }

  /// The server takes events: it has taken some, or refuses one for good.
  func takesEvents() { acceptance = .takes }

  /// Some were acknowledged, of that many `pending` are left.
  func acknowledged(pending: Int64) {
    recovered(pending: pending, hasTaken: true)
    waitsSince = pending > 0 ? loop.now : nil
    observer?.upstreamAcknowledged()
  }

  /// What of the events that wait goes wrong. An upstream that may not be tried is not asked.
  func progress(pending: Int64) -> Relay.Progress {
    switch acceptance {
    case .refuses(let reason): return .stuck(events: pending, reason: reason)
    case .untried: return .unknown
    case .takes:
      // That something was taken once says nothing of what waits now.
      guard let waitsSince, loop.now - waitsSince >= Self.longestSilence else { return .fine }
      return .stuck(events: pending, reason: "nothing was acknowledged for \(Int((loop.now - waitsSince).inSeconds)) s")
    }
  }

  // MARK: What the log says

  /// A connection is there, or events were taken.
  func recovered(pending: Int64, hasTaken: Bool = false) {
    let before = trouble
    trouble = nil
    let isFruitless = unrest.isFruitless
    if before != nil || (hasTaken && isFruitless), hasTaken || pending == 0 || !isFruitless {
      if unrest.comesBack(at: loop.now) {
        log.notice("\(name): connected again, \(pending) events to send")
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

  /// It came and went, and has not for a while.
  private func holdsAgain() {
    guard trouble == nil else { return }
    log.notice("\(name): the connection holds again")
    unrest = Unrest()
  }

  /// Once per trouble, not per try: of a server that answers each connection and takes nothing, too, and of one that takes a little each time.
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
      log.warning(
        "\(name): \(now.reason), again: it can be reached, and takes nothing. Nothing is lost; retrying automatically")
      return
    }
    unrest.isFruitless = false
    if now.isStopped {
      unrest = Unrest()
      log.error("\(name): stopped: \(now.reason). Nothing is lost; fix it, then run `meshpost upstream resume`")
      return
    }
    switch unrest.goes(at: loop.now) {
    case .first: log.warning("\(name): \(now.reason). Nothing is lost; retrying automatically")
    case .again:
      log.warning(
        "\(name): \(now.reason), again: the connection comes and goes (logged at most once an hour). Nothing is lost; retrying automatically"
      )
    case .often(let times):
      log.warning(
        "\(name): \(now.reason): the connection came and went \(times) times since this was logged last. Nothing is lost"
      )
    case .untold: break
    }
  }

  /// The upstream ends.
  func end() {
    unrest.timer?.cancel()
    observer = nil
  }
}
