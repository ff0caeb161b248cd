// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Store
import Timing

/// `meshpostd --restore`: no daemon runs meanwhile.
extension Daemon {
  /// Puts a backup into the place of the store, with a new epoch. Returns what to tell the operator.
  public static func restore(_ backup: String, _ configuration: GatewayConfiguration) throws(StartError) -> String {
    let clocks = LinuxClocks()
    do {
      let replaced = try Store.restore(backup, settings: configuration.store, clocks: clocks)
      let words = "\(backup) is restored, \(try renewed(configuration, clocks, replaced))"
      // It is closed now, and what root has made is there.
      try Store.handOver(configuration.store)
      return replaced.map { "\(words). The previous database was saved as \($0.location)\(Self.left($0))" } ?? words
    } catch {
      throw StartError(message: "\(error). \(error.remedy)", code: EX_CANTCREAT)
    }
  }

  /// What was heard since the backup is in the previous database alone.
  private static func left(_ replaced: Store.Replaced) -> String {
    guard let unsent = replaced.unsent else {
      return "; what upstreams had not got of it is not known: it cannot be read"
    }
    guard !unsent.isEmpty else { return "; nothing that an upstream has not got is there alone" }
    let amounts = unsent.map { "\($0.upstream) \($0.events)" }.joined(separator: ", ")
    return "; events of it that an upstream had not got, and that are there alone: \(amounts)"
  }

  private static func renewed(
    _ configuration: GatewayConfiguration, _ clocks: any Clocks, _ replaced: Store.Replaced?
  ) throws(StoreError) -> String {
    let store = try Store(configuration.store, clocks: clocks, replaced: replaced)
    // Else it is new since the store was opened, and its first event tells what is lost.
    if store.provenance.loss == nil { try store.renewEpoch() }
    return "epoch \(store.epoch), \(store.lastSeq) events"
  }
}
