// SPDX-License-Identifier: MIT

import Alerts
import Glibc
import Synchronization
import Timing

/// The hub's own alerts: silent gateways, its disk, its database. Gateways report theirs in their events.
///
/// All hubs on a database check, and find the same. The first hub writes it (`HubStore.storeAlertChanges`).
actor HubAlerts {
  private static let round: Duration = .seconds(15)
  private static let pageRows = 1000
  /// The longest pause between two notes for other hubs about quiet gateways that are linked to this hub, in milliseconds. A short limit of silence
  /// shortens it to a third of that limit.
  private static let notePause: Int64 = 300_000
  /// Most gateways and other subjects.
  private static let maxSubjects = 65_536
  private static let mostPending = 2 * maxSubjects
  private static let writtenAtOnce = 200
  /// Pause between two notes of the newest event: each writes a file, for an SQLite database to the same disk. A copy is found if it lacks what was noted.
  private let newestPause: Duration
  /// Pause between two searches for alerts that gateways have forgotten.
  private static let searchPause: Duration = .seconds(300)

  /// Open alerts by rule, at the last check; `nil`: unknown.
  struct Census: Sendable {
    var rules: [String: Int64]
    var unacknowledged: Int64
  }

  private let settings: HubAlertSettings
  private let stores: HubStores
  private let registry: LinkRegistry
  private let name: String
  /// The SQLite file; `nil`: the database is on a server, and its disk is no concern of the hub.
  private let location: String?
  private let mark: DatabaseMark?
  private let began = ContinuousClock.now
  private var board: AlertBoard
  private var intervals = ContactIntervals()
  private var pending: [HubAlertChange] = []
  private var isRestored = false
  private var retentionHeldAt: Int64?
  /// The database's name, until the mark has it; and the message about a different database than before.
  private var unmarked: String?
  private var isMarked = false
  private var replaced: String?
  private var linksNotedAt: Int64 = 0
  /// The transaction that hid new messages at the last check.
  private var hiding: Int64?
  /// The last check of gateways, and the last search for forgotten alerts.
  private var checkedAt: MonotonicTime?
  private var searchedAt: MonotonicTime?
  private var newestNotedAt: MonotonicTime?
  private nonisolated let lastCensus = Mutex<Census?>(nil)

  init(
    _ settings: HubAlertSettings, _ stores: HubStores, _ registry: LinkRegistry, name: String, location: String?,
    mark: DatabaseMark? = nil, newestPause: Duration? = nil
  ) {
    (self.settings, self.stores, self.registry, self.name, self.location) = (settings, stores, registry, name, location)
    (self.mark, self.newestPause) = (mark, newestPause ?? (location == nil ? .seconds(60) : .seconds(600)))
    board = AlertBoard(settings.rules, maxSubjects: Self.maxSubjects)
  }

  nonisolated var census: Census? { lastCensus.withLock { $0 } }
  nonisolated var rules: [(rule: AlertRule, sentence: String)] { settings.rules.sentences }

  private var now: MonotonicTime { MonotonicTime(since: began) }

  func run() async {
    while !Task.isCancelled {
      await check()
      // `try?`: cancelled while it sleeps.
      try? await Task.sleep(for: pause)
    }
  }

  /// The pause until the next check: shorter if the configuration has short times.
  private var pause: Duration {
    let shortest = settings.rules.times.values.map { max($0.begins, .seconds(1)) }.min() ?? Self.round
    return min(max(shortest / 4, .seconds(1)), Self.round)
  }

  func check() async {
    let isLost = stores.probe.problem() == .lost
    if isLost { read(lossSubject, .bad(text: "\(name): \(DatabaseProbe.lostFile). \(DatabaseProbe.lostRemedy)")) }
    // A lost file still answers.
    let problem = isLost ? nil : stores.probe.problem()
    if let problem, problem != .starting, problem != .outdated {
      read(AlertSubject(.hubDatabase, name), .bad(text: "the database of \(name) is away: \(problem.rawValue)"))
    } else if location == nil, stores.probe.isDiskFull {
      let words = "the disk of the database of \(name) is full: nothing is stored"
      read(AlertSubject(.hubDatabase, name), .bad(text: words))
    } else if stores.lock.isLong {
      let words = "the database of \(name) is locked by another program: nothing is stored"
      read(AlertSubject(.hubDatabase, name), .bad(text: words))
    } else if problem == nil {
      read(AlertSubject(.hubDatabase, name), await readHiding() ?? .well)
    }
    readDisk()
    var hasChecked = false
    if problem == nil {
      do {
        try await restoreAll()
        if !isLost { try await readLoss() }
        try await readGateways()
        try await readRetention()
        try await endLostAlerts()
        try await readEventDriven()
        hasChecked = true
      } catch {
        // The probe reports what is wrong with the database.
      }
    }
    for change in board.timedOut(now: now) { report(change) }
    await write()
    // Now the next start does not report the same database again.
    if let name = unmarked, pending.isEmpty {
      mark?.add(name)
      (unmarked, isMarked, replaced) = (nil, true, nil)
    }
    if hasChecked, isMarked, !isLost { await noteNewest() }
    await updateCensus()
    // At the end of the check: only the time until the next check counts as a gap.
    if hasChecked { checkedAt = now }
  }

  /// Restores the alerts that were open when the last hub ended.
  private func restoreAll() async throws {
    guard !isRestored else { return }
    var before = Int64.max
    let now = HubClock.now
    while true {
      let (found, hasMore) = try await stores.monitor.alerts(before: before, openOnly: true, limit: Self.pageRows)
      for alert in found { restore(alert, now) }
      guard hasMore, let last = found.last else { break }
      before = last.id
    }
    for alert in try await stores.monitor.alerts(before: .max, openOnly: false, limit: Self.pageRows).alerts {
      restore(alert, now)
    }
    isRestored = true
  }

  private func restore(_ alert: HubAlert, _ now: Int64) {
    // Event-driven alerts are stored at once, and are not on the board.
    guard let rule = AlertRule(rawValue: alert.rule), AlertRule.ofHubs.contains(rule), !rule.isEventDriven else {
      return
    }
    let own = rule == .hubStoreLost ? lossSubject.name : name
    guard rule == .gatewaySilent || rule == .retentionHeld || alert.subject == own else {
      endOfOtherHub(alert, AlertSubject(rule, alert.subject), now)
      return
    }
    let subject = AlertSubject(rule, rule == .gatewaySilent ? alert.gateway : alert.subject)
    guard settings.rules.times[rule] != nil else {
      if alert.endedAt == nil { pending.append(Self.storable(.ends(subject), at: now)) }
      return
    }
    if let ended = alert.endedAt {
      board.restoreEnded(subject, at: self.now + .milliseconds(-max(0, now - ended)), returns: alert.returns)
    } else {
      board.restore(subject, returns: alert.returns)
    }
  }

  /// Ends an alert of another hub, if that hub is gone. An SQLite database has one hub, so the other name is an earlier one of this hub. On a server,
  /// a hub that has not ended its alert for days is gone: a container has a new name at each start.
  private func endOfOtherHub(_ alert: HubAlert, _ subject: AlertSubject, _ now: Int64) {
    guard alert.endedAt == nil, alert.gateway.isEmpty, location != nil || now - alert.beganAt > Self.longestOfAnother
    else { return }
    pending.append(Self.storable(.ends(subject), at: now))
  }

  /// Milliseconds: twice the longest time from good readings to the end of an alert.
  private static let longestOfAnother: Int64 = 2 * 86_400_000

  // MARK: Checks

  private func endLostAlerts() async throws {
    if let searchedAt, now - searchedAt < Self.searchPause { return }
    try await stores.writer.endLostAlerts(at: HubClock.now)
    searchedAt = now
  }

  /// Reports ids under which two gateways take the link from each other, and ends event-driven alerts without recent events.
  private func readEventDriven() async throws {
    for gateway in await registry.takeContested() {
      try await stores.writer.reportContestedLink(of: gateway, at: HubClock.now)
    }
    for rule in AlertRule.ofHubs where rule.isEventDriven {
      let over = settings.rules.times[rule]?.ends ?? .zero
      try await stores.writer.endIdleAlerts(rule, since: HubClock.now - Int64(over.inSeconds * 1000), at: HubClock.now)
    }
  }

  /// All hubs on a server miss the same database.
  private var lossSubject: AlertSubject { AlertSubject(.hubStoreLost, location == nil ? "" : name) }

  /// The alert of a lost database stays open until somebody acknowledges it.
  private func readLoss() async throws {
    if !isMarked, unmarked == nil {
      let found = try await stores.monitor.name()
      var words: String?
      if let known = mark?.names, !known.isEmpty, !known.contains(found) {
        words = Self.replacedDatabase
      } else if let newest = mark?.newest, try await stores.monitor.lacks(newest) {
        words = Self.olderDatabase
      }
      if let words { HubLog.write(.error, words) }
      (replaced, unmarked) = (words.map { "\(name): \($0)" }, found)
    }
    var text = replaced
    if text == nil {
      text = try await stores.monitor.unacknowledgedAlert(AlertRule.hubStoreLost.rawValue, lossSubject.name)
    }
    read(lossSubject, text.map { .bad(text: $0) } ?? .well)
  }

  private static let replacedDatabase =
    "the database is not the one that was here before, which was removed, or replaced by another one than its backup. Gateways send again what "
    + "their journals still have; all else (people, states, commands, what is older) is only in a backup: to have it back, end the hub and put that in "
    + "its place"

  private static let olderDatabase =
    "the database is an older copy of the one that was here before. Gateways send again what their journals still have; all else since the copy "
    + "(people, states, commands, what is older) is lost"

  /// Another database may have the place of the one that was here: looks at it as at the start.
  func lookAgain() { (isMarked, unmarked, newestNotedAt) = (false, nil, nil) }

  /// Notes the newest event, by which an older copy is recognised: at the next start, or now, if a backup took the place of what was here.
  private func noteNewest() async {
    guard let mark, newestNotedAt.map({ now - $0 >= newestPause }) ?? true else { return }
    do {
      if newestNotedAt != nil, let noted = mark.newest, try await stores.monitor.lacks(noted) { return lookAgain() }
      if let newest = try await stores.monitor.newestEventMark() { mark.note(newest: newest) }
      newestNotedAt = now
    } catch {
      // The probe reports what is wrong with the database.
    }
  }

  /// A transaction on the server that has hidden new messages since the last check.
  private func readHiding() async -> AlertReading? {
    guard location == nil else { return nil }
    do {
      let found = try await stores.monitor.hidingTransaction()
      defer { hiding = found }
      guard let found, found == hiding else { return nil }
      let facts = try await stores.monitor.facts(ofTransaction: found)
      return .bad(
        text:
          "the database of \(name) shows no new messages until this transaction ends: \(facts.words). End it in its program, or by \(facts.remedy)"
      )
    } catch {
      // The probe reports what is wrong with the database.
      return nil
    }
  }

  private func readDisk() {
    guard let location, settings.diskFree > 0, let free = FullDisk.free(at: location) else { return }
    let subject = AlertSubject(.hubDiskFull, name)
    if free < settings.diskFree {
      read(subject, .bad(text: "only \(free >> 20) MiB are free where the database of \(name) is", value: Double(free)))
    } else {
      read(subject, free < settings.diskFree + settings.diskFree / 4 ? .between : .well)
    }
  }

  private func readGateways() async throws {
    guard let times = settings.rules.times[.gatewaySilent] else { return }
    let linked = Set(await registry.linkTimes().keys)
    try await noteLinked(linked, silentAfter: times.begins)
    var (after, all) = ("", Set<String>())
    while true {
      let page = try await stores.monitor.lastContacts(after: after, limit: Self.pageRows)
      // The database has answered: the gap before this check is no silence of gateways.
      if after.isEmpty { skipGap(times) }
      for one in page {
        all.insert(one.gateway)
        intervals.update(
          one.gateway, seen: one.seen, hasLink: one.hasLink, isLinked: linked.contains(one.gateway),
          least: times.begins, now: now)
        read(one.gateway)
      }
      guard page.count == Self.pageRows, let last = page.last else { break }
      after = last.gateway
    }
    intervals.keep(only: all)
    for subject in board.open where subject.rule == .gatewaySilent && !all.contains(subject.name) {
      if let change = board.drop(subject) { report(change) }
    }
  }

  /// While the database is unavailable, or this machine sleeps, the hub hears no gateway. That is one alert, `hub_database`, and not one for each
  /// gateway.
  private func skipGap(_ times: AlertTimes) {
    let now = now
    guard let checkedAt, now - checkedAt > pause * 3 else { return }
    intervals.skip(from: checkedAt, to: now, least: times.begins)
  }

  /// This is about the database: all hubs on it report the same.
  private func readRetention() async throws {
    let held = try await stores.monitor.heldRetention()
    retentionHeldAt = held?.since ?? retentionHeldAt
    let reading = held.map { AlertReading.bad(text: $0.message, value: Double($0.rows)) }
    read(AlertSubject(.retentionHeld), reading ?? .well)
  }

  private func read(_ gateway: String) {
    let subject = AlertSubject(.gatewaySilent, gateway)
    if intervals.isLate(gateway, now: now), let heard = intervals.heard(gateway) {
      let seconds = (now - heard).components.seconds
      let words = AlertRule.words(.seconds(seconds < 60 ? seconds : seconds / 60 * 60))
      let text = "nothing has come from \(gateway) for \(words)"
      // The gateway's own limit has passed. The board has the limit of gateways with a link.
      read(subject, .bad(text: text, since: heard))
    } else if intervals.wasHeard(gateway) {
      read(subject, .well)
    }
  }

  /// Notes contacts for other hubs, which do not know of this hub's links.
  private func noteLinked(_ linked: Set<String>, silentAfter: Duration) async throws {
    let now = HubClock.now
    let notePause = min(Self.notePause, silentAfter.components.seconds * 1000 / 3)
    guard location == nil, !linked.isEmpty, abs(now - linksNotedAt) >= notePause else { return }
    linksNotedAt = now
    try await stores.writer.noteLinked(Array(linked), quietSince: now - notePause, at: now)
  }

  private func read(_ subject: AlertSubject, _ reading: AlertReading) {
    if let change = board.read(subject, reading, now: now) { report(change) }
  }

  // MARK: Reporting

  private func report(_ change: AlertChange) {
    let at = HubClock.now
    var beganAt = at
    switch change {
    case .begins(let subject, let text, _, let since, _):
      HubLog.write(.warning, "alert: \(text)")
      beganAt = at - Int64((now - since).inSeconds * 1000)
      // All hubs on a server take the begin from the database.
      if subject.rule == .retentionHeld { beganAt = retentionHeldAt ?? beganAt }
      if subject.rule == .gatewaySilent, location == nil { beganAt = intervals.lastContact(subject.name) ?? beganAt }
    case .ends(let subject): HubLog.write(.notice, "alert over: \(subject.rule.rawValue) \(subject.name)")
    }
    pending.append(Self.storable(change, beganAt: beganAt, at: at))
    if pending.count > Self.mostPending { pending.removeFirst() }
  }

  /// Writes the changes.
  private func write() async {
    while !pending.isEmpty {
      let some = pending.prefix(Self.writtenAtOnce).map { stores.disk.isFull ? $0 : Self.past($0) }
      // `try?`: if the database fails, they wait for the next check.
      guard (try? await stores.writer.storeAlertChanges(some)) != nil else { return }
      pending.removeFirst(some.count)
    }
  }

  /// What nobody could store is over once it is stored, and pages and pushes tell it only then.
  private static func past(_ change: HubAlertChange) -> HubAlertChange {
    guard case .begins(var alert, let at) = change, alert.rule == AlertRule.hubDatabase.rawValue else { return change }
    for (now, then) in tenses { alert.text = alert.text.replacing(now, with: then) }
    return .begins(alert, at: at)
  }

  private static let tenses = [
    (" is away: ", " was away: "), (" is full: nothing is stored", " was full: nothing was stored"),
    (" is locked by another program: nothing is stored", " was locked by another program: nothing was stored"),
  ]

  private static func storable(_ change: AlertChange, beganAt: Int64 = 0, at now: Int64) -> HubAlertChange {
    let subject = change.subject
    let isOfGateway = subject.rule == .gatewaySilent
    var alert = HubAlert(
      gateway: isOfGateway ? subject.name : "", rule: subject.rule.rawValue, subject: isOfGateway ? "" : subject.name,
      text: "", beganAt: beganAt)
    guard case .begins(_, let text, _, _, let returns) = change else { return .ends(alert, at: now) }
    (alert.text, alert.returns) = (text, returns)
    return .begins(alert, at: now)
  }

  private func updateCensus() async {
    // `try?`: the probe reports what is wrong with the database.
    let found = try? await stores.monitor.alertCensus()
    lastCensus.withLock { $0 = found }
  }
}
