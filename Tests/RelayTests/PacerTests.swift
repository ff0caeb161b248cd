// SPDX-License-Identifier: MIT

import Store
import Testing
import Timing

@testable import Relay

@Suite struct PacerTests {
  /// A pacer, and a line that answers each batch after a given time.
  private struct Bench {
    var pacer = Pacer()
    var now = MonotonicTime(seconds: 0)

    /// The answer to a thousand bytes that were sent with the window full.
    mutating func answer(after took: Duration) {
      let sent = now
      now = now + took
      pacer.answered(bytes: 1000, ahead: pacer.window, isSingle: false, sentAt: sent, now: now, limit: 262_144)
    }

    /// Sends two halves of the window at once, answered after these times.
    mutating func pair(after first: Duration, _ second: Duration) {
      let (sent, half) = (now, pacer.window / 2)
      now = sent + first
      pacer.answered(bytes: half, ahead: 0, isSingle: false, sentAt: sent, now: now, limit: 262_144)
      now = sent + second
      pacer.answered(bytes: half, ahead: half, isSingle: false, sentAt: sent, now: now, limit: 262_144)
    }
  }

  @Test func `a line that becomes slower soon gets smaller windows`() {
    var bench = Bench()
    for _ in 0..<100 { bench.answer(after: .milliseconds(650)) }
    #expect(bench.pacer.window > 50_000)
    for _ in 0..<8 { bench.answer(after: .seconds(6)) }
    #expect(bench.pacer.window < 2000, "\(bench.pacer.window)")
    for _ in 0..<20 { bench.answer(after: .milliseconds(700)) }
    #expect(bench.pacer.window > 10_000)
  }

  @Test(arguments: [3, 7, 12, 60] as [Int64])
  func `after a cut the window returns to its size with the next quick answer`(_ seconds: Int64) {
    var bench = Bench()
    for _ in 0..<60 { bench.answer(after: .milliseconds(650)) }
    let before = bench.pacer.window
    #expect(before > 30_000)
    // Both were in transit when the line was cut.
    bench.pair(after: .seconds(seconds) + .milliseconds(650), .seconds(seconds) + .milliseconds(1200))
    #expect(bench.pacer.window == before / 2, "a cut is not yet distinguished from slowness")
    bench.answer(after: .milliseconds(700))
    #expect(bench.pacer.window >= before)
  }

  @Test func `after a cut a single late event does not make the path count as long`() {
    var bench = Bench()
    for _ in 0..<20 { bench.answer(after: .milliseconds(650)) }
    let sent = bench.now
    bench.now = sent + .seconds(10)
    bench.pacer.answered(bytes: 300, ahead: 0, isSingle: true, sentAt: sent, now: bench.now, limit: 262_144)
    let before = bench.pacer.window
    // If ten seconds were normal for this path, three would be quick.
    for _ in 0..<5 { bench.answer(after: .seconds(3)) }
    #expect(bench.pacer.window < before / 2)
  }

  @Test func `one slow answer after another counts as slowness, not as a cut`() {
    var bench = Bench()
    for _ in 0..<60 { bench.answer(after: .milliseconds(650)) }
    let before = bench.pacer.window
    bench.pair(after: .seconds(10), .seconds(20))
    #expect(bench.pacer.window < before / 8, "\(bench.pacer.window) of \(before)")
    bench.answer(after: .seconds(5))
    #expect(bench.pacer.window < before / 8)
  }

  @Test func `a new connection soon has half the window of the connection before`() {
    var bench = Bench()
    for _ in 0..<200 { bench.answer(after: .milliseconds(650)) }
    let before = bench.pacer.window
    #expect(before > 150_000)
    bench.pacer.reset()
    #expect(bench.pacer.window == 1)
    var rounds = 0
    bench.pacer.answered(
      bytes: 400, ahead: 0, isSingle: true, sentAt: bench.now, now: bench.now + .milliseconds(600), limit: 262_144)
    bench.now = bench.now + .milliseconds(600)
    while bench.pacer.window < before / 2, rounds < 20 {
      bench.pair(after: .milliseconds(620), .milliseconds(700))
      rounds += 1
    }
    #expect(rounds <= 5, "\(rounds)")
    // Another connection, which is cut before it has carried much, does not forget it.
    bench.pacer.reset()
    bench.pacer.reset()
    bench.answer(after: .milliseconds(600))
    #expect(bench.pacer.window == 4000)
  }

