// SPDX-License-Identifier: MIT

import Companion
import Control
import EventLoop
import JSON
import Store
import Sync
import Timing

/// The radio's battery and this machine's supply. Low values are alerts.
///
/// The battery is queried after a query for messages that happens anyway, at most every ten minutes; one reading an
/// hour is stored, for charts.
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
  /// The voltage in the gateway's state, in steps: frequent changes would cost traffic.
  private(set) var shown = ShownVoltage()
  /// Gets the readings.
  weak var alerts: GatewayAlerts?

  var report: PowerReport {
    PowerReport(
      millivolts: millivolts, shownMillivolts: shown.millivolts, isBatteryLow: level.isLow, isSupplyLow: supply.isLow)
  }

  /// `changes`: notes changes of the state.
  init(_ synchronizer: Synchronizer, _ store: Store, limit: UInt16, changes: StateChange, on loop: EventLoop) {
    self.synchronizer = synchronizer
    self.store = store
    self.loop = loop
    tasks = LoopTasks(on: loop)
    self.changes = changes
    level = BatteryLevel(limit: limit)
    supply = SupplyWatch(on: loop)
  }

  func change(limit: UInt16) { if limit != level.limit { level = BatteryLevel(limit: limit) } }

  /// Watches the supply until it is cancelled; then the radio is queried no more.
  func watchSupply() async throws(CancellationError) {
    defer { tasks.cancel() }
    var wasLow = false
    if supply.isLow == false { alerts?.supply(isLow: false) }
    while let isLow = try await supply.change(from: wasLow) {
      alerts?.supply(isLow: isLow)
      changes.note()
      wasLow = isLow
    }
    // This machine has no such sensor.
    try await Waiter().wait()
  }

  /// The radio was just asked for messages, and has none.
  func radioIsIdle() {
    supply.look()
    if let asked, loop.now - asked < Self.between { return }
    asked = loop.now
    // Ends with the radio's answer or its time-out.
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
    // A doubtful level is read again soon.
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
