// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Delivery

/// Rooms and people that are away and there by turns, for ten hours, and then there for good. Nobody gives a sign of it but now and then.
private struct ComingAndGoing: InventedCourse {
  enum Event {
    case answer(id: Int64, DeliveryAnswer)
    case acknowledgement(AckCode)
    case comes(Int, Bool)
    case sign(Int, SignOfLife)
    case asked
    case new
    case link(Bool)
    case kill
  }

  static let hours = 10.0
  /// Later rounds follow each hour by then, with a jitter of a fifth; a radio without room pauses ten minutes.
  static let longestSilence = Duration.seconds(3600 * 1.2 + 800)

  var random: SeededRandom
  var session: DeliverySession
  var now = MonotonicTime(seconds: 0)
  var events: [(at: MonotonicTime, Event)] = []
  /// What is on disk of the messages that have not ended.
  var rows: [Int64: DeliveryItem] = [:]
  var last: Int64 = 0
  /// Which recipients are there. Those with even numbers are rooms.
  var there: Set<Int> = []
  /// When a recipient was last tried, or when that became possible.
  var tried: [Destination: MonotonicTime] = [:]
  var faults: [String] = []

  init(seed: UInt64) {
    random = SeededRandom(seed: seed)
    var settings = DeliverySettings()
    settings.maxAttempts = Int.random(in: 1...6, using: &random)
    settings.budget.airtime = 3_600_000
    settings.budget.messages = 3600
    session = DeliverySession(settings, seed: seed)
    session.radio = testRadio
  }

  mutating func run() {
    carryOut(session.linkUp(now: now))
    let seconds = Self.hours * 3600
    for _ in 0..<Int.random(in: 2...12, using: &random) { later(0...60, .new) }
    for _ in 0..<Int.random(in: 0...8, using: &random) { later(0...seconds, .new) }
    for _ in 0..<Int.random(in: 0...60, using: &random) {
      later(0...seconds, .comes(Int.random(in: 0...3, using: &random), chance(0.5)))
    }
    for _ in 0..<Int.random(in: 0...20, using: &random) {
      later(0...seconds, .sign(Int.random(in: 0...3, using: &random), chance(0.7) ? .certain : .hint))
    }
    for _ in 0..<Int.random(in: 0...6, using: &random) { later(0...seconds, .asked) }
    for _ in 0..<Int.random(in: 0...2, using: &random) { later(0...seconds, .kill) }
    if chance(0.5) {
      later(0...3600, .link(false))
      later(3600...7200, .link(true))
    }
    pass(until: MonotonicTime(seconds: seconds))
    there = Set(0...3)
    pass(until: now + .seconds(3 * 3600))
    for id in rows.keys.sorted() { faults.append("message \(id) did not come: \(session.live[id] as Any)") }
  }

  mutating func pass(until end: MonotonicTime) {
    while faults.isEmpty {
      let place = events.indices.min { events[$0].at < events[$1].at }
      let next = min(place.map { events[$0].at } ?? .never, session.deadline ?? .never)
      guard next <= end else { break }
      now = max(now, next)
      if let place, events[place].at <= now {
        perform(events.remove(at: place).1)
      } else {
        carryOut(session.timedOut(now: now))
      }
      check()
    }
    now = end
    check()
  }

  mutating func perform(_ event: Event) {
    switch event {
    case .answer(let id, let answer): carryOut(session.answered(id, answer, now: now))
    case .acknowledgement(let code): if session.isUp { carryOut(session.acknowledged(code, tripTime: 900, now: now)) }
    case .comes(let number, let isThere): if isThere { there.insert(number) } else { there.remove(number) }
    case .sign(let number, let sign): carryOut(session.heard(Self.key(number), sign, now: now))
    case .asked:
      guard let id = rows.keys.sorted().randomElement(using: &random) else { return }
      carryOut(session.tryNow(id, now: now))
    case .new: add()
    case .link(true):
      carryOut(session.linkUp(now: now))
      for destination in tried.keys { tried[destination] = now }
    case .link(false):
      session.linkDown()
      for id in dropAnswers() { carryOut(session.answered(id, .linkLost, now: now)) }
    case .kill:
      _ = dropAnswers()
      let wasUp = session.isUp
      session = DeliverySession(session.settings, seed: random.next())
      session.radio = testRadio
      for id in rows.keys.sorted() { if let item = rows[id] { carryOut(session.add(item, path: nil, now: now)) } }
      if wasUp { carryOut(session.linkUp(now: now)) }
    }
  }

