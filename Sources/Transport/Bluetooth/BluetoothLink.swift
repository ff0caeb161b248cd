// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import EventLoop
import Glibc
import Timing

/// How a radio is reached over Bluetooth.
public struct BluetoothOptions: Equatable, Sendable {
  /// The adapter's name or address; `nil`: the first.
  public var adapter: String?
  /// Six digits; `nil`: radios that are not bonded yet are not paired.
  public var pin: UInt32?
  public var mayPowerOn: Bool
  public var mayUnblock: Bool
  public var mayPowerCycle: Bool

  public init(
    adapter: String? = nil, pin: UInt32? = nil, mayPowerOn: Bool = true, mayUnblock: Bool = false,
    mayPowerCycle: Bool = false
  ) {
    self.adapter = adapter
    self.pin = pin
    self.mayPowerOn = mayPowerOn
    self.mayUnblock = mayUnblock
    self.mayPowerCycle = mayPowerCycle
  }
}

extension BluetoothOptions {
  /// Six digits as a number.
  public static func pin(_ text: String) -> UInt32? {
    guard text.utf8.count == 6, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
    return UInt32(text)
  }
}

/// A radio over Bluetooth LE, through BlueZ. Carries out what `BluetoothSession` decides; heals itself.
public final class BluetoothLink: Link {
  private let target: BluetoothTarget
  private let loop: EventLoop
  private let log: Log
  private let bus: Bus
  private let objects: BlueZObjects
  private let agent: PairingAgent
  private let ways: GATTChannel
  private var session: BluetoothSession
  private var timer: LoopTimer?
  private var hasStarted = false
  private var hasHeardFrame = false
  public var onEvent: (LinkEvent) -> Void = { _ in }

  public init(_ target: BluetoothTarget, _ options: BluetoothOptions, on loop: EventLoop, log: Log) {
    self.target = target
    self.loop = loop
    self.log = log
    bus = Bus(on: loop)
    objects = BlueZObjects(bus)
    agent = PairingAgent(bus)
    agent.pin = options.pin
    ways = GATTChannel(bus, on: loop)
    session = BluetoothSession(
      BluetoothSession.Settings(
        target: target, adapter: options.adapter, hasPIN: options.pin != nil, mayPowerOn: options.mayPowerOn,
        mayUnblock: options.mayUnblock, mayPowerCycle: options.mayPowerCycle), seed: .random(in: 0...UInt64.max))
    objects.onEvent = { [weak self] in self?.handle($0) }
    ways.onFrame = { [weak self] in self?.received($0) }
    ways.onEnd = { [weak self] in
      guard let self else { return }
      self.carryOut(self.session.wayEnded(now: self.loop.now))
    }
  }

  public var name: String {
    switch target {
    case .only: "ble:"
    case .address(let text), .name(let text): "ble:\(text)"
    }
  }

  public var bluetoothTarget: BluetoothTarget? { target }
  public var carriesFrames: Bool { true }
  public var healsItself: Bool { true }
  public var step: String? { session.step }
  /// How strongly the radio was last heard, dBm.
  public var rssi: Int16? { objects.devices.values.first { target.matches($0) && $0.rssi != nil }?.rssi }

  // MARK: The owner

  public func open() {
    if !hasStarted {
      hasStarted = true
      objects.start()
    }
    loop.later { [weak self] in
      guard let self else { return }
      self.carryOut(self.session.opened(now: self.loop.now))
    }
  }

  public func close() { close(isBad: false) }

  /// `isBad`: the radio behind the link did not answer.
  public func close(isBad: Bool) { carryOut(session.closed(isBad: isBad, now: loop.now)) }

  public func send(_ frame: [UInt8]) { ways.send(frame) }
  public func tryOtherLineSettings() -> Bool { false }
  public func watchForReturn(_ action: @escaping () -> Void) {}

  /// Pair, whatever bond BlueZ still has: an operator asks for it.
  public func pairAnew(pin: UInt32? = nil) {
    if let pin { agent.pin = pin }
    session.settings.hasPIN = agent.pin != nil
    carryOut(session.pairAnew(now: loop.now))
  }

  public var isUp: Bool { session.isUp }

  /// For good: leaves the bus.
  public func end() {
    timer?.cancel()
    ways.close()
    bus.close()
  }

  private func received(_ frame: [UInt8]) {
    if !hasHeardFrame {
      hasHeardFrame = true
      session.proved()
    }
    onEvent(.frame(frame))
  }

  // MARK: The session

  private func handle(_ event: BlueZObjects.Event) {
    let now = loop.now
    switch event {
    case .serviceUp: carryOut(session.serviceUp(now: now))
    case .serviceDown(let words): carryOut(session.serviceDown(words, now: now))
    case .adapter(var facts):
      facts.isBlocked = !facts.isPowered && Rfkill.bluetooth().contains { $0.isSoft || $0.isHard }
      carryOut(session.adapter(facts, now: now))
    case .adapterGone(let path): carryOut(session.adapterGone(path, now: now))
    case .device(let facts, let isHeard): carryOut(session.device(facts, isHeard: isHeard, now: now))
    case .deviceGone(let path): carryOut(session.deviceGone(path, now: now))
    case .characteristics(let device, let rx, let tx): session.characteristics(of: device, rx: rx, tx: tx)
    }
  }

