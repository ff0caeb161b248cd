// SPDX-License-Identifier: MIT

import Testing

@testable import HTTP

@Suite struct ConnectionLimiterTests {
  @Test func `an address that opens connections without a token evicts its own connections`() {
    var limiter = ConnectionLimiter(most: 10)
    #expect(limiter.arrived(1, from: "honest") == .admitted)
    for number in 2...10 { #expect(limiter.arrived(number, from: "crowd") == .admitted) }
    // The oldest connection is the honest one; the crowd's oldest is closed nevertheless.
    #expect(limiter.arrived(11, from: "crowd") == .admittedInPlaceOf(2))
    #expect(limiter.arrived(12, from: "another") == .admittedInPlaceOf(3))
    #expect(limiter.count == 10)
  }

  @Test func `with one connection for each address, the oldest is evicted`() {
    var limiter = ConnectionLimiter(most: 3)
    for number in 1...3 { _ = limiter.arrived(number, from: "a\(number)") }
    #expect(limiter.arrived(4, from: "a4") == .admittedInPlaceOf(1))
    // A new connection of an address counts for the earlier one.
    #expect(limiter.arrived(5, from: "a3") == .admittedInPlaceOf(3))
  }

  @Test func `behind a proxy, the client with many connections loses one, not the proxy's other clients`() {
    var limiter = ConnectionLimiter(most: 4)
    for number in 1...4 {
      _ = limiter.arrived(number, from: "proxy")
      limiter.asks(number, for: number == 1 ? "honest" : "crowd")
    }
    #expect(limiter.arrived(5, from: "proxy") == .admittedInPlaceOf(2))
    #expect(limiter.showed(3, as: "session") == true)
    limiter.asks(3, for: "crowd")
    #expect(limiter.isKnown(3), "a shown token takes precedence over a proxy's header")
  }

  @Test func `if all connections belong to one owner, the one that was idle longest is evicted`() {
    var limiter = ConnectionLimiter(most: 3, mostOfOne: 3, fairShare: 0)
    for number in 1...3 {
      _ = limiter.arrived(number, from: "")
      #expect(limiter.showed(number, as: "") == true)
      limiter.idle(number, true)
    }
    limiter.idle(1, true)
    limiter.idle(2, false)
    #expect(limiter.makeRoom(for: "") == 3)
    #expect(limiter.makeRoom(for: "") == 1)
    #expect(limiter.makeRoom(for: "") == nil)
  }

  @Test func `connections with a token are not evicted, and a full limiter rejects new ones`() {
    var limiter = ConnectionLimiter(most: 4)
    for number in 1...4 {
      _ = limiter.arrived(number, from: "proxy")
      #expect(limiter.showed(number, as: "gateway \(number)") == true)
    }
    #expect(limiter.arrived(5, from: "stranger") == .full)
    limiter.left(2)
    #expect(limiter.arrived(6, from: "stranger") == .admitted)
    #expect(limiter.arrived(7, from: "another") == .admittedInPlaceOf(6))
    #expect(limiter.count == 4)
  }

  @Test func `a token's idle connections are evicted, its busy ones are not, and one token cannot take all places`() {
    var limiter = ConnectionLimiter(most: 12)
    for number in 1...ConnectionLimiter.fairShare + 1 {
      _ = limiter.arrived(number, from: "a")
      #expect(limiter.showed(number, as: "greedy") == (number <= ConnectionLimiter.fairShare))
    }
    limiter.left(ConnectionLimiter.fairShare + 1)
    var other = ConnectionLimiter(most: 40)
    for number in 1...40 {
      _ = other.arrived(number, from: "a")
      #expect(other.showed(number, as: number <= 10 ? "greedy" : "fair \(number)") == true)
    }
    #expect(other.arrived(41, from: "b") == .full)
    other.idle(7, true)
    #expect(other.arrived(42, from: "b") == .admittedInPlaceOf(7))
  }

  @Test func `if the holder of most connections uses all of them, another gives up an idle one`() {
    var limiter = ConnectionLimiter(most: 60, mostOfOne: 40)
    for number in 1...60 {
      _ = limiter.arrived(number, from: "a")
      #expect(limiter.showed(number, as: number <= 40 ? "busy" : "idle") == true)
      limiter.idle(number, number > 40)
    }
    #expect(limiter.arrived(61, from: "b") == .admittedInPlaceOf(41))
  }
}

@Suite struct RequestWatchTests {
  private func goesOn(_ watch: RequestWatch, _ now: Int64, known: Bool) -> Bool {
    var copy = watch
    return copy.mayGoOn(now: now, isKnown: known, waiting: 0, taken: 0)
  }

