// SPDX-License-Identifier: MIT

import EventLoop

/// A part of the gateway that runs as long as the gateway.
struct Service {
  let name: String
  /// Runs until it is cancelled.
  let run: () async throws(CancellationError) -> Void
  /// Runs after `run` has ended: asynchronous work at the end, which a cancelled task cannot do.
  let end: () async -> Void

  init(
    _ name: String, end: @escaping () async -> Void = {}, run: @escaping () async throws(CancellationError) -> Void
  ) {
    (self.name, self.run, self.end) = (name, run, end)
  }
}

/// Running services: one task for each.
final class RunningServices {
  private let running: [(service: Service, task: LoopTask)]

  /// Begins the services in their order. `endedEarly` gets the name of a service that ends by itself.
  init(_ services: [Service], on loop: EventLoop, endedEarly: @escaping (_ name: String) -> Void) {
    running = services.map { service in
      let task = loop.begin {
        // `try?`: an error is an end, too. Only `end` cancels this task.
        try? await service.run()
        if !Task.isCancelled { endedEarly(service.name) }
      }
      return (service, task)
    }
  }

  /// Ends the services in the opposite order. Each has ended before the next one is cancelled.
  func end() async {
    for (service, task) in running.reversed() {
      task.cancel()
      await task.ended()
      await service.end()
    }
  }
}

extension Daemon {
  /// The services, in the order in which they begin. They end in the opposite order: the radio first stops handing over
  /// messages, and the store is closed last.
  var services: [Service] {
    [
      Service("the store", end: closeStore) { () throws(CancellationError) in try await self.loop.untilCancelled() },
      Service("the store's maintenance") { () throws(CancellationError) in try await self.maintenance.run() },
      lasting("the control socket", begin: {}) { self.control?.stop() },
      Service("the replacement of a damaged store") { () throws(CancellationError) in
        try await self.replaceDamagedStores()
      },
      Service("forwarding", end: { await self.relay.finish(within: Self.answerGrace) }) {
        () throws(CancellationError) in
        self.relay.wake()
        try await self.loop.untilCancelled()
      },
      Service("publishing the state") { () throws(CancellationError) in
        try await self.publisher.run { self.control?.stateJSON() }
      },
      Service("watching the network") { () throws(CancellationError) in
        let watch = self.surroundings.network(self.loop) { [weak self] in self?.networkChanged() }
        defer { withExtendedLifetime(watch) {} }
        try await self.loop.untilCancelled()
      },
      Service("sending") { () throws(CancellationError) in try await self.messaging.messenger.run() },
      Service("the link to the radio") { () throws(CancellationError) in try await self.connection.run() },
      lasting("sharing the radio", begin: { self.proxy.listen(self.configuration.proxies) }) { self.proxy.stop() },
      lasting("the pages", begin: { self.pages.serve(self.configuration.web) }, end: pages.stop),
      lasting("the alerts", begin: beginAlerts, end: alerts.stop),
      Service("watching the supply") { () throws(CancellationError) in try await self.power.watchSupply() },
      // Stores the message that the radio is handing over before the link closes.
      Service("taking messages", end: { await self.synchronizer.finish(within: Self.shutdownGrace) }) {
        () throws(CancellationError) in try await self.loop.untilCancelled()
      },
    ]
  }

  /// A service with its own tasks, which change with the configuration.
  private func lasting(_ name: String, begin: @escaping () -> Void, end: @escaping () -> Void) -> Service {
    Service(name) { [loop] () throws(CancellationError) in
      begin()
      defer { end() }
      try await loop.untilCancelled()
    }
  }

  private func beginAlerts() {
    alerts.begin()
    alerts.configuration(configuration.refusal)
    if let words = store.provenance.putBack { alerts.historiesMet(words) }
    alerts.tellLosses()
    alerts.radio(
      isUp: connection.state == .up, isScopeStuck: connection.isScopeStuck, message: publisher.summary)
  }

  private func networkChanged() {
    log.info("the network has changed: retrying waiting upstreams")
    relay.networkChanged()
  }

  private func closeStore() async {
    store.settle()
    await saveLostStore()
    do {
      try store.checkpoint()
      try store.markProgress()
      try store.markEnd()
    } catch {
      log.info("the final checkpoint failed, and is left to the next start: \(error)")
    }
  }
}
