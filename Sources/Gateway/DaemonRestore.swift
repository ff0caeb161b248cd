// SPDX-License-Identifier: MIT

import Glibc
import Store

/// `meshpostd --restore`: no daemon runs meanwhile.
extension Daemon {
  /// Puts a backup into the place of the store, with a new epoch. Returns what to tell the operator.
  public static func restore(_ backup: String, _ configuration: GatewayConfiguration) throws(StartError) -> String {
    do {
      let kept = try Store.restore(backup, settings: configuration.store)
      let store = try Store(configuration.store)
      try store.renewEpoch()
      let words = "\(backup) is restored, epoch \(store.epoch), \(store.lastSeq) events"
      return kept.map { "\(words). What was there is kept as \($0)" } ?? words
    } catch {
      throw StartError(words: "\(error). \(error.remedy)", code: EX_CANTCREAT)
    }
  }
}
