// SPDX-License-Identifier: MIT

import Alerts
import Companion
import JSON
import Messaging
import Store
import Sync
import UntrustedText

/// Readings of the radio, its battery and this machine's supply.
extension GatewayAlerts {
  func radio(isUp: Bool, isScopeStuck: Bool, message: @autoclosure () -> String) {
    hear(AlertSubject(.radioLost), isUp ? .well : .bad(text: "the radio is away: \(message())"))
    let text = "\(RadioConnection.stuckScope). Until then what it might flood is not sent"
    // The state of a disconnected radio is unknown.
    hear(AlertSubject(.regionStuck), isScopeStuck ? .bad(text: text) : isUp ? .well : .between)
    arm()
  }

  /// `isKnown`: the radio was asked for messages over this link.
  func messages(_ withheld: Withheld?, isKnown: Bool) {
    let bad = withheld.map { AlertReading.bad(text: "\($0.words). If it stays so, restart the radio", since: $0.since) }
    // A lost link does not reset the alert's time.
    hear(AlertSubject(.messagesStuck), isKnown ? bad ?? .well : .between)
    arm()
  }

  func battery(isLow: Bool, _ millivolts: UInt16) {
    writer.millivolts = millivolts
    let text = "the radio's battery is low: \(BatteryCourse.volts(millivolts))"
    hear(AlertSubject(.batteryLow), isLow ? .bad(text: text, value: Double(millivolts) / 1000) : .well)
    arm()
  }

  func supply(isLow: Bool) {
    let text = "this machine's supply voltage is too low. Use a supply and a cable that hold 5.1 V under load"
    hear(AlertSubject(.supplyLow), isLow ? .bad(text: text) : .well)
    arm()
  }

  /// A node was heard at this time (milliseconds since 1970). A refused write comes again, with its time.
  func heard(_ node: KeyPrefix, at milliseconds: Int64) {
    let age = max(0, Moment(loop.wallClock).milliseconds - milliseconds)
    nodes.hear(node, ago: .milliseconds(age))
    care.heard(node)
  }

  /// Whether this subject of `node_silent` is not a watched node, and is still silent.
  func hasSilent(_ subject: String) -> Bool {
    guard let key = PublicKey(hex: subject) else { return true }
    return care.isSilent(key)
  }

  /// Whether the subject of an alert about nodes is one in care, or stands for several.
  func isInCare(_ subject: String) -> Bool { PublicKey(hex: subject).map { care.contains($0) } ?? true }

  /// The watched nodes.
  var wanted: [PublicKey] { nodes.find(settings.nodes, tag: settings.tag) }

  /// The radio heard a node, and had no place for it.
  func nodeWasNotAdded() {
    guard let reading = contactTable.nodeWasNotAdded() else { return }
    read(AlertSubject(.contactsFull), reading)
    arm()
  }

  /// Texts for this radio could not be read.
  func textsWereUnread(_ texts: UnreadTexts) {
    contactTable.unread = texts
    if contactTable.isFull { nodeWasNotAdded() }
  }

  func readContactTable() { if let reading = contactTable.look() { read(AlertSubject(.contactsFull), reading) } }

  /// A contact's record has come, or the right of one was changed here: the store is read at the next commit.
  func readCommanders() {
    commandersMayHaveChanged = false
    // Without the store there is no reading: the next look reads again.
    guard let all = store.ifReadable({ try store.commanders() }) else { return }
    let others = all.filter { !$0.isGranted }
    for (key, name, _) in others {
      let text =
        "\(name.string) may run any command on the radio (contact flag 0x10), which was not set here. "
        + "meshpost contact commands takes it away, or confirms it"
      read(AlertSubject(.remoteCommands, key.hex), .bad(text: text))
    }
    let keys = Set(others.map(\.key.hex))
    for subject in board.open where subject.rule == .remoteCommands && !keys.contains(subject.name) {
      read(subject, .well)
    }
    arm()
  }

  /// The radio lost messages, or may have.
  func messagesWereLost(_ loss: RadioQueue.Loss) {
    let subject = AlertSubject(.radioQueueFull)
    var (text, value) = (loss.description, loss.atLeast.map { Double($0) })
    // What is said already stays: of a further restart, too, nobody knows whether it lost anything.
    if let before = board.said(of: subject), value != nil || !before.text.isExactly(text) {
      // Not only the last one: an earlier loss, of which nobody knows the number, may be greater.
      let all = (before.value ?? 0) + (value ?? 0)
      value = all > 0 ? all : nil
      let were = all > 0 ? "were" : "may have been"
      text = "messages \(were) lost in the radio, or on their way from it, again and again"
      if all > 0 { text += ": at least \(Int64(saturating: all))" }
    }
    read(subject, .bad(text: text, value: value))
    read(subject, .well)
    store.keepAlertWords()
    arm()
  }
}

/// What other nodes report.
extension GatewayAlerts {
  func answered(_ answer: NodeAnswer, _ key: PublicKey) {
    care.answered(answer, key)
    arm()
  }

  func does(_ doing: NodeService.Doing, _ key: PublicKey) {
    care.does(doing, key)
    arm()
  }

  func polled(_ key: PublicKey, _ kind: NodePolling.Poll.Kind, isAnswered: Bool) {
    care.polled(key, kind.rawValue, isAnswered: isAnswered)
    arm()
  }
}
