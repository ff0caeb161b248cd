// SPDX-License-Identifier: MIT

import Alerts
import JSON
import Relay
import Store
import UntrustedText

/// What happens to the journal, once each time: it is over after a day without.
extension GatewayAlerts {
  /// Events were deleted that not every upstream had.
  func journalWasCut(_ trim: JournalTrim) {
    for (name, events) in trim.missedBy.map({ ($0.upstream, $0.events) }) {
      lost(events, at: name) { "\($0) events were deleted that \(name) had not received" }
    }
    arm()
  }

  /// An open alert says how many there were in all.
  private func lost(_ events: Int64, at upstream: String, _ words: (Int64) -> String) {
    let subject = AlertSubject(.journalLoss, upstream)
    let before = board.said(of: subject)
    let count = before?.value.map { Int64(saturating: $0) } ?? 0
    let all = min(count, JSONValue.wholeNumbers.upperBound) + events
    let isSame = before.map { $0.text.utf8.elementsEqual(words(count).utf8) } ?? true
    let text =
      isSame ? words(all) : "\(all) events at most are missing at \(upstream), and the journal has not kept them"
    read(subject, .bad(text: text, value: Double(all)))
    read(subject, .well)
    store.keepAlertWords()
  }

  func found(_ finding: HistoryFinding, at upstream: String) {
    switch finding {
    case .conflict(let reason, let events):
      historiesMet(
        "\(upstream) has other events under this gateway's id: \(reason.cut(toBytes: 200)). \(events) events go there again in a new epoch",
        AlertSubject(.journalConflict, upstream), Double(events))
    case .lost(let events):
      lost(events, at: upstream) {
        "at most \($0) events that \(upstream) had are lost there, and the journal has not kept them"
      }
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