  @Test func `a path that has become slow does not keep its former window`() {
    var bench = Bench()
    for _ in 0..<200 { bench.answer(after: .milliseconds(650)) }
    bench.pacer.reset()
    bench.answer(after: .milliseconds(600))
    for _ in 0..<3 { bench.pair(after: .seconds(3), .seconds(4)) }
    let slow = bench.pacer.window
    #expect(slow < 4000)
    bench.pacer.reset()
    bench.answer(after: .milliseconds(600))
    #expect(bench.pacer.window <= max(2000, slow), "beyond its proven window only in short steps")
  }

  @Test func `a window is forgotten after some time`() {
    var bench = Bench()
    for _ in 0..<100 { bench.answer(after: .milliseconds(650)) }
    #expect(bench.pacer.window > 50_000)
    bench.now = bench.now + Pacer.lasting
    let sent = bench.now
    bench.now = sent + .milliseconds(650)
    bench.pacer.answered(bytes: 300, ahead: 0, isSingle: true, sentAt: sent, now: bench.now, limit: 262_144)
    #expect(bench.pacer.window == 1200)
  }
}

@Suite struct CutLineTests {
  /// The line is cut every 20 to 60 s for 3 to 10 s, and half as long again until TCP tries.
  private func cut(_ line: inout SimulatedLine, until end: Double) -> Double {
    var (time, down, random) = (20.0, 0.0, SeededRandom(seed: 5))
    while time < end {
      let seconds = Double.random(in: 3...10, using: &random) * 1.5
      line.cuts.append((MonotonicTime(seconds: time), MonotonicTime(seconds: time + seconds)))
      down += seconds
      time += seconds + Double.random(in: 20...60, using: &random)
    }
    return down
  }

  @Test(arguments: ShipmentTests.rates) func `a line with cuts is kept busy while it is up`(_ rate: Double) {
    var line = SimulatedLine(rate: rate, window: 16)
    line.waiting.nodes = 10_000_000
    let down = cut(&line, until: 600)
    line.run(until: MonotonicTime(seconds: 600))
    let share = Double(line.arrivedBytes) / (600 - down) / rate
    #expect(share > 0.8, "\(share) of \(rate) bytes a second")
  }

  @Test(arguments: ShipmentTests.rates) func `the reported rate is the rate of the line while it is up`(
    _ rate: Double
  ) throws {
    var line = SimulatedLine(rate: rate, window: 16)
    line.waiting.nodes = 10_000_000
    _ = cut(&line, until: 600)
    for second in stride(from: 60.0, to: 600, by: 5) {
      line.run(until: MonotonicTime(seconds: second))
      let told = try #require(line.shipment.rate.bytesPerSecond(now: line.now))
      #expect((0.5...1.5).contains(told / rate), "\(told) of \(rate) after \(second) s")
    }
  }

  @Test func `a line that slows down to a tenth soon has a queue of seconds at most`() {
    var line = SimulatedLine(rate: 16_000)
    line.waiting.nodes = 10_000_000
    line.run(until: MonotonicTime(seconds: 60))
    line.rate = 1600
    line.run(until: MonotonicTime(seconds: 120))
    line.longestQueue = .zero
    line.run(until: MonotonicTime(seconds: 300))
    #expect(line.longestQueue < .seconds(3), "\(line.longestQueue)")
  }

  @Test func `a fast line with a long delay is filled as far as memory allows`() {
    // 250 KB a second of messages that compress to 50 bytes each.
    var line = SimulatedLine(rate: 250_000 / 50 * 380, window: 16)
    line.waiting.messages = 10_000_000
    line.run(until: MonotonicTime(seconds: 30))
    let before = line.arrived.messages
    line.run(until: MonotonicTime(seconds: 90))
    let perSecond = (line.arrived.messages - before) / 60
    #expect(perSecond > 1500, "\(perSecond) messages a second")
    #expect(line.maxInFlight <= Shipment.maxInFlightBytes)
    #expect(line.maxInFlight > Shipment.maxInFlightBytes * 3 / 4, "\(line.maxInFlight)")
  }

  @Test func `an old hub that allows four batches in flight has the same throughput as before`() {
    var line = SimulatedLine(rate: 250_000 / 50 * 380, window: 4)
    line.waiting.messages = 10_000_000
    line.run(until: MonotonicTime(seconds: 30))
    let before = line.arrived.messages
    line.run(until: MonotonicTime(seconds: 90))
    #expect((line.arrived.messages - before) / 60 > 600)
  }
}
