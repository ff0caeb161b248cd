// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import BluetoothSession

private let adapterPath = "/org/bluez/hci0"
private let radioPath = adapterPath + "/dev_C0_FF_EE_00_00_01"
private let radioAddress = "C0:FF:EE:00:00:01"

private func radio(
  paired: Bool = false, trusted: Bool = false, connected: Bool = false, resolved: Bool = false
) -> DeviceFacts {
  DeviceFacts(
    path: radioPath, adapter: adapterPath, address: radioAddress, name: "MeshCore-Hilltop", isPaired: paired,
    isTrusted: trusted, isConnected: connected, isResolved: resolved, isRadio: true, rssi: -60)
}

/// A working BlueZ, unless a script changes its answers. Time is invented.
private struct Bench {
  var session: BluetoothSession
  var now = MonotonicTime(seconds: 0)
  var device = radio()
  var isPowered = true
  var isInRange = true
  /// All operations so far.
  var log: [BluetoothOperation] = []
  var downs: [BluetoothTrouble] = []
  var ups = 0
  /// The outcome of an operation; `nil`: that of a working BlueZ.
  var script: (BluetoothOperation) -> BluetoothOutcome? = { _ in nil }

  init(target: BluetoothTarget = .address(radioAddress), pin: Bool = true, cycle: Bool = false) {
    session = BluetoothSession(
      BluetoothSession.Settings(target: target, hasPIN: pin, mayPowerCycle: cycle), seed: 1)
  }

  mutating func start() {
    carryOut(session.serviceUp(now: now))
    carryOut(session.opened(now: now))
  }

  mutating func carryOut(_ actions: [BluetoothAction]) {
    for action in actions {
      switch action {
      case .perform(let id, let operation):
        log.append(operation)
        let outcome = script(operation) ?? work(operation)
        carryOut(session.finished(id, outcome, now: now))
      case .up:
        ups += 1
      case .down(let trouble): downs.append(trouble)
      case .closeWays, .note: break
      }
    }
  }

  private mutating func work(_ operation: BluetoothOperation) -> BluetoothOutcome {
    now = now + .milliseconds(100)
    switch operation {
    case .readObjects:
      _ = session.adapter(AdapterFacts(path: adapterPath, address: "F0:F1", isPowered: isPowered), now: now)
      if device.isPaired || device.isConnected { _ = session.device(device, isHeard: false, now: now) }
      if device.isResolved { session.characteristics(of: radioPath, rx: radioPath + "/rx", tx: radioPath + "/tx") }
    case .power(_, let on): isPowered = on
    case .pair: (device.isPaired, device.isConnected, device.isResolved) = (true, true, true)
    case .connect: (device.isConnected, device.isResolved) = (true, true)
    case .disconnect: (device.isConnected, device.isResolved) = (false, false)
    case .remove: device = radio()
    case .openNotifications: return .opened(mtu: 247)
    case .openWrites: return .opened(mtu: 247)
    case .trust: device.isTrusted = true
    case .unblock, .startScan, .stopScan, .cancelPairing: break
    }
    return .done
  }

  /// Advances time to the next deadline. During a scan a radio in range is heard, and a connected one resolves.
  mutating func step() {
    if session.scan != nil, isInRange, session.current == nil {
      now = now + .milliseconds(500)
      carryOut(session.device(device, isHeard: true, now: now))
    }
    if device.isConnected { carryOut(session.device(device, isHeard: false, now: now)) }
    guard !session.isUp, let deadline = session.deadline else { return }
    now = max(now, deadline)
    carryOut(session.timedOut(now: now))
  }

  mutating func run(_ steps: Int = 60) { for _ in 0..<steps where !session.isUp { step() } }

  mutating func lose() {
    (device.isConnected, device.isResolved) = (false, false)
    carryOut(session.device(device, isHeard: false, now: now))
  }
}

