// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// The end of an upstream that is removed or replaced, or ends with the gateway, while requests are under way.
struct Leaving {
  /// Then requests without an answer are given up: their events are sent again by an upstream of this name.
  let until: MonotonicTime
  let ended: () -> Void
}

/// A webhook, a hook's program or a broker's reader cannot tell a repeated event from a new one. So the last requests end before the upstream does, and
/// its successor begins behind them.
extension Upstream {
  /// A broker's acknowledgements come soon, or the connection is dead, and the successor waits for that. A server that keeps count gets nothing twice.
  private var longestLeave: Duration {
    carrier.keepsConnection || carrier.serverKeepsCount ? .seconds(5) : .seconds(30)
  }
  /// The answer to an operator who waits.
  static let replacedMeanwhile = "the upstream was changed or removed meanwhile"

  /// Requests are under way whose events the server would get again.
  var hasUncountedRequests: Bool { !carrier.serverKeepsCount && !underWay.flights.isEmpty }

  /// Sends nothing more, and ends with the answers to what is under way. `limit`: the longest wait, if less time is left than usual. `ended` is called
  /// once.
  func leave(within limit: Duration?, _ ended: @escaping () -> Void) {
    let patience = min(limit ?? longestLeave, longestLeave)
    leaving = Leaving(until: loop.now + patience, ended: ended)
    stopSkipping(Self.replacedMeanwhile)
    woken.resume()
  }

  /// It was paused: what is under way may still be answered, but a server that does not answer, or not to the end, must not hold the connection. A
  /// hook's program has a time limit of its own.
  func endPaused() {
    pausing?.cancel()
    pausing = loop.schedule(after: longestLeave) { [weak self] in
      guard let self, self.isPaused, self.isBusy, !UpstreamSettings.isHook(self.name) else { return }
      self.takeParts()
      self.endGreeting()
      self.hangUp()
      self.woken.resume()
    }
  }

  /// The task that greets ends, and another one waits for what comes next.
  private func endGreeting() {
    guard shipment.state == .asking, case .running(let task) = life else { return }
    task.cancel()
    life = .running(loop.begin { [weak self] in await self?.run() })
  }

  func finish(_ leaving: Leaving) async throws(CancellationError) {
    let isDone = underWay.flights.isEmpty && shipment.holds.isDisjoint(with: [.burying, .removing])
    if !isDone, loop.now < leaving.until { return try await woken.wait(until: leaving.until, on: loop) }
    takeParts()
    stop()
    throw CancellationError()
  }

  /// The answers to batches under way are given up. What the server has acknowledged of them by now is not sent again.
  func takeParts() {
    for lane in Lane.allCases {
      // A later batch counts only behind a whole one.
      for flight in underWay.flights where flight.lane == lane {
        guard flight.purpose == .journal, flight.epoch == store.epoch,
          let seq = carrier.taken(of: flight.batch), seq > journal.lanes[lane].taken
        else { break }
        journal.serverHas(seq, in: lane)
        journal.lanes[lane].isAhead = true
        advance(lane, flight.batch, to: seq)
        guard seq >= flight.batch.events.last?.seq ?? .max else { break }
      }
    }
  }

  /// Goes on behind the last answer to the upstream that it replaces.
  func succeed(_ old: Upstream) {
    guard !isClosed else { return }
    for lane in Lane.allCases { journal.lanes[lane].ahead = old.journal.lanes[lane].ahead }
    startOver(from: ByLane { max(journal.lanes[$0].taken, old.journal.lanes[$0].taken) })
    keepCursors()
    shipment.release([.succeeding])
    wake()
  }
}
