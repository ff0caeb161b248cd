// SPDX-License-Identifier: MIT

import Timing

/// Establishes and keeps the Bluetooth link to one radio: decides on the next operation of BlueZ. Pure.
///
/// It is not a sequence of states. After each event it compares the known state of BlueZ's objects with the desired one, and
/// performs the first missing step:
///
///     service ▶ objects ▶ adapter on ▶ radio heard ▶ paired ▶ trusted ▶ connected ▶ resolved ▶ subscribed ▶ writable ▶ up
///
/// so after any failure it continues from the remaining state. One operation is in progress at a time; each has
/// a time limit, and so has each wait. Failures are followed by growing pauses, and by a limited number of repairs
/// (docs/bluetooth.md).
public struct BluetoothSession {
  public struct Settings: Equatable, Sendable {
    public var target: BluetoothTarget
    /// The adapter's name, such as `hci0`; `nil`: the first.
    public var adapter: String?
    /// Whether a PIN is known, so that pairing is possible.
    public var hasPIN: Bool
    public var mayPowerOn: Bool
    public var mayUnblock: Bool
    public var mayPowerCycle: Bool

    public init(
      target: BluetoothTarget, adapter: String? = nil, hasPIN: Bool = false, mayPowerOn: Bool = true,
      mayUnblock: Bool = false, mayPowerCycle: Bool = false
    ) {
      self.target = target
      self.adapter = adapter
      self.hasPIN = hasPIN
      self.mayPowerOn = mayPowerOn
      self.mayUnblock = mayUnblock
      self.mayPowerCycle = mayPowerCycle
    }
  }

  struct Current: Equatable {
    let id: UInt64
    let operation: BluetoothOperation
    let deadline: MonotonicTime
  }

  struct Scan: Equatable {
    let adapter: String
    let since: MonotonicTime
    let until: MonotonicTime
  }

  /// The descriptors for frames, from `openNotifications` and `openWrites`.
  struct Ways: Equatable {
    var notifications = false
    var writes = false
    var mtu = 0
  }

  static let scanWindow: Duration = .seconds(25)
  /// How long to scan before the only radio heard counts as the only one in range.
  static let settleTime: Duration = .seconds(8)
  /// How long bluetoothd may be absent at the start before that is reported.
  static let startGrace: Duration = .seconds(5)
  static let resolveLimit: Duration = .seconds(30)
  /// The longest wait for something outside (a service, an adapter) before the state is checked again, even without
  /// events.
  static let waitLimit: Duration = .seconds(60)
  /// A link that stayed up this long counts as a good one.
  static let goodLink: Duration = .seconds(60)

  public var settings: Settings
  var world = BluetoothWorld()
  var ladder = RepairLadder()
  var current: Current?
  var scan: Scan?
  var ways = Ways()
  var cleanUps: [BluetoothOperation] = []
  var lastID: UInt64 = 0
  var isWanted = false
  var restUntil: MonotonicTime?
  var waitUntil: MonotonicTime?
  var resolveUntil: MonotonicTime?
  var settleUntil: MonotonicTime?
  /// The device that was heard and is to be connected.
  var heard: String?
  /// Unfiltered scans alternate with filtered ones: some radios send name and services in separate packets.
  var scansWithoutFilter = false
  var hasAskedForWays = false
  var wantsPairing = false
  var upSince: MonotonicTime?
  var random: SeededRandom
  public internal(set) var trouble: BluetoothTrouble?

  /// `seed`: for the random part of pauses.
  public init(_ settings: Settings, seed: UInt64) {
    self.settings = settings
    random = SeededRandom(seed: seed)
  }

  public var isUp: Bool { upSince != nil }

  /// When to call `timedOut`. Never `nil` while a link is wanted and not up.
  public var deadline: MonotonicTime? {
    if let current { return current.deadline }
    guard isWanted, !isUp else { return nil }
    return [restUntil, waitUntil, resolveUntil, scan == nil ? nil : settleUntil, scan?.until].compactMap { $0 }.min()
  }

  /// The current step, for people.
  public var step: String {
    if let current { return current.operation.step }
    if isUp { return "connected" }
    guard isWanted else { return "closed" }
    if restUntil != nil { return "waiting before the next attempt" }
    if resolveUntil != nil { return "waiting for the radio's services" }
    return scan == nil ? "waiting" : "scanning"
  }

