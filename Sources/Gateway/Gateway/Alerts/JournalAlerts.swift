// SPDX-License-Identifier: MIT

import Alerts
import JSON
import Relay
import Store
import Timing
import UntrustedText

/// Incidents of the journal. Each alert ends after a day without another one.
extension GatewayAlerts {
  /// Events were deleted before every upstream had them.
  func journalWasCut(_ trim: JournalTrim) {
    for (name, events) in trim.missedBy.map({ ($0.upstream, $0.events) }) {
      lost(events, at: name) { Self.deleted($0, name) }
    }
    arm()
  }

  private static func deleted(_ events: Int64, _ upstream: String) -> String {
    events == 0
      ? "events were deleted that were on their way to \(upstream), and it has them"
      : "\(events) events were deleted that \(upstream) had not received"
  }

  /// Reduces the number of lost events: some were in flight when they were deleted, and have arrived.
  private func arrived(_ events: Int64, at upstream: String) {
    let subject = AlertSubject(.journalLoss, upstream)
    let all = events + arrivedLately(subject)
    arrivals[subject] = (all, loop.now)
    guard let said = board.said(of: subject), let count = said.value.map({ Int64(saturating: $0) }) else { return }
    let taken = min(count, all)
    arrivals[subject]?.events -= taken
    let isOne = said.text.utf8.elementsEqual(Self.deleted(count, upstream).utf8)
    let text = isOne ? Self.deleted(count - taken, upstream) : Self.missing(count - taken, upstream)
    read(subject, .bad(text: text, value: Double(count - taken)))
    read(subject, .well)
    store.keepAlertWords()
  }

  /// A sweep of the journal reports its losses at its end, and its events may arrive before that. Those that arrive long before a loss belong to
  /// one whose alert is over.
  private func arrivedLately(_ subject: AlertSubject) -> Int64 {
    arrivals[subject].flatMap { loop.now - $0.at < .seconds(3600) ? $0.events : nil } ?? 0
  }

  private static func missing(_ events: Int64, _ upstream: String) -> String {
    "\(events) events at most are missing at \(upstream), and the journal has not kept them"
  }

  /// An open alert reports the total number.
  private func lost(_ events: Int64, at upstream: String, _ words: (Int64) -> String) {
    let subject = AlertSubject(.journalLoss, upstream)
    let before = board.said(of: subject)
    let count = before?.value.map { Int64(saturating: $0) } ?? 0
    let all = max(0, min(count, JSONValue.wholeNumbers.upperBound) + events - arrivedLately(subject))
    arrivals[subject] = nil
    guard all > 0 || before != nil else { return }
    let isSame = before.map { $0.text.utf8.elementsEqual(words(count).utf8) } ?? true
    let text = isSame ? words(all) : Self.missing(all, upstream)
    read(subject, .bad(text: text, value: Double(all)))
    read(subject, .well)
    store.keepAlertWords()
  }

  func found(_ finding: HistoryFinding, at upstream: String) {
    switch finding {
    case .conflict(let reason, let events):
      let again = events == 1 ? "1 event goes" : "\(events) events go"
      historiesMet(
        "\(upstream) has other events under this gateway's id: \(reason.cut(toBytes: 200)). \(again) there again in a new epoch",
        AlertSubject(.journalConflict, upstream), Double(events))
    case .otherEpoch(let epoch, let last):
      let extent = last > 0 ? ", up to \(last)" : ""
      historiesMet(
        "\(upstream) has events of this gateway that are not in its database: the epoch \(epoch)\(extent). Other upstreams may lack them",
        AlertSubject(.journalConflict, upstream))
    case .lost(let events):
      lost(events, at: upstream) {
        "at most \($0) events that \(upstream) had are lost there, and the journal has not kept them"
      }
      arm()
    case .arrived(let events): arrived(events, at: upstream)
    }
  }

  /// A server, or this machine, has a history of this gateway that differs from the database's, or is longer.
  func historiesMet(
    _ text: String, _ subject: AlertSubject = AlertSubject(.journalConflict), _ events: Double? = nil
  ) {
    tellIncident(subject, text + "; see docs/hub.md, \"One identity, two histories\"", events)
    read(subject, .well)
    arm()
  }

  /// The most bytes of the earlier words in an alert of several incidents.
  private static let mostEarlierWords = 800

  /// An incident, beside those of the same subject whose alert is open: it must not replace their words. The number is
  /// the total.
  func tellIncident(_ subject: AlertSubject, _ text: String, _ value: Double? = nil) {
    guard let before = board.said(of: subject), !text.mentions(before.text) else {
      return read(subject, .bad(text: text, value: value))
    }
    guard !before.text.mentions(text) else { return read(subject, .bad(text: before.text, value: before.value)) }
    var earlier = before.text
    if earlier.utf8.count > Self.mostEarlierWords { earlier = earlier.cut(toBytes: Self.mostEarlierWords) + "…" }
    let total = value.map { $0 + (before.value ?? 0) } ?? before.value
    read(subject, .bad(text: "\(earlier). Further: \(text)", value: total))
    store.keepAlertWords()
  }
}
