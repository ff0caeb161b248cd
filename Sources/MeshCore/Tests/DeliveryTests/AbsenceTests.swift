// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Delivery

/// Recipients that do not acknowledge for a while.
@Suite struct AbsenceTests {
  private static func key(_ number: Int) -> PublicKey {
    PublicKey(bytes: [UInt8](repeating: UInt8(number), count: 32)) ?? { fatalError("32 bytes") }()
  }
  private let birch = Self.key(0xB2)
  private var session = DeliverySession(DeliverySettings(), seed: 1)
  private var now = MonotonicTime(seconds: 0)
  /// The attempts that were made: message, number, time.
  private var made: [(id: Int64, attempt: UInt8, at: MonotonicTime)] = []
  private var ends: [Int64: DeliveryFailure] = [:]
  /// Whether the recipient acknowledges, and how often.
  private var isThere = false
  private var acknowledges = Int.max
  private var restored = 0
  /// The radio knows the recipient.
  private var isKnown = true

  init() {
    session.radio = testRadio
    _ = session.linkUp(now: now)
  }

  private func item(_ id: Int64, expires: Double = 86_400, isOrdered: Bool = false, to key: PublicKey? = nil)
    -> DeliveryItem
  {
    DeliveryItem(
      id: id, destination: .node(key ?? birch), priority: .interactive, origin: "us", bytes: 20,
      expires: now + .seconds(expires), isOrdered: isOrdered)
  }

  /// Carries actions out as a radio does that answers at once.
  private mutating func take(_ actions: [DeliveryAction]) {
    for action in actions {
      switch action {
      case .transmit(let id, let attempt, let route, _):
        guard isKnown else { return take(session.answered(id, .unknown, now: now)) }
        made.append((id, attempt, now))
        let code = AckCode(value: UInt32(id) << 8 | UInt32(attempt))
        session.expect(code, for: id)
        take(session.answered(id, .sent(code: code, flooded: route.isFlood, timeout: 1000), now: now))
        guard isThere, acknowledges > 0 else { continue }
        acknowledges -= 1
        take(session.acknowledged(code, tripTime: 900, now: now))
      case .failed(let id, let failure, _): ends[id] = failure
      case .restorePath: restored += 1
      default: break
      }
    }
  }

  private mutating func add(_ item: DeliveryItem) { take(session.add(item, path: nil, now: now)) }

  /// Lets time pass, with an event at each `interval`.
  private mutating func pass(
    _ seconds: Double, every interval: Double = .infinity, _ event: (inout Self) -> Void = { _ in }
  ) {
    let end = now + .seconds(seconds)
    var next = interval.isFinite ? now + .seconds(interval) : .never
    while true {
      let deadline = min(session.deadline ?? .never, next)
      guard deadline <= end else { break }
      now = max(now, deadline)
      if next <= now {
        event(&self)
        next = next + .seconds(interval)
      }
      take(session.timedOut(now: now))
    }
    now = end
  }

  @Test mutating func `a message whose recipient is away is sent in ever rarer rounds, until its lifetime ends`() {
    add(item(1))
    pass(86_401)
    #expect(ends == [1: .noAcknowledgement] && session.deadline.map { $0 > now } ?? true)
    // Two floods, as there is no path; then two after 15 s, 2 min, each ten minutes for an hour, and each hour.
    let begins = stride(from: 0, to: made.count, by: 2).map { made[$0].at }
    let pauses = zip(begins.dropFirst(), begins).map { ($0 - $1).inSeconds }
    for (pause, expected) in zip(pauses, [15.0, 120] + [Double](repeating: 600, count: 6) + [3600, 3600]) {
      #expect(pause > expected * 0.8 && pause < expected * 1.2 + 4, "\(pauses)")
    }
    #expect((54...74).contains(made.count) && Set(made.map(\.attempt)).count == made.count, "\(made.count)")
  }

  @Test mutating func `a message is tried again before much of its lifetime has passed since the last time`() {
    for (number, life) in [600.0, 4320, 86_400, 100_000].enumerated() {
      (made, ends) = ([], [:])
      let end = now + .seconds(life)
      add(item(Int64(number), expires: life, to: Self.key(number + 1)))
      pass(life + 10)
      let last = made.last.map { (end - $0.at).inSeconds } ?? life
      #expect(ends.count == 1 && last < max(150, life / 20), "\(life): nothing in the last \(last) s")
    }
  }

