// SPDX-License-Identifier: MIT

import Alerts
import Store
import Timing
import UntrustedText

/// Checks that the database and its log are the same files, in their places.
extension GatewayAlerts {
  /// Pause between two checks of the database's file, which cost no wake-up.
  private static let betweenStats: Duration = .seconds(60)

  private static let elsewhere =
    "the database file was removed or replaced: new data is lost if the gateway is killed. "
    + "Save it now with `meshpost backup FILE`, then restart the gateway"
  private static let logElsewhere =
    "the database's log was removed or replaced: what is in it is lost if the gateway is killed. "
    + "Restart the gateway: at its end it writes all of the log into the database"

  /// `saved`: the location of the damaged database. `unsent`: the numbers of its events that upstreams had not
  /// received, as far as they are known. `events`: the minimum number of its events; `nil`: unknown.
  func storeWasDamaged(_ saved: String, had events: Int64?, unsent: [(upstream: String, events: Int64)]) {
    var text = "the database was damaged, and a new one begun: it was saved as \(saved)"
    if let events { text += ". There had been \(events) events or more" }
    if !unsent.isEmpty {
      let amounts = unsent.map { "\($0.upstream) \($0.events)" }.joined(separator: ", ")
      text += ", of which upstreams had not got: \(amounts.cut(toBytes: 200))"
    }
    storeIsLost(text, .damaged)
  }

  /// The new database is well: the alert ends after its time. An alert for each cause: one of an earlier loss stays open
  /// for a day, and would lose its words, with the name of the saved file, to this one.
  func storeIsLost(_ text: String, _ cause: StoreLoss.Cause) {
    tellIncident(AlertSubject(.storeLost, cause.rawValue), text)
  }

  /// Losses that were found as the database was opened, also by a restoration, which has no alerts.
  func tellLosses() {
    guard let losses = store.ifReadable({ try store.lossesForAlerts() }), !losses.isEmpty else { return }
    for (cause, words) in losses { storeIsLost(words, cause) }
    // Not before the alerts are on disk: told twice, they have the same words.
    writer.whenWritten { [store] in
      store.post("losses that have alerts") { store throws(SQLiteError) in try store.forgetLossesForAlerts() }
    }
  }

  private static let file = "file"

  func readStore() {
    lookedAtStore = loop.now
    for subject in board.open where subject.rule == .storeLost && !subject.name.isExactly(Self.file) {
      read(subject, .well)
    }
    let isElsewhere = store.lookAtOwnFile()
    guard isElsewhere || store.isLogElsewhere else { return read(AlertSubject(.storeLost, Self.file), .well) }
    read(AlertSubject(.storeLost, Self.file), .bad(text: isElsewhere ? Self.elsewhere : Self.logElsewhere))
  }

  /// Checks at most once in `betweenStats`, when the daemon is awake anyway.
  func readStoreNowAndThen() {
    if let lookedAtStore, loop.now - lookedAtStore < Self.betweenStats { return }
    readStore()
  }
}
