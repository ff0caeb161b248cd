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
/// hour is stored, for charts, with the noise that the radio hears.
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
    // Ends with the radio's answers or their time-outs.
    tasks.begin {
      let outcome = await self.synchronizer.connection.ask(.getBattery, .sync)
      guard case .replied(.battery(let battery)) = outcome else { return }
      self.read(battery.millivolts)
      await self.keepHourly(battery.millivolts)
    }
  }

  private func read(_ millivolts: UInt16) {
    self.millivolts = millivolts
    let hasChanged = level.read(millivolts)
    alerts?.battery(isLow: level.isLow, millivolts)
    if shown.read(millivolts, isLow: level.isLow, now: loop.now) || hasChanged { changes.note() }
    // A doubtful level is read again soon.
    if level.isDoubtful { asked = nil }
  }

  private func keepHourly(_ millivolts: UInt16) async {
    if let kept, loop.now - kept < Self.betweenReadings { return }
    guard let identity = synchronizer.connection.identity else { return }
    kept = loop.now
    // 0: this radio does not measure it.
    let battery: UInt16? = millivolts > 0 ? millivolts : nil
    let noise = await noiseFloor(version: identity.device?.protocolVersion ?? 0)
    guard battery != nil || noise != nil else { return }
    let moment = synchronizer.now
    let body = JSONWriter.object { json in
      json.field("node", identity.info.key.hex)
      json.field("name", identity.info.name.string)
      json.field("battery_mv", battery)
      json.field("noise_floor_dbm", noise)
    }
    store.post(when: .heard, "the radio's reading") { store throws(SQLiteError) in
      try store.keepReading(of: identity.info.key, kind: .status, body: body, at: moment, isJournaled: false)
    }
  }

  /// dBm. `nil`: the firmware does not tell it, and is not asked; or it has not measured it yet.
  private func noiseFloor(version: UInt8) async -> Int16? {
    guard version >= Synchronizer.firstWithStats else { return nil }
    let outcome = await synchronizer.connection.ask(.getStats(1), .sync)
    guard case .replied(.stats(.radio(let radio))) = outcome, radio.noiseFloor < 0 else { return nil }
    return radio.noiseFloor
  }
}
