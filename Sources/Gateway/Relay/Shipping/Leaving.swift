// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// The end of an upstream that is removed or replaced while requests are under way.
struct Leaving {
  /// Then requests without an answer are given up: their events are sent again by an upstream of this name.
  let until: MonotonicTime
  let ended: () -> Void
}

/// A webhook, or a hook's program, cannot tell a repeated event from a new one. So the last requests end before the upstream does, and its successor
/// begins behind them.
extension Upstream {
  private static let longestLeave: Duration = .seconds(30)
  /// The answer to an operator who waits.
  static let replacedMeanwhile = "the upstream was changed or removed meanwhile"

  /// Requests are under way whose events the server would get again.
  var hasUncountedRequests: Bool {
    !carrier.serverKeepsCount && !carrier.keepsConnection && !underWay.flights.isEmpty
  }

  /// Sends nothing more, and ends with the answers to what is under way. `ended` is called once.
  func leave(_ ended: @escaping () -> Void) {
    leaving = Leaving(until: loop.now + Self.longestLeave, ended: ended)
    stopSkipping(Self.replacedMeanwhile)
    woken.resume()
  }

  func finish(_ leaving: Leaving) async throws(CancellationError) {
    let isDone = underWay.flights.isEmpty && shipment.holds.isDisjoint(with: [.burying, .removing])
    if !isDone, loop.now < leaving.until { return try await woken.wait(until: leaving.until, on: loop) }
    stop()
    throw CancellationError()
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
