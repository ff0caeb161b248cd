// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import SQLite
import Store
import Timing

/// `meshpostd --restore`: no daemon runs meanwhile.
extension Daemon {
  /// Replaces the store with a backup, which gets a new epoch. Returns the text for the operator.
  public static func restore(_ backup: String, _ configuration: GatewayConfiguration) throws(StartError) -> String {
    let (backup, clocks) = (DatabaseFile.behindLinks(backup), LinuxClocks())
    guard !Store.isItself(backup, configuration.store) else {
      throw StartError(message: "\(backup) is the database that a backup would replace: name a backup", code: EX_USAGE)
    }
    var isInPlace = false
    do {
      let (lost, isEmptied) = (Store.lostTransactions(of: backup), Store.isLogEmptied(of: backup))
      let earlier = Store.unfinishedMove(configuration.store.location)
      let replaced = try Store.restore(backup, settings: configuration.store, clocks: clocks) {
        // A kill in these moments loses nothing, but what is short should be done when the operator looks.
        Signals.hold([SIGHUP, SIGTERM, SIGINT])
      }
      isInPlace = true
      let log = lost.map { _ in backup + "-wal" }
      var missing = lost.map { ", without \($0) transactions or more: its log, \(backup)-wal, is damaged before them" }
      if isEmptied { missing = ", perhaps without its newest events: its log, \(backup)-wal, is empty" }
      let facts = try renewed(configuration, clocks, replaced, lacksLogged: missing != nil, damagedLog: log)
      let before = earlier.map { ". Before that, \($0)" } ?? ""
      let words = "\(backup) is restored\(missing ?? ""), \(facts)\(before)"
      // The store is closed now, and has all files that root has made.
      try Store.handOver(configuration.store)
      return replaced.map { "\(words). The previous database was saved as \($0.location)\(Self.left($0))" } ?? words
    } catch {
      let words = isInPlace ? nil : Self.refusal(error, of: backup, beside: configuration.store.location)
      throw StartError(message: words ?? "\(error). \(error.remedy)", code: EX_CANTCREAT)
    }
  }

  /// Why a backup did not come into its place; `nil`: for a reason that is not special to a restoration.
  private static func refusal(_ error: StoreError, of backup: String, beside location: String) -> String? {
    switch error {
    case .full(let words):
      "There is no room for a copy of \(backup) beside \(location) (\(words)): free disk space, and restore it again. The database is as it was."
    case .newer(let words):
      "The backup is of a newer version of Meshpost (\(words)): restore it with that version. The database is as it was."
    default: nil
    }
  }

  /// Reports the events that only the previous database has, and that upstreams do not get any more.
  private static func left(_ replaced: Store.Replaced) -> String {
    guard let unsent = replaced.unsent else {
      return "; it cannot be read, or only a part of it, so it is unknown which of its events upstreams lack"
    }
    let amounts = unsent.map { "\($0.upstream) \($0.events)" }.joined(separator: ", ")
    let words =
      unsent.isEmpty ? "; it has no upstreams" : "; events that only it has, and that each upstream lacks: \(amounts)"
    guard let other = replaced.otherGateway else { return words }
    return "\(words). The backup is of another gateway, \(other): with the same --config, "
      + "`meshpostd --restore \(replaced.location)` goes back"
  }

  private static func renewed(
    _ configuration: GatewayConfiguration, _ clocks: any Clocks, _ replaced: Store.Replaced?,
    lacksLogged: Bool, damagedLog: String?
  ) throws(StoreError) -> String {
    let store = try Store(configuration.store, clocks: clocks, replaced: replaced)
    // Otherwise opening it has renewed the epoch, and its first event reports the loss.
    if store.provenance.loss == nil {
      let loss = lacksLogged ? store.lossOfBackup(log: damagedLog) : nil
      try store.renewEpoch(telling: loss)
      if let loss { try store.keepForAlert(loss) }
    }
    return "epoch \(store.epoch), \(store.lastSeq) events"
  }
}
