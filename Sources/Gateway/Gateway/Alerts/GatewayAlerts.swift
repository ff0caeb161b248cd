// SPDX-License-Identifier: MIT

import Alerts
import Companion
import EventLoop
import JSON
import Relay
import Store
import Timing
import UntrustedText

/// The gateway's alerts: passes readings to `AlertBoard`, and stores its changes: a row, an event, a line of the log.
///
/// Checks cause no wake-ups while all is well: they run when something was stored, when the radio was queried anyway,
/// and once an hour. A timer runs only until an alert begins or ends, and until a node is late.
final class GatewayAlerts {
  /// Pause between two checks of the disk and the clock.
  private static let between: Duration = .seconds(590)
  /// The most changes to keep while the disk refuses them; more than there are subjects.
  private static let maxWaiting = 2 * AlertBoard.maxSubjects

  private struct Waiting {
    let number: UInt64
    let change: AlertChange
    let moment: Moment
    /// When the fault began, in milliseconds since 1970 by the clock as it was at the change.
    let since: Int64
    let millivolts: UInt16?
  }

  let store: Store
  private let relay: Relay
  let loop: EventLoop
  private let log: Log
  private let changes: StateChange
  var settings: AlertConfiguration
  private(set) var board: AlertBoard
  var nodes: SilentNodes
  private var timer: LoopTimer?
  private var due: MonotonicTime?
  /// When the next node is late, as the timer was set.
  private var nodesDue: MonotonicTime?
  private var looked: MonotonicTime?
  /// When the database's file was last checked.
  var lookedAtStore: MonotonicTime?
  private var deadLetterChanges: UInt64 = .max
  /// A watched node was heard.
  var hasNodeCome = false
  private var waiting: [Waiting] = []
  private var lastNumber: UInt64 = 0
  private var writing: LoopTask?
  private var isBegun = false
  var millivolts: UInt16?
  /// A node was not added, and the table has had no free place since.
  var wasTableFull = false
  private var contactsRemoved: UInt64 = 0
  /// The number of the radio's contacts, and its places for them; `nil`: unknown.
  var contactTable: () -> (count: Int, most: Int)? = { nil }
  /// The last readings of the radio, its battery and the supply, for rules that are switched on later.
  private var told: [AlertSubject: AlertReading] = [:]
  /// Events that count as lost, or will, although they have arrived.
  var arrivals: [AlertSubject: Int64] = [:]

  init(
    _ settings: AlertConfiguration, _ store: Store, _ relay: Relay, changes: StateChange, on loop: EventLoop, log: Log
  ) {
    (self.settings, self.store, self.relay, self.changes, self.loop, self.log) = (
      settings, store, relay, changes, loop, log
    )
    board = AlertBoard(settings.rules)
    nodes = SilentNodes(store, on: loop)
  }

  /// The active rules, as sentences.
  var rules: [(rule: AlertRule, sentence: String)] { board.settings.sentences }

  // MARK: Begin and end

  func begin() {
    isBegun = true
    recall()
    relay.troubleChanged = { [weak self] in self?.upstreamsChanged() }
    store.nodeWasHeard = { [weak self] in self?.heard($0, at: $1) }
    relay.historyFound = { [weak self] in self?.found($1, at: $0) }
    look()
    arm()
    write()
  }

  func stop() {
    isBegun = false
    timer?.cancel()
    timer = nil
    relay.troubleChanged = {}
    store.nodeWasHeard = { _, _ in }
    nodes.keep()
    store.keepAlertWords()
    relay.historyFound = { _, _ in }
  }

  /// Settings, upstreams or documents have changed.
  func change(_ settings: AlertConfiguration) {
    self.settings = settings
    for change in board.change(settings.rules) { tell(change) }
    guard isBegun else { return }
    look()
  }

  /// Another database has replaced a damaged one: open alerts begin there, too.
  func storeReplaced(_ saved: String, had events: Int64?, unsent: [(upstream: String, events: Int64)]) {
    board = AlertBoard(settings.rules)
    waiting = []
    deadLetterChanges = .max
    nodes = SilentNodes(store, on: loop)
    storeWasDamaged(saved, had: events, unsent: unsent)
    look()
  }

