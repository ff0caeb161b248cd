// SPDX-License-Identifier: MIT

import Alerts
import Escaping
import Store

/// What happens to the journal, once each time: it is over after a day without.
extension GatewayAlerts {
  /// Events were deleted that not every upstream had.
  func journalWasCut(_ trim: JournalTrim) {
    let subject = AlertSubject(.journalLoss)
    let names = trim.missedBy.joined(separator: ", ")
    let text = "events were deleted that \(names) had not received"
    read(subject, .bad(text: text, value: Double(trim.last - trim.first + 1)))
    read(subject, .well)
    arm()
  }

  func conflictFound(at upstream: String, _ reason: String, _ events: Int64) {
    historiesMet(
      "\(upstream) has other events under this gateway's id: \(reason.cut(toBytes: 200)). \(events) events go there again in a new epoch",
      AlertSubject(.journalConflict, upstream), Double(events))
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