  @Test mutating func `a message lives for thirty days without using up the attempt's number`() {
    add(item(1, expires: 30 * 86_400))
    pass(30 * 86_400 + 1)
    #expect(ends == [1: .noAcknowledgement] && made.count > 200 && made.allSatisfy { $0.attempt < 250 })
    // They are spread: not the first half of its life has them all.
    #expect(made.last.map { $0.at > MonotonicTime(seconds: 27 * 86_400) } == true, "\(made.last?.at.nanoseconds ?? 0)")
  }

  @Test mutating func `after a sign of life the messages go out within seconds, in their order`() {
    for id in 1...5 { add(item(Int64(id))) }
    pass(7200)
    #expect(session.held == 5)
    made = []
    isThere = true
    take(session.heard(birch, .certain, now: now))
    let sign = now
    pass(60)
    #expect(made.map(\.id) == [1, 2, 3, 4, 5] && made.allSatisfy { $0.at - sign <= .seconds(3) })
    #expect(session.held == 0 && !session.hasAbsentees)
  }

  @Test mutating func `after a sign of life the messages take turns, and share the attempts of a round`() {
    for id in 1...3 { add(item(Int64(id))) }
    pass(7200)
    made = []
    take(session.heard(birch, .certain, now: now))
    pass(11)
    #expect(made.map(\.id) == [1, 2, 3, 1, 2, 3] && session.held == 3, "\(made.map(\.id))")
    made = []
    isThere = true
    take(session.tryNow(3, now: now))
    pass(20)
    #expect(made.map(\.id) == [3, 1, 2] && session.held == 0, "\(made.map(\.id))")
  }

  @Test mutating func `the messages of a node that has acknowledged one of them take turns`() {
    for id in 1...3 { add(item(Int64(id))) }
    pass(7200)
    made = []
    isThere = true
    take(session.heard(birch, .certain, now: now))
    session.linkDown()
    isThere = false
    take(session.linkUp(now: now))
    while made.isEmpty { pass(0.1) }
    take(session.acknowledged(AckCode(value: 1 << 8 | UInt32(made[0].attempt)), tripTime: 900, now: now))
    pass(14)
    #expect(made.map(\.id) == [1, 2, 3, 2, 3, 2, 3] && session.held == 2, "\(made.map(\.id))")
  }

  @Test mutating func `of a hundred messages six are tried when their recipient vanishes after an acknowledgement`() {
    for id in 1...100 { add(item(Int64(id))) }
    pass(7200)
    made = []
    (isThere, acknowledges) = (true, 1)
    take(session.heard(birch, .certain, now: now))
    pass(3)
    // What somebody asks for has a round of its own.
    take(session.tryNow(90, now: now))
    pass(20)
    #expect(made.count { $0.id == 90 } == 4 && made.count <= 1 + 6 + 4 && session.held == 99, "\(made.map(\.id))")
    made = []
    add(item(101))
    #expect(made.map(\.id).contains(101), "it does not wait for the others: \(made.map(\.id))")
  }

  @Test mutating func `messages that take turns put the path back once`() {
    for id in 1...4 { take(session.add(item(Int64(id)), path: 2, now: now)) }
    pass(7200)
    session.peers = [:]
    take(session.pathChanged(birch, bytes: 2, now: now))
    (made, restored) = ([], 0)
    take(session.heard(birch, .certain, now: now))
    pass(14)
    #expect(made.count >= 5 && restored == 1, "\(made.map(\.id)), \(restored)")
  }

  @Test mutating func `a message whose turn it is and that has no air time does not keep the others back`() {
    for id in 1...2 as ClosedRange<Int64> {
      var item = item(id)
      if id == 1 { item.priority = .bulk }
      add(item)
    }
    pass(7200)
    made = []
    var settings = DeliverySettings()
    settings.budget.messages = 20
    take(session.change(settings, now: now))
    while session.budget.used(now: now).messages < 10 { _ = session.spend(100, .interactive, now: now) }
    for id in 1...2 { take(session.tryNow(Int64(id), now: now)) }
    pass(60)
    #expect(made.map(\.id) == [2, 2, 2, 2], "\(made.map(\.id))")
  }