  /// Restores open alerts, and remembers recent ones, so that a restart does not begin them anew.
  private func recall() {
    guard let kept = store.ifReadable({ try store.alerts(openOnly: false, limit: 200) }) else { return }
    let open = store.ifReadable { try store.alerts(openOnly: true, limit: AlertBoard.maxSubjects) } ?? []
    let elapsed = store.elapsed(at: Moment(loop.wallClock))
    for alert in open {
      guard let rule = AlertRule(rawValue: alert.rule), board.settings.times[rule] != nil else {
        // The rule is off now, or belongs to another version.
        store.post("the end of an alert") { [clock = loop.wallClock] store throws(SQLiteError) in
          try store.endAlert(alert.rule, alert.subject, Store.AlertEvent(), elapsed: elapsed, at: Moment(clock))
        }
        continue
      }
      board.restore(
        AlertSubject(rule, alert.subject), returns: alert.returns, text: alert.text, value: alert.value)
    }
    for alert in kept {
      guard let ended = alert.endedElapsed, let rule = AlertRule(rawValue: alert.rule) else { continue }
      let age = max(0, elapsed - ended)
      board.restoreEnded(
        AlertSubject(rule, alert.subject), at: loop.now + .milliseconds(-age), returns: alert.returns)
    }
  }

  // MARK: Readings

  /// Reads everything that needs no event.
  private func look() {
    looked = loop.now
    readUpstreams()
    readDeadLetters()
    readDisk()
    readStore()
    readClock()
    readNodes()
    readContactTable()
    for (subject, reading) in told { read(subject, reading) }
    // Losses before this start are no new losses.
    for subject in board.open where [.journalLoss, .journalConflict, .radioQueueFull].contains(subject.rule) {
      read(subject, .well)
    }
    endWhatIsGone()
    arm()
  }

  /// The radio was just queried, and has no messages.
  func radioIsIdle() {
    write()
    readStoreNowAndThen()
    if let looked, loop.now - looked < Self.between { return }
    look()
  }

  /// Called once an hour, whatever the radio does.
  func hourHasPassed() {
    look()
    store.keepAlertWords()
  }

  /// A commit: events may wait, dead letters may be new.
  func somethingWasStored() {
    guard isBegun else { return }
    if hasNodeCome {
      hasNodeCome = false
      readNodes()
    }
    if wasTableFull, store.contactsRemoved != contactsRemoved {
      contactsRemoved = store.contactsRemoved
      readContactTable()
    }
    upstreamsChanged()
    readStoreNowAndThen()
    write()
  }

  private func upstreamsChanged() {
    readUpstreams()
    if store.deadLetterChanges != deadLetterChanges { readDeadLetters() }
    if store.transactions.failure == nil, board.isOpen(AlertSubject(.diskFull)) { readDisk() }
    arm()
  }

  func storeFailed() {
    guard isBegun else { return }
    readDisk()
    arm()
  }

  /// `refusal`: why the current file is not used.
  func configuration(_ refusal: String?) {
    let text = "the configuration file is refused, and the gateway runs with the last one that worked: "
    hear(AlertSubject(.configurationWrong), refusal.map { .bad(text: text + $0.lines[0].cut(toBytes: 200)) } ?? .well)
    arm()
  }

  /// The radio sent the record of a contact. `somethingWasStored` checks it when it is stored.
  func contactCame(_ contact: Contact) {
    guard nodes.heard(contact.key) != nil || settings.nodes.contains(where: { SilentNodes.means($0, contact) }) else {
      return
    }
    hasNodeCome = true
  }

  func hear(_ subject: AlertSubject, _ reading: AlertReading) {
    told[subject] = reading
    read(subject, reading)
  }

  private func readUpstreams() {
    for (name, progress) in relay.progress {
      let reading: AlertReading =
        switch progress {
        case .fine: .well
        case .unknown: .between
        case .stuck(let events, let reason):
          .bad(text: "\(events) events wait for \(name): \(reason.cut(toBytes: 200))", value: Double(events))
        }
      read(AlertSubject(.backlogged, name), reading)
    }
  }

  private func readDeadLetters() {
    deadLetterChanges = store.deadLetterChanges
    for upstream in relay.upstreams {
      // Without the count there is no reading: the next change reads again.
      guard let count = store.ifReadable({ try store.deadLettersToTell(of: upstream.name) }) else { continue }
      let text = "\(upstream.name) has refused \(count) event\(count == 1 ? "" : "s"): see meshpost upstream dead"
      read(AlertSubject(.deadLetters, upstream.name), count > 0 ? .bad(text: text, value: Double(count)) : .well)
    }
  }

  private func readDisk() {
    read(AlertSubject(.diskFull), DiskReading.read(store, leastFree: settings.diskFree))
  }

  private func readClock() {
    read(
      AlertSubject(.clockWrong),
      loop.wallClock.isSynchronised ? .well : .bad(text: "this machine's clock is not synchronised"))
  }

  private func readNodes() {
    let limit = board.settings.times[.nodeSilent]?.begins
    let found = nodes.look(settings.nodes, tag: settings.tag, limit: limit)
    let names = nodes.called(found.filter(\.isLate).map(\.key))
    for (key, isLate) in found {
      let words = "\(names[key] ?? key.hex) has not been heard for \(limit.map { AlertRule.words($0) } ?? "")"
      read(AlertSubject(.nodeSilent, key.hex), isLate ? .bad(text: words, since: nodes.heard(key)) : .well)
    }
  }

