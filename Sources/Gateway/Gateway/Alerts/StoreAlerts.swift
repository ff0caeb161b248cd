// SPDX-License-Identifier: MIT

import Alerts
import Store
import Timing
import UntrustedText

/// Whether the database is what it was, and where it was.
extension GatewayAlerts {
  /// Pause between two looks at the database's file that cost no wake-up.
  private static let betweenStats: Duration = .seconds(60)

  /// `saved`: where it lies now. What servers had not received of it did not come over: `unsent`, where that is known. `events`: how many it
  /// had, at least; `nil`: nobody knows.
  func storeWasDamaged(_ saved: String, had events: Int64?, unsent: [(upstream: String, events: Int64)]) {
    var text = "the database was damaged, and a new one begun: it was saved as \(saved)"
    if let events { text += ". There had been \(events) events or more" }
    if !unsent.isEmpty {
      let amounts = unsent.map { "\($0.upstream) \($0.events)" }.joined(separator: ", ")
      text += ", of which upstreams had not got: \(amounts.cut(toBytes: 200))"
    }
    storeIsLost(text)
  }

  /// What is there now is another one, which is well.
  func storeIsLost(_ text: String) { read(AlertSubject(.storeLost), .bad(text: text)) }

  func readStore() {
    lookedAtStore = loop.now
    store.lookAtOwnFile()
    let text =
      "the database file was removed or replaced: what is stored now is lost when the gateway is killed. "
      + "Save it now with `meshpost backup FILE`, then restart the gateway"
    read(AlertSubject(.storeLost), store.isElsewhere ? .bad(text: text) : .well)
  }

  /// Along with something that has woken the daemon anyway.
  func readStoreNowAndThen() {
    if let lookedAtStore, loop.now - lookedAtStore < Self.betweenStats { return }
    readStore()
  }
}
