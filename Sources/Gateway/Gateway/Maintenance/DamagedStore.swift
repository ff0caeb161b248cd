// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import SQLite
import Store

extension Daemon {
  /// Upstreams, clients, and what waits to be sent belong to one database: they end with it, and begin with the one that takes its place.
  func replaceDamagedStores() async throws(CancellationError) {
    while true {
      // What fails while the next one is made ready must not take its place again.
      try await maintenance.untilDamaged()
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
      let unsent = relay.pending
      let location = try store.replaceDamaged(unsent: unsent.map(\.events).max() ?? 0)
      log.error("the database is damaged: saved as \(location); created a new one with a new epoch")
      try messaging.messenger.begin()
      try change(to: configuration)
      proxy.listen(configuration.proxies)
      synchronizer.restart(fully: true)
      alerts.storeReplaced(location, had: store.provenance.loss?.last, unsent: unsent)
      return true
    } catch {
      log.error("\(error). \(error.remedy) Retrying in a minute")
      return false
    }
  }

  private static let replacementInterval: Duration = .seconds(60)

  // MARK: A database that was removed

  static let goneRemedy =
    "Where a copy lies beside it (….lost-TIME), or a backup elsewhere, `meshpostd --restore FILE` puts it back"

  /// At the end: with its descriptor the last name of a removed database goes.
  func saveLostStore() async {
    guard store.isElsewhere else { return }
    let events = "\(store.lastSeq) events"
    let target = store.lostLocation
    do {
      try await copyStore(to: target)
      log.error(
        "the database file was removed or replaced while the gateway ran: all of it, \(events), was saved as \(target). "
          + "`meshpostd --restore \(target)` puts it back")
    } catch {
      unlink(target)
      log.error(
        "the database file was removed or replaced while the gateway ran, and could not be saved (\(error)): \(events) are lost, with all messages"
      )
    }
  }

  private func copyStore(to target: String) async throws {
    let backup = try store.beginBackup(to: target)
    // The watchdog is answered between two steps.
    while try !backup.step(pages: 1024) { try await loop.nextTurn() }
  }
}