  @Test mutating func `a sign of life begins a round in place of one that waits for air time`() {
    var settings = DeliverySettings()
    settings.budget.messages = 8
    take(session.change(settings, now: now))
    for id in 1...2 { add(item(Int64(id))) }
    pass(1500)
    made = []
    #expect(session.held < 2, "one waits for the share of later rounds")
    take(session.heard(birch, .certain, now: now))
    pass(5)
    #expect(made.map(\.id).starts(with: [1, 2]), "\(made.map(\.id))")
  }

  @Test mutating func `a node that is heard and does not hear gets at most a few attempts in ten minutes`() {
    add(item(1))
    pass(86_400 - 1, every: 60) { $0.take($0.session.heard($0.birch, .certain, now: $0.now)) }
    #expect((144...700).contains(made.count), "\(made.count)")
    made = []
    add(item(2))
    pass(86_400 - 1, every: 20) { $0.take($0.session.heard($0.birch, .hint, now: $0.now)) }
    #expect((60...400).contains(made.count), "\(made.count)")
  }

  @Test mutating func `a hint brings one attempt, and a certain sign after it a whole round`() {
    add(item(1))
    pass(3000)
    made = []
    take(session.heard(birch, .hint, now: now))
    pass(9)
    #expect(made.count == 1)
    take(session.heard(birch, .certain, now: now))
    pass(15)
    #expect(made.count == 5, "four floods without a path")
  }

  @Test mutating func `two held messages that somebody asks for at once are both tried`() {
    for id in 1...3 { add(item(Int64(id))) }
    pass(3000)
    made = []
    for id in 1...2 { take(session.tryNow(Int64(id), now: now)) }
    pass(20)
    #expect(Set(made.map(\.id)) == [1, 2] && session.held == 3, "\(made.map(\.id))")
  }

  @Test mutating func `a newer message lets the oldest go ahead once`() {
    add(item(1))
    pass(1000)
    made = []
    add(item(2))
    pass(5)
    #expect(made.map(\.id) == [1, 2])
    made = []
    isThere = true
    pass(1000)
    #expect(made.map(\.id).sorted() == [1, 2])
  }

  @Test mutating func `a message that is never acknowledged does not keep the others back`() {
    add(item(1))
    add(item(2))
    pass(7200)
    made = []
    pass(8 * 3600)
    #expect(Set(made.map(\.id)).contains(2), "\(made.map(\.id))")
  }

  @Test mutating func `ten messages to a node that is away cost one attempt each, and come in their order`() {
    for id in 1...10 { add(item(Int64(id))) }
    pass(14)
    #expect(made.count == 11, "the first has a round of two floods")
    pass(2000)
    made = []
    isThere = true
    take(session.heard(birch, .certain, now: now))
    pass(60)
    #expect(made.map(\.id) == Array(1...10))
  }

  @Test mutating func `a room gets its posts in their order`() {
    for id in 1...3 { add(item(Int64(id), isOrdered: true)) }
    pass(7200)
    #expect(Set(made.map(\.id)) == [1] && session.held == 3)
    made = []
    add(item(4, isOrdered: true))
    pass(1)
    #expect(session.held == 3 && made.map(\.id) == [1], "the first is asked for once more")
    pass(100)
    made = []
    isThere = true
    take(session.heard(birch, .certain, now: now))
    pass(60)
    #expect(made.map(\.id) == [1, 2, 3, 4])
  }

  @Test mutating func `posts go on when the room vanishes after it has acknowledged one`() {
    for id in 1...3 { add(item(Int64(id), isOrdered: true)) }
    pass(7200)
    made = []
    (isThere, acknowledges) = (true, 1)
    take(session.heard(birch, .certain, now: now))
    pass(60)
    #expect(Set(made.map(\.id)) == [1, 2] && session.held > 0)
    made = []
    pass(3600)
    #expect(Set(made.map(\.id)) == [2])
    (made, acknowledges) = ([], .max)
    pass(3600)
    #expect(made.map(\.id) == [2, 3], "\(made.map(\.id))")
  }