  /// Ends the alerts of removed upstreams, and of nodes that are no longer watched.
  private func endWhatIsGone() {
    let upstreams = Set(relay.upstreams.map(\.name))
    let keys = Set(nodes.keys.map(\.hex))
    for subject in board.open {
      let isGone =
        switch subject.rule {
        case .backlogged, .deadLetters: !upstreams.contains(subject.name)
        case .nodeSilent: !keys.contains(subject.name)
        default: false
        }
      if isGone, let change = board.drop(subject) { tell(change) }
    }
  }

  func read(_ subject: AlertSubject, _ reading: AlertReading) {
    let change = board.read(subject, reading, now: loop.now)
    if case .bad = reading, let said = board.said(of: subject) {
      store.alertSays(subject.rule.rawValue, subject.name, said.text, said.value)
    }
    if let change { tell(change) }
  }

  // MARK: Time

  /// Sets the one timer to the next deadline, or stops it.
  func arm() {
    guard isBegun else { return }
    nodesDue = nodes.due
    let next = [board.due, nodesDue].compactMap { $0 }.min()
    guard next != due || timer?.isScheduled != true else { return }
    timer?.cancel()
    due = next
    timer = next.map { next in
      loop.schedule(after: max(.zero, next - loop.now)) { [weak self] in self?.timeHasCome() }
    }
  }

  private func timeHasCome() {
    // These readings are rare: they may have changed since they became doubtful.
    readUpstreams()
    readDisk()
    readClock()
    readContactTable()
    for change in board.timedOut(now: loop.now) { tell(change) }
    if nodesDue.map({ $0 <= loop.now }) ?? false { readNodes() }
    arm()
  }

  // MARK: Storing changes

  private func tell(_ change: AlertChange) {
    switch change {
    case .begins(let subject, let text, let value, _, _):
      log.warning("alert: \(text)")
      store.alertSays(subject.rule.rawValue, subject.name, text, value)
    case .ends(let subject):
      let about = subject.name.isEmpty ? "" : " (\(subject.name))"
      log.notice("alert over: \(subject.rule.rawValue)\(about)")
    }
    let moment = Moment(loop.wallClock)
    var since = moment.milliseconds
    if case .begins(_, _, _, let began, _) = change { since -= Int64((loop.now - began).inSeconds * 1000) }
    lastNumber += 1
    waiting.append(
      Waiting(number: lastNumber, change: change, moment: moment, since: since, millivolts: millivolts))
    if waiting.count > Self.maxWaiting { waiting.removeFirst() }
    write()
  }

  /// Stores changes one after another. If the disk refuses them, the next commit or query of the radio retries.
  private func write() {
    guard writing == nil, isBegun, !waiting.isEmpty else { return }
    writing = loop.begin {
      await self.writeAll()
      self.writing = nil
    }
  }

  private func writeAll() async {
    let batch = waiting
    let elapsed = store.elapsed(at: Moment(loop.wallClock))
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in
        for one in batch { try Self.write(one, elapsed, to: store) }
      }
    } catch {
      // `StoreMaintenance` and the inbox report the disk's fault.
      return
    }
    // Only those: further changes may belong to another database.
    let written = Set(batch.map(\.number))
    waiting.removeAll { written.contains($0.number) }
    for subject in batch.map(\.change.subject) where !board.isOpen(subject) {
      store.alertIsOver(subject.rule.rawValue, subject.name)
    }
    changes.note()
    if !waiting.isEmpty { await writeAll() }
  }

  private static func write(_ one: Waiting, _ elapsed: Int64, to store: Store) throws(SQLiteError) {
    let subject = one.change.subject
    switch one.change {
    case .begins(_, let text, let value, _, let returns):
      let alert = StoredAlert(
        id: 0, rule: subject.rule.rawValue, subject: subject.name, text: text, value: value, beganAt: one.since,
        returns: returns)
      try store.beginAlert(alert, event(subject.rule, isLow: true, one.millivolts), at: one.moment)
    case .ends:
      try store.endAlert(
        subject.rule.rawValue, subject.name, event(subject.rule, isLow: false, one.millivolts), elapsed: elapsed,
        at: one.moment)
    }
  }

  /// Programs know `power` from before there were alerts: it is the only event of these two rules.
  private static func event(_ rule: AlertRule, isLow: Bool, _ millivolts: UInt16?) -> Store.AlertEvent {
    guard rule == .batteryLow || rule == .supplyLow else { return Store.AlertEvent() }
    return Store.AlertEvent(.power) { json in
      json.field("source", rule == .batteryLow ? "battery" : "supply")
      json.field("state", isLow ? "low" : "ok")
      json.field("battery_mv", rule == .batteryLow ? millivolts : nil)
    }
  }
}