  private func carryOut(_ actions: [BluetoothAction]) {
    for action in actions {
      switch action {
      case .perform(let id, let operation): perform(id, operation)
      case .up(let mtu): up(mtu)
      case .down(let trouble): loop.later { [weak self] in self?.onEvent(.down(.bluetooth(trouble))) }
      case .closeWays: ways.close()
      case .note(let words): log.notice("\(name): \(words)")
      }
    }
    arm()
  }

  private func up(_ mtu: Int) {
    hasHeardFrame = false
    if mtu > 0, mtu < RadioService.neededMTU {
      log.warning(
        "\(name): the radio carries frames of \(mtu - 3) bytes at most: the ends of the longest messages are cut")
    }
    loop.later { [weak self] in self?.onEvent(.up) }
  }

  private func arm() {
    timer?.cancel()
    guard let deadline = session.deadline else { return }
    timer = loop.schedule(at: deadline) { [weak self] in
      guard let self else { return }
      self.carryOut(self.session.timedOut(now: self.loop.now))
    }
  }

  private func finished(_ id: UInt64, _ outcome: BluetoothOutcome) {
    if case .failed(let failure) = outcome { log.debug("\(name): \(failure)") }
    carryOut(session.finished(id, outcome, now: loop.now))
  }

  // MARK: Operations

  private func perform(_ id: UInt64, _ operation: BluetoothOperation) {
    log.debug("\(name): \(operation.step)")
    let done: (BluetoothOutcome) -> Void = { [weak self] outcome in self?.finished(id, outcome) }
    switch operation {
    case .readObjects: objects.read(done)
    case .unblock:
      let isDone = Rfkill.unblockBluetooth()
      loop.later { done(isDone ? .done : .failed(.blocked)) }
    case .power(let adapter, let on): set(adapter, BlueZ.adapter, "Powered", on, operation, done)
    case .startScan(let adapter, let filtered): startScan(adapter, filtered, operation, done)
    case .stopScan(let adapter): call(adapter, BlueZ.adapter, "StopDiscovery", [], operation, done)
    case .connect(let device):
      objects.listen(to: device)
      call(device, BlueZ.device, "Connect", [], operation, done)
    case .pair(let device): pair(device, operation, done)
    case .cancelPairing(let device): call(device, BlueZ.device, "CancelPairing", [], operation, done)
    case .trust(let device): set(device, BlueZ.device, "Trusted", true, operation, done)
    case .disconnect(let device): call(device, BlueZ.device, "Disconnect", [], operation, done)
    case .remove(let adapter, let device):
      call(adapter, BlueZ.adapter, "RemoveDevice", [.objectPath(device)], operation, done)
    case .openNotifications(let tx): ways.openNotifications(tx, done)
    case .openWrites(let rx): ways.openWrites(rx, flags: objects.rxFlags, done)
    }
  }

  private func call(
    _ path: String, _ interface: String, _ method: String, _ body: [BusValue], _ operation: BluetoothOperation,
    _ done: @escaping (BluetoothOutcome) -> Void
  ) {
    let message = BusMessage.call(BlueZ.service, path, interface, method, body)
    bus.call(message, timeout: operation.limit - .seconds(1)) { result in
      switch result {
      case .success: done(.done)
      case .failure(let error): done(.failed(BlueZ.failure(error)))
      }
    }
  }

  private func set(
    _ path: String, _ interface: String, _ property: String, _ value: Bool, _ operation: BluetoothOperation,
    _ done: @escaping (BluetoothOutcome) -> Void
  ) {
    let body: [BusValue] = [.string(interface), .string(property), .variant(.bool(value))]
    call(path, BlueZ.properties, "Set", body, operation, done)
  }

  private func startScan(
    _ adapter: String, _ filtered: Bool, _ operation: BluetoothOperation,
    _ done: @escaping (BluetoothOutcome) -> Void
  ) {
    objects.listen(to: nil)
    var filter: [(String, BusValue)] = [("Transport", .string("le"))]
    if filtered { filter.append(("UUIDs", .array(element: "s", [.string(RadioService.service)]))) }
    call(adapter, BlueZ.adapter, "SetDiscoveryFilter", [.options(filter)], operation) { [weak self] outcome in
      guard outcome == .done else { return done(outcome) }
      self?.call(adapter, BlueZ.adapter, "StartDiscovery", [], operation, done)
    }
  }

  private func pair(
    _ device: String, _ operation: BluetoothOperation, _ done: @escaping (BluetoothOutcome) -> Void
  ) {
    objects.listen(to: device)
    agent.register(for: device) { [weak self] error in
      if let error { return done(.failed(BlueZ.failure(error))) }
      self?.call(device, BlueZ.device, "Pair", [], operation) { outcome in
        self?.agent.pairingEnded()
        done(outcome)
      }
    }
  }
}
