// SPDX-License-Identifier: MIT

import Alerts
import Companion
import EventLoop
import Messaging
import SQLite
import Store
import Timing

/// Judges what the nodes in care report, and how they are heard.
///
/// Signs of life and adverts come within transactions: they wait in short lists until `work`. Records are in memory, bounded, and go to disk along
/// with other writes: a power cut costs at most an hour of them.
final class NodeCare {
  /// The most nodes in care, and the most signs that wait.
  static let most = 512
  /// The subject of the alert that no node is heard at all: no key.
  static let everybody = "all"
  /// With fewer nodes, silence of all of them says nothing about the radio.
  private static let crowd = 3

  private let store: Store
  private let loop: EventLoop
  var settings: CareSettings
  private var records: [PublicKey: NodeRecord] = [:]
  private var prefixes: [KeyPrefix: PublicKey] = [:]
  private var changed: Set<PublicKey> = []
  private var listening = ListeningTime(total: 0)
  private var isListening = false
  private var isDeaf = false
  private var shared = SharedAlerts()
  private var names: [PublicKey: String] = [:]
  private var signs: Set<KeyPrefix> = []
  /// The last two nodes that were heard, in care or not, in the time in which the gateway listened.
  private var lastSigns: [(node: KeyPrefix, at: Int64)] = []
  private var clocks: [(key: PublicKey, offset: Int64)] = []
  /// Nodes whose clocks the gateway is setting: what they show meanwhile is its own doing.
  private var setting: Set<PublicKey> = []
  /// Nodes whose silence is watched by their name or tag.
  private var watched: Set<PublicKey> = []
  private var isLoaded = false

  /// The least silence, as `node_silent_after_s` has it; `nil`: the rule is off.
  var leastSilence: Duration?
  /// Whether unanswered polls are told, or only silence.
  var tellsUnanswered = true
  var tell: (AlertSubject, AlertReading) -> Void = { _, _ in }
  var isOpen: (AlertSubject) -> Bool = { _ in false }
  var called: ([PublicKey]) -> [PublicKey: String] = { _ in [:] }

  init(_ settings: CareSettings, _ store: Store, on loop: EventLoop) {
    (self.settings, self.store, self.loop) = (settings, store, loop)
  }

  func contains(_ key: PublicKey) -> Bool { records[key] != nil }
  /// Whether the node's silence is told, here and not by its name.
  func isSilent(_ key: PublicKey) -> Bool { shared.isBad(.nodeSilent, key) }
  /// When the node was heard last, not counting times in which the gateway did not listen; `nil`: not in care, or never heard.
  func lastSign(of key: PublicKey) -> MonotonicTime? {
    guard let heard = records[key]?.heard, heard.first != nil else { return nil }
    return loop.now + .milliseconds(heard.last - listening.total)
  }
  /// The course of a node's clock; `nil`: not in care, or not known.
  func clock(of key: PublicKey) -> ClockCourse? { records[key].flatMap { $0.clock.samples.isEmpty ? nil : $0.clock } }

  private var elapsed: Int64 { store.elapsed(at: Moment(loop.wallClock)) }

  // MARK: What comes

  /// Within a transaction: something came that only this node can have sent.
  func heard(_ node: KeyPrefix) { if signs.count < Self.most { signs.insert(node) } }

  /// Within a transaction: an advert showed the node's clock, while ours counted as synchronised.
  func heardClock(_ key: PublicKey, offset: Int64) {
    if clocks.count < Self.most { clocks.append((key, offset)) }
  }

  /// The link to the radio came, or went.
  func listens(_ isListening: Bool) {
    passTime()
    self.isListening = isListening
    passTime()
  }

  /// Call it when the radio was read.
  func passTime() {
    guard listening.look(isListening: isListening, now: loop.now) else { return }
    allowAnotherSign()
  }

  private func allowAnotherSign() {
    guard let least = least else { return }
    for key in records.keys where !isSilent(key) {
      records[key]?.heard.listenedAnew(at: listening.total, atLeast: least)
      changed.insert(key)
    }
  }

  private var least: Int64? { leastSilence.map { Int64($0.inSeconds * 1000) } }

