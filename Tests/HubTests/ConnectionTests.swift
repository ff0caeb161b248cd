// SPDX-License-Identifier: MIT

import Synchronization
import Testing

@testable import Hub

@Suite struct SeatingTests {
  @Test func `who opens connections without a token pushes out their own`() {
    var seating = Seating(most: 10)
    #expect(seating.arrived(1, from: "honest") == .seated)
    for number in 2...10 { #expect(seating.arrived(number, from: "crowd") == .seated) }
    // The oldest of all is the honest one; the crowd's oldest goes all the same.
    #expect(seating.arrived(11, from: "crowd") == .seatedInPlaceOf(2))
    #expect(seating.arrived(12, from: "another") == .seatedInPlaceOf(3))
    #expect(seating.count == 10)
  }

  @Test func `one from each address, the oldest makes room`() {
    var seating = Seating(most: 3)
    for number in 1...3 { _ = seating.arrived(number, from: "a\(number)") }
    #expect(seating.arrived(4, from: "a4") == .seatedInPlaceOf(1))
    // A newcomer of an address that has one already counts for it.
    #expect(seating.arrived(5, from: "a3") == .seatedInPlaceOf(3))
  }

  @Test func `whoever has shown a token stays, and a full house turns away`() {
    var seating = Seating(most: 4)
    for number in 1...4 {
      _ = seating.arrived(number, from: "proxy")
      #expect(seating.showed(number, as: "gateway \(number)") == true)
    }
    #expect(seating.arrived(5, from: "stranger") == .full)
    seating.left(2)
    #expect(seating.arrived(6, from: "stranger") == .seated)
    #expect(seating.arrived(7, from: "another") == .seatedInPlaceOf(6))
    #expect(seating.count == 4)
  }

  @Test func `one token's idle connections make room, busy ones do not, and it cannot take all`() {
    var seating = Seating(most: 12)
    for number in 1...Seating.fairShare + 1 {
      _ = seating.arrived(number, from: "a")
      #expect(seating.showed(number, as: "greedy") == (number <= Seating.fairShare))
    }
    seating.left(Seating.fairShare + 1)
    var other = Seating(most: 40)
    for number in 1...40 {
      _ = other.arrived(number, from: "a")
      #expect(other.showed(number, as: number <= 10 ? "greedy" : "fair \(number)") == true)
    }
    #expect(other.arrived(41, from: "b") == .full)
    other.idle(7, true)
    #expect(other.arrived(42, from: "b") == .seatedInPlaceOf(7))
  }

  @Test func `there is never more room than descriptors`() {
    #expect(Places.room(limit: 20_000, open: 20, wanted: 4096) == 4096)
    #expect(Places.room(limit: 1024, open: 20, wanted: 4096) < 1024 - 20)
    #expect(Places.room(limit: 40, open: 20, wanted: 4096) < Places.fewest)
  }
}

@Suite struct RequestWatchTests {
  private func goesOn(_ watch: RequestWatch, _ now: Int64, known: Bool, buffered: Int = 0) -> Bool {
    var copy = watch
    return copy.mayGoOn(now: now, isKnown: known, buffered: buffered)
  }

  @Test func `a stranger has 10 s for all of a request and between two, whatever trickles in`() {
    var watch = RequestWatch(now: 0)
    #expect(goesOn(watch, 9_999, known: false) && !goesOn(watch, 10_000, known: false))
    watch.began(now: 5_000)
    for second in 6...14 as ClosedRange<Int64> { watch.received(10_000, now: second * 1000) }
    #expect(goesOn(watch, 14_999, known: false) && !goesOn(watch, 15_000, known: false))
  }

  @Test func `a gateway on a narrow line may take its time, a slow body may not`() {
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

  @Test func `a long poll is waited for, an answer that nobody takes is not, and idle ones end`() {
    var watch = RequestWatch(now: 0)
    watch.began(now: 0)
    watch.ended(now: 0)
    var polling = watch
    func tick(_ now: Int64, _ buffered: Int) -> Bool { polling.mayGoOn(now: now, isKnown: true, buffered: buffered) }
    #expect(tick(10_000, 0) && tick(30_000, 0) && tick(60_000, 0))
    // Some of it goes every now and then; then no more.
    #expect(tick(61_000, 900) && tick(90_000, 800))
    polling.answered(now: 90_500)
    #expect(tick(91_000, 700) && tick(120_999, 700))
    #expect(!tick(121_000, 700))
    watch.answered(now: 1_000)
    #expect(watch.isIdle)
    #expect(goesOn(watch, 75_999, known: true) && !goesOn(watch, 76_000, known: true))
    #expect(!goesOn(watch, 11_000, known: false))
  }
}

@Suite struct RefusedLoginTests {
  private final class Lines: Sendable {
    let all = Mutex([String]())
    var count: Int { all.withLock { $0.count } }
  }

  @Test func `refused logins are logged with their address, a few a minute, and what was left out is counted`() {
    let lines = Lines()
    let refused = RefusedLogins { _, words in lines.all.withLock { $0.append(words) } }
    let start = ContinuousClock.now
    for _ in 0..<100 { refused.note(from: "192.0.2.7", "unknown token", "GET", "/v1/gateways", now: start) }
    #expect(lines.count == RefusedLogins.maxOfOne)
    #expect(
      lines.all.withLock { $0.first } == "login refused from 192.0.2.7: unknown token (GET /v1/gateways)")
    for number in 0..<500 { refused.note(from: "192.0.2.\(number)", "x", "GET", "/", now: start) }
    #expect(lines.count == RefusedLogins.maxOfAll)
    refused.note(from: "192.0.2.7", "x", "GET", "/", now: start + .seconds(61))
    #expect(lines.all.withLock { $0.contains { $0.hasPrefix("540 more logins") } })
  }

  @Test func `a line that could come a thousand times a second comes once a minute`() {
    let lines = Lines()
    let line = RareLine { _, words in lines.all.withLock { $0.append(words) } }
    let start = ContinuousClock.now
    for _ in 0..<1000 { line.say("full", now: start) }
    line.say("full", now: start + .seconds(61))
    #expect(lines.all.withLock { $0 } == ["full", "full (repeated 999 times in the last minutes)"])
  }

  @Test func `a token is known by all of it, whatever the scheme's capitals`() throws {
    let access = HubAccess([
      HubConfiguration.Token(
        name: "hill", secrets: ["a-token-of-16-and-more", "its-successor-is-here"], gateway: "hill", access: .write)
    ])
    #expect(access.check("Bearer its-successor-is-here", gateway: "hill", .write) == .allowed("hill"))
    #expect(access.check("bearer a-token-of-16-and-more", gateway: "hill", .read) == .allowed("hill"))
    #expect(access.check("Bearer a-token-of-16-and-more", gateway: "dale", .read) == .forbidden("hill"))
    #expect(access.check("Bearer a-token-of-16-and-more", gateway: "hill", .command) == .forbidden("hill"))
    for wrong in [
      "Bearer a-token-of-16-and-mor", "Bearer ", "Bearer", "a-token-of-16-and-more", "Bearer  its-successor-is-here",
    ] {
      guard case .unknown = access.check(wrong, gateway: "hill", .read) else {
        Issue.record("\(wrong)")
        continue
      }
    }
  }
}
