// SPDX-License-Identifier: MIT

import Store
import Testing
import Timing

@testable import Relay

@Suite struct ShipmentTests {
  static let rates: [Double] = [300, 1500, 4000, 16_000, 250_000]

  @Test(arguments: [300.0, 1500, 4000, 16_000, 250_000]) func `the reported rate is about the rate of the line`(
    _ rate: Double
  ) throws {
    var line = SimulatedLine(rate: rate)
    line.waiting.nodes = 1_000_000
    line.run(until: MonotonicTime(seconds: 60))
    let told = try #require(line.shipment.rate.bytesPerSecond(now: line.now))
    #expect((0.7...1.3).contains(told / rate), "\(told) of \(rate)")
  }

  @Test(arguments: rates, [300, 1500] as [Int64])
  func `a line is kept busy, and its queue stays short`(_ rate: Double, _ delay: Int64) {
    var line = SimulatedLine(rate: rate, delay: .milliseconds(delay))
    line.waiting.nodes = 1_000_000
    line.run(until: MonotonicTime(seconds: 60))
    let before = line.arrivedBytes
    line.run(until: MonotonicTime(seconds: 360))
    let share = Double(line.arrivedBytes - before) / 300 / rate
    // With a round trip of three seconds, the limit of bytes under way is a quarter of the fastest line.
    #expect(share > (delay == 300 ? 0.85 : 0.2), "\(share) of \(rate) bytes a second")
    #expect(line.longestQueue < .seconds(3), "\(line.longestQueue)")
  }

  @Test(arguments: rates, [4, 16])
  func `a message goes before ten thousand adverts, and adverts continue`(_ rate: Double, _ window: Int) {
    var line = SimulatedLine(rate: rate, window: window)
    line.waiting.nodes = 10_000_000
    let times = (0..<20).map { MonotonicTime(seconds: Double(60 + 20 * $0)) }
    line.run(until: MonotonicTime(seconds: 60))
    let before = line.arrived.nodes
    line.run(until: MonotonicTime(seconds: 480), messagesAt: times)
    let waits = zip(line.messagesAt, times).map { $0 - $1 }
    #expect(waits.count == 20)
    // At 300 bytes a second a single message takes more than a second.
    #expect(waits.allSatisfy { $0 < (rate < 1000 ? .seconds(7) : .seconds(4)) }, "\(waits)")
    #expect(line.arrived.nodes > before + 10)
  }

  @Test(arguments: [1, 4, 16]) func `lower lanes keep a share while higher ones are never empty`(_ window: Int) {
    var line = SimulatedLine(rate: 4000, window: window)
    line.waiting = ByLane(all: 1_000_000)
    line.run(until: MonotonicTime(seconds: 600))
    let total = line.arrived.messages + line.arrived.nodes + line.arrived.packets
    let share = { (lane: Lane) in Double(line.arrived[lane]) / Double(total) }
    #expect(share(.messages) > 0.75, "\(line.arrived)")
    #expect(share(.nodes) > 0.06 && share(.nodes) < 0.16, "\(line.arrived)")
    #expect(share(.packets) > 0.03 && share(.packets) < 0.1, "\(line.arrived)")
  }

  @Test func `a lane without others gets the whole line`() {
    for lane in Lane.allCases {
      var line = SimulatedLine(rate: 4000)
      line.waiting[lane] = 1_000_000
      line.run(until: MonotonicTime(seconds: 120))
      #expect(line.arrived[lane] > 120 * 4000 * 6 / 10 / line.eventSize, "\(lane)")
    }
  }

  @Test func `the first batch has one event, and nothing else is in flight`() {
    var shipment = Shipment(maxEvents: 200)
    shipment.asks()
    shipment.greeted()
    let demand = Shipment.Demand(lanes: ByLane(all: true))
    #expect(
      shipment.next(demand, now: MonotonicTime(seconds: 0), window: 4)
        == .send(Shipment.Portion(lane: .messages, events: 200, bytes: 1)))
    shipment.sent(
      Shipment.Flight(lane: .messages, events: 1, bytes: 300), waiting: demand.lanes, now: MonotonicTime(seconds: 0))
    #expect(shipment.next(demand, now: MonotonicTime(seconds: 1), window: 4) == .nothing)
  }

  @Test func `further batches are sent after the earlier ones have arrived, up to a limit in flight`() {
    var shipment = Shipment(maxEvents: 200)
    shipment.asks()
    shipment.greeted()
    let demand = Shipment.Demand(lanes: ByLane(all: true))
    let now = MonotonicTime(seconds: 0)
    for _ in 0..<13 {
      #expect(
        shipment.next(demand, now: now, window: 16, hasArrived: true)
          == .send(Shipment.Portion(lane: .messages, events: 200, bytes: 1)))
      #expect(shipment.flights.isEmpty || shipment.next(demand, now: now, window: 16, hasArrived: false) == .nothing)
      shipment.sent(Shipment.Flight(lane: .messages, events: 1, bytes: 300), now: now)
    }
    shipment.sent(Shipment.Flight(lane: .messages, events: 1, bytes: 300), now: now)
    #expect(shipment.next(demand, now: now, window: 16, hasArrived: true) == .nothing)
  }

  @Test(arguments: [Duration.seconds(1), .seconds(3)])
  func `at a hub with slow commits no message waits for the answer to another`(_ commit: Duration) {
    var line = SimulatedLine(rate: 10_000, delay: .milliseconds(20), window: 16)
    line.commit = commit
    let times = (0..<30).map { MonotonicTime(seconds: 0) + .milliseconds(Int64($0) * 310) }
    line.run(until: MonotonicTime(seconds: 30), messagesAt: times)
    let waits = zip(times, line.messagesAnsweredAt).map { $1 - $0 }
    #expect(waits.count == 30)
    #expect(waits.max()! < commit * 3 / 2, "\(waits)")
  }

  @Test func `a refused batch voids only the batches of its lane`() {
    var shipment = Shipment(maxEvents: 200)
    let now = MonotonicTime(seconds: 0)
    shipment.asks()
    shipment.greeted()
    for lane in [Lane.nodes, .messages, .nodes] {
      shipment.sent(Shipment.Flight(lane: lane, events: 2, bytes: 700), now: now)
    }
    let answer = shipment.answered(.refused(status: 422, reason: "no"), after: 0, now: now)
    #expect(answer == .keep)
    #expect(shipment.flights.map(\.lane) == [.messages])
    #expect(shipment.limit == 1)
    _ = shipment.answered(.retry(reason: "later", after: nil), after: 0, now: now)
    #expect(shipment.flights.isEmpty)
  }
}
