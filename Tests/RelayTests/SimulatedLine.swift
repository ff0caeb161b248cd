// SPDX-License-Identifier: MIT

import Store
import Timing

@testable import Relay

/// A line with a rate, a delay in each direction and unlimited room in front of it, with a hub at its end that answers each batch, and a shipment at
/// this end. While the line is cut nothing passes; data in transit arrives when TCP has tried again.
struct SimulatedLine {
  var rate: Double
  let delay: Duration
  var shipment: Shipment
  var now = MonotonicTime(seconds: 0)
  /// The waiting events of each lane, and their size.
  var waiting = ByLane(all: 0)
  let eventSize = 380
  private var free = MonotonicTime(seconds: 0)
  private var flights: [(flight: Shipment.Flight, arrives: MonotonicTime, answered: MonotonicTime)] = []
  private var acknowledged: Int64 = 0
  private(set) var arrived = ByLane(all: 0)
  private(set) var arrivedBytes = 0
  /// The longest time that a batch waited in front of the line.
  var longestQueue: Duration = .zero
  /// The most bytes of events that were under way at once.
  private(set) var maxInFlight = 0
  private(set) var messagesAt: [MonotonicTime] = []
  let window: Int
  /// The time from a batch's arrival until the hub has it on disk.
  var commit: Duration = .zero
  /// When each message was acknowledged, in order.
  private(set) var messagesAnsweredAt: [MonotonicTime] = []
  /// The times when the line is down, until TCP has tried again; in order.
  var cuts: [(begin: MonotonicTime, end: MonotonicTime)] = []

  init(rate: Double, delay: Duration = .milliseconds(300), window: Int = 4) {
    (self.rate, self.delay, self.window) = (rate, delay, window)
    shipment = Shipment(maxEvents: 200)
    shipment.asks()
    shipment.greeted()
  }

  private var lanes: ByLane<Bool> {
    ByLane(messages: waiting.messages > 0, nodes: waiting.nodes > 0, packets: waiting.packets > 0)
  }

  private mutating func send() {
    while true {
      let hasArrived = flights.allSatisfy { passed($0.arrives, delay) <= now }
      let next = shipment.next(Shipment.Demand(lanes: lanes), now: now, window: window, hasArrived: hasArrived)
      guard case .send(let portion) = next else { break }
      let count = max(1, min(portion.events, waiting[portion.lane], portion.bytes / eventSize))
      waiting[portion.lane] -= count
      let flight = Shipment.Flight(lane: portion.lane, events: count, bytes: count * eventSize)
      shipment.sent(flight, waiting: lanes, now: now)
      maxInFlight = max(maxInFlight, shipment.flights.reduce(0) { $0 + $1.bytes })
      longestQueue = max(longestQueue, max(.zero, free - now))
      free = passed(max(free, now), .seconds(Double(flight.bytes) / rate))
      let arrives = passed(free, delay)
      // Batches do not overtake each other.
      let answered = max(passed(arrives + commit, delay), flights.last?.answered ?? now)
      flights.append((flight, arrives, answered))
    }
  }

  /// The time at which data is through that takes this long: data that meets a cut is sent again after it.
  private func passed(_ begin: MonotonicTime, _ takes: Duration) -> MonotonicTime {
    var begin = begin
    for cut in cuts where begin < cut.end && cut.begin < begin + takes { begin = cut.end }
    return begin + takes
  }

  /// Runs until `end`, or until nothing is left. `times`: when messages arrive.
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
      if first.flight.lane == .messages {
        messagesAt += Array(repeating: first.arrives, count: first.flight.events)
        messagesAnsweredAt += Array(repeating: now, count: first.flight.events)
      }
      _ = shipment.answered(
        .acknowledged(through: acknowledged), after: acknowledged - 1, window: window, now: now)
    }
  }
}
