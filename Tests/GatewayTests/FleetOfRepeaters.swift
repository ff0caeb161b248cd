// SPDX-License-Identifier: MIT

import Alerts
import Companion
import Delivery
import EventLoop
import Messaging
import Relay
import SQLite
import Store
import TestSupport
import Timing

@testable import Gateway

/// Invented repeaters, as a gateway sees them: by their adverts, and by what they answer to hourly polls. Both get lost, and adverts come late.
final class FleetOfRepeaters {
  /// A repeater, and what befalls it. Times are hours since the begin.
  final class Node {
    let key: PublicKey
    let name: String
    var isPolled: Bool
    /// The part of its polls and of its adverts that gets lost.
    let pollLoss: Double
    let advertLoss: Double
    let advertEvery: Double
    var nextAdvert: Double
    /// Hours without a sign.
    var silences: [Range<Double>] = []
    var restarts: [Double] = []
    /// Seconds by which the clock is ahead.
    var clock: (Double) -> Double = { _ in 0 }
    /// Millivolts besides the sun's.
    var drain: (Double) -> Double = { _ in 0 }
    var noise: (Double) -> Int16 = { _ in -112 }
    private let bootedBefore: Double

    init(_ index: Int, _ random: inout SeededRandom) {
      key = PublicKey(bytes: [UInt8(index + 1)] + [UInt8](repeating: 0x5A, count: 31))!
      name = "Repeater \(index)"
      isPolled = index < 40
      pollLoss = Double.random(in: 0.01...0.15, using: &random)
      advertLoss = Double.random(in: 0...0.25, using: &random)
      advertEvery = [3, 6].randomElement(using: &random) ?? 12
      nextAdvert = Double.random(in: 0..<advertEvery, using: &random)
      bootedBefore = Double.random(in: 1...900, using: &random)
    }

    func isOff(_ hour: Double) -> Bool { silences.contains { $0.contains(hour) } }

    func uptime(_ hour: Double) -> UInt32 {
      let booted = restarts.last { $0 <= hour } ?? -bootedBefore
      return UInt32((hour - booted) * 3600)
    }

    func millivolts(_ hour: Double, _ random: inout SeededRandom) -> UInt16 {
      let sun = 60 * (1 - abs((hour.truncatingRemainder(dividingBy: 24) - 14) / 12))
      return UInt16(4000 + sun - drain(hour) + Double.random(in: -4...4, using: &random))
    }
  }

  let machine = InventedMachine()
  let loop: EventLoop
  let scratch = Scratch(inMemory: true)
  private(set) var nodes: [Node] = []
  var random: SeededRandom
  private(set) var store: Store!
  private(set) var alerts: GatewayAlerts!
  private let begin: MonotonicTime
  /// The hour's air time, with a slow preset, and the most of it that was in use. Every packet has a path of two hops.
  private var budget = AirtimeBudget(AirtimeBudget.Limits())
  private(set) var mostAirtime: Int64 = 0
  private(set) var refusedPolls = 0
  /// Warnings and errors of the gateway.
  private(set) var logged: [String] = []
  private static let slow = RadioParameters(
    frequency: 869_618, bandwidth: 62_500, spreadingFactor: 8, codingRate: 8)
  /// The gateway has this configuration.
  var configuration = AlertConfiguration()

  init(count: Int, seed: UInt64) throws {
    loop = EventLoop(on: machine)
    random = SeededRandom(seed: seed)
    begin = machine.now
    configuration.care.scope = .all
    try open()
    for index in 0..<count { nodes.append(Node(index, &random)) }
    loop.afterTurn { [weak self] in
      self?.store?.commit()
      self?.alerts?.somethingWasStored()
    }
    start()
  }

