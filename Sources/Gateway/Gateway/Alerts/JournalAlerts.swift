// SPDX-License-Identifier: MIT

import Alerts
import UntrustedText
import Relay
import Store

/// What happens to the journal, once each time: it is over after a day without.
extension GatewayAlerts {
  /// Events were deleted that not every upstream had.
  func journalWasCut(_ trim: JournalTrim) {
    for (name, events) in trim.missedBy.map({ ($0.upstream, $0.events) }) {
      let subject = AlertSubject(.journalLoss, name)
      read(subject, .bad(text: "\(events) events were deleted that \(name) had not received", value: Double(events)))
      read(subject, .well)
    }
    arm()
  }

  func found(_ finding: HistoryFinding, at upstream: String) {
    switch finding {
    case .conflict(let reason, let events):
      historiesMet(
        "\(upstream) has other events under this gateway's id: \(reason.cut(toBytes: 200)). \(events) events go there again in a new epoch",
        AlertSubject(.journalConflict, upstream), Double(events))
    case .lost(let events):
      let subject = AlertSubject(.journalLoss, upstream)
      let text = "at most \(events) events that \(upstream) had are lost there, and the journal has not kept them"
      read(subject, .bad(text: text, value: Double(events)))
      read(subject, .well)
      arm()
    }
  }

  /// A server, or this machine, knows more of this gateway's journal, or something else, than the database.
  func historiesMet(
    _ text: String, _ subject: AlertSubject = AlertSubject(.journalConflict), _ events: Double? = nil
  ) {
    read(subject, .bad(text: text + "; see docs/hub.md, \"One identity, two histories\"", value: events))
    read(subject, .well)
    arm()
  }
}
