// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Delivery

/// What waits while the channel is busy.
@Suite struct MannersTests {
  private static func key(_ number: Int) -> PublicKey {
    PublicKey(bytes: [UInt8](repeating: UInt8(number), count: 32)) ?? { fatalError("32 bytes") }()
  }

  @Test func `the use is that of the last two minutes, whatever came when`() {
    var random = SeededRandom(seed: 7)
    var use = ChannelUse()
    var now = MonotonicTime(seconds: 1000)
    var packets: [(at: MonotonicTime, milliseconds: Int64)] = []
    for _ in 0..<5000 {
      now =
        now
        + .milliseconds(
          Int64.random(in: 0...(Int.random(in: 0..<50, using: &random) == 0 ? 200_000 : 3000), using: &random))
      let milliseconds = Int64.random(in: 10...1500, using: &random)
      use.add(milliseconds, now: now)
      packets.append((now, milliseconds))
      // Slots of two seconds: the oldest one counts as a whole.
      let slot = now.nanoseconds / 2_000_000_000
      let sum = packets.filter { $0.at.nanoseconds / 2_000_000_000 > slot - 60 }.reduce(0) { $0 + $1.milliseconds }
      #expect(abs(use.percent(now: now) - min(100, Double(sum) / 1200)) < 0.001)
      packets.removeAll { now - $0.at > .seconds(200) }
      let calm = use.falls(below: 25, now: now)
      #expect(use.percent(now: calm) < 25)
      if calm > now { #expect(use.percent(now: MonotonicTime(nanoseconds: calm.nanoseconds - 1)) >= 25) }
    }
    #expect(use.percent(now: now + .seconds(122)) == 0)
    #expect(ChannelUse().percent(now: now) == 0)
  }

  /// A session with a message of each priority, on a channel that is used this much.
  private func session(_ seconds: Int64, _ priorities: [DeliveryPriority], now: MonotonicTime) -> DeliverySession {
    var session = DeliverySession(DeliverySettings(), seed: 1)
    session.radio = testRadio
    for _ in 0..<seconds { session.heardPacket(1000, now: now) }
    for (place, priority) in priorities.enumerated() {
      let item = DeliveryItem(
        id: Int64(place + 1), destination: .node(Self.key(place + 1)), priority: priority, origin: "o\(place)",
        bytes: 20,
        expires: now + .seconds(86_400))
      _ = session.add(item, path: nil, now: now)
    }
    return session
  }

  private func transmitted(_ actions: [DeliveryAction]) -> [Int64] {
    actions.compactMap { if case .transmit(let id, _, _, _) = $0 { id } else { nil } }
  }

  @Test func `people's messages never wait, others until the channel is less in use`() throws {
    let now = MonotonicTime(seconds: 100)
    var session = session(31, [.bulk, .relayed, .interactive], now: now)
    #expect(transmitted(session.linkUp(now: now)) == [3])
    #expect(
      transmitted(session.answered(3, .sent(code: AckCode(value: 1), flooded: true, timeout: 900), now: now)) == [])
    #expect(transmitted(session.acknowledged(AckCode(value: 1), tripTime: 1, now: now)) == [])
    #expect(session.waitsForChannel)
    // The slot of the 31 s leaves the window.
    let calm = now + .seconds(120)
    #expect(session.manners.use.falls(below: 25, now: now) == calm)
    #expect(session.deadline.map { $0 <= calm } ?? false)
    #expect(transmitted(session.timedOut(now: calm)).contains(2))
    #expect(session.manners.impatient == 0)
  }

  @Test func `below the limit, and without one, nothing waits`() {
    let now = MonotonicTime(seconds: 100)
    var calm = session(29, [.bulk], now: now)
    #expect(transmitted(calm.linkUp(now: now)) == [1])
    var careless = session(90, [.bulk], now: now)
    var settings = DeliverySettings()
    settings.busyPercent = 100
    _ = careless.change(settings, now: now)
    #expect(transmitted(careless.linkUp(now: now)) == [1])
  }