  @Test mutating func `somebody who asks for a post has the oldest one tried`() {
    for id in 1...3 { add(item(Int64(id), isOrdered: true)) }
    pass(7200)
    made = []
    take(session.tryNow(2, now: now))
    pass(14)
    #expect(made.map(\.id) == [1, 1, 1, 1] && session.held == 3, "\(made.map(\.id))")
    (made, isThere) = ([], true)
    take(session.tryNow(3, now: now))
    #expect(made.map(\.id) == [1, 2, 3])
  }

  @Test mutating func `a post that has used up its numbers does not keep the others back`() {
    for id in 1...2 as ClosedRange<Int64> {
      var item = item(id, isOrdered: true)
      if id == 1 { (item.progress, item.tries, item.attempt) = (.held, 250, 250) }
      add(item)
    }
    pass(1000)
    #expect(Set(made.map(\.id)) == [2])
  }

  @Test mutating func `somebody who asks for it has a held message tried now, and can cancel it`() {
    add(item(1))
    pass(3000)
    made = []
    take(session.tryNow(1, now: now))
    #expect(made.count == 1)
    pass(30)
    #expect(session.nextAttempt(of: 1) != nil)
    take(session.cancel(1, now: now))
    #expect(ends == [1: .cancelled] && !session.hasAbsentees)
  }

  @Test mutating func `a held message whose recipient the radio does not know stays held`() {
    add(item(1))
    pass(3000)
    (isKnown, made) = (false, [])
    let used = session.budget.used(now: now).messages
    pass(3600)
    #expect(ends.isEmpty && session.held == 1 && session.budget.used(now: now).messages <= used)
    add(item(2))
    #expect(ends == [2: .unknownToRadio], "one that was not held ends")
    (isKnown, isThere) = (true, true)
    pass(5000)
    #expect(made.map(\.id) == [1] && session.held == 0)
  }

  @Test mutating func `held messages wait while the link is down, and after a restart go on within two minutes`() {
    add(item(1))
    pass(4000)
    session.linkDown()
    made = []
    pass(10_000)
    #expect(made.isEmpty)
    var kept = item(1)
    (kept.progress, kept.tries, kept.floods, kept.attempt) = (.held, 8, 8, 8)
    session = DeliverySession(DeliverySettings(), seed: 2)
    add(kept)
    #expect(session.held == 1 && made.isEmpty)
    take(session.linkUp(now: now))
    pass(150)
    #expect(made.count == 2 && made.allSatisfy { $0.attempt >= 8 })
  }

  /// Recipients behind a repeater are not heard here: the radio would drown their acknowledgements at the repeater.
  @Test mutating func `nothing is sent while an acknowledgement is probably on its way`() {
    var sent: [MonotonicTime] = []
    for id in 1...3 { _ = session.add(item(Int64(id), to: Self.key(id)), path: id == 1 ? 1 : nil, now: now) }
    for id in 1...3 as ClosedRange<Int64> {
      sent.append(now)
      let answer = DeliveryAnswer.sent(code: AckCode(value: UInt32(id)), flooded: id > 1, timeout: 20_000)
      let actions = session.answered(id, answer, now: now)
      #expect(!actions.contains { if case .transmit = $0 { true } else { false } })
      if id == 2 {
        let next = session.acknowledged(AckCode(value: 2), tripTime: 900, now: now)
        #expect(next.contains { if case .transmit(3, _, _, _) = $0 { true } else { false } }, "it has come")
      } else if id == 1 {
        now = session.deadline ?? now
        let next = session.timedOut(now: now)
        #expect(next.contains { if case .transmit(2, _, _, _) = $0 { true } else { false } })
        #expect((2.0...4.0).contains((now - sent[0]).inSeconds), "\(now - sent[0])")
      }
    }
  }

  @Test mutating func `slow rounds use half of the air time, and are not told as a shortage`() {
    var settings = DeliverySettings()
    settings.budget.airtime = 6000
    take(session.change(settings, now: now))
    for number in 1...10 { add(item(Int64(number), to: Self.key(number))) }
    pass(3600 * 20) { _ in }
    let begin = now
    var most: Int64 = 0
    pass(3600, every: 10) {
      most = max(most, $0.session.budget.used(now: $0.now).airtime)
      if $0.session.waitsForBudget { most = .max }
    }
    #expect(most <= 3000 + 400 && made.contains { $0.at > begin }, "half, and the second attempt of a round: \(most)")
  }

