// SPDX-License-Identifier: MIT

import Companion
import Control
import EventLoop
import JSON
import Store
import Sync
import Timing

/// The radio's battery and this machine's supply. What is low is an alert, which is said, journaled and forwarded.
///
/// The battery is asked for together with the question for messages that is asked anyway, every ten minutes; once an hour what it was
/// is kept, for charts.
final class PowerWatch {
  private static let between: Duration = .seconds(590)
  private static let betweenReadings: Duration = .seconds(3590)

  private let synchronizer: Synchronizer
  private let store: Store
  private let loop: EventLoop
  private let changes: StateChange
  private let supply: SupplyWatch
  private let tasks: LoopTasks
  private var level: BatteryLevel
  private var asked: MonotonicTime?
  private var kept: MonotonicTime?
  private var millivolts: UInt16?
  /// What the state shows, in steps: what changes without an end costs the uplink.
  private(set) var shown = ShownVoltage()
  /// Who is told what is low, and what is well.
  weak var alerts: GatewayAlerts?

  var report: PowerReport {
    PowerReport(
      millivolts: millivolts, shownMillivolts: shown.millivolts, isBatteryLow: level.isLow, isSupplyLow: supply.isLow)
  }

  /// `changes`: where it is noted that something has changed.
  init(
    _ synchronizer: Synchronizer, _ store: Store, limit: UInt16, changes: StateChange, on loop: EventLoop,
    root: String = ""
  ) {
    self.synchronizer = synchronizer
    self.store = store
    self.loop = loop
    tasks = LoopTasks(on: loop)
    self.changes = changes
    level = BatteryLevel(limit: limit)
    supply = SupplyWatch(on: loop, root: root)
  }

  func change(limit: UInt16) { if limit != level.limit { level = BatteryLevel(limit: limit) } }

  /// Watches the supply until cancelled; then nothing is asked of the radio any more.
  func watchSupply() async throws(CancellationError) {
    defer { tasks.cancel() }
    var wasLow = false
    if supply.isLow == false { alerts?.supply(isLow: false) }
    while let isLow = try await supply.change(from: wasLow) {
      alerts?.supply(isLow: isLow)
      changes.note()
      wasLow = isLow
    }
    // This machine cannot tell.
    try await Waiter().wait()
  }

  /// The radio was just asked for messages, and has none.
  func radioIsIdle() {
    supply.look()
    if let asked, loop.now - asked < Self.between { return }
    asked = loop.now
    // It ends with the radio's answer or its timeout.
    tasks.begin {
      let outcome = await self.synchronizer.connection.ask(.getBattery, .sync)
      if case .replied(.battery(let battery)) = outcome { self.read(battery.millivolts) }
    }
  }

  private func read(_ millivolts: UInt16) {
    self.millivolts = millivolts
    let hasChanged = level.read(millivolts)
    alerts?.battery(isLow: level.isLow, millivolts)
    if shown.read(millivolts, isLow: level.isLow, now: loop.now) || hasChanged { changes.note() }
    // Whether it is low for good is soon known.
    if level.isDoubtful { asked = nil }
    guard millivolts > 0, kept.map({ loop.now - $0 >= Self.betweenReadings }) ?? true else { return }
    kept = loop.now
    keep(millivolts)
  }

  private func keep(_ millivolts: UInt16) {
    guard let identity = synchronizer.connection.identity else { return }
    let moment = synchronizer.now
    let body = JSONWriter.object { json in
      json.field("node", identity.info.key.hex)
      json.field("name", identity.info.name.string)
      json.field("battery_mv", millivolts)
    }
    store.post(when: .heard, "the battery's reading") { store throws(SQLiteError) in
      try store.keepReading(of: identity.info.key, kind: .status, body: body, at: moment, isJournaled: false)
    }
  }
}
