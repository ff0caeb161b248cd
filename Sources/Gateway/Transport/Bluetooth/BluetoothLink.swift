// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import EventLoop
import Glibc

/// How to reach a radio over Bluetooth.
public struct BluetoothOptions: Equatable, Sendable {
  /// The adapter's name or address; `nil`: the first adapter.
  public var adapter: String?
  /// Six digits; `nil`: the gateway pairs with no radio.
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
  /// The PIN as a number.
  public static func pin(_ text: String) -> UInt32? {
    guard text.utf8.count == 6, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
    return UInt32(text)
  }
}

/// A radio over Bluetooth LE, through BlueZ. Executes the decisions of `BluetoothSession`, and reconnects by itself.
public final class BluetoothLink: Link {
  private let target: BluetoothTarget
  private let loop: EventLoop
  private let log: Log
  private let bus: Bus
  private let objects: BlueZObjects
  private let agent: PairingAgent
  private var session: BluetoothSession
  private var timer: LoopTimer?
  /// The operation in progress; there is never more than one.
  private var operation: LoopTask?
  /// Exists while the radio is connected.
  private var channel: GATTChannel?
  private var hasStarted = false
  private var hasHeardFrame = false
  public var onEvent: (LinkEvent) -> Void = { _ in }

  /// `bus`: the address of BlueZ's bus.
  public init(
    _ target: BluetoothTarget, _ options: BluetoothOptions, on loop: EventLoop, log: Log,
    bus address: String = Bus.systemAddress
  ) {
    self.target = target
    self.loop = loop
    self.log = log
    bus = Bus(address: address, on: loop)
    objects = BlueZObjects(bus, on: loop)
    agent = PairingAgent(bus)
    agent.pin = options.pin
    session = BluetoothSession(
      BluetoothSession.Settings(
        target: target, adapter: options.adapter, hasPIN: options.pin != nil, mayPowerOn: options.mayPowerOn,
        mayUnblock: options.mayUnblock, mayPowerCycle: options.mayPowerCycle), seed: .random(in: 0...UInt64.max))
  }

  public var name: String { LinkAddress.bluetooth(target).description }

  public var bluetoothTarget: BluetoothTarget? { target }
  public var carriesFrames: Bool { true }
  public var healsItself: Bool { true }
  public var step: String? { session.step }
  /// RSSI of the last advertisement, dBm.
  public var rssi: Int16? { objects.devices.values.first { target.matches($0) && $0.rssi != nil }?.rssi }

  // MARK: The owner

  public func open() {
    if !hasStarted {
      hasStarted = true
      objects.begin { [self] in handle($0) }
    }
    carryOut(session.opened(now: loop.now))
  }

  public func close() { close(isBad: false) }

  /// `isBad`: the radio behind the link did not answer.
  public func close(isBad: Bool) { carryOut(session.closed(isBad: isBad, now: loop.now)) }

  public func send(_ frame: [UInt8]) { channel?.send(frame) }

  /// Pairs even if BlueZ has a bond, on an operator's request.
  public func pairAnew(pin: UInt32? = nil) {
    if let pin { agent.pin = pin }
    session.settings.hasPIN = agent.pin != nil
    carryOut(session.pairAnew(now: loop.now))
  }

  public var isUp: Bool { session.isUp }