  @Test mutating func `many recipients whose messages end soon share half of the air time`() {
    var settings = DeliverySettings()
    settings.budget.airtime = 60_000
    take(session.change(settings, now: now))
    for number in 1...20 { add(item(Int64(number), expires: 7200, to: Self.key(number))) }
    var most: Int64 = 0
    pass(7100, every: 10) { most = max(most, $0.session.budget.used(now: $0.now).airtime) }
    let attempts = Dictionary(grouping: made, by: \.id)
    #expect(most <= 34_500 && attempts.count == 20 && attempts.values.allSatisfy { $0.count > 2 }, "\(most)")
  }

  @Test mutating func `a slow round that waits for air time does not keep a newer message back`() {
    var settings = DeliverySettings()
    settings.budget.messages = 8
    take(session.change(settings, now: now))
    add(item(1))
    pass(20)
    #expect(made.count == 4, "half of the hour's messages")
    #expect(!session.waitsForAirtime(1, now: now))
    pass(1000)
    #expect(session.waitsForAirtime(1, now: now), "it is said what it waits for")
    made = []
    add(item(2))
    pass(3)
    #expect(made.map(\.id) == [1, 2], "the oldest goes ahead, as it is asked for")
  }

  @Test mutating func `an acknowledgement that is overheard ends a held message, and no other`() {
    add(item(1))
    #expect(session.overheard(AckCode(value: 1 << 8), now: now) == [], "the radio will report it")
    pass(100)
    #expect(session.held == 1 && session.overheard(AckCode(value: 7), now: now) == [])
    #expect(session.overheard(AckCode(value: 1 << 8), now: now) == [.delivered(id: 1, tripTime: 0)])
  }

  @Test mutating func `of a thousand held messages none is lost and none delivered twice by two hundred kills`() {
    var settings = DeliverySettings()
    settings.budget.airtime = 3_600_000
    settings.budget.messages = 3600
    var kept: [Int64: DeliveryItem] = [:]
    var delivered: [Int64: Int] = [:]
    var random = SeededRandom(seed: 5)
    for id in 1...1000 {
      kept[Int64(id)] = item(Int64(id), expires: 10 * 86_400, to: Self.key(id % 50))
    }
    /// Carries out, and keeps on disk what is to be kept. The acknowledgement is lost with the program sometimes.
    func carry(_ actions: [DeliveryAction], _ this: inout Self) {
      for action in actions {
        switch action {
        case .transmit(let id, let attempt, let route, _):
          #expect(kept[id]?.attempt == attempt, "message \(id)")
          kept[id]?.attempt = attempt + 1
          kept[id]?.progress = .interrupted
          let code = AckCode(value: UInt32(id) << 8 | UInt32(attempt))
          kept[id]?.codes.append(code)
          this.session.expect(code, for: id)
          let answer = DeliveryAnswer.sent(code: code, flooded: route.isFlood, timeout: 1000)
          carry(this.session.answered(id, answer, now: this.now), &this)
          if this.isThere { carry(this.session.acknowledged(code, tripTime: 9, now: this.now), &this) }
        case .sent(let id, _, let tries, let floods):
          kept[id]?.tries = tries
          kept[id]?.floods = floods
        case .held(let id, _): kept[id]?.progress = .held
        case .delivered(let id, _):
          delivered[id, default: 0] += 1
          kept[id] = nil
        case .failed(let id, _, _): Issue.record("message \(id) failed")
        default: break
        }
      }
    }
    for kill in 0...200 {
      session = DeliverySession(settings, seed: UInt64(kill))
      for id in kept.keys.sorted() { if let item = kept[id] { carry(session.add(item, path: nil, now: now), &self) } }
      carry(session.linkUp(now: now), &self)
      isThere = kill >= 150 && kill % 10 == 0
      let end = now + .seconds(Double.random(in: 1...1000, using: &random))
      while let deadline = session.deadline, deadline <= end {
        now = max(now, deadline)
        carry(session.timedOut(now: now), &self)
      }
      now = end
    }
    #expect(delivered.values.allSatisfy { $0 == 1 } && delivered.count + kept.count == 1000)
    #expect(delivered.count > 500, "\(delivered.count)")
    #expect(kept.values.allSatisfy { $0.attempt < 250 })
  }
}
