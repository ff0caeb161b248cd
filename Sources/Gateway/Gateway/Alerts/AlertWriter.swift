// SPDX-License-Identifier: MIT

import Alerts
import EventLoop
import JSON
import Store
import Timing

/// The gateway's `AlertBoard`, and its changes on disk: each is a row, an event and a line of the log. A restart begins no
/// alert anew.
final class AlertWriter {
  /// The most changes to keep while the disk refuses them: an end for each alert that is open on disk, and a beginning for
  /// each that is open now. Alerts beyond it that began and ended meanwhile are only in the log.
  private static let maxWaiting = 2 * AlertBoard.maxSubjects

  private struct Waiting {
    let number: UInt64
    let change: AlertChange
    let moment: Moment
    /// When the fault began, in milliseconds since 1970 by the clock as it was at the change.
    let since: Int64
    let millivolts: UInt16?
  }

  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let changes: StateChange
  private(set) var board: AlertBoard
  private var waiting: [Waiting] = []
  /// Changes for which there was no room while the disk refused them.
  private var dropped = 0
  private var lastNumber: UInt64 = 0
  private var writing: LoopTask?
  private var afterWriting: [() -> Void] = []
  private(set) var isBegun = false
  /// The battery's last voltage, for the events of its alerts.
  var millivolts: UInt16?

  init(_ rules: AlertSettings, _ store: Store, changes: StateChange, on loop: EventLoop, log: Log) {
    (self.store, self.changes, self.loop, self.log) = (store, changes, loop, log)
    board = AlertBoard(rules)
  }

  func begin() {
    isBegun = true
    recall()
  }

  func stop() {
    isBegun = false
    if dropped > 0 { log.error("stopping: changes of alerts that are only in the log, and have no event: \(dropped)") }
  }

  func change(_ rules: AlertSettings) { for change in board.change(rules) { tell(change) } }

  /// Another database has replaced a damaged one.
  func beginAnew() {
    board = AlertBoard(board.settings)
    (waiting, afterWriting) = ([], [])
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

  func read(_ subject: AlertSubject, _ reading: AlertReading) {
    let change = board.read(subject, reading, now: loop.now)
    if case .bad = reading, let said = board.said(of: subject) {
      store.alertSays(subject.rule.rawValue, subject.name, said.text, said.value)
    }
    if let change { tell(change) }
  }

  /// Begins and ends the alerts of which the time has come.
  func timeHasCome() { for change in board.timedOut(now: loop.now) { tell(change) } }

  /// Ends the alert of a subject that no longer exists.
  func drop(_ subject: AlertSubject) { if let change = board.drop(subject) { tell(change) } }

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
    makeRoom()
    write()
  }

  /// Drops whole alerts, the oldest first: without its end, an alert would be open on disk for ever. Changes that are being
  /// written stay, because the disk may have a beginning already.
  private func makeRoom() {
    while writing == nil, waiting.count > Self.maxWaiting,
      let whole = AlertChange.firstWhole(in: waiting.map(\.change))
    {
      let subject = waiting.remove(at: whole.end).change.subject
      waiting.remove(at: whole.begin)
      dropped += 2
      let isWaiting = waiting.contains { $0.change.subject == subject }
      if !isWaiting, !board.isOpen(subject) { store.alertIsOver(subject.rule.rawValue, subject.name) }
    }
  }

  /// Stores changes one after another. If the disk refuses them, the next commit or query of the radio retries.
  func write() {
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
    // An alert that ended meanwhile still has its end to write, and its words until then.
    let unwritten = Set(waiting.map(\.change.subject))
    for subject in batch.map(\.change.subject) where !board.isOpen(subject) && !unwritten.contains(subject) {
      store.alertIsOver(subject.rule.rawValue, subject.name)
    }
    if dropped > 0 {
      log.error("the disk refused changes of alerts for so long that \(dropped) are only in the log, and have no event")
      dropped = 0
    }
    changes.note()
    if waiting.isEmpty { allIsWritten() } else { await writeAll() }
  }

  /// `work` is done when the alerts of now are on disk.
  func whenWritten(_ work: @escaping () -> Void) {
    afterWriting.append(work)
    if waiting.isEmpty { allIsWritten() }
  }

  private func allIsWritten() {
    let works = afterWriting
    afterWriting = []
    for work in works { work() }
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