@Suite struct BluetoothSessionTests {
  @Test func `a new radio is found, paired, trusted and subscribed to, in this order`() {
    var bench = Bench()
    bench.start()
    bench.run()
    #expect(bench.session.isUp)
    #expect(
      bench.log == [
        .readObjects, .startScan(adapter: adapterPath, filtered: true), .stopScan(adapter: adapterPath),
        .pair(device: radioPath), .trust(device: radioPath), .readObjects,
        .openNotifications(tx: radioPath + "/tx"), .openWrites(rx: radioPath + "/rx"),
      ])
  }

  @Test func `a bonded radio is connected only after it was heard, and is never paired again`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true)
    bench.start()
    bench.run()
    #expect(bench.session.isUp)
    #expect(bench.log.contains(.connect(device: radioPath)))
    #expect(!bench.log.contains(.pair(device: radioPath)))
  }

  @Test func `a connected radio is used without a scan`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true, connected: true, resolved: true)
    bench.start()
    bench.run()
    #expect(bench.session.isUp)
    #expect(!bench.log.contains { if case .startScan = $0 { true } else { false } })
  }

  @Test func `a link that is lost every minute does not cost the bond`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true)
    bench.start()
    for _ in 0..<50 {
      bench.run()
      #expect(bench.session.isUp)
      bench.session.proved()
      bench.now = bench.now + .seconds(60)
      // BlueZ reports the end of the socket and the disconnection in either order.
      bench.carryOut(bench.session.wayEnded(now: bench.now))
      bench.lose()
    }
    #expect(!bench.log.contains(.remove(adapter: adapterPath, device: radioPath)))
    #expect(bench.ups == 50)
  }

  @Test func `a link that flaps all day causes a few hundred log lines, not thousands`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true)
    bench.start()
    var limit = FlapLimit()
    var (lines, changes) = (0, 0)
    let day = MonotonicTime(seconds: 86_400)
    while bench.now < day {
      let before = bench.ups + bench.downs.count
      bench.run()
      bench.session.proved()
      bench.now = bench.now + .seconds(20)
      bench.lose()
      for _ in before..<bench.ups + bench.downs.count {
        changes += 1
        let (tell, missed) = limit.changed(now: bench.now)
        lines += (tell ? 1 : 0) + (missed > 0 ? 1 : 0) + (tell && limit.isQuiet ? 1 : 0)
      }
    }
    #expect(changes > 2000, "it flaps")
    #expect(lines <= 24 * (FlapLimit.most + 2) + 2, "\(lines) lines for \(changes) changes")
    #expect(!bench.log.contains(.remove(adapter: adapterPath, device: radioPath)))
  }

  @Test func `while the radio is out of range, the session scans and rests without end, and removes nothing`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true)
    bench.isInRange = false
    bench.start()
    bench.run(500)
    #expect(bench.downs.last == .notFound(radioAddress))
    #expect(!bench.log.contains(.remove(adapter: adapterPath, device: radioPath)))
    bench.isInRange = true
    bench.run()
    #expect(bench.session.isUp)
  }

  @Test func `a lost bond is renewed if there is a PIN`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true)
    bench.script = { [failures = Counter()] operation in
      guard case .openNotifications = operation, failures.next() <= 2 else { return nil }
      return .failed(.authentication)
    }
    bench.start()
    bench.run()
    #expect(bench.session.isUp)
    #expect(bench.log.filter { $0 == .remove(adapter: adapterPath, device: radioPath) }.count == 1)
    #expect(bench.log.contains(.pair(device: radioPath)))
  }

  @Test func `a lost bond without a PIN is reported, and nothing is removed`() {
    var bench = Bench(pin: false)
    bench.device = radio(paired: true, trusted: true)
    bench.script = { if case .openNotifications = $0 { .failed(.authentication) } else { nil } }
    bench.start()
    bench.run(200)
    #expect(bench.downs.contains(.bondLost(address: radioAddress)))
    #expect(!bench.log.contains(.remove(adapter: adapterPath, device: radioPath)))
  }

  @Test func `the session survives a bluetoothd that crashes because of the lost bond`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true)
    bench.start()
    for _ in 0..<2 {
      bench.script = { if case .connect = $0 { .failed(.timedOut) } else { nil } }
      while bench.session.current == nil, bench.session.scan == nil { bench.step() }
      // bluetoothd dies while it connects.
      bench.carryOut(
        bench.session.device(radio(paired: true, trusted: true, connected: true), isHeard: true, now: bench.now))
      bench.carryOut(bench.session.serviceDown("crashed", now: bench.now))
      bench.now = bench.now + .seconds(1)
      bench.carryOut(bench.session.serviceUp(now: bench.now))
    }
    bench.script = { _ in nil }
    bench.run()
    #expect(bench.session.isUp)
  }

  @Test func `a wrong PIN is retried at most about once a minute`() {
    var bench = Bench()
    bench.script = { if case .pair = $0 { .failed(.authentication) } else { nil } }
    bench.start()
    bench.run(200)
    #expect(bench.downs.contains(.wrongPIN(address: radioAddress)))
    let pairings = bench.log.filter { $0 == .pair(device: radioPath) }.count
    let seconds = Int(bench.now.nanoseconds / 1_000_000_000)
    #expect(pairings <= seconds / 55 + 1, "\(pairings) in \(seconds) s")
  }

  @Test func `scans and connections that another program started are not failures`() {
    var bench = Bench()
    bench.script = { if case .startScan = $0 { .failed(.inProgress) } else { nil } }
    bench.start()
    bench.run()
    #expect(bench.session.isUp)
    bench.lose()
    #expect(bench.downs.last == .lost(address: radioAddress))
    bench.script = { if case .connect = $0 { .failed(.alreadyDone) } else { nil } }
    bench.run(20)
    #expect(bench.log.contains(.connect(device: radioPath)))
  }

  @Test func `the adapter is switched on; it is switched off and on only if allowed and nobody else is connected`() {
    var stranger = radio(connected: true)
    (stranger.path, stranger.address, stranger.isRadio) = (adapterPath + "/dev_2", "11:22:33:44:55:66", false)
    var elsewhere = stranger
    elsewhere.adapter = "/org/bluez/hci1"
    let gone = radio(paired: true)
    for (allowed, other, cycles) in [
      (false, nil, false), (true, nil, true), (true, stranger, false), (true, elsewhere, true), (true, gone, true),
    ] {
      var bench = Bench(pin: false, cycle: allowed)
      bench.device = radio(paired: true, trusted: true)
      bench.isPowered = false
      bench.script = { if case .connect = $0 { .failed(.aborted("le-connection-abort-by-local")) } else { nil } }
      bench.start()
      if let other { bench.carryOut(bench.session.device(other, isHeard: false, now: bench.now)) }
      bench.run(300)
      #expect(bench.log.contains(.power(adapter: adapterPath, on: true)))
      #expect(bench.log.contains(.power(adapter: adapterPath, on: false)) == cycles)
      guard let other, !cycles else { continue }
      // Without the other device the adapter may be switched off.
      bench.carryOut(bench.session.deviceGone(other.path, now: bench.now))
      bench.run(300)
      #expect(bench.log.contains(.power(adapter: adapterPath, on: false)))
    }
  }

  @Test func `rfkill's block is lifted only if allowed`() {
    var bench = Bench()
    bench.isPowered = false
    bench.script = { if case .power = $0 { .failed(.blocked) } else { nil } }
    bench.start()
    bench.run(30)
    #expect(bench.session.trouble == .blocked(adapter: "hci0"))
    #expect(!bench.log.contains(.unblock))
    bench.session.settings.mayUnblock = true
    bench.run(3)
    #expect(bench.log.contains(.unblock))
  }

  @Test func `of two unknown radios none is used as the only one`() {
    var bench = Bench(target: .only)
    bench.start()
    var other = radio()
    (other.path, other.address, other.name) = (adapterPath + "/dev_2", "C0:FF:EE:00:00:02", "MeshCore-Valley")
    for _ in 0..<40 {
      bench.carryOut(bench.session.device(other, isHeard: true, now: bench.now))
      bench.step()
    }
    #expect(!bench.session.isUp)
    #expect(bench.downs.contains { if case .several = $0 { true } else { false } })
    var alone = Bench(target: .only)
    alone.start()
    alone.run()
    #expect(alone.session.isUp)
  }

  @Test func `a radio that BlueZ failed to disconnect is used as it is, and not scanned for`() {
    var bench = Bench()
    bench.device = radio(paired: true, trusted: true, connected: true, resolved: true)
    bench.start()
    bench.run()
    bench.script = { if case .disconnect = $0 { .failed(.timedOut) } else { nil } }
    bench.carryOut(bench.session.closed(isBad: true, now: bench.now))
    #expect(bench.log.last == .disconnect(device: radioPath) && !bench.session.isUp)
    bench.carryOut(bench.session.opened(now: bench.now))
    #expect(bench.session.isUp)
  }

  @Test func `closing the session disconnects the radio, and opening it again reconnects`() {
    var bench = Bench()
    bench.start()
    bench.run()
    bench.carryOut(bench.session.closed(isBad: true, now: bench.now))
    #expect(bench.log.last == .disconnect(device: radioPath))
    #expect(bench.session.deadline == nil)
    bench.carryOut(bench.session.opened(now: bench.now))
    bench.run()
    #expect(bench.session.isUp && bench.ups == 2)
  }
}

private final class Counter {
  private var value = 0
  func next() -> Int {
    value += 1
    return value
  }
}
