// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Delivery

/// A course of sending in invented time, with events that a seed chooses.
protocol InventedCourse {
  associatedtype Event
  var random: SeededRandom { get set }
  var now: MonotonicTime { get }
  var events: [(at: MonotonicTime, Event)] { get set }
}

extension InventedCourse {
  mutating func chance(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &random) < probability }

  mutating func later(_ seconds: ClosedRange<Double>, _ event: Event) {
    events.append((now + .seconds(Double.random(in: seconds, using: &random)), event))
  }

  static func key(_ number: Int) -> PublicKey {
    PublicKey(bytes: [UInt8](repeating: UInt8(number), count: 32)) ?? { fatalError("32 bytes") }()
  }
}

/// A mesh with loss, with late, doubled and reordered acknowledgements, with links that break and a gateway that is killed, in invented time. Each
/// step checks the guarantees of sending.
private struct Simulation: InventedCourse {
  enum Event {
    case answer(id: Int64, DeliveryAnswer)
    case ack(AckCode)
    case path(PublicKey, Int?)
    case link(Bool)
    case kill
    case cancel(Int64)
    case sign(PublicKey, SignOfLife)
    /// Others use the channel: so many packets of a second.
    case noise(Int)
  }

  struct Row {
    var item: DeliveryItem
    var state = "pending"
    var arrived: Set<UInt8> = []
  }

  let seed: UInt64
  var random: SeededRandom
  var session: DeliverySession
  var settings = DeliverySettings()
  var now = MonotonicTime(seconds: 0)
  var rows: [Int64: Row] = [:]
  var events: [(at: MonotonicTime, Event)] = []
  /// The ack codes that the radio remembers. As in the firmware it is a ring: the next place is overwritten even if it is in use.
  var radioRing = [AckCode?](repeating: nil, count: 8)
  var ringPlace = 0
  var forgotten: Set<AckCode> = []
  var uses: [AirtimeBudget.Use] = []
  var generation = 0
  /// Whether the channel was busy before the present event.
  var busyBefore = false
  let addedAt = MonotonicTime(seconds: 0)
  var faults: [String] = []
  let loss: Double

  init(seed: UInt64) {
    self.seed = seed
    random = SeededRandom(seed: seed)
    loss = [0, 0.2, 0.5, 0.9][Int(seed % 4)]
    settings.maxInFlight = Int.random(in: 1...8, using: &random)
    settings.maxAttempts = Int.random(in: 1...6, using: &random)
    settings.budget.airtime = [20_000, 180_000][Int.random(in: 0...1, using: &random)]
    settings.budget.channelMessages = 3
    session = DeliverySession(settings, seed: seed)
    session.radio = testRadio
  }

  mutating func run() {
    let count = Int.random(in: 1...14, using: &random)
    for id in 1...count {
      let destination: Destination =
        chance(0.25)
        ? .channel("c\(Int.random(in: 0...1, using: &random))") : .node(Self.key(Int.random(in: 1...9, using: &random)))
      let item = DeliveryItem(
        id: Int64(id), destination: destination,
        priority: DeliveryPriority.allCases[Int.random(in: 0...2, using: &random)],
        origin: "o\(id % 3)", bytes: Int.random(in: 0...150, using: &random),
        expires: now + .seconds(Double.random(in: 1...5000, using: &random)), isOrdered: chance(0.2))
      rows[Int64(id)] = Row(item: item)
    }
    for id in rows.keys.sorted() { take(id) }
    if chance(0.8) { carryOut(session.linkUp(now: now)) } else { later(0...100, .link(true)) }
    if chance(0.5) {
      for _ in 0...2 {
        later(0...600, .link(false))
        later(600...900, .link(true))
      }
    }
    for _ in 0..<Int.random(in: 0...3, using: &random) { later(0...300, .kill) }
    if chance(0.3) { later(0...60, .cancel(Int64.random(in: 1...Int64(count), using: &random))) }
    for _ in 0..<Int.random(in: 0...4, using: &random) {
      later(0...4000, .sign(Self.key(Int.random(in: 1...9, using: &random)), chance(0.5) ? .certain : .hint))
    }
    for _ in 0..<(chance(0.5) ? 60 : 0) { later(0...5000, .noise(Int.random(in: 10...60, using: &random))) }
    var steps = 0
    while let next = nextTime(), steps < 5000 {
      steps += 1
      now = max(now, next)
      busyBefore = session.manners.isBusy(now: now)
      step()
      check()
    }
    if steps >= 5000 { faults.append("it goes on for ever") }
    for (id, row) in rows where !["delivered", "failed", "channel"].contains(row.state) {
      faults.append("message \(id) has not ended: \(row.state)")
    }
    for (id, row) in rows where row.state == "delivered" && row.arrived.isEmpty {
      faults.append("message \(id) is reported delivered and did not arrive")
    }
  }

