// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Delivery

private let alder = PublicKey(bytes: [UInt8](repeating: 0xA1, count: 32)) ?? { fatalError("32 bytes") }()
private let birch = PublicKey(bytes: [UInt8](repeating: 0xB2, count: 32)) ?? { fatalError("32 bytes") }()

/// EU narrow: SF 8, 62.5 kHz.
let testRadio = RadioParameters(frequency: 869_618, bandwidth: 62_500, spreadingFactor: 8, codingRate: 8)

private func item(
  _ id: Int64, to destination: Destination = .node(alder), _ priority: DeliveryPriority = .interactive,
  origin: String = "us", expires: Double = 1e6
) -> DeliveryItem {
  DeliveryItem(
    id: id, destination: destination, priority: priority, origin: origin, bytes: 20,
    expires: MonotonicTime(seconds: expires))
}

private func code(_ number: UInt32) -> AckCode { AckCode(value: number) }

@Suite struct AttemptFormTests {
  @Test(arguments: [
    (UInt8(0), 200, false, UInt8(0), true), (0, 200, true, 0, false), (3, 200, true, 3, false),
    (4, 158, true, 4, false),
    (4, 158, false, 0, true), (4, 159, true, 0, true), (7, 159, true, 3, true),
  ]) func `attempts beyond the fourth have an extra byte, or go out as another message`(
    _ attempt: UInt8, _ bytes: Int, _ hasTime: Bool, _ number: UInt8, _ needsTime: Bool
  ) {
    let form = AttemptForm(attempt: attempt, bytes: bytes, hasTime: hasTime)
    #expect(form.number == number && form.needsTime == needsTime)
  }
}

@Suite struct DeliverySessionTests {
  private var session = DeliverySession(DeliverySettings(), seed: 1)
  private var now = MonotonicTime(seconds: 0)

  private mutating func add(_ item: DeliveryItem, path: Int? = nil) -> [DeliveryAction] {
    session.add(item, path: path, now: now)
  }

  private mutating func sent(_ id: Int64, _ number: UInt32, flooded: Bool) -> [DeliveryAction] {
    session.answered(id, .sent(code: code(number), flooded: flooded, timeout: 1000), now: now)
  }

  /// Advances time past the next deadline.
  private mutating func expire() -> [DeliveryAction] {
    now = session.deadline ?? now
    return session.timedOut(now: now)
  }

  @Test(arguments: [(true, false, true), (true, true, false), (false, false, false)])
  mutating func
    `a channel message that the radio took and had perhaps not sent when it was started anew goes once more`(
      _ isStartedAnew: Bool, _ isHeard: Bool, _ goesAgain: Bool
    )
  {
    let started = now
    _ = session.linkUp(now: now, radioStarted: started)
    now = now + .seconds(100)
    #expect(add(item(1, to: .channel("c"))).count == 1)
    #expect(session.answered(1, .channelSent, now: now) == [.sent(id: 1, code: nil, tries: 1, floods: 1)])
    if isHeard { session.heardRepeat(of: 1, now: now + .seconds(1)) }
    session.linkDown()
    now = now + .seconds(5)
    let actions = session.linkUp(now: now, radioStarted: isStartedAnew ? now : started)
    let again: [DeliveryAction] = [.waiting(id: 1), .transmit(id: 1, attempt: 0, route: .flood, airtime: 0)]
    #expect(actions == (goesAgain ? again : []))
    guard goesAgain else { return }
    for tries in 2...4 {
      #expect(session.answered(1, .channelSent, now: now) == [.sent(id: 1, code: nil, tries: tries, floods: tries)])
      // The radio did not restart: only the link was lost.
      session.linkDown()
      #expect(session.linkUp(now: now + .seconds(1), radioStarted: now + .seconds(-4)).isEmpty)
      session.linkDown()
      // It did, a moment after it took the message; it says that it runs for longer.
      now = now + .seconds(2)
      #expect(session.linkUp(now: now, radioStarted: now + .seconds(-3)) == (tries < 4 ? again : []))
    }
  }

