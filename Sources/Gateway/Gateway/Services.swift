// SPDX-License-Identifier: MIT

import EventLoop

/// A part of the gateway that lasts as long as the gateway.
struct Service {
  let begin: () -> Void
  /// Returns when it has ended.
  let end: () async -> Void
}

extension Daemon {
  /// In the order in which they begin; they end in the opposite one: first no message is taken from the radio any more, last the store is
  /// closed.
  var services: [Service] {
    let network = surroundings.network(loop) { [weak self] in self?.networkChanged() }
    return [
      Service(begin: { self.maintenance.start() }) {
        self.maintenance.stop()
        await self.closeStore()
      },
      Service(begin: {}) { self.control?.stop() },
      task { () throws(CancellationError) in try await self.replaceDamagedStores() },
      Service(begin: { self.relay.start() }) { self.relay.stop() },
      task { () throws(CancellationError) in try await self.publishStates() },
      Service(begin: { _ = network }) { withExtendedLifetime(network) {} },
      Service(begin: { self.messaging.messenger.start() }) { self.messaging.messenger.stop() },
      Service(begin: { self.connection.start() }) { self.connection.stop() },
      Service(begin: { self.proxy.listen(self.configuration.proxies) }) { self.proxy.stop() },
      Service(begin: { self.pages.serve(self.configuration.web) }) { self.pages.stop() },
      Service(begin: { self.beginAlerts() }) { self.alerts.stop() },
      task { () throws(CancellationError) in try await self.power.watchSupply() },
      // What the radio is handing over just now is on disk before the link goes.
      Service(begin: {}) { await self.synchronizer.finish(within: Self.shutdownGrace) },
    ]
  }

  /// A service that is one task.
  private func task(_ run: @escaping () async throws(CancellationError) -> Void) -> Service {
    let loop = loop
    var task: LoopTask?
    return Service(
      begin: {
        task = loop.begin {
          // Cancelled: the gateway ends.
          do throws(CancellationError) { try await run() } catch {}
        }
      },
      end: { task?.cancel() })
  }

  private func beginAlerts() {
    alerts.begin()
    alerts.configuration(configuration.refusal)
    if let words = store.putBack {
      alerts.historiesMet(words)
    } else if let loss = store.loss {
      alerts.storeIsLost("\(loss)")
    }
    alerts.radio(
      isUp: connection.state == .up, isScopeStuck: connection.isScopeStuck, message: summary)
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
    } catch {
      log.info("the final checkpoint failed, and is left to the next start: \(error)")
    }
  }
}
