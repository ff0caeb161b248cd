// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import BluetoothSession

/// Random events in random order, including events that no BlueZ sends.
@Suite struct RandomEventsTests {
  private static let paths = (0..<40).map { "/org/bluez/hci\($0 % 2)/dev_\($0)" }

  /// For each of the four seeds, so 50,000 in all, of 30 events each.
  private static let sequences = 12_500

  @Test(arguments: [UInt64(1), 2, 3, 4])
  func `the session never gets stuck, never runs two operations at once, and stays bounded`(
    _ seed: UInt64
  ) {
    print("bluetooth events: seed \(seed)")
    var random = SeededRandom(seed: seed)
    var ups = 0
    for _ in 0..<Self.sequences { ups += sequence(&random, seed) }
    #expect(ups > Self.sequences / 25, "the random events bring the link up often enough")
  }

  private func sequence(_ random: inout SeededRandom, _ seed: UInt64) -> Int {
    var ups = 0
    let targets: [BluetoothTarget] = [.address("A3"), .name("n3"), .only]
    var session = BluetoothSession(
      BluetoothSession.Settings(
        target: targets.randomElement(using: &random) ?? .only, adapter: "hci1", hasPIN: .random(using: &random),
        mayPowerOn: .random(using: &random), mayUnblock: .random(using: &random),
        mayPowerCycle: .random(using: &random)), seed: seed)
    var now = MonotonicTime(seconds: 0)
    var underWay: UInt64?
    var isOpen = false
    if Bool.random(using: &random) {
      isOpen = true
      _ = session.opened(now: now)
      for case .perform(let id, _) in session.serviceUp(now: now) { underWay = id }
      if Bool.random(using: &random) { ups += connect(&session, &underWay, now) }
    }
    for number in 0..<30 {
      now = now + .milliseconds(Int64.random(in: 0...20_000, using: &random))
      let actions = event(&session, &isOpen, underWay, now, &random)
      for case .perform(let id, _) in actions { underWay = id }
      ups += actions.count { if case .up = $0 { true } else { false } }
      let performed = actions.count { if case .perform = $0 { true } else { false } }
      let isStuck = (isOpen && !session.isUp || session.current != nil) && session.deadline == nil
      let isSmall =
        session.world.devices.count <= 16 && session.cleanUps.count <= 2 && session.world.heardAt.count <= 16
        && session.world.adapters.count <= 8
      guard performed > 1 || isStuck || !isSmall else { continue }
      Issue.record(
        "seed \(seed), event \(number): \(performed) operations, stuck \(isStuck), small \(isSmall): \(session)")
      return ups
    }
    return ups
  }

  /// A successful start, so that the following events meet a link that is up.
  private func connect(_ session: inout BluetoothSession, _ underWay: inout UInt64?, _ now: MonotonicTime) -> Int {
    let path = "/org/bluez/hci1/dev_3"
    _ = session.adapter(AdapterFacts(path: "/org/bluez/hci1", address: "", isPowered: true), now: now)
    let device = DeviceFacts(
      path: path, adapter: "/org/bluez/hci1", address: "A3", name: "n3", isPaired: true, isTrusted: true,
      isConnected: true, isResolved: true, isRadio: true)
    _ = session.device(device, isHeard: true, now: now)
    session.characteristics(of: path, rx: "rx", tx: "tx")
    var ups = 0
    for _ in 0..<4 {
      for action in session.finished(underWay ?? 0, .opened(mtu: 247), now: now) {
        if case .perform(let id, _) = action { underWay = id }
        if case .up = action { ups += 1 }
      }
    }
    return ups
  }

  private func event(
    _ session: inout BluetoothSession, _ isOpen: inout Bool, _ underWay: UInt64?, _ now: MonotonicTime,
    _ random: inout SeededRandom
  ) -> [BluetoothAction] {
    let isLikely = Int.random(in: 0..<10, using: &random) < 7
    let path = isLikely ? "/org/bluez/hci1/dev_3" : Self.paths.randomElement(using: &random) ?? ""
    switch Int.random(in: 0..<16, using: &random) {
    case 0:
      isOpen = true
      return session.opened(now: now)
    case 1 where !isLikely:
      isOpen = false
      return session.closed(isBad: .random(using: &random), now: now)
    case 2: return session.serviceUp(now: now)
    case 3 where !isLikely: return session.serviceDown("gone", now: now)
    case 4:
      return session.adapter(
        AdapterFacts(
          path: "/org/bluez/hci\(isLikely ? 1 : Int.random(in: 0..<12, using: &random))", address: "",
          isPowered: .random(using: &random)),
        now: now)
    case 5: return session.adapterGone(isLikely ? "/org/bluez/hci0" : "/org/bluez/hci1", now: now)
    case 6, 7: return session.device(device(path, &random), isHeard: .random(using: &random), now: now)
    case 8: return session.deviceGone(path, now: now)
    case 9:
      session.characteristics(of: path, rx: Bool.random(using: &random) ? "rx" : nil, tx: "tx")
      return []
    case 10: return session.wayEnded(now: now)
    case 11:
      session.proved()
      return []
    case 12: return session.timedOut(now: session.deadline.map { max($0, now) } ?? now)
    default: return session.finished(underWay ?? 0, outcome(&random), now: now)
    }
  }

  private func device(_ path: String, _ random: inout SeededRandom) -> DeviceFacts {
    let number = path.split(separator: "_").last.map(String.init) ?? ""
    return DeviceFacts(
      path: path, adapter: String(path.prefix(15)), address: "A\(number)", name: "n\(number)",
      isPaired: .random(using: &random), isTrusted: .random(using: &random), isConnected: .random(using: &random),
      isResolved: .random(using: &random), isRadio: .random(using: &random))
  }

  private func outcome(_ random: inout SeededRandom) -> BluetoothOutcome {
    let failures: [BluetoothFailure] = [
      .inProgress, .alreadyDone, .notReady, .blocked, .authentication, .unknownObject, .aborted("x"), .inUse("y"),
      .notAllowed, .timedOut, .other("z"),
    ]
    return Int.random(in: 0..<4, using: &random) > 0
      ? .done : .failed(failures.randomElement(using: &random) ?? .timedOut)
  }
}