  @Test(arguments: [(false, false), (true, false), (true, true)])
  mutating func `a channel message that no repeater was heard with goes once more, if that is wanted`(
    _ isWanted: Bool, _ isHeard: Bool
  ) {
    var settings = DeliverySettings()
    settings.repeatsUnheard = isWanted
    _ = session.change(settings, now: now)
    _ = session.linkUp(now: now)
    _ = add(item(1, to: .channel("c")))
    _ = session.answered(1, .channelSent, now: now)
    if isHeard { session.heardRepeat(of: 1, now: now) }
    var sent = 1
    while session.deadline != nil {
      guard expire().contains(.transmit(id: 1, attempt: 0, route: .flood, airtime: 0)) else { continue }
      #expect(now == MonotonicTime(seconds: 20))
      sent += 1
      #expect(session.answered(1, .channelSent, now: now) == [.sent(id: 1, code: nil, tries: sent, floods: sent)])
    }
    #expect(sent == (isWanted && !isHeard ? 2 : 1))
  }

  @Test
  mutating func `if the radio does not report its start, a channel message is sent once more, and ends as sent`() {
    _ = session.linkUp(now: now)
    _ = add(item(1, to: .channel("c")))
    _ = session.answered(1, .channelSent, now: now)
    session.linkDown()
    #expect(session.linkUp(now: now + .seconds(5)).count == 2)
    // The message may have been transmitted: if it were reported as failed, its sender would send it again.
    #expect(session.answered(1, .unknown, now: now) == [.sent(id: 1, code: nil, tries: 1, floods: 1)])
    session.linkDown()
    #expect(session.linkUp(now: now + .seconds(6)).isEmpty)
  }

  @Test
  mutating func
    `a message goes twice along the path, then floods twice without the path, then waits for its recipient`()
  {
    _ = session.linkUp(now: now)
    #expect(add(item(1), path: 2) == [.transmit(id: 1, attempt: 0, route: .direct, airtime: 0)])
    #expect(sent(1, 10, flooded: false) == [.sent(id: 1, code: code(10), tries: 1, floods: 0)])
    #expect(session.deadline == now + .milliseconds(1200))
    #expect(expire() == [.waiting(id: 1), .transmit(id: 1, attempt: 1, route: .direct, airtime: 0)])
    _ = sent(1, 11, flooded: false)
    #expect(expire().last == .transmit(id: 1, attempt: 2, route: .resetAndFlood, airtime: 0))
    #expect(sent(1, 12, flooded: true) == [.sent(id: 1, code: code(12), tries: 3, floods: 1)])
    #expect(expire().last == .transmit(id: 1, attempt: 3, route: .flood, airtime: 0))
    _ = sent(1, 13, flooded: true)
    #expect(expire() == [.held(id: 1, isFirst: true), .restorePath(alder)])
    // A late acknowledgement of the very first attempt.
    #expect(session.acknowledged(code(10), tripTime: 9000, now: now) == [.delivered(id: 1, tripTime: 9000)])
    #expect(session.acknowledged(code(13), tripTime: 9000, now: now) == [])
    #expect(expire() == [.heard(id: 1, count: 1)])
  }

  @Test mutating func `without a path a message floods twice, and a path that arrives meanwhile is tried`() {
    _ = session.linkUp(now: now)
    #expect(add(item(1)).last == .transmit(id: 1, attempt: 0, route: .flood, airtime: 0))
    _ = sent(1, 10, flooded: true)
    #expect(session.pathChanged(alder, bytes: 1, now: now) == [])
    #expect(expire().last == .transmit(id: 1, attempt: 1, route: .direct, airtime: 0))
    _ = sent(1, 11, flooded: false)
    #expect(expire().last == .transmit(id: 1, attempt: 2, route: .direct, airtime: 0))
    _ = sent(1, 12, flooded: false)
    #expect(expire().last == .transmit(id: 1, attempt: 3, route: .resetAndFlood, airtime: 0))
    _ = sent(1, 13, flooded: true)
    #expect(expire() == [.held(id: 1, isFirst: true), .restorePath(alder)])
    // The next round goes along the path again.
    #expect(expire() == [.transmit(id: 1, attempt: 4, route: .direct, airtime: 0)])
  }

