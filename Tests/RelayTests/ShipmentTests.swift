// SPDX-License-Identifier: MIT

import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// A line of so many bytes a second for all that is sent, with a delay each way and room for anything in front of it, and a hub at
/// its end that answers each batch. Ours is the shipment at this end.
private struct Line {
  let rate: Double
  let delay: Duration
  var shipment: Shipment
  var random = SeededRandom(seed: 1)
  var now = MonotonicTime(seconds: 0)
  /// Events of each lane that wait, and their size.
  var waiting = ByLane(all: 0)
  let eventSize = 380
  private var free = MonotonicTime(seconds: 0)
  private var flights: [(flight: Shipment.Flight, arrives: MonotonicTime, answered: MonotonicTime)] = []
  private var acknowledged: Int64 = 0
  private(set) var arrived = ByLane(all: 0)
  private(set) var arrivedBytes = 0
  /// The longest time that a batch waited in front of the line.
  private(set) var longestQueue: Duration = .zero
  private(set) var messagesAt: [MonotonicTime] = []
  let window: Int

  init(rate: Double, delay: Duration = .milliseconds(300), window: Int = 4) {
    (self.rate, self.delay, self.window) = (rate, delay, window)
    shipment = Shipment(maxEvents: 200)
    shipment.greetingSent()
    shipment.greeted()
  }

  private var lanes: ByLane<Bool> {
    ByLane(messages: waiting.messages > 0, nodes: waiting.nodes > 0, packets: waiting.packets > 0)
  }

  private mutating func send() {
    while case .send(let portion) = shipment.next(Shipment.Demand(lanes: lanes), now: now, window: window) {
      let count = max(1, min(portion.events, waiting[portion.lane], portion.bytes / eventSize))
      waiting[portion.lane] -= count
      let flight = Shipment.Flight(lane: portion.lane, events: count, bytes: count * eventSize)
      shipment.sent(flight, waiting: lanes, now: now)
      longestQueue = max(longestQueue, max(.zero, free - now))
      free = max(free, now) + .seconds(Double(flight.bytes) / rate)
      flights.append((flight, free + delay, free + delay + delay))
    }
  }

  /// Until then, or until nothing is left. `beside`: messages that come at these times.
  mutating func run(until end: MonotonicTime, messagesAt times: [MonotonicTime] = []) {
    var times = times
    while now < end {
      while let time = times.first, time <= now {
        waiting.messages += 1
        times.removeFirst()
      }
      send()
      let next = [flights.first?.answered, times.first].compactMap { $0 }.min() ?? end
      now = min(max(next, now), end)
      guard let first = flights.first, first.answered <= now else { continue }
      flights.removeFirst()
      acknowledged += 1
      arrived[first.flight.lane] += first.flight.events
      arrivedBytes += first.flight.bytes
      if first.flight.lane == .messages { messagesAt += Array(repeating: first.arrives, count: first.flight.events) }
      _ = shipment.answered(
        .acknowledged(through: acknowledged), after: acknowledged - 1, window: window, now: now, using: &random)
    }
  }
}

@Suite struct ShipmentTests {
  static let rates: [Double] = [300, 1500, 4000, 16_000, 250_000]

  @Test(arguments: [300.0, 1500, 4000, 16_000, 250_000]) func `the rate that is told is about the line's`(
    _ rate: Double
  ) throws {
    var line = Line(rate: rate)
    line.waiting.nodes = 1_000_000
    line.run(until: MonotonicTime(seconds: 60))
    let told = try #require(line.shipment.rate.bytesPerSecond(now: line.now))
    #expect((0.7...1.3).contains(told / rate), "\(told) of \(rate)")
  }

  @Test(arguments: rates, [300, 1500] as [Int64])
  func `a line is kept busy, and what is sent never waits long in front of it`(_ rate: Double, _ delay: Int64) {
    var line = Line(rate: rate, delay: .milliseconds(delay))
    line.waiting.nodes = 1_000_000
    line.run(until: MonotonicTime(seconds: 60))
    let before = line.arrivedBytes
    line.run(until: MonotonicTime(seconds: 360))
    let share = Double(line.arrivedBytes - before) / 300 / rate
    // With three seconds there and back, what may be under way at all is a quarter of the fastest line.
    #expect(share > (delay == 300 ? 0.85 : 0.2), "\(share) of \(rate) bytes a second")
    #expect(line.longestQueue < .seconds(3), "\(line.longestQueue)")
  }

