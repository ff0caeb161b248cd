// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Delivery

/// Several messages that wait for one absent recipient.
@Suite struct SharedRoundsTests {
  @Test func `messages that share the rounds to a recipient need no rarer ones than usual`() throws {
    let birch = try #require(PublicKey(bytes: [UInt8](repeating: 0xB2, count: 32)))
    var session = DeliverySession(DeliverySettings(), seed: 1)
    session.radio = testRadio
    var now = MonotonicTime(seconds: 0)
    var actions = session.linkUp(now: now)
    for id in 1...5 {
      let item = DeliveryItem(
        id: Int64(id), destination: .node(birch), priority: .interactive, origin: "us", bytes: 20,
        expires: now + .seconds(30 * 86_400), isOrdered: false)
      actions += session.add(item, path: nil, now: now)
    }
    var attempts: [MonotonicTime] = []
    let end = now + .seconds(29 * 86_400)
    while now < end {
      while !actions.isEmpty {
        guard case .transmit(let id, let attempt, let route, _) = actions.removeFirst() else { continue }
        attempts.append(now)
        let code = AckCode(value: UInt32(id) << 8 | UInt32(attempt))
        session.expect(code, for: id)
        actions += session.answered(id, .sent(code: code, flooded: route.isFlood, timeout: 1000), now: now)
      }
      now = max(now, min(session.deadline ?? end, end))
      actions = session.timedOut(now: now)
    }
    let late = attempts.filter { $0 > MonotonicTime(seconds: 5 * 86_400) }
    let longest = zip(late.dropFirst(), late).map { $0 - $1 }.max() ?? .zero
    #expect(late.count > 200 && longest < .seconds(5 * 3600), "\(longest)")
  }
}