  /// Closes the link for good, and leaves the bus.
  public func end() {
    timer?.cancel()
    operation?.cancel()
    closeChannel()
    objects.end()
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
    case .serviceDown(let words):
      operation?.cancel()
      carryOut(session.serviceDown(words, now: now))
    case .adapter(var facts):
      facts.isBlocked = !facts.isPowered && Rfkill.bluetooth().contains { $0.isSoft || $0.isHard }
      carryOut(session.adapter(facts, now: now))
    case .adapterGone(let path): carryOut(session.adapterGone(path, now: now))
    case .device(let facts, let isHeard): carryOut(session.device(facts, isHeard: isHeard, now: now))
    case .deviceGone(let path): carryOut(session.deviceGone(path, now: now))
    case .characteristics(let device, let rx, let tx): session.characteristics(of: device, rx: rx, tx: tx)
    case .value(let value, let path): channel?.take(value, of: path)
    }
  }

  private func carryOut(_ actions: [BluetoothAction]) {
    for action in actions {
      switch action {
      case .perform(let id, let operation): perform(id, operation)
      case .up(let mtu): up(mtu)
      case .down(let trouble): loop.later { [self] in onEvent(.down(.bluetooth(trouble))) }
      case .closeWays: closeChannel()
      case .note(let words): log.notice("\(name): \(words)")
      }
    }
    arm()
  }

  private func up(_ mtu: Int) {
    hasHeardFrame = false
    if mtu > 0, mtu < RadioService.neededMTU {
      log.warning(
        "\(name): the link carries frames of at most \(mtu - 3) bytes: the longest messages are truncated")
    }
    loop.later { [self] in onEvent(.up) }
  }

  private func arm() {
    timer?.cancel()
    guard let deadline = session.deadline else { return }
    timer = loop.schedule(at: deadline) { [self] in carryOut(session.timedOut(now: loop.now)) }
  }

  // MARK: Operations

  /// Begins an operation; a late answer to the previous one, which the session has left, has no effect.
  private func perform(_ id: UInt64, _ next: BluetoothOperation) {
    log.debug("\(name): \(next.step)")
    operation?.cancel()
    operation = loop.begin { [self] in
      do {
        try Task.checkCancellation()
        let outcome = try await outcome(of: next)
        try Task.checkCancellation()
        operation = nil
        if case .failed(let failure) = outcome { log.debug("\(name): \(failure)") }
        carryOut(session.finished(id, outcome, now: loop.now))
      } catch {
        return  // cancelled
      }
    }
  }

  private func outcome(of operation: BluetoothOperation) async throws -> BluetoothOutcome {
    do {
      return try await perform(operation)
    } catch let error as BusError {
      return .failed(BlueZ.failure(error))
    }
  }

  private func perform(_ operation: BluetoothOperation) async throws -> BluetoothOutcome {
    // The bus times out before the session does.
    let limit = operation.limit - .seconds(1)
    switch operation {
    case .readObjects: try await objects.read()
    case .unblock: return Rfkill.unblockBluetooth() ? .done : .failed(.blocked)
    case .power(let adapter, let on): try await set(adapter, BlueZ.adapter, "Powered", on, limit)
    case .startScan(let adapter, let filtered): try await startScan(adapter, filtered, limit)
    case .stopScan(let adapter): try await call(adapter, BlueZ.adapter, "StopDiscovery", limit)
    case .connect(let device):
      objects.listen(to: device)
      try await call(device, BlueZ.device, "Connect", limit)
    case .pair(let device):
      objects.listen(to: device)
      try await agent.pair(device, timeout: limit)
    case .cancelPairing(let device): try await call(device, BlueZ.device, "CancelPairing", limit)
    case .trust(let device): try await set(device, BlueZ.device, "Trusted", true, limit)
    case .disconnect(let device): try await call(device, BlueZ.device, "Disconnect", limit)
    case .remove(let adapter, let device):
      try await call(adapter, BlueZ.adapter, "RemoveDevice", limit, .objectPath(device))
    case .openNotifications(let tx): return .opened(mtu: try await openNotifications(tx))
    case .openWrites(let rx):
      // The radio has disconnected meanwhile.
      guard let channel else { return .failed(.timedOut) }
      return .opened(mtu: try await channel.openWrites(rx, flags: objects.rxFlags))
    }
    return .done
  }

  private func call(
    _ path: String, _ interface: String, _ method: String, _ limit: Duration, _ arguments: BusValue...
  ) async throws {
    try await bus.call(.call(BlueZ.service, path, interface, method, arguments), timeout: limit)
  }

  private func set(
    _ path: String, _ interface: String, _ property: String, _ value: Bool, _ limit: Duration
  ) async throws {
    try await call(
      path, BlueZ.properties, "Set", limit, .string(interface), .string(property), .variant(.bool(value)))
  }

  private func startScan(_ adapter: String, _ filtered: Bool, _ limit: Duration) async throws {
    objects.listen(to: nil)
    var filter: [(String, BusValue)] = [("Transport", .string("le"))]
    if filtered { filter.append(("UUIDs", .array(element: "s", [.string(RadioService.service)]))) }
    try await call(adapter, BlueZ.adapter, "SetDiscoveryFilter", limit, .options(filter))
    try await call(adapter, BlueZ.adapter, "StartDiscovery", limit)
  }

  private func openNotifications(_ tx: String) async throws -> Int {
    closeChannel()
    let opened = GATTChannel(bus, objects, on: loop, received: { [self] in received($0) }) { [self] in
      carryOut(session.wayEnded(now: loop.now))
    }
    channel = opened
    do {
      return try await opened.openNotifications(tx)
    } catch {
      opened.close()
      throw error
    }
  }

  private func closeChannel() {
    channel?.close()
    channel = nil
  }
}
