// SPDX-License-Identifier: MIT

import Alerts
import Companion
import EventLoop
import Relay
import Store
import Timing
import UntrustedText

/// The gateway's alerts: passes readings to `AlertWriter` and its board.
///
/// Checks cause no wake-ups while all is well: they run when something was stored, when the radio was queried anyway,
/// and once an hour. A timer runs only until an alert begins or ends, and until a node is late.
final class GatewayAlerts {
  /// Pause between two checks of the disk and the clock.
  private static let between: Duration = .seconds(590)

  let store: Store
  private let relay: Relay
  let loop: EventLoop
  var settings: AlertConfiguration
  let writer: AlertWriter
  var nodes: SilentNodes
  let care: NodeCare
  /// Nodes that are polled, or whose password is stored; `nil`: unknown at present.
  var needed: () -> Set<PublicKey>? = { [] }
  /// The kinds of polls of each node that is polled; `nil`: unknown at present.
  var polledKinds: () -> [PublicKey: Set<String>]? = { nil }
  var contactTable: ContactTableWatch
  /// A contact came that may run commands on the radio, or could.
  var commandersMayHaveChanged = false
  private var timer: LoopTimer?
  private var due: MonotonicTime?
  private var looked: MonotonicTime?
  /// When the database's file was last checked.
  var lookedAtStore: MonotonicTime?
  /// Why this machine's clock judges no others, as the log has it.
  private var clockDoubt: ClockProof.Doubt?
  private let log: Log
  private var deadLetterChanges: UInt64 = .max
  /// The last readings of the radio, its battery and the supply, for rules that are switched on later.
  private var told: [AlertSubject: AlertReading] = [:]
  /// Events that count as lost, or soon will, although they have arrived, and when the last of them did.
  var arrivals: [AlertSubject: (events: Int64, at: MonotonicTime)] = [:]

  /// `contactTable`: the number of the radio's contacts, and its places for them; `nil`: unknown.
  init(
    _ settings: AlertConfiguration, _ store: Store, _ relay: Relay, contactTable: @escaping ContactTableWatch.Table,
    changes: StateChange, on loop: EventLoop, log: Log
  ) {
    (self.settings, self.store, self.relay, self.loop) = (settings, store, relay, loop)
    self.log = log
    writer = AlertWriter(settings.rules, store, changes: changes, on: loop, log: log)
    self.contactTable = ContactTableWatch(contactTable)
    nodes = SilentNodes(store, on: loop)
    care = NodeCare(settings.care, store, on: loop)
    care.tell = { [writer] in writer.read($0, $1) }
    care.isOpen = { [writer] in writer.board.isOpen($0) }
    care.called = { [weak self] in self?.nodes.called($0) ?? [:] }
  }

  var board: AlertBoard { writer.board }
  private var isBegun: Bool { writer.isBegun }
  /// The active rules, as sentences.
  var rules: [(rule: AlertRule, sentence: String)] { board.settings.sentences }

  // MARK: Begin and end

  func begin() {
    writer.begin()
    care.load(board.open)
    relay.troubleChanged = { [weak self] in self?.upstreamsChanged() }
    store.nodeWasHeard = { [weak self] in self?.heard($0, at: $1) }
    store.clockWasHeard = { [weak self] in self?.care.heardClock($0, offset: $1) }
    relay.historyFound = { [weak self] in self?.found($1, at: $0) }
    look()
    arm()
    writer.write()
  }

  func stop() {
    writer.stop()
    timer?.cancel()
    timer = nil
    relay.troubleChanged = {}
    store.nodeWasHeard = { _, _ in }
    store.clockWasHeard = { _, _ in }
    nodes.keep()
    care.keep()
    store.keepAlertWords()
    relay.historyFound = { _, _ in }
  }

  /// Settings, upstreams or documents have changed.
  func change(_ settings: AlertConfiguration) {
    self.settings = settings
    writer.change(settings.rules)
    guard isBegun else { return }
    look()
  }

  /// Another database has replaced a damaged one: open alerts begin there, too. Nothing reads incidents again: they are
  /// carried over.
  func storeReplaced(_ saved: String, had events: Int64?, unsent: [(upstream: String, events: Int64)]) {
    let incidents = board.open.filter { Self.incidents.contains($0.rule) }.compactMap { subject in
      board.said(of: subject).map { (subject: subject, said: $0) }
    }
    writer.beginAnew()
    deadLetterChanges = .max
    nodes = SilentNodes(store, on: loop)
    care.load([])
    for (subject, said) in incidents { read(subject, .bad(text: said.text, value: said.value)) }
    storeWasDamaged(saved, had: events, unsent: unsent)
    look()
  }