  @Test
  func `a client without a token has 10 s for a whole request and between requests, even if it sends single bytes`() {
    var watch = RequestWatch(now: 0)
    #expect(goesOn(watch, 9_999, known: false) && !goesOn(watch, 10_000, known: false))
    watch.began(now: 5_000)
    for second in 6...14 as ClosedRange<Int64> { watch.received(10_000, now: second * 1000) }
    #expect(goesOn(watch, 14_999, known: false) && !goesOn(watch, 15_000, known: false))
  }

  @Test func `a gateway on a narrow line has time for its request, and a slow body ends the connection`() {
    var narrow = RequestWatch(now: 0)
    narrow.began(now: 0)
    // 64 KiB at 1.5 kB/s.
    for second in 1...43 as ClosedRange<Int64> {
      narrow.received(1500, now: second * 1000)
      #expect(goesOn(narrow, second * 1000 + 900, known: true))
    }
    var slow = RequestWatch(now: 0)
    slow.began(now: 0)
    for second in 1...9 as ClosedRange<Int64> { slow.received(1, now: second * 1000) }
    #expect(goesOn(slow, 9_500, known: true))
    slow.received(1, now: 10_000)
    #expect(!goesOn(slow, 10_500, known: true), "a byte a second")
    var silent = RequestWatch(now: 0)
    silent.began(now: 0)
    silent.received(100_000, now: 1_000)
    #expect(goesOn(silent, 10_900, known: true) && !goesOn(silent, 11_000, known: true))
  }

  @Test func `a long poll may wait; an unread answer and an idle connection end`() {
    var watch = RequestWatch(now: 0)
    watch.began(now: 0)
    watch.ended(now: 0)
    var polling = watch
    func tick(_ now: Int64, _ waiting: Int, _ taken: Int64) -> Bool {
      polling.mayGoOn(now: now, isKnown: true, waiting: waiting, taken: taken)
    }
    #expect(tick(10_000, 0, 0) && tick(30_000, 0, 0) && tick(60_000, 0, 0))
    // Enough bytes pass at intervals; then no more.
    #expect(tick(61_000, 90_000, 0) && tick(85_000, 88_000, 2_000) && tick(110_000, 86_000, 4_000))
    polling.answered(now: 110_500)
    #expect(tick(111_000, 86_000, 4_000) && tick(140_499, 86_000, 4_000))
    #expect(!tick(140_500, 86_000, 4_000))
    watch.answered(now: 1_000)
    #expect(watch.isIdle)
    #expect(goesOn(watch, 75_999, known: true) && !goesOn(watch, 76_000, known: true))
    #expect(!goesOn(watch, 11_000, known: false))
  }

  @Test(arguments: [true, false]) func `an answer that is read at one byte a second is cut off`(_ isKnown: Bool) {
    var watch = RequestWatch(now: 0)
    watch.began(now: 0)
    watch.ended(now: 0)
    var second: Int64 = 0
    while second < 100, watch.mayGoOn(now: second * 1000, isKnown: isKnown, waiting: 50_000, taken: second) {
      second += 1
    }
    #expect(second == 30)
    var narrow = RequestWatch(now: 0)
    narrow.began(now: 0)
    narrow.ended(now: 0)
    for second in 0...600 as ClosedRange<Int64> {
      #expect(narrow.mayGoOn(now: second * 1000, isKnown: isKnown, waiting: 50_000, taken: second * 100) == true)
    }
  }
}
