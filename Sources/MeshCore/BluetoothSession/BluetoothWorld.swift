// SPDX-License-Identifier: MIT

import Timing

/// The known state of BlueZ's objects that matter for one radio. Bounded, as there can be many devices in range.
struct BluetoothWorld: Equatable {
  struct Characteristics: Equatable {
    var device: String
    var rx: String?
    var tx: String?
  }

  enum Candidates: Equatable {
    case none
    case one(DeviceFacts)
    case several([String])
  }

  /// Devices that fit the target; more are not kept.
  static let maxDevices = 16
  static let maxAdapters = 8

  var isServiceUp = false
  /// Whether adapters and devices have been read from BlueZ.
  var hasObjects = false
  var adapters: [String: AdapterFacts] = [:]
  var devices: [String: DeviceFacts] = [:]
  var heardAt: [String: MonotonicTime] = [:]
  var characteristics: Characteristics?

  static func shortName(_ path: String) -> String { path.split(separator: "/").last.map(String.init) ?? path }

  mutating func take(_ adapter: AdapterFacts) {
    guard adapters[adapter.path] != nil || adapters.count < Self.maxAdapters else { return }
    let wasBlocked = adapters[adapter.path]?.isBlocked ?? false
    adapters[adapter.path] = adapter
    // BlueZ reports a block only by failing to switch the adapter on; an adapter that is on is not blocked.
    if wasBlocked, !adapter.isPowered { adapters[adapter.path]?.isBlocked = true }
  }

  mutating func take(_ device: DeviceFacts, heardAt time: MonotonicTime?) {
    if devices[device.path] == nil, devices.count >= Self.maxDevices {
      let idle = devices.values.filter { !$0.isPaired && !$0.isConnected }
      guard let oldest = idle.min(by: { heard($0) < heard($1) }) else { return }
      forget(oldest.path)
    }
    devices[device.path] = device
    if let time { heardAt[device.path] = time }
  }

  private func heard(_ device: DeviceFacts) -> MonotonicTime { heardAt[device.path] ?? MonotonicTime(nanoseconds: 0) }

  mutating func forget(_ device: String) {
    devices[device] = nil
    heardAt[device] = nil
    if characteristics?.device == device { characteristics = nil }
  }

  /// A scan begins: devices that BlueZ only remembers do not count as in range.
  mutating func forgetUnbonded() {
    for device in devices.values where !device.isPaired && !device.isConnected { forget(device.path) }
  }

  func adapter(_ settings: BluetoothSession.Settings) -> AdapterFacts? {
    guard let name = settings.adapter else { return adapters.min { $0.key < $1.key }?.value }
    return adapters.values.first { Self.shortName($0.path) == name || $0.address.uppercased() == name.uppercased() }
  }

  /// The intended device: the only one that fits the target; of several, the only paired one.
  func candidates(_ settings: BluetoothSession.Settings) -> Candidates {
    guard let adapter = adapter(settings) else { return .none }
    let fitting = devices.values.filter { settings.target.matches($0) && $0.adapter == adapter.path }
      .sorted { $0.path < $1.path }
    let paired = fitting.filter(\.isPaired)
    if let only = paired.first, paired.count == 1 { return .one(only) }
    guard let first = fitting.first else { return .none }
    return fitting.count == 1 ? .one(first) : .several(fitting.map { "\($0.name) \($0.address)" })
  }

  func target(_ settings: BluetoothSession.Settings) -> DeviceFacts? {
    if case .one(let device) = candidates(settings) { device } else { nil }
  }

  /// Whether other devices are connected through the device's adapter: switching that off would cut them.
  func hasOthersConnected(than device: DeviceFacts?) -> Bool {
    let adapter = device?.adapter
    return strangers.values.contains { adapter == nil || $0 == adapter }
      || devices.values.contains {
        $0.isConnected && $0.path != device?.path && (adapter == nil || $0.adapter == adapter)
      }
  }

  /// Connected devices that do not fit the target, with their adapters. An adapter has few connections.
  private var strangers: [String: String] = [:]
  static let maxStrangers = 64

  /// Of a device that does not fit the target, only its connection matters.
  mutating func takeStranger(_ device: DeviceFacts) {
    guard device.isConnected else { return forgetStranger(device.path) }
    if strangers[device.path] == nil, strangers.count >= Self.maxStrangers { return }
    strangers[device.path] = device.adapter
  }

  mutating func forgetStranger(_ path: String) { strangers[path] = nil }
}

/// Repairs for repeated failures: a limited number of steps, then only retries.
struct RepairLadder: Equatable {
  enum Repair: Equatable {
    /// Remove the device with its bond and cached services from BlueZ, and pair again.
    case remove
    /// Switch the adapter off and on.
    case powerCycle
  }

  static let suspicionsForRemoval = 2
  static let failuresForRemoval = 4
  static let failuresForCycle = 7
  /// Removals per outage, so that a radio that refuses is not asked again and again.
  static let maxRemovals = 2

  var failures = 0
  /// Failures that suggest that the radio has lost the bond, or that BlueZ's cache is stale.
  var suspicions = 0
  var wrongPINs = 0
  var repair: Repair?
  private var removals = 0
  private var hasCycled = false
  var backoff = Backoff(first: .seconds(1), limit: .seconds(60))

  var suspectsBond: Bool { suspicions >= Self.suspicionsForRemoval }

  /// The radio has answered: the next outage begins with the first repair.
  mutating func proved() {
    let kept = backoff
    self = RepairLadder()
    backoff = kept
  }

  /// Decides on a repair; returns the log message.
  mutating func climb(canPair: Bool, device: DeviceFacts?, mayCycle: Bool) -> String? {
    guard repair == nil else { return nil }
    if let device, canPair || !device.isPaired, removals < Self.maxRemovals, wrongPINs == 0,
      suspectsBond || failures >= Self.failuresForRemoval
    {
      (repair, suspicions, failures) = (.remove, 0, 0)
      removals += 1
      return "\(device.address) is removed from BlueZ, to start over with it"
    }
    if mayCycle, !hasCycled, failures >= Self.failuresForCycle {
      (repair, hasCycled) = (.powerCycle, true)
      return "the adapter is switched off and on"
    }
    return nil
  }

  /// How long to wait after a failure.
  mutating func rest(after trouble: BluetoothTrouble, using random: inout SeededRandom) -> Duration {
    let wait = backoff.next(using: &random)
    switch trouble {
    // Only an operator can help, so frequent attempts are useless.
    case .wrongPIN, .notAllowed, .several: return max(wait, .seconds(60))
    case .wantsPIN, .bondLost, .noUART, .inUse: return max(wait, .seconds(30))
    // The radio answered until just now: it is probably near, and soon back.
    case .lost: return min(wait, .seconds(3))
    default: return wait
    }
  }
}