  /// Rules about incidents of the journal, the radio's queue and the database, which have no state to read.
  private static let incidents: Set<AlertRule> = [.journalLoss, .journalConflict, .radioQueueFull, .storeLost]

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
    readCare()
    readContactTable()
    readCommanders()
    for (subject, reading) in told { read(subject, reading) }
    // Losses before this start are no new losses.
    for subject in board.open
    where [.journalLoss, .journalConflict, .radioQueueFull, .nodeRestarted].contains(subject.rule) {
      read(subject, .well)
    }
    endWhatIsGone()
    arm()
  }

  /// The radio was just queried, and has no messages.
  func radioIsIdle() {
    writer.write()
    care.passTime()
    if store.clockDoubt != clockDoubt { readClock() }
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
    if nodes.takeNews() { readNodes() }
    if commandersMayHaveChanged { readCommanders() }
    care.work()
    if store.clockDoubt != clockDoubt { readClock() }
    if contactTable.mayHaveRoom(store.contactsRemoved) { readContactTable() }
    upstreamsChanged()
    readStoreNowAndThen()
    writer.write()
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
    nodes.came(contact, wanted: settings.nodes)
    let isOpen = board.open.contains { $0.rule == .remoteCommands && $0.name == contact.key.hex }
    if contact.mayCommand || isOpen { commandersMayHaveChanged = true }
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
      guard let counts = store.ifReadable({ try store.deadLetterCounts(of: upstream.name, isTold: true) }) else {
        continue
      }
      let text = "\(Self.words(counts, upstream.name)): see meshpost upstream dead"
      let reading = AlertReading.bad(text: text, value: Double(counts.all))
      read(AlertSubject(.deadLetters, upstream.name), counts.all > 0 ? reading : .well)
    }
  }

  private static func words(_ counts: DeadLetterCounts, _ upstream: String) -> String {
    let events = { (count: Int64) in "\(count) event\(count == 1 ? "" : "s")" }
    if counts.skipped == 0 { return "\(upstream) has refused \(events(counts.refused))" }
    let skipped = "an operator has skipped \(events(counts.skipped)) for \(upstream)"
    return counts.refused == 0 ? skipped : "\(skipped), which has refused \(counts.refused)"
  }

  private func readDisk() {
    read(AlertSubject(.diskFull), DiskReading.read(store, leastFree: settings.diskFree))
  }

  private func readClock() {
    let doubt = store.clockDoubt
    store.keepClockProof()
    let isSynchronised = loop.wallClock.isSynchronised
    let words = isSynchronised ? doubt?.words : "this machine's clock is not synchronised"
    read(AlertSubject(.clockWrong), words.map { .bad(text: $0) } ?? .well)
    guard isSynchronised, doubt != clockDoubt else { return }
    defer { clockDoubt = doubt }
    // Each further node is no news.
    if case .contradicted? = doubt, case .contradicted? = clockDoubt { return }
    if let doubt { return log.warning("\(doubt.words)") }
    log.notice("this machine's clock is believed again: it judges the clocks of others")
  }

  private func readNodes() {
    let limit = board.settings.times[.nodeSilent]?.begins
    let found = nodes.look(settings.nodes, tag: settings.tag, limit: limit) { [care] in care.lastSign(of: $0) }
    let names = nodes.called(found.filter(\.isLate).map(\.key))
    for (key, isLate) in found {
      let words = "\(names[key] ?? key.hex) has not been heard for \(limit.map { AlertRule.words($0) } ?? "")"
      read(AlertSubject(.nodeSilent, key.hex), isLate ? .bad(text: words, since: nodes.heard(key)) : .well)
    }
  }

  private func readCare() {
    (care.settings, care.leastSilence) = (settings.care, board.settings.times[.nodeSilent]?.begins)
    care.tellsUnanswered = board.settings.times[.nodeUnanswering] != nil
    // Without the rule nobody watches for silence; their other faults are told.
    let watched = care.leastSilence == nil ? wanted : nodes.keys
    care.look(needed: needed(), watched: Set(watched), polled: polledKinds())
  }

  /// Ends the alerts of removed upstreams, and of nodes that are no longer watched.
  private func endWhatIsGone() {
    let upstreams = Set(relay.upstreams.map(\.name))
    let keys = Set(nodes.keys.map(\.hex))
    for subject in board.open {
      let isGone =
        switch subject.rule {
        case .backlogged, .deadLetters: !upstreams.contains(subject.name)
        case .nodeSilent: !keys.contains(subject.name) && !hasSilent(subject.name)
        case _ where AlertRule.ofNodes.contains(subject.rule): !isInCare(subject.name)
        default: false
        }
      if isGone { writer.drop(subject) }
    }
  }

  func read(_ subject: AlertSubject, _ reading: AlertReading) { writer.read(subject, reading) }

  // MARK: Time

  /// Sets the one timer to the next deadline, or stops it.
  func arm() {
    guard isBegun else { return }
    let next = [board.due, nodes.arm()].compactMap { $0 }.min()
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
    writer.timeHasCome()
    if nodes.isDue { readNodes() }
    arm()
  }
}
