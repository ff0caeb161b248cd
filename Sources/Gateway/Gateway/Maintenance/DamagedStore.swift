// SPDX-License-Identifier: MIT

import EventLoop
import Store

extension Daemon {
  /// Upstreams, clients, and what waits to be sent belong to one database: they end with it, and begin with the one that takes its place.
  func replaceDamagedStores() async throws(CancellationError) {
    while true {
      // What fails while the next one is made ready must not take its place again.
      while !store.isDamaged { try await damage.wait() }
      proxy.stop("the database was replaced")
      relay.stop()
      while !replaceDamagedStore() { try await loop.sleep(for: Self.replacementInterval) }
    }
  }

  /// False: it cannot be done now.
  private func replaceDamagedStore() -> Bool {
    do throws(StoreError) {
      // What is still to be written belongs to the old one, and fails with it.
      store.settle()
      let location = try store.replaceDamaged()
      log.error("the database is damaged: saved as \(location); created a new one with a new epoch")
      try messaging.messenger.begin()
      try change(to: configuration)
      proxy.listen(configuration.proxies)
      synchronizer.restart(fully: true)
      alerts.storeReplaced(location)
      return true
    } catch {
      log.error("\(error). \(error.remedy) Retrying in a minute")
      return false
    }
  }

  private static let replacementInterval: Duration = .seconds(60)
}