  mutating func dropAnswers() -> [Int64] {
    var ids: [Int64] = []
    for case (_, .answer(let id, _)) in events { ids.append(id) }
    events.removeAll { if case .answer = $0.1 { true } else { false } }
    return ids
  }

  mutating func add() {
    last += 1
    let number = Int.random(in: 0...3, using: &random)
    let item = DeliveryItem(
      id: last, destination: .node(Self.key(number)),
      priority: DeliveryPriority.allCases[Int.random(in: 0...2, using: &random)], origin: "us", bytes: 20,
      expires: now + .seconds(86_400), isOrdered: number % 2 == 0)
    rows[last] = item
    if tried[item.destination] == nil { tried[item.destination] = now }
    carryOut(session.add(item, path: chance(0.5) ? 2 : nil, now: now))
  }

  mutating func carryOut(_ actions: [DeliveryAction]) {
    for action in actions {
      switch action {
      case .transmit(let id, let attempt, let route, _): transmit(id, attempt, route)
      case .sent(let id, _, let tries, let floods):
        rows[id]?.tries = tries
        rows[id]?.floods = floods
      case .delivered(let id, _):
        guard let item = rows.removeValue(forKey: id) else { continue }
        if !rows.values.contains(where: { $0.destination == item.destination }) { tried[item.destination] = nil }
      case .failed(let id, let failure, _): faults.append("message \(id) failed: \(failure)")
      case .waiting(let id, _): if rows[id]?.tries == 0 { rows[id]?.progress = .pending }
      case .held(let id, _): rows[id]?.progress = .held
      case .heard, .discoverPath, .restorePath: break
      }
    }
  }

  mutating func transmit(_ id: Int64, _ attempt: UInt8, _ route: DeliveryRoute) {
    guard let item = rows[id], case .node(let key) = item.destination else { return }
    tried[item.destination] = now
    if item.isOrdered, rows.values.contains(where: { $0.isBefore(item) && session.isLive($0.id) }) {
      faults.append("post \(id) overtakes another one")
    }
    let code = AckCode(value: UInt32(id) << 8 | UInt32(attempt))
    rows[id]?.attempt = attempt + 1
    rows[id]?.codes.append(code)
    rows[id]?.progress = .interrupted
    session.expect(code, for: id)
    if chance(0.05) { return later(0...1, .answer(id: id, .busy)) }
    later(0...0.1, .answer(id: id, .sent(code: code, flooded: route.isFlood, timeout: 4000)))
    if there.contains(Int(key.bytes[0])), chance(0.8) { later(0.2...9, .acknowledgement(code)) }
  }

  mutating func check() {
    for (destination, time) in tried where session.isUp && now - time > Self.longestSilence {
      let waiting = session.live.values.filter { $0.item.destination == destination }
      faults.append("nothing was tried for \(now - time): \(waiting)")
    }
  }
}

@Suite struct ComeAndGoTests {
  @Test(arguments: UInt64(0)..<8) func `whoever comes and goes is always tried again, and gets everything in the end`(
    _ part: UInt64
  ) {
    for seed in part * 25..<(part + 1) * 25 {
      var course = ComingAndGoing(seed: seed)
      course.run()
      guard let fault = course.faults.first else { continue }
      Issue.record("seed \(seed): \(fault)")
      return
    }
  }
}
