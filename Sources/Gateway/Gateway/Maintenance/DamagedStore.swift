// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import SQLite
import Store

extension Daemon {
  /// Makes a part of the gateway that reads the database as it begins. If it finds damage twice, in whatever table, the database is replaced like one
  /// whose damage shows when it is opened, and the part is made again, once: otherwise a single page would make every start fail. `others`: lets parts
  /// that were made before begin with the new database.
  static func begin<Part>(
    with store: Store, for upstreams: [String], _ make: () throws(StoreError) -> Part,
    others: () throws(StoreError) -> Void = {}
  ) throws(StoreError) -> Part {
    do throws(StoreError) {
      return try make()
    } catch {
      guard case .corrupt = error else { throw error }
    }
    do throws(StoreError) {
      // A read that the disk refuses looks like damage, and may succeed now. Then a check of the whole database follows.
      return try make()
    } catch {
      guard case .corrupt = error else { throw error }
      // Waiting writes belong to the old database, and fail with it.
      store.settle()
      _ = try store.replaceDamaged(upstreams: upstreams)
      try others()
      return try make()
    }
  }

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
      var replaced: Replacement?
      while true {
        // The new database may be damaged in its turn, before anything goes on with it.
        if replaced == nil || store.isDamaged { replaced = replaceDamagedStore(after: replaced) ?? replaced }
        if let replaced, !store.isDamaged, goOn(after: replaced) { break }
        try await loop.sleep(for: Self.replacementInterval)
      }
      doubts = 0
    }
  }

  /// Whether a check of the whole database confirms the damage. A disk that refuses reads for a while is waited for; pages that stay unreadable
  /// are damage.
  private func isDamaged() async throws(CancellationError) -> Bool {
    var (pause, told): (Duration, StoreError?) = (.seconds(5), nil)
    for _ in 0..<Self.mostChecks {
      do throws(StoreError) {
        if try confirmDamage() { return true }
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

  private func confirmDamage() throws(StoreError) -> Bool {
    guard let notifier = publisher.notifier else { return try store.confirmDamage() }
    return try notifier.patiently { () throws(StoreError) in try store.confirmDamage() }
  }

  /// They take ten minutes, and a little more.
  private static let mostChecks = 14
  private static let mostDoubts = 3

  /// What is told when everything goes on with the new database.
  private struct Replacement {
    /// Where the damaged database was saved, and its last known event.
    let location: String
    let had: Int64?
    /// Upstreams that lacked events, and the number of these.
    let unsent: [(upstream: String, events: Int64)]
  }

  /// Returns nil if it has to be tried again. `earlier`: the database that is damaged now had replaced another one, and
  /// no upstream has got anything of it.
  private func replaceDamagedStore(after earlier: Replacement?) -> Replacement? {
    do throws(StoreError) {
      // Waiting writes belong to the old database, and fail with it.
      store.settle()
      let lacking = relay.lacking
      let unsent = lacking.compactMap { one in one.events.map { (upstream: one.upstream, events: $0) } }
      var most: Int64? = earlier == nil ? unsent.map(\.events).max() ?? 0 : store.lastSeq
      // The damage does not let all dead letters be counted.
      if unsent.count < lacking.count { most = nil }
      let location = try store.replaceDamaged(unsent: most, upstreams: relay.upstreams.map(\.name))
      log.error("the database is damaged: saved as \(location); created a new one with a new epoch")
      return Replacement(
        location: earlier?.location ?? location, had: earlier?.had ?? store.provenance.loss?.last,
        unsent: earlier?.unsent ?? unsent)
    } catch {
      tellRetry(error)
      return nil
    }
  }

  /// Upstreams, clients and waiting messages begin again. Returns false if that has to be tried again: with this
  /// database, which has the loss, and perhaps messages since.
  private func goOn(after replaced: Replacement) -> Bool {
    do throws(StoreError) {
      try messaging.messenger.begin()
      try change(to: configuration)
    } catch {
      tellRetry(error)
      return false
    }
    proxy.listen(configuration.proxies)
    synchronizer.restart(fully: true)
    alerts.storeReplaced(replaced.location, had: replaced.had, unsent: replaced.unsent)
    return true
  }

  private func tellRetry(_ error: StoreError) { log.error("\(error). \(error.remedy) Retrying in a minute") }

  private static let replacementInterval: Duration = .seconds(60)

  // MARK: A database that was removed

  static let goneRemedy =
    "If there is a copy beside it (….lost-TIME, ….replaced-TIME), or a backup, `meshpostd --restore FILE` restores it"

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