  func nextTime() -> MonotonicTime? {
    let event = events.map(\.at).min()
    guard let deadline = session.deadline else { return event }
    return min(deadline, event ?? .never)
  }

  mutating func take(_ id: Int64) {
    guard let row = rows[id] else { return }
    var path: Int?
    if case .node = row.item.destination, chance(0.5) { path = 2 }
    carryOut(session.add(row.item, path: path, now: now))
  }

  mutating func step() {
    if let place = events.indices.min(by: { events[$0].at < events[$1].at }), events[place].at <= now {
      perform(events.remove(at: place).1)
    } else {
      carryOut(session.timedOut(now: now))
    }
  }

  mutating func perform(_ event: Event) {
    switch event {
    case .answer(let id, let answer):
      if case .sent(let code, _, _) = answer { ring(code) }
      carryOut(session.answered(id, answer, now: now))
    case .ack(let code):
      guard session.isUp, let place = radioRing.firstIndex(of: code) else { return }
      if !chance(0.1) { radioRing[place] = nil }
      carryOut(session.acknowledged(code, tripTime: 1, now: now))
    case .path(let key, let bytes): carryOut(session.pathChanged(key, bytes: bytes, now: now))
    case .link(true): carryOut(session.linkUp(now: now))
    case .link(false):
      session.linkDown()
      for id in dropAnswers() { carryOut(session.answered(id, .linkLost, now: now)) }
    case .kill: kill()
    case .cancel(let id): carryOut(session.cancel(id, now: now))
    case .sign(let key, let sign): carryOut(session.heard(key, sign, now: now))
    case .noise(let count): for _ in 0..<count { session.heardPacket(1000, now: now) }
    }
  }

  mutating func ring(_ code: AckCode) {
    if let old = radioRing[ringPlace] { forgotten.insert(old) }
    radioRing[ringPlace] = code
    ringPlace = (ringPlace + 1) % 8
  }

  /// The radio's answers to the messages just handed over are lost; it may have accepted them.
  mutating func dropAnswers() -> [Int64] {
    var ids: [Int64] = []
    for case (_, .answer(let id, let answer)) in events {
      ids.append(id)
      if case .sent(let code, _, _) = answer, chance(0.5) { ring(code) }
    }
    events.removeAll { if case .answer = $0.1 { true } else { false } }
    return ids
  }

  /// Only the data on disk remains.
  mutating func kill() {
    let wasUp = session.isUp
    generation += 1
    _ = dropAnswers()
    session = DeliverySession(settings, uses: uses, seed: seed)
    session.radio = testRadio
    for id in rows.keys.sorted() {
      guard let state = rows[id]?.state, ["pending", "sending", "sent", "held"].contains(state) else { continue }
      rows[id]?.item.progress = state == "pending" ? .pending : state == "held" ? .held : .interrupted
      take(id)
    }
    if wasUp { carryOut(session.linkUp(now: now)) }
  }

  mutating func carryOut(_ actions: [DeliveryAction]) {
    for action in actions {
      switch action {
      case .transmit(let id, let attempt, let route, let airtime): transmit(id, attempt, route, airtime)
      case .sent(let id, let code, let tries, let floods):
        enter(id, code == nil ? "channel" : "sent")
        rows[id]?.item.tries = tries
        rows[id]?.item.floods = floods
      case .delivered(let id, _): enter(id, "delivered")
      case .failed(let id, _, let unspent):
        enter(id, "failed")
        giveBack(id, unspent)
      case .waiting(let id, let unspent):
        if rows[id]?.item.tries == 0 { rows[id]?.state = "pending" }
        giveBack(id, unspent)
      case .held(let id, _): enter(id, "held")
      case .heard, .discoverPath, .restorePath: break
      }
    }
  }