  @Test mutating func `a sign of life that comes during a round begins another one soon after it`() {
    _ = session.linkUp(now: now)
    _ = add(item(1))
    for number in 10...11 as ClosedRange<UInt32> {
      _ = sent(1, number, flooded: true)
      _ = expire()
    }
    #expect(session.held == 1 && expire().last == .transmit(id: 1, attempt: 2, route: .flood, airtime: 0))
    _ = sent(1, 12, flooded: true)
    _ = session.heard(alder, .certain, now: now)
    let sign = now
    var next: MonotonicTime?
    for number in 13...20 as ClosedRange<UInt32> where next == nil {
      guard case .transmit(_, let attempt, _, _)? = expire().last else { continue }
      // The round's second attempt, and then the next round.
      if attempt == 3 { _ = sent(1, number, flooded: true) } else { next = now }
    }
    #expect(next.map { $0 - sign <= .seconds(18) } ?? false, "a minute without the sign")
  }

  /// Each time costs the radio's flash memory a file of all contacts.
  @Test
  mutating func `the path to a node that stays silent is put back a few times, and again once it has acknowledged`() {
    _ = session.linkUp(now: now)
    func rounds(_ session: inout DeliverySession, _ now: inout MonotonicTime, _ id: Int64, isThere: Bool) -> Int {
      var (restored, actions) = (0, session.add(item(id, expires: 1e7), path: 2, now: now))
      for number in 0..<120 as Range<UInt32> {
        restored += actions.count { if case .restorePath = $0 { true } else { false } }
        guard case .transmit(_, _, let route, _)? = actions.last else {
          guard let next = session.deadline else { break }
          now = next
          actions = session.timedOut(now: now)
          continue
        }
        let answer = DeliveryAnswer.sent(
          code: code(1000 * UInt32(id) + number), flooded: route.isFlood, timeout: 1000)
        actions = session.answered(id, answer, now: now)
        if isThere { actions += session.acknowledged(code(1000 * UInt32(id) + number), tripTime: 500, now: now) }
      }
      // The last attempt may be in hand.
      _ = session.answered(id, .notTried, now: now)
      _ = session.cancel(id, now: now)
      return restored
    }
    #expect(rounds(&session, &now, 1, isThere: false) == 4)
    #expect(rounds(&session, &now, 2, isThere: false) == 0, "it is silent still")
    #expect(rounds(&session, &now, 3, isThere: true) == 0)
    #expect(rounds(&session, &now, 4, isThere: false) == 4)
  }

  @Test mutating func `a path that comes during a flood is not replaced by the one that the flood took out`() {
    _ = session.linkUp(now: now)
    _ = add(item(1), path: 2)
    for number in 10...11 {
      _ = sent(1, UInt32(number), flooded: false)
      _ = expire()
    }
    _ = sent(1, 12, flooded: true)
    _ = session.pathChanged(alder, bytes: 3, now: now)
    #expect(expire().last == .transmit(id: 1, attempt: 3, route: .direct, airtime: 0))
    _ = sent(1, 13, flooded: false)
    #expect(expire() == [.held(id: 1, isFirst: true)])
  }