  /// A node has answered.
  func answered(_ answer: NodeAnswer, _ key: PublicKey) {
    switch answer {
    case .status(let status):
      judge(key) { record, tell in
        let found = record.battery.took(status.batteryMillivolts, at: elapsed, settings)
        tell(.nodeBatteryLow, found.low)
        tell(.nodeBatteryFalling, found.falling)
        tell(.nodeNoisy, record.noise.took(status.noiseFloor, settings))
        guard let before = record.uptime.took(status.uptime, at: elapsed) else { return }
        tell(.nodeRestarted, .bad(text: UptimeCourse.words(before: before, now: status.uptime)))
        tell(.nodeRestarted, .well)
      }
    case .telemetry(let telemetry):
      guard let volts = telemetry.readings.first(where: { $0.channel == 1 && $0.type == .voltage })?.values.first else {
        return
      }
      judge(key) { record, tell in
        let found = record.battery.took(UInt16(clamping: Int((volts * 1000).rounded())), at: elapsed, settings)
        tell(.nodeBatteryLow, found.low)
        tell(.nodeBatteryFalling, found.falling)
      }
    case .clock(let time): compare(key, time)
    case .login(let login): if let time = login.serverTime { compare(key, time) }
    default: break
    }
  }

  /// At once: a command waits for what it says about our own clock.
  private func compare(_ key: PublicKey, _ time: UInt32) {
    let now = Moment(loop.wallClock)
    guard now.trusted else { return }
    heardClock(key, offset: Int64(time) - now.milliseconds / 1000)
    work()
  }

  /// The gateway itself does something to a node.
  func does(_ doing: NodeService.Doing, _ key: PublicKey) {
    switch doing {
    case .setsClock: if setting.count < Self.most { setting.insert(key) }
    case .endsSettingClock(let found):
      setting.remove(key)
      guard let found, Moment(loop.wallClock).trusted else { return }
      heardClock(key, offset: found.seconds)
      work()
    case .restarts:
      // The next report is the first of its new life.
      judge(key) { record, _ in record.uptime.last = nil }
    }
  }

  /// A poll was answered, or there was silence. If nobody at all was heard meanwhile, it is not the node's.
  func polled(_ key: PublicKey, _ kind: String, isAnswered: Bool) {
    judge(key) { record, tell in
      let reading = record.polls.polled(
        kind, isAnswered: isAnswered, at: listening.total, wasTold: shared.isBad(.nodeUnanswering, key), settings)
      if case .bad = reading {
        // A silence that is told already is no second fault.
        guard !isSilent(key), !isOpen(AlertSubject(.nodeSilent, key.hex)) else { return }
        guard isAnybodyHeard(but: key, record) else { return record.polls.doubt(at: listening.total, settings) }
      }
      tell(.nodeUnanswering, reading)
    }
  }

  private func isAnybodyHeard(but key: PublicKey, _ record: NodeRecord) -> Bool {
    guard records.count >= Self.crowd, let since = record.polls.missedSince else { return true }
    // The first of the polls may have got lost by chance, while others were heard.
    let lately = since + (listening.total - since) / 2
    return lastSigns.contains { $0.node != key.prefix && $0.at > lately }
      || records.contains { $0.key != key && $0.value.heard.last > lately }
  }

  private func judge(
    _ key: PublicKey, _ body: (inout NodeRecord, (AlertRule, AlertReading) -> Void) -> Void
  ) {
    guard var record = records[key] else { return }
    body(&record) { place($0, key, $1) }
    records[key] = record
    changed.insert(key)
  }

  private func place(_ rule: AlertRule, _ key: PublicKey, _ reading: AlertReading) {
    let (subject, placed) = shared.place(rule, key, name(key), reading, isOpen: isOpen)
    tell(subject, placed)
  }

  private func name(_ key: PublicKey) -> String {
    if let name = names[key] { return name }
    let name = called([key])[key] ?? String(key.hex.prefix(12))
    names[key] = name
    return name
  }