  // MARK: Calls of the owner

  public mutating func opened(now: MonotonicTime) -> [BluetoothAction] {
    guard !isWanted else { return [] }
    isWanted = true
    // The first answer of the bus is still outstanding: not a trouble yet.
    if !world.isServiceUp, waitUntil == nil { waitUntil = now + Self.startGrace }
    return world.isServiceUp ? plan(now) : []
  }

  /// The owner has closed the link. `isBad`: the link was up, but the radio did not answer.
  public mutating func closed(isBad: Bool, now: MonotonicTime) -> [BluetoothAction] {
    guard isWanted else { return [] }
    var actions: [BluetoothAction] = []
    if isBad, let device = world.target(settings) {
      ladder.failures += 1
      trouble = .silent(address: device.address)
      if let repair = ladder.climb(canPair: settings.hasPIN, device: device, mayCycle: mayCycle(device)) {
        actions.append(.note(repair))
      }
    }
    isWanted = false
    restUntil = nil
    actions += dropWays(now)
    return actions + plan(now)
  }

  /// Pairs at an operator's request. BlueZ's present bond is removed, unless it works now.
  public mutating func pairAnew(now: MonotonicTime) -> [BluetoothAction] {
    guard !isUp else { return [] }
    ladder = RepairLadder()
    wantsPairing = true
    restUntil = nil
    return plan(now)
  }

  /// The radio has answered over this link, so the repairs have worked.
  public mutating func proved() { ladder.proved() }

  // MARK: Events of BlueZ

  /// bluetoothd is running, or running again.
  public mutating func serviceUp(now: MonotonicTime) -> [BluetoothAction] {
    world.isServiceUp = true
    world.hasObjects = false
    return plan(now)
  }

  /// bluetoothd or the bus has ended, and with it all objects.
  public mutating func serviceDown(_ words: String, now: MonotonicTime) -> [BluetoothAction] {
    let device = world.target(settings)
    if world.isServiceUp, let device, device.isPaired, device.isConnected || isBusyWith(device), !isUp {
      ladder.suspicions += 1
    }
    world = BluetoothWorld()
    current = nil
    scan = nil
    heard = nil
    cleanUps = []
    let actions = dropWays(now)
    return actions + wait(.noService(words), now)
  }

  func isBusyWith(_ device: DeviceFacts) -> Bool {
    switch current?.operation {
    case .connect(device.path), .pair(device.path), .openNotifications, .openWrites: true
    default: false
    }
  }

  public mutating func adapter(_ facts: AdapterFacts, now: MonotonicTime) -> [BluetoothAction] {
    world.take(facts)
    if !facts.isPowered, scan?.adapter == facts.path {
      scan = nil
      heard = nil
    }
    return plan(now)
  }

  public mutating func adapterGone(_ path: String, now: MonotonicTime) -> [BluetoothAction] {
    world.adapters[path] = nil
    if scan?.adapter == path { scan = nil }
    return plan(now)
  }

  /// `isHeard`: the device was received over the air just now; BlueZ does not merely remember it.
  public mutating func device(_ facts: DeviceFacts, isHeard: Bool, now: MonotonicTime) -> [BluetoothAction] {
    let before = world.devices[facts.path]
    guard settings.target.matches(facts) || before != nil else {
      world.takeStranger(facts)
      return []
    }
    world.forgetStranger(facts.path)
    world.take(facts, heardAt: isHeard ? now : nil)
    if before?.isConnected ?? false, !facts.isConnected { return lost(facts, now) + plan(now) }
    if facts.isConnected, !(before?.isConnected ?? false) { resolveUntil = nil }
    return plan(now)
  }

  public mutating func deviceGone(_ path: String, now: MonotonicTime) -> [BluetoothAction] {
    world.forgetStranger(path)
    guard let facts = world.devices[path] else { return [] }
    world.forget(path)
    if heard == path { heard = nil }
    return (facts.isConnected ? lost(facts, now) : []) + plan(now)
  }