  @Test(arguments: rates) func `a message is ahead of ten thousand adverts, which move all the same`(_ rate: Double) {
    var line = Line(rate: rate)
    line.waiting.nodes = 10_000_000
    let times = (0..<20).map { MonotonicTime(seconds: Double(60 + 20 * $0)) }
    line.run(until: MonotonicTime(seconds: 60))
    let before = line.arrived.nodes
    line.run(until: MonotonicTime(seconds: 480), messagesAt: times)
    let waits = zip(line.messagesAt, times).map { $0 - $1 }
    #expect(waits.count == 20)
    // At 300 bytes a second a message alone takes more than a second.
    #expect(waits.allSatisfy { $0 < (rate < 1000 ? .seconds(7) : .seconds(4)) }, "\(waits)")
    #expect(line.arrived.nodes > before + 10)
  }

  @Test(arguments: [1, 4]) func `lower lanes keep a share while higher ones never end`(_ window: Int) {
    var line = Line(rate: 4000, window: window)
    line.waiting = ByLane(all: 1_000_000)
    line.run(until: MonotonicTime(seconds: 600))
    let total = line.arrived.messages + line.arrived.nodes + line.arrived.packets
    let share = { (lane: Lane) in Double(line.arrived[lane]) / Double(total) }
    #expect(share(.messages) > 0.75, "\(line.arrived)")
    #expect(share(.nodes) > 0.06 && share(.nodes) < 0.16, "\(line.arrived)")
    #expect(share(.packets) > 0.03 && share(.packets) < 0.1, "\(line.arrived)")
  }

  @Test func `a lane that is alone gets all`() {
    for lane in Lane.allCases {
      var line = Line(rate: 4000)
      line.waiting[lane] = 1_000_000
      line.run(until: MonotonicTime(seconds: 120))
      #expect(line.arrived[lane] > 120 * 4000 * 6 / 10 / line.eventSize, "\(lane)")
    }
  }

  @Test func `the first batch has one event, and nothing else is under way`() {
    var shipment = Shipment(maxEvents: 200)
    shipment.greetingSent()
    shipment.greeted()
    let demand = Shipment.Demand(lanes: ByLane(all: true))
    #expect(
      shipment.next(demand, now: MonotonicTime(seconds: 0), window: 4)
        == .send(Shipment.Portion(lane: .messages, events: 200, bytes: 1)))
    shipment.sent(
      Shipment.Flight(lane: .messages, events: 1, bytes: 300), waiting: demand.lanes, now: MonotonicTime(seconds: 0))
    #expect(shipment.next(demand, now: MonotonicTime(seconds: 1), window: 4) == .nothing)
  }

  @Test func `a line that becomes slower is soon sent less`() {
    var pacer = Pacer()
    var now = MonotonicTime(seconds: 0)
    func answer(after took: Duration) {
      let sent = now
      now = now + took
      pacer.answered(
        bytes: 1000, ahead: pacer.window, isSingle: false, sentAt: sent, now: now, limit: 262_144)
    }
    for _ in 0..<100 { answer(after: .milliseconds(650)) }
    #expect(pacer.window > 50_000)
    for _ in 0..<8 { answer(after: .seconds(6)) }
    #expect(pacer.window < 2000, "\(pacer.window)")
    for _ in 0..<20 { answer(after: .milliseconds(700)) }
    #expect(pacer.window > 10_000)
  }

  @Test func `a refused batch makes only those of its lane void`() {
    var (shipment, random) = (Shipment(maxEvents: 200), SeededRandom(seed: 3))
    let now = MonotonicTime(seconds: 0)
    shipment.greetingSent()
    shipment.greeted()
    for lane in [Lane.nodes, .messages, .nodes] {
      shipment.sent(Shipment.Flight(lane: lane, events: 2, bytes: 700), now: now)
    }
    let answer = shipment.answered(.refused(status: 422, reason: "no"), after: 0, now: now, using: &random)
    #expect(answer == .keep)
    #expect(shipment.flights.map(\.lane) == [.messages])
    #expect(shipment.limit == 1)
    _ = shipment.answered(.retry(reason: "later", after: nil), after: 0, now: now, using: &random)
    #expect(shipment.flights.isEmpty)
  }
}
