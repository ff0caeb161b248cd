// SPDX-License-Identifier: MIT

import Timing

/// The reaction to a failure: its name for the operator, suspicions about bond and cache, and cleanup.
extension BluetoothSession {
  mutating func failed(
    _ failure: BluetoothFailure, of operation: BluetoothOperation?, _ now: MonotonicTime
  ) -> [BluetoothAction] {
    if isForgivable(failure, operation, now) { return [] }
    let device = world.target(settings)
    var actions = dropWays(now)
    heard = nil
    resolveUntil = nil
    judge(failure, operation, device)
    cleanUp(after: operation, failure, device)
    if let repair = ladder.climb(canPair: settings.hasPIN, device: device, mayCycle: mayCycle(device)) {
      actions.append(.note(repair))
    }
    return actions + rest(name(failure, operation, device), now)
  }

  /// Whether a failure does not matter; if so, notes its consequences.
  mutating func isForgivable(
    _ failure: BluetoothFailure, _ operation: BluetoothOperation?, _ now: MonotonicTime
  ) -> Bool {
    switch (operation, failure) {
    case (.stopScan, _):
      scan = nil  // it ended by itself, or ends with our connection to the bus
      return true
    case (.cancelPairing, _), (.trust, _): return true
    case (.disconnect(let device), _):
      world.devices[device]?.isConnected = false
      // If it still is connected, it does not advertise, and no signal tells that: a scan would never hear it.
      world.hasObjects = false
      return true
    case (.remove(_, let device), _):
      world.forget(device)
      ladder.repair = nil
      wantsPairing = false
      return true
    case (.startScan(let adapter, _), .inProgress):
      // Another program is scanning: its results reach us too.
      scanBegan(adapter, now)
      return true
    default: return false
    }
  }

  mutating func scanBegan(_ adapter: String, _ now: MonotonicTime) {
    scan = Scan(adapter: adapter, since: now, until: now + Self.scanWindow)
    settleUntil = settings.target == .only ? now + Self.settleTime : nil
    world.forgetUnbonded()
  }

  mutating func judge(
    _ failure: BluetoothFailure, _ operation: BluetoothOperation?, _ device: DeviceFacts?
  ) {
    ladder.failures += 1
    switch failure {
    case .unknownObject, .notReady: world.hasObjects = false
    case .blocked:
      if case .power(let adapter, _) = operation { world.adapters[adapter]?.isBlocked = true }
    case .authentication:
      if case .pair = operation { ladder.wrongPINs += 1 } else if device?.isPaired ?? false { ladder.suspicions += 1 }
    case .inProgress, .alreadyDone, .aborted, .inUse, .notAllowed, .timedOut, .other: break
    }
    switch operation {
    case .remove, .power(_, on: false): ladder.repair = nil
    default: break
    }
  }

  /// Removes what a failed operation may have left behind in BlueZ.
  mutating func cleanUp(
    after operation: BluetoothOperation?, _ failure: BluetoothFailure, _ device: DeviceFacts?
  ) {
    guard let device, world.isServiceUp else { return }
    cleanUps = []
    if case .pair = operation, failure == .timedOut || failure == .inProgress {
      cleanUps.append(.cancelPairing(device: device.path))
    }
    let isHalfWay = if case .connect = operation { failure == .timedOut || failure == .inProgress } else { false }
    if device.isConnected || isHalfWay { cleanUps.append(.disconnect(device: device.path)) }
  }

  func mayCycle(_ device: DeviceFacts?) -> Bool {
    settings.mayPowerCycle && !world.hasOthersConnected(than: device)
  }

  /// The trouble in the operator's words.
  func name(
    _ failure: BluetoothFailure, _ operation: BluetoothOperation?, _ device: DeviceFacts?
  ) -> BluetoothTrouble {
    let address = device?.address ?? "\(settings.target)"
    switch failure {
    case .notAllowed: return .notAllowed
    case .blocked: return .blocked(adapter: adapterName(operation))
    case .inUse(let words): return .inUse(address: address, words)
    case .authentication:
      if case .pair = operation { return .wrongPIN(address: address) }
      return device?.isPaired ?? false ? .bondLost(address: address) : .wantsPIN(address: address)
    default: break
    }
    if ladder.suspectsBond, !settings.hasPIN, device?.isPaired ?? false { return .bondLost(address: address) }
    let step = operation?.step ?? "connecting"
    switch failure {
    case .inProgress: return .failed(step: step, "another operation is in progress")
    case .notReady: return .failed(step: step, "the adapter is not ready")
    case .unknownObject: return .failed(step: step, "BlueZ no longer knows the object")
    case .timedOut: return .failed(step: step, "timed out after \(operation.map { "\($0.limit)" } ?? "its time")")
    case .aborted(let words), .other(let words): return .failed(step: step, words)
    case .alreadyDone, .notAllowed, .blocked, .inUse, .authentication: return .failed(step: step, "?")
    }
  }

  func adapterName(_ operation: BluetoothOperation?) -> String {
    if case .power(let adapter, _) = operation { return BluetoothWorld.shortName(adapter) }
    return world.adapter(settings).map { BluetoothWorld.shortName($0.path) } ?? "?"
  }

  mutating func rest(_ trouble: BluetoothTrouble, _ now: MonotonicTime) -> [BluetoothAction] {
    guard isWanted else { return [] }
    restUntil = now + ladder.rest(after: trouble, using: &random)
    waitUntil = nil
    return tell(trouble)
  }

  mutating func wait(_ trouble: BluetoothTrouble, _ now: MonotonicTime) -> [BluetoothAction] {
    guard isWanted else { return [] }
    restUntil = nil
    waitUntil = waitUntil ?? now + Self.waitLimit
    return self.trouble == trouble ? [] : tell(trouble)
  }

  mutating func tell(_ trouble: BluetoothTrouble) -> [BluetoothAction] {
    self.trouble = trouble
    return [.down(trouble)]
  }
}