  /// The object paths of the radio's characteristics, as far as they exist.
  public mutating func characteristics(of device: String, rx: String?, tx: String?) {
    world.characteristics = .init(device: device, rx: rx, tx: tx)
  }

  /// The socket for frames of one direction was closed.
  public mutating func wayEnded(now: MonotonicTime) -> [BluetoothAction] {
    guard ways != Ways() else { return [] }
    guard let device = world.target(settings) else { return dropWays(now) + plan(now) }
    return lost(device, now) + plan(now)
  }

  mutating func lost(_ device: DeviceFacts, _ now: MonotonicTime) -> [BluetoothAction] {
    resolveUntil = nil
    heard = nil
    world.characteristics = nil
    let wasUp = isUp
    let actions = dropWays(now)
    guard isWanted, restUntil == nil else { return actions }
    if wasUp { return actions + rest(.lost(address: device.address), now) }
    // The link was lost before it was up; an operation on it also fails, and is reported then.
    if device.isPaired { ladder.suspicions += 1 }
    return actions + (current == nil ? failed(.aborted("the connection was closed at once"), of: nil, now) : [])
  }

  mutating func dropWays(_ now: MonotonicTime) -> [BluetoothAction] {
    if let since = upSince, now - since >= Self.goodLink { ladder.backoff.reset() }
    let hadWays = ways != Ways()
    upSince = nil
    ways = Ways()
    hasAskedForWays = false
    return hadWays ? [.closeWays] : []
  }

  // MARK: Operations

  public mutating func timedOut(now: MonotonicTime) -> [BluetoothAction] {
    if let current {
      guard now >= current.deadline else { return [] }
      return finished(current.id, .failed(.timedOut), now: now)
    }
    if let resolveUntil, now >= resolveUntil, isWanted {
      self.resolveUntil = nil
      return failed(.other("its services were not resolved"), of: nil, now) + plan(now)
    }
    if let waitUntil, now >= waitUntil {
      // Events may have been missed, so the state is checked again.
      self.waitUntil = nil
      if world.isServiceUp { world.hasObjects = false }
    }
    return plan(now)
  }

  mutating func perform(_ operation: BluetoothOperation, _ now: MonotonicTime) -> [BluetoothAction] {
    lastID &+= 1
    waitUntil = nil
    current = Current(id: lastID, operation: operation, deadline: now + operation.limit)
    return [.perform(lastID, operation)]
  }

  /// An operation has ended. Results of abandoned operations are ignored.
  public mutating func finished(
    _ id: UInt64, _ outcome: BluetoothOutcome, now: MonotonicTime
  ) -> [BluetoothAction] {
    guard let ended = current, ended.id == id else { return [] }
    current = nil
    switch outcome {
    case .done, .failed(.alreadyDone): return succeeded(ended.operation, 0, now) + plan(now)
    case .opened(let mtu): return succeeded(ended.operation, mtu, now) + plan(now)
    case .failed(let failure): return failed(failure, of: ended.operation, now) + plan(now)
    }
  }

  mutating func succeeded(
    _ operation: BluetoothOperation, _ mtu: Int, _ now: MonotonicTime
  ) -> [BluetoothAction] {
    switch operation {
    case .readObjects: world.hasObjects = true
    case .unblock: world.hasObjects = false
    case .power(let adapter, let on):
      world.adapters[adapter]?.isPowered = on
      if !on { (ladder.repair, scan, heard) = (nil, nil, nil) }
    case .startScan(let adapter, _): scanBegan(adapter, now)
    case .stopScan: scan = nil
    case .connect(let device): world.devices[device]?.isConnected = true
    case .pair(let device):
      wantsPairing = false
      world.devices[device]?.isPaired = true
      world.devices[device]?.isConnected = true
      ladder.wrongPINs = 0
    case .trust(let device): world.devices[device]?.isTrusted = true
    case .disconnect(let device): world.devices[device]?.isConnected = false
    case .remove(_, let device):
      world.forget(device)
      heard = nil
      wantsPairing = false
      ladder.repair = nil
    case .openNotifications:
      ways.notifications = true
      ways.mtu = max(ways.mtu, mtu)
    case .openWrites:
      ways.writes = true
      ways.mtu = max(ways.mtu, mtu)
    case .cancelPairing: break
    }
    return []
  }

}