  /// Takes what has come since the last call.
  func work() {
    guard !signs.isEmpty || !clocks.isEmpty else { return }
    let (signs, clocks) = (signs, clocks)
    (self.signs, self.clocks) = ([], [])
    passTime()
    for prefix in signs {
      lastSigns = [(prefix, listening.total)] + lastSigns.filter { $0.node != prefix }.prefix(1)
      if let key = prefixes[prefix] { hear(key) }
    }
    for (key, offset) in clocks { ask(key, about: offset) }
    guard store.clockDoubt == nil else { return }
    for (key, offset) in clocks where !setting.contains(key) {
      judge(key) { record, tell in
        tell(.nodeClockWrong, unfinished(key, record.clock.took(offset, at: elapsed, settings)))
      }
    }
  }

  /// A clock that is wrong because the gateway was ended while it set it.
  private func unfinished(_ key: PublicKey, _ reading: AlertReading) -> AlertReading {
    guard store.clocksUnderWay.contains(key) else { return reading }
    switch reading {
    case .bad(let text, let value, let since):
      return .bad(text: "\(text). \(NodeService.unfinished(name(key)))", value: value, since: since)
    case .well:
      store.post("that a clock is set") { store throws(SQLiteError) in try store.setClockUnderWay(false, of: key) }
      return reading
    case .between: return reading
    }
  }

  /// A node's clock may also say that ours is wrong.
  private func ask(_ key: PublicKey, about offset: Int64) {
    guard let record = records[key] else { return }
    store.heardClock(of: key, offset: offset, before: record.clock.expected(at: elapsed))
  }

  private func hear(_ key: PublicKey) {
    if isDeaf {
      isDeaf = false
      tell(AlertSubject(.nodeSilent, Self.everybody), .well)
      allowAnotherSign()
      // The polls of that time are nobody's.
      for key in records.keys where !shared.isBad(.nodeUnanswering, key) { records[key]?.polls.unanswered = [:] }
    }
    judge(key) { record, tell in
      // A silence of everybody is none of its usual pauses, either.
      let limit = least.flatMap { record.heard.limit(atLeast: $0) } ?? .max
      let wasSilent = isSilent(key) || listening.total - record.heard.last >= limit
      record.heard.heard(at: listening.total, wasSilent: wasSilent)
      if isSilent(key) { tell(.nodeSilent, .well) }
    }
  }

  // MARK: Looking

  /// `needed`: nodes that are polled, or whose password is stored; `nil`: unknown at present. `watched`: nodes that are watched by name or tag. `polled`: the
  /// kinds of polls of each node; `nil`: unknown.
  func look(needed: Set<PublicKey>?, watched: Set<PublicKey>, polled: [PublicKey: Set<String>]?) {
    guard isLoaded else { return }
    names = [:]
    self.watched = watched
    passTime()
    work()
    chooseNodes(needed, watched)
    for key in watched where shared.isShared(.nodeSilent, key) {
      // It has an alert of its own now.
      if let (subject, reading) = shared.forget(.nodeSilent, key) { tell(subject, reading) }
    }
    if let polled { forgetPolls(but: polled) }
    judgeSilence()
    keep()
  }

  private func chooseNodes(_ needed: Set<PublicKey>?, _ watched: Set<PublicKey>) {
    guard let needed,
      let servers = store.ifReadable({ try store.servers(all: settings.scope == .all, limit: Self.most) })
    else { return }
    var chosen = needed.union(watched)
    for key in servers where chosen.count < Self.most { chosen.insert(key) }
    for key in records.keys where !chosen.contains(key) { forget(key) }
    for key in chosen.sorted(by: { $0.hex < $1.hex }) where records[key] == nil && records.count < Self.most {
      records[key] = NodeRecord()
      prefixes[key.prefix] = key
    }
  }

  /// A poll that was removed is never answered: its silence is over.
  private func forgetPolls(but polled: [PublicKey: Set<String>]) {
    for (key, record) in records {
      let kinds = polled[key] ?? []
      let isOver = kinds.isEmpty && shared.isBad(.nodeUnanswering, key)
      guard isOver || !record.polls.unanswered.keys.allSatisfy(kinds.contains) else { continue }
      judge(key) { record, tell in
        record.polls.keep(only: kinds)
        if case .well = record.polls.reading(settings) { tell(.nodeUnanswering, .well) }
      }
    }
  }