  @Test mutating func `each recipient has one message in flight, and its acknowledgement releases the next`() {
    _ = session.linkUp(now: now)
    _ = add(item(1))
    #expect(add(item(2)) == [] && add(item(3, to: .node(birch))) == [])
    #expect(
      sent(1, 10, flooded: true).last == .transmit(id: 3, attempt: 0, route: .flood, airtime: 0))
    _ = sent(3, 30, flooded: true)
    #expect(
      session.acknowledged(code(10), tripTime: 800, now: now) == [
        .delivered(id: 1, tripTime: 800), .transmit(id: 2, attempt: 0, route: .flood, airtime: 0),
      ])
  }

  @Test mutating func `an acknowledgement that arrives before the radio's answer counts`() {
    _ = session.linkUp(now: now)
    _ = add(item(1))
    session.expect(code(10), for: 1)
    #expect(session.acknowledged(code(10), tripTime: 5, now: now) == [.delivered(id: 1, tripTime: 5)])
    #expect(sent(1, 10, flooded: true) == [])
  }

  @Test mutating func `a path is requested after a flood that brought none`() {
    _ = session.linkUp(now: now)
    _ = add(item(1))
    _ = sent(1, 10, flooded: true)
    _ = session.acknowledged(code(10), tripTime: 5, now: now)
    #expect(expire() == [.discoverPath(alder)])
    _ = add(item(2))
    _ = sent(2, 20, flooded: true)
    _ = session.pathChanged(alder, bytes: 3, now: now)
    _ = session.acknowledged(code(20), tripTime: 5, now: now)
    #expect(expire() == [], "the path came with the acknowledgement")
  }

  @Test mutating func `a message that the radio refuses fails, and one for which it is busy waits`() {
    _ = session.linkUp(now: now)
    _ = add(item(1))
    #expect(session.answered(1, .unknown, now: now) == [.failed(id: 1, .unknownToRadio)])
    _ = add(item(2))
    #expect(session.answered(2, .busy, now: now) == [.waiting(id: 2)])
    #expect(
      expire() == [.transmit(id: 2, attempt: 0, route: .flood, airtime: 0)], "nothing went out: its number is free")
    #expect(session.answered(2, .refused, now: now) == [.failed(id: 2, .refused)])
  }

  @Test(arguments: [Destination.node(alder), .channel("c")])
  mutating func `a radio with a full table is asked ever more rarely, without air time, until the message expires`(
    _ destination: Destination
  ) {
    session.radio = testRadio
    _ = session.linkUp(now: now)
    var actions = add(item(1, to: destination, expires: 86_400))
    var tries = 0
    while case .transmit(1, let attempt, _, let airtime)? = actions.last {
      tries += 1
      #expect(attempt == 0 && session.budget.used(now: now) == (airtime, 1))
      actions = session.answered(1, .busy, now: now)
      #expect(actions == [.waiting(id: 1, unspent: airtime)])
      #expect(session.budget.used(now: now) == (0, 0))
      #expect(
        session.refusals(of: 1)?.count == tries
          && session.refusals(of: 1)?.next ?? MonotonicTime(seconds: 86_400) == session.deadline)
      actions = expire()
    }
    #expect(actions == [.failed(id: 1, .tableFull)] && now == MonotonicTime(seconds: 86_400))
    #expect((150...600).contains(tries), "\(tries) tries a day, each with two commits")
  }

  @Test(arguments: [DeliveryAnswer.unanswered, .linkLost, .notTried, .busy])
  mutating func `a channel message that the radio may have transmitted ends as sent, and another one fails`(
    _ answer: DeliveryAnswer
  ) {
    _ = session.linkUp(now: now)
    _ = add(item(1, to: .channel("c"), expires: 3600))
    #expect(session.answered(1, answer, now: now) == [.waiting(id: 1)])
    session.linkDown()
    now = MonotonicTime(seconds: 3600)
    let sent: DeliveryAction = .sent(id: 1, code: nil, tries: 1, floods: 1)
    switch answer {
    case .unanswered, .linkLost: #expect(session.timedOut(now: now) == [sent])
    case .busy: #expect(session.timedOut(now: now) == [.failed(id: 1, .tableFull)])
    default: #expect(session.timedOut(now: now) == [.failed(id: 1, .expired)])
    }
  }

  @Test mutating func `a channel message that was interrupted by the program's end ends as sent`() {
    var interrupted = item(1, to: .channel("c"), expires: 3600)
    interrupted.progress = .interrupted
    #expect(add(interrupted) == [])
    now = MonotonicTime(seconds: 3600)
    #expect(session.timedOut(now: now) == [.sent(id: 1, code: nil, tries: 1, floods: 1)])
  }

  @Test mutating func `a reconnected radio is asked at once, and an accepted message clears the refusals`() {
    _ = session.linkUp(now: now)
    _ = add(item(1))
    for _ in 0..<20 {
      _ = session.answered(1, .busy, now: now)
      _ = expire()
    }
    _ = session.answered(1, .busy, now: now)
    session.linkDown()
    #expect(session.linkUp(now: now) == [.transmit(id: 1, attempt: 0, route: .flood, airtime: 0)])
    _ = sent(1, 10, flooded: true)
    #expect(session.refusals(of: 1) == nil)
  }

  @Test(arguments: [DeliveryAnswer.unknown, .regionUnknown, .refused, .notTried, .busy])
  mutating func `a message that was not transmitted costs no air time`(_ answer: DeliveryAnswer) {
    session.radio = testRadio
    _ = session.linkUp(now: now)
    _ = add(item(1))
    _ = session.answered(1, answer, now: now)
    #expect(session.budget.used(now: now) == (0, 0))
  }

  @Test mutating func `an interrupted message waits for its acknowledgement, then gets a new attempt number`() {
    var interrupted = item(1)
    (interrupted.progress, interrupted.attempt, interrupted.codes) = (.interrupted, 1, [code(10)])
    #expect(add(interrupted) == [])
    #expect(session.deadline == MonotonicTime(seconds: 1e6), "while the link is down only its expiry counts")
    #expect(session.linkUp(now: now) == [])
    #expect(expire().last == .transmit(id: 1, attempt: 1, route: .flood, airtime: 0))
    var other = item(2, to: .node(birch))
    (other.progress, other.codes) = (.interrupted, [code(20)])
    _ = add(other)
    #expect(session.acknowledged(code(20), tripTime: 1, now: now).first == .delivered(id: 2, tripTime: 1))
  }

  @Test mutating func `cancelled and expired messages end, also while they are in flight`() {
    _ = session.linkUp(now: now)
    _ = add(item(1))
    #expect(session.cancel(1, now: now) == [], "the radio has it in hand")
    #expect(
      sent(1, 10, flooded: true) == [
        .sent(id: 1, code: code(10), tries: 1, floods: 1), .failed(id: 1, .cancelled),
      ])
    _ = add(item(2, expires: 1))
    _ = sent(2, 20, flooded: true)
    #expect(expire() == [.failed(id: 2, .noAcknowledgement)], "it was transmitted: it may have arrived")
    session.linkDown()
    _ = add(item(3, expires: 50))
    #expect(expire() == [.failed(id: 3, .expired)])
  }

  @Test(arguments: [0, 1])
  mutating func `a held message ends as expired if it was never transmitted`(_ tries: Int) {
    var held = item(1, expires: 50)
    (held.progress, held.tries, held.attempt) = (.held, tries, UInt8(tries))
    _ = add(held)
    let end = expire()
    #expect(end == [.failed(id: 1, tries == 0 ? .expired : .noAcknowledgement)])
  }

  @Test mutating func `interactive messages go first, senders take turns, and the others keep their order`() {
    for (id, priority, origin) in [
      (1, .bulk, "poll"), (2, .relayed, "a"), (3, .relayed, "a"), (4, .relayed, "b"), (5, .interactive, "us"),
    ] as [(Int64, DeliveryPriority, String)] {
      _ = add(item(id, to: .channel("c\(id)"), priority, origin: origin))
    }
    var order: [Int64] = []
    var actions = session.linkUp(now: now)
    while case .transmit(let id, _, _, _) = actions.last {
      order.append(id)
      actions = session.answered(id, .channelSent, now: now)
    }
    #expect(order == [5, 2, 4, 3, 1])
  }

  @Test mutating func `the radio's eight pending acknowledgements never overflow`() {
    _ = session.linkUp(now: now)
    for id in 1...12 {
      guard let key = PublicKey(bytes: [UInt8](repeating: UInt8(id), count: 32)) else { continue }
      _ = add(item(Int64(id), to: .node(key)))
    }
    for id in 1...8 { _ = sent(Int64(id), UInt32(id), flooded: true) }
    #expect(session.inFlight == 8 && session.pending == 4)
    // Number 1 is delivered, so its place in the ring is free; number 2 is then the oldest that waits.
    #expect(
      session.acknowledged(code(1), tripTime: 1, now: now).last
        == .transmit(
          id: 9, attempt: 0, route: .flood, airtime: 0))
    _ = sent(9, 9, flooded: true)
    #expect(session.acknowledged(code(5), tripTime: 1, now: now).count == 1, "sending would evict 2")
  }

  @Test mutating func `an hour's air time is not exceeded, and a message that waits for air time is sent later`() {
    session.radio = testRadio
    var settings = DeliverySettings()
    settings.budget.airtime = 3000
    _ = session.change(settings, now: now)
    _ = session.linkUp(now: now)
    var sentCount = 0
    var actions = add(item(1, to: .channel("c")))
    for id in 2...12 { _ = add(item(Int64(id), to: .channel("c"))) }
    while case .transmit(let id, _, _, let airtime)? = actions.last {
      #expect(airtime > 300 && airtime < 1500)
      sentCount += 1
      actions = session.answered(id, .channelSent, now: now)
    }
    #expect(sentCount < 11 && session.waitsForBudget)
    now = now + .seconds(60)
    _ = session.timedOut(now: now)
    #expect(session.deadline == MonotonicTime(seconds: 3600))
    now = MonotonicTime(seconds: 3600)
    #expect(session.timedOut(now: now).contains { if case .transmit = $0 { true } else { false } })
  }

  /// The air time of a first attempt; `nil`: there is none.
  private func airtime(_ item: DeliveryItem, path: Int? = nil, hasDefault: Bool = false) -> Int64? {
    var session = DeliverySession(DeliverySettings(), seed: 1)
    session.radio = testRadio
    session.floodsInRegion = hasDefault
    _ = session.linkUp(now: now)
    guard case .transmit(_, _, _, let airtime)? = session.add(item, path: path, now: now).last else { return nil }
    return airtime
  }

  @Test(arguments: [Destination.node(alder), .channel("c")])
  func `a flood in a region takes the air time of its transport codes`(_ destination: Destination) throws {
    var message = item(1, to: destination)
    let plain = try #require(airtime(message))
    // 4 bytes are a block of 8 symbols of 4.096 ms at SF8; each sum is rounded up.
    let inDefault = try #require(airtime(message, hasDefault: true))
    #expect([32, 33].contains(inDefault - plain))
    message.isInRegion = true
    #expect(airtime(message) == inDefault)
    message.isInRegion = false
    #expect(airtime(message, hasDefault: true) == plain)
  }

  @Test func `along a path no transport codes are sent`() {
    #expect(airtime(item(1), path: 0, hasDefault: true) == airtime(item(1), path: 0))
  }

  @Test func `bulk messages leave part of the budget for people`() {
    var limits = AirtimeBudget.Limits()
    (limits.airtime, limits.messages) = (1000, 4)
    var budget = AirtimeBudget(limits)
    let now = MonotonicTime(seconds: 0)
    budget.charge(400, channel: "c", now: now)
    budget.charge(100, channel: nil, now: now)
    #expect(budget.fits(1, channel: nil, .bulk, now: now) == MonotonicTime(seconds: 3600))
    #expect(budget.fits(300, channel: nil, .relayed, now: now) == now)
    #expect(budget.fits(500, channel: nil, .interactive, now: now) == now)
    #expect(budget.fits(501, channel: nil, .interactive, now: now) == MonotonicTime(seconds: 3600))
    #expect(budget.fits(1001, channel: nil, .interactive, now: now) == nil)
    #expect(budget.used(now: now, channel: "c") == (400, 1))
  }
}
