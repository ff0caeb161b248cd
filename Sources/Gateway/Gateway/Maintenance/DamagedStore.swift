// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import SQLite
import Store

extension Daemon {
  /// Upstreams, clients and waiting messages belong to one database: they end with it, and begin again.
  func replaceDamagedStores() async throws(CancellationError) {
    // SQLite may report damage that its check does not find, such as in an index of words: not for ever.
    var doubts = 0
    while true {
      try await maintenance.untilDamaged()
      doubts += 1
      if doubts <= Self.mostDoubts, try await !isDamaged() { continue }
      proxy.stop("the database was replaced")
      relay.stop()
      while !replaceDamagedStore() { try await loop.sleep(for: Self.replacementInterval) }
      doubts = 0
    }
  }

  /// Whether a check of the whole database confirms the damage. A disk that refuses reads for a while is waited for; pages that stay unreadable
  /// are damage.
  private func isDamaged() async throws(CancellationError) -> Bool {
    var (pause, told): (Duration, StoreError?) = (.seconds(5), nil)
    for _ in 0..<Self.mostChecks {
      do throws(StoreError) {
        if try store.confirmDamage() { return true }
        log.warning(
          "a read looked like damage of the database, and a check of all of it finds none: the gateway goes on with it")
        relay.resume()
        synchronizer.restart(fully: false)
        return false
      } catch {
        if told != error { log.error("the database may be damaged, and cannot be checked: \(error). Retrying") }
        told = error
      }
      try await loop.sleep(for: pause)
      pause = min(pause * 2, Self.replacementInterval)
    }
    return true
  }

  /// They take ten minutes, and a little more.
  private static let mostChecks = 14
  private static let mostDoubts = 3

  /// Returns false if it has to be tried again.
  private func replaceDamagedStore() -> Bool {
    do throws(StoreError) {
      // Waiting writes belong to the old database, and fail with it.
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
    "If there is a copy beside it (….lost-TIME), or a backup, `meshpostd --restore FILE` restores it"

  /// Saves a removed database at the end: the closing of its descriptor would delete it.
  func saveLostStore() async {
    guard store.isElsewhere, !store.isSetAside else { return }
    let (last, target) = (store.lastSeq, store.lostLocation)
    do {
      try await copyStore(to: target)
      log.error(
        "the database file was removed or replaced while the gateway ran: all of it, up to event \(last), was saved as \(target). "
          + "`meshpostd --restore \(target)` restores it")
    } catch {
      unlink(target)
      log.error(
        "the database file was removed or replaced while the gateway ran, and could not be saved (\(error)): all events up to \(last) are lost, with all messages"
      )
    }
  }

  private func copyStore(to target: String) async throws {
    let backup = try store.beginBackup(to: target)
    // Between two steps the watchdog gets its sign of life.
    while try !backup.step(pages: 1024) { try await loop.nextTurn() }
  }
}
