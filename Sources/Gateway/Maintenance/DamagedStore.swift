// SPDX-License-Identifier: MIT

import Store

extension Daemon {
  /// A new database takes the place of the damaged one, which is kept; everybody begins anew with it.
  func replaceDamagedStore() {
    do {
      let location = try store.replaceDamaged()
      log.error("the database is damaged: saved as \(location); created a new one with a new epoch")
      try store.keepOnlyCursors(of: relay.upstreams.map(\.name))
      relay.storeReplaced()
      messaging.messenger.storeReplaced()
      proxy.storeReplaced()
      synchronizer.restart(fully: true)
    } catch {
      log.error("\(error). \(error.remedy) Trying again in a minute")
      loop.schedule(after: .seconds(60)) { [weak self] in self?.replaceDamagedStore() }
    }
  }
}