  /// On a channel that stays busy, one message of each priority goes at each end of the patience.
  @Test(arguments: [(DeliveryPriority.relayed, 120.0), (.bulk, 600)])
  func `on a channel that stays busy each waits at most its patience`(
    _ priority: DeliveryPriority, _ patience: Double
  ) {
    let begin = MonotonicTime(seconds: 100)
    var session = session(60, [priority, priority, priority], now: begin)
    var times: [Double] = []
    var code: UInt32 = 0
    func take(_ actions: [DeliveryAction], _ now: MonotonicTime) {
      for action in actions {
        guard case .transmit(let id, _, _, _) = action else { continue }
        times.append((now - begin).inSeconds)
        code += 1
        let ack = AckCode(value: code)
        session.expect(ack, for: id)
        take(session.answered(id, .sent(code: ack, flooded: true, timeout: 900), now: now), now)
        take(session.acknowledged(ack, tripTime: 1, now: now), now)
      }
    }
    take(session.linkUp(now: begin), begin)
    for second in 1...2000 {
      let now = begin + .seconds(Double(second))
      session.heardPacket(500, now: now)
      while let deadline = session.deadline, deadline <= now, session.waitsForChannel {
        take(session.timedOut(now: now), now)
      }
    }
    #expect(times == [1, 2, 3].map { $0 * patience }, "\(times)")
    #expect(session.manners.impatient == 3)
  }

  @Test func `a message that waits behind another one to its recipient keeps its place`() {
    let begin = MonotonicTime(seconds: 100)
    var session = session(60, [.relayed], now: begin)
    let item = DeliveryItem(
      id: 2, destination: .node(Self.key(1)), priority: .bulk, origin: "o", bytes: 20, expires: begin + .seconds(86_400)
    )
    _ = session.add(item, path: nil, now: begin)
    var sent: [Int64: Double] = [:]
    func take(_ actions: [DeliveryAction], _ now: MonotonicTime) {
      for action in actions {
        guard case .transmit(let id, let attempt, _, _) = action else { continue }
        sent[id] = sent[id] ?? (now - begin).inSeconds
        let code = AckCode(value: UInt32(id) << 8 | UInt32(attempt))
        take(session.answered(id, .sent(code: code, flooded: true, timeout: 20_000), now: now), now)
        if attempt == 1 { take(session.acknowledged(code, tripTime: 1, now: now), now) }
      }
    }
    take(session.linkUp(now: begin), begin)
    for second in 1...700 {
      let now = begin + .seconds(Double(second))
      session.heardPacket(500, now: now)
      while let deadline = session.deadline, deadline <= now { take(session.timedOut(now: now), now) }
    }
    #expect(sent == [1: 120, 2: 600])
  }

  @Test func `a round that has begun goes on, so that it keeps nothing else back`() {
    let now = MonotonicTime(seconds: 100)
    var session = session(0, [.relayed], now: now)
    #expect(transmitted(session.linkUp(now: now)) == [1])
    _ = session.answered(1, .sent(code: AckCode(value: 1), flooded: true, timeout: 1000), now: now)
    for _ in 0..<60 { session.heardPacket(1000, now: now) }
    #expect(transmitted(session.timedOut(now: now + .seconds(2))) == [1])
  }

  @Test func `what was in use before a start counts until it is two minutes old`() {
    let now = MonotonicTime(seconds: 1000)
    func use(_ percent: Double, age: Double, after: Double = 0) -> Double {
      var manners = Manners(limit: 25)
      manners.recall(percent: percent, age: .seconds(age), now: now)
      return manners.use.percent(now: now + .seconds(after))
    }
    #expect((39...40).contains(use(40, age: 0)))
    #expect((19...21).contains(use(40, age: 60)) && (19...21).contains(use(40, age: 0, after: 60)))
    #expect(use(40, age: 121) == 0 && use(40, age: 0, after: 122) == 0)
    #expect(use(9e9, age: -9e9) <= 100 && use(-5, age: 9e9) == 0)
  }
}
