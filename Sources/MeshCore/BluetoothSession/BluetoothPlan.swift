// SPDX-License-Identifier: MIT

import Timing

/// Chooses the first missing step.
extension BluetoothSession {
  mutating func plan(_ now: MonotonicTime) -> [BluetoothAction] {
    guard current == nil else { return [] }
    if world.isServiceUp, !cleanUps.isEmpty { return perform(cleanUps.removeFirst(), now) }
    guard isWanted else { return letGo(now) }
    if isUp { return [] }
    if let restUntil, now < restUntil { return scan.map { perform(.stopScan(adapter: $0.adapter), now) } ?? [] }
    restUntil = nil
    guard world.isServiceUp else { return wait(.noService("bluetoothd is not running"), now) }
    guard world.hasObjects else { return perform(.readObjects, now) }
    guard let adapter = world.adapter(settings) else { return wait(.noAdapter, now) }
    if ladder.repair == .powerCycle, adapter.isPowered { return perform(.power(adapter: adapter.path, on: false), now) }
    guard adapter.isPowered else { return powerOn(adapter, now) }
    switch world.candidates(settings) {
    case .none: return search(nil, adapter, now)
    case .several(let names):
      guard let scan, now >= scan.until else { return search(nil, adapter, now) }
      return rest(.several(names), now) + perform(.stopScan(adapter: scan.adapter), now)
    case .one(let device): return advance(device, adapter, now)
    }
  }

  mutating func letGo(_ now: MonotonicTime) -> [BluetoothAction] {
    waitUntil = nil
    resolveUntil = nil
    guard world.isServiceUp else { return [] }
    if let scan { return perform(.stopScan(adapter: scan.adapter), now) }
    guard let device = world.target(settings), device.isConnected else { return [] }
    return perform(.disconnect(device: device.path), now)
  }

  mutating func powerOn(_ adapter: AdapterFacts, _ now: MonotonicTime) -> [BluetoothAction] {
    let name = BluetoothWorld.shortName(adapter.path)
    if adapter.isBlocked {
      guard settings.mayUnblock else { return wait(.blocked(adapter: name), now) }
      world.adapters[adapter.path]?.isBlocked = false
      return perform(.unblock, now)
    }
    guard settings.mayPowerOn else { return wait(.poweredOff(adapter: name), now) }
    return perform(.power(adapter: adapter.path, on: true), now)
  }

  /// Scans until the radio is heard, or the scan time is over.
  mutating func search(
    _ device: DeviceFacts?, _ adapter: AdapterFacts, _ now: MonotonicTime
  ) -> [BluetoothAction] {
    waitUntil = nil
    guard let scan else {
      scansWithoutFilter.toggle()
      // Every other scan is filtered. Without a name or an address the service is the only way to recognise a radio.
      let filtered = scansWithoutFilter || settings.target == .only
      return perform(.startScan(adapter: adapter.path, filtered: filtered), now)
    }
    if let until = settleUntil, now >= until { settleUntil = nil }
    let isSettled = settleUntil == nil || device?.isPaired ?? false
    if let device, isSettled, let time = world.heardAt[device.path], time >= scan.since {
      heard = device.path
      return perform(.stopScan(adapter: scan.adapter), now)
    }
    guard now >= scan.until else { return [] }
    return rest(.notFound("\(settings.target)"), now) + perform(.stopScan(adapter: scan.adapter), now)
  }

  mutating func advance(
    _ device: DeviceFacts, _ adapter: AdapterFacts, _ now: MonotonicTime
  ) -> [BluetoothAction] {
    if ladder.repair == .remove || wantsPairing && device.isPaired {
      return perform(.remove(adapter: device.adapter, device: device.path), now)
    }
    guard device.isConnected || heard == device.path else { return search(device, adapter, now) }
    if let scan { return perform(.stopScan(adapter: scan.adapter), now) }
    if !device.isPaired, settings.hasPIN { return perform(.pair(device: device.path), now) }
    if device.isPaired, !device.isTrusted {
      world.devices[device.path]?.isTrusted = true  // set once, whatever the result
      return perform(.trust(device: device.path), now)
    }
    guard device.isConnected else { return perform(.connect(device: device.path), now) }
    guard device.isResolved else {
      resolveUntil = resolveUntil ?? now + Self.resolveLimit
      return []
    }
    resolveUntil = nil
    return openWays(device, now)
  }

  mutating func openWays(_ device: DeviceFacts, _ now: MonotonicTime) -> [BluetoothAction] {
    guard let found = world.characteristics, found.device == device.path, let rx = found.rx, let tx = found.tx else {
      if !hasAskedForWays {
        hasAskedForWays = true
        return perform(.readObjects, now)
      }
      hasAskedForWays = false
      ladder.suspicions += 1  // the symptom of a stale cache of its services; removing the device clears it
      let actions = failed(.other("it has no UART service"), of: nil, now)
      return actions + tell(.noUART(address: device.address)) + plan(now)
    }
    if !ways.notifications { return perform(.openNotifications(tx: tx), now) }
    if !ways.writes { return perform(.openWrites(rx: rx), now) }
    upSince = now
    heard = nil
    trouble = nil
    return [.up(mtu: ways.mtu)]
  }
}
