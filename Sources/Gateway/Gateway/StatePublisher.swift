// SPDX-License-Identifier: MIT

import EventLoop
import Relay
import ServiceManager
import Store
import Sync

/// Notes changes of the gateway's state.
final class StateChange {
  private let noted = Waiter()
  private var isDue = false

  func note() {
    isDue = true
    noted.resume()
  }

  /// Waits for a change and then for `pause`: changes in this time are included.
  func next(after pause: Duration, on loop: EventLoop) async throws(CancellationError) {
    while !isDue { try await noted.wait() }
    try await loop.sleep(for: pause)
    isDue = false
  }
}

/// Publishes the gateway's state to servers and the service manager.
final class StatePublisher {
  /// At most one state in this time: each costs traffic.
  private static let pause: Duration = .seconds(2)

  let changes: StateChange
  /// `nil`: no service manager has started the gateway.
  let notifier: ServiceNotifier?
  private(set) var backlog = ShownBacklog()
  private var last: [UInt8] = []
  private let synchronizer: Synchronizer
  private let store: Store
  private let relay: Relay
  private let loop: EventLoop

  init(
    _ changes: StateChange, _ synchronizer: Synchronizer, _ store: Store, _ relay: Relay, manager: ServiceManager?,
    on loop: EventLoop, log: Log
  ) {
    (self.changes, self.synchronizer, self.store, self.relay, self.loop) = (changes, synchronizer, store, relay, loop)
    notifier = manager.map { ServiceNotifier($0, synchronizer, on: loop, log: log) }
  }

  /// One line for `systemctl status`.
  var summary: String {
    let radio =
      switch synchronizer.connection.state {
      case .up: "radio up, \(synchronizer.state.name)"
      case .waiting(let error): "radio down: \(error)"
      case .connecting, .handshaking: "looking for the radio"
      }
    return store.transactions.failure.map { "\(radio); \($0)" } ?? radio
  }

  /// The number of waiting events may have changed.
  func readBacklog() {
    if backlog.read(relay.mostPending, now: loop.now) { changes.note() }
  }

  /// Gives new upstreams the last state, if there is one.
  func tell(_ upstreams: [Upstream]) {
    guard !last.isEmpty else { return }
    for upstream in upstreams { upstream.setState("gateway", last) }
  }

  /// Publishes states until it is cancelled. `state`: as `GET /v1/status`, for servers; `nil`: unreadable.
  func run(_ state: () -> [UInt8]?) async throws(CancellationError) {
    while true {
      try await changes.next(after: Self.pause, on: loop)
      notifier?.changed(summary)
      guard let state = state(), state != last else { continue }
      last = state
      relay.setState("gateway", state)
    }
  }
}