  private func open() throws {
    let opened = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: machine)
    let log = Log(level: .warning, sink: { [unowned self] _, line in logged.append(line) })
    let relay = try Relay([], store: opened, on: loop, log: log)
    store = opened
    alerts = GatewayAlerts(
      configuration, opened, relay, contactTable: { nil }, changes: StateChange(), on: loop, log: log)
  }

  private func start() {
    alerts.needed = { [unowned self] in Set(nodes.filter(\.isPolled).map(\.key)) }
    alerts.polledKinds = { [unowned self] in
      Dictionary(uniqueKeysWithValues: nodes.filter(\.isPolled).map { ($0.key, Set(["status"])) })
    }
    alerts.begin()
    alerts.care.listens(true)
  }

  /// The gateway ends, cleanly.
  func stop() {
    alerts.stop()
    settle()
    store.settle()
    (alerts, store) = (nil, nil)
  }

  func startAgain() throws {
    try open()
    start()
  }

  var hour: Double { (machine.now - begin).inSeconds / 3600 }

  private func settle() { for _ in 0..<2 { loop.turn(wait: false) } }

  /// Time passes, and nothing else happens.
  func wait(hours: Double) { machine.wait(milliseconds: Int32(hours * 3_600_000)) { _, _ in } }

  /// Lives until this hour. `hears`: whether the radio is there.
  func live(until end: Double, hears: Bool = true) {
    alerts.care.listens(hears)
    var polledAt = hour.rounded(.down)
    while hour < end {
      machine.wait(milliseconds: 240_000) { _, _ in }
      advertise(isHeard: hears)
      if hour - polledAt >= 1 {
        polledAt += 1
        if hears { poll() }
        alerts.hourHasPassed()
      }
      if hears { alerts.radioIsIdle() }
      settle()
    }
  }

  private func advertise(isHeard: Bool) {
    for node in nodes where node.nextAdvert <= hour {
      node.nextAdvert += node.advertEvery * Double.random(in: 0.98...1.02, using: &random)
      let isLost = Double.random(in: 0..<1, using: &random) < node.advertLoss
      let late = Int64.random(in: 0...9, using: &random) == 0 ? Int64.random(in: 0...180, using: &random) : 2
      guard isHeard, !isLost, !node.isOff(hour) else { continue }
      let moment = Moment(milliseconds: machine.wallMilliseconds, trusted: machine.isWallSynchronised)
      let advert = UInt32(moment.milliseconds / 1000 + Int64(node.clock(hour)) - late)
      let contact = Contact(key: node.key, type: .repeater, name: Text(node.name), lastAdvert: advert)
      store.write { store throws(SQLiteError) in
        _ = try store.upsert(contact, onRadio: true, heard: true, at: moment.milliseconds)
        try store.noteClock(of: contact.key, advert: advert, at: moment)
      }
    }
  }

  private func poll() {
    for node in nodes where node.isPolled {
      guard spend(PacketLength.request(9, path: 2)) else { continue }
      let isAnswered = !node.isOff(hour) && Double.random(in: 0..<1, using: &random) >= node.pollLoss
      // A silent node may have forgotten us: a login, and the question again.
      if !isAnswered {
        _ = spend(PacketLength.request(8, path: 2, isLogin: true)) && spend(PacketLength.request(9, path: 2))
      }
      if isAnswered {
        alerts.answered(.status(status(node)), node.key)
        let (prefix, now) = (node.key.prefix, machine.wallMilliseconds)
        store.write { store throws(SQLiteError) in try store.noteHeard(prefix, at: now) }
      }
      alerts.polled(node.key, .status, isAnswered: isAnswered)
    }
  }

  private func spend(_ bytes: Int) -> Bool {
    let airtime = Int64(Airtime.milliseconds(bytes: bytes, Self.slow).rounded(.up))
    guard budget.fits(airtime, channel: nil, .bulk, now: machine.now) == machine.now else {
      refusedPolls += 1
      return false
    }
    budget.charge(airtime, channel: nil, now: machine.now)
    mostAirtime = max(mostAirtime, budget.used(now: machine.now).airtime)
    return true
  }

  private func status(_ node: Node) -> NodeStatus {
    // `try!`: 48 zeros are a status.
    var status = try! NodeStatus(decoding: [UInt8](repeating: 0, count: 48), of: .repeater)
    status.batteryMillivolts = node.millivolts(hour, &random)
    status.uptime = node.uptime(hour)
    status.noiseFloor = node.noise(hour) + Int16.random(in: -3...3, using: &random)
    return status
  }

  /// What was told: `begin` and `end` of each rule and node, in their order.
  func told() throws -> [String] {
    try store.alerts(openOnly: false, limit: 1000).reversed().filter { AlertRule.aboutNodes.contains($0.rule) }
      .map { alert in
        let name = nodes.first { $0.key.hex == alert.subject }?.name ?? alert.subject
        return "\(alert.rule) \(name)\(alert.endedAt == nil ? "" : ", over")"
      }
  }
}

extension AlertRule {
  fileprivate static let aboutNodes = Set((ofNodes + [.nodeSilent]).map(\.rawValue))
}
