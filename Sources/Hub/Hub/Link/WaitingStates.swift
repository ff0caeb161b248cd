// SPDX-License-Identifier: MIT

import JSON
import Synchronization

/// Stores the states of a link's gateway. A state for which the disk has no room, or which the database does not take now, waits here, the newest one
/// of each name: without the link the gateway could not learn why its events wait, and would send the same state on the next link.
final class WaitingStates: Sendable {
  /// Most names, as in the database.
  private static let most = Int(HubBounds.states)

  private let gateway: String
  private let stores: HubStores
  /// Until a retry, in seconds: a random one spreads the fleet.
  private let pause: ClosedRange<Double>
  private let state = Mutex((states: [String: JSONValue](), retry: Task<Void, Never>?.none))

  init(of gateway: String, _ stores: HubStores, pause: ClosedRange<Double> = 2...6) {
    (self.gateway, self.stores, self.pause) = (gateway, stores, pause)
  }

  /// Returns when the state is stored, or waits.
  func keep(_ body: JSONValue, as name: String) async throws {
    let waiting = state.withLock { state in
      state.states[name] = nil
      return stores.beginState(name, body, of: gateway, at: HubClock.now)
    }
    try await finish(waiting, name, body)
  }

  /// The link has ended.
  func end() {
    state.withLock { state in
      state.retry?.cancel()
      state.states = [:]
    }
  }

  private func finish(
    _ waiting: Coalescer<GatewayState, Bool>.Ticket?, _ name: String, _ body: JSONValue
  ) async throws {
    do {
      _ = try await waiting?.answer()
    } catch let error as HubDatabaseError where error.kind == .unavailable {
      state.withLock { state in
        guard state.states[name] == nil, state.states.count < Self.most else { return }
        state.states[name] = body
        if state.retry == nil { state.retry = Task { [weak self] in await self?.retry() } }
      }
    }
  }

  private func retry() async {
    while true {
      do {
        try await Task.sleep(for: .seconds(Double.random(in: pause)))
        for name in state.withLock({ Array($0.states.keys) }) {
          let next = state.withLock { state in
            state.states.removeValue(forKey: name).map { body in
              (body, stores.beginState(name, body, of: gateway, at: HubClock.now))
            }
          }
          if let (body, waiting) = next { try await finish(waiting, name, body) }
        }
      } catch is CancellationError {
        return
      } catch {
        // The database can never store this state: the next one may fit.
      }
      let isDone = state.withLock { state in
        if state.states.isEmpty { state.retry = nil }
        return state.states.isEmpty
      }
      if isDone { return }
    }
  }
}
