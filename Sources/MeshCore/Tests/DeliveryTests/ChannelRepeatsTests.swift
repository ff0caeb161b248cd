// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Delivery

/// Channel messages that go once more must go while nodes know that they have them.
@Suite struct ChannelRepeatsTests {
  private var session = DeliverySession(DeliverySettings(), seed: 1)
  private let start = MonotonicTime(seconds: 100)

  private mutating func send(_ id: Int64, now: MonotonicTime) -> [DeliveryAction] {
    let item = DeliveryItem(
      id: id, destination: .channel("c"), priority: .interactive, origin: "us", bytes: 20,
      expires: now + .seconds(86_400))
    return session.add(item, path: nil, now: now)
  }

  @Test(arguments: [true, false])
  mutating func `a text that may not go again within a minute stays sent`(_ isRestart: Bool) {
    var settings = DeliverySettings()
    settings.budget.channelMessages = 1
    settings.repeatsUnheard = !isRestart
    _ = session.change(settings, now: start)
    _ = session.linkUp(now: start, radioStarted: start)
    #expect(send(1, now: start).count == 1)
    _ = session.answered(1, .channelSent, now: start)
    if isRestart {
      session.linkDown()
      #expect(session.linkUp(now: start + .seconds(5), radioStarted: start + .seconds(5)) == [.waiting(id: 1)])
    } else {
      #expect(session.timedOut(now: start + .seconds(20)) == [.waiting(id: 1)])
    }
    #expect(session.deadline == start + .seconds(60))
    #expect(session.timedOut(now: start + .seconds(60)) == [.sent(id: 1, code: nil, tries: 1, floods: 1)])
    #expect(!session.timedOut(now: start + .seconds(7200)).contains { if case .transmit = $0 { true } else { false } })
  }

  @Test mutating func `a text does not go again when the radio comes back after more than a minute`() {
    _ = session.linkUp(now: start, radioStarted: start)
    _ = send(1, now: start)
    _ = session.answered(1, .channelSent, now: start)
    session.linkDown()
    let later = start + .seconds(61)
    #expect(session.linkUp(now: later, radioStarted: later).isEmpty)
  }

  @Test(arguments: [(1.0, true), (30, false)])
  mutating func `a text that the radio had the time to send does not go again`(_ ran: Double, _ goesAgain: Bool) {
    session.radio = testRadio
    _ = session.linkUp(now: start, radioStarted: start)
    _ = send(1, now: start)
    _ = session.answered(1, .channelSent, now: start)
    session.heardPacket(500, now: start + .seconds(ran))
    session.linkDown()
    let later = start + .seconds(ran + 2)
    #expect(session.linkUp(now: later, radioStarted: later).contains(.waiting(id: 1)) == goesAgain)
  }

  @Test mutating func `new texts do not wait for those that go again`() {
    _ = session.linkUp(now: start, radioStarted: start)
    _ = send(1, now: start)
    _ = session.answered(1, .channelSent, now: start)
    session.linkDown()
    _ = send(2, now: start + .seconds(1))
    let back = start + .seconds(5)
    #expect(
      session.linkUp(now: back, radioStarted: back) == [
        .waiting(id: 1), .transmit(id: 2, attempt: 0, route: .flood, airtime: 0),
      ])
    #expect(
      session.answered(2, .channelSent, now: back).last == .transmit(id: 1, attempt: 0, route: .flood, airtime: 0))
  }
}