  private func forget(_ key: PublicKey) {
    records[key] = nil
    prefixes[key.prefix] = nil
    changed.insert(key)
    for rule in AlertRule.ofNodes + [.nodeSilent] {
      if let (subject, reading) = shared.forget(rule, key) { tell(subject, reading) }
    }
  }

  private func judgeSilence() {
    guard let least else { return }
    let now = listening.total
    let regular = records.filter { !watched.contains($0.key) && $0.value.heard.limit(atLeast: least) != nil }
    guard isListening, !isAllSilent(regular, now, least) else { return }
    for (key, record) in regular.sorted(by: { $0.key.hex < $1.key.hex }) {
      guard record.heard.isSilent(at: now, atLeast: least) else { continue }
      // A node that answers no polls is told already.
      guard !tellsUnanswered || !shared.isBad(.nodeUnanswering, key) else { continue }
      let silence = now - record.heard.last
      let words =
        "not heard for \(UptimeCourse.span(silence / 1000)), and usually every \(UptimeCourse.span(record.heard.longest / 1000))"
      place(.nodeSilent, key, .bad(text: words, since: loop.now + .milliseconds(-silence)))
    }
  }

  /// If nobody is heard that usually is, the gateway's own radio or antenna is likelier the cause.
  private func isAllSilent(_ regular: [PublicKey: NodeRecord], _ now: Int64, _ least: Int64) -> Bool {
    let alive = regular.filter { !isSilent($0.key) }
    guard alive.count >= Self.crowd, let last = records.values.map(\.heard.last).max(),
      let limit = alive.values.compactMap({ $0.heard.limit(atLeast: least) }).min(), now - last >= limit / 2
    else { return false }
    guard now - last >= limit else { return true }
    isDeaf = true
    let text =
      "none of \(alive.count) nodes that are usually heard has been heard for \(UptimeCourse.span((now - last) / 1000)): "
      + "see to the radio and its antenna"
    tell(
      AlertSubject(.nodeSilent, Self.everybody),
      .bad(text: text, value: Double(alive.count), since: loop.now + .milliseconds(last - now)))
    return true
  }

  // MARK: On disk

  /// Reads the records. `open`: the open alerts.
  func load(_ open: [AlertSubject]) {
    (records, prefixes, changed, shared, signs, lastSigns, clocks) = ([:], [:], [], SharedAlerts(), [], [], [])
    let total = store.ifReadable { try store.listenedTime() } ?? 0
    listening = ListeningTime(total: total)
    for row in store.ifReadable({ try store.nodeCare(limit: Self.most) }) ?? [] {
      guard let key = PublicKey(bytes: row.key), var record = NodeRecord(row.body) else { continue }
      if store.isNewBoot { record.uptime.forgetTime() }
      record.heard.last = min(record.heard.last, total)
      record.heard.counted = min(record.heard.counted, total)
      records[key] = record
      prefixes[key.prefix] = key
      for rule in record.grouped { shared.restore(rule, shared: key, name: name(key)) }
    }
    for subject in open {
      if subject.rule == .nodeSilent, subject.name.isExactly(Self.everybody) { isDeaf = true }
      guard let key = PublicKey(hex: subject.name), records[key] != nil else { continue }
      if AlertRule.ofNodes.contains(subject.rule) || subject.rule == .nodeSilent {
        shared.restore(subject.rule, own: key)
      }
    }
    isLoaded = true
  }

  /// Stores what has changed, with the next write.
  func keep() {
    guard isLoaded else { return }
    for (key, record) in records {
      let grouped = Set((AlertRule.ofNodes + [.nodeSilent]).filter { shared.isShared($0, key) })
      guard record.grouped != grouped else { continue }
      records[key]?.grouped = grouped
      changed.insert(key)
    }
    for key in changed { store.keepNodeCare(of: key, records[key]?.json) }
    changed = []
    store.keepListenedTime(listening.total)
  }
}