  /// Nothing was transmitted: neither the attempt's time nor its number is used.
  mutating func giveBack(_ id: Int64, _ unspent: Int64) {
    guard unspent > 0, let item = rows[id]?.item else { return }
    guard let place = uses.lastIndex(where: { $0.airtime == unspent && $0.channel == item.channel }) else {
      return faults.append("message \(id): \(unspent) ms are given back that were not charged")
    }
    uses.remove(at: place)
    if item.channel == nil { rows[id]?.item.attempt -= 1 }
  }

  mutating func enter(_ id: Int64, _ state: String) {
    if rows[id]?.state == "delivered" { faults.append("message \(id) went from delivered to \(state)") }
    rows[id]?.state = state
  }

  mutating func transmit(_ id: Int64, _ attempt: UInt8, _ route: DeliveryRoute, _ airtime: Int64) {
    guard let item = rows[id]?.item else { return }
    if item.channel == nil {
      if attempt != item.attempt { faults.append("message \(id): attempt \(attempt) where \(item.attempt) is next") }
      rows[id]?.item.attempt = attempt + 1
    }
    // Its first round begins only when the channel has room, or after its patience.
    let patience = Manners.patience(item.priority).map { now - addedAt < $0 } ?? false
    if patience, generation == 0, item.tries == 0, attempt == 0, busyBefore {
      faults.append("message \(id) did not wait")
    }
    rows[id]?.state = "sending"
    let code = AckCode(value: UInt32(id) << 8 | UInt32(attempt))
    if item.channel == nil {
      rows[id]?.item.codes.append(code)
      session.expect(code, for: id)
    }
    uses.append(.init(at: now, airtime: airtime, channel: item.channel))
    if chance(0.05) { return later(0...1, .answer(id: id, .busy)) }
    if chance(0.02) { return later(5...5, .answer(id: id, .unanswered)) }
    guard item.channel == nil else { return later(0...0.1, .answer(id: id, .channelSent)) }
    later(
      0...0.1,
      .answer(id: id, .sent(code: code, flooded: route.isFlood, timeout: UInt32.random(in: 500...9000, using: &random)))
    )
    guard !chance(loss), case .node(let key) = item.destination else { return }
    rows[id]?.arrived.insert(attempt)
    if route.isFlood, chance(0.7) { later(0.1...3, .path(key, 3)) }
    for _ in 0..<(chance(0.2) ? 2 : 1) where !chance(loss) { later(chance(0.1) ? 20...400 : 0...9, .ack(code)) }
  }

  mutating func check() {
    let budget = AirtimeBudget(settings.budget, uses: uses)
    if budget.used(now: now).airtime > settings.budget.airtime { faults.append("more than the hour's air time") }
    for channel in ["c0", "c1"] where budget.used(now: now, channel: channel).messages > settings.budget.channelMessages
    {
      faults.append("more than the hour's messages on \(channel)")
    }
    for case .node(let key) in session.live.values.filter({ $0.phase == .held }).map(\.item.destination) {
      if session.absences[key] == nil { faults.append("a held message is not tried again") }
    }
    if session.inFlight > settings.maxInFlight { faults.append("\(session.inFlight) in flight") }
    let open = session.live.values.filter { $0.isOpen && $0.item.channel == nil }.map(\.item.destination)
    if Set(open).count != open.count { faults.append("two in flight to one recipient") }
    // A successor knows the killed gateway's attempts only roughly.
    guard generation == 0 else { return }
    for message in session.live.values {
      guard case .sent = message.phase, let code = message.item.codes.last, forgotten.contains(code) else { continue }
      faults.append("the radio was made to forget message \(message.item.id)")
    }
  }
}

@Suite struct RandomSchedulesTests {
  @Test(arguments: UInt64(0)..<10) func `a delivery session keeps its invariants under random schedules`(_ part: UInt64)
  {
    for seed in part * 500..<(part + 1) * 500 {
      var simulation = Simulation(seed: seed)
      simulation.run()
      guard let fault = simulation.faults.first else { continue }
      Issue.record("seed \(seed): \(fault)")
      return
    }
  }
}
