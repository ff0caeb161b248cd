// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import PageServer

@Suite struct GuessLimitTests {
  private let start = MonotonicTime(nanoseconds: 0)
  private let one = Guesser(address: "one", name: "ana")
  private let other = Guesser(address: "other", name: "ana")

  @Test func `an address with wrong passwords waits ever longer, up to a limit, and no other address waits`() {
    var limit = GuessLimit()
    var now = start
    var waited: [Int64] = []
    for _ in 0..<20 {
      if let pause = limit.pause(of: one, now: now) {
        waited.append(pause.components.seconds)
        now = now + pause
      }
      limit.guessedWrong(by: one, now: now)
    }
    #expect(waited.first == 2)
    #expect(waited == waited.sorted())
    #expect(waited.last == GuessLimit.longestPause.components.seconds)
    #expect(limit.pause(of: other, now: now) == nil)
    now = now + GuessLimit.longestPause
    #expect(limit.pause(of: one, now: now) == nil)
  }

  @Test func `a week of wrong passwords from one address gets few guesses, and locks out nobody else`() {
    var limit = GuessLimit()
    var (now, guesses) = (start, 0)
    while now - start < .seconds(7 * 86_400) {
      limit.guessedWrong(by: one, now: now)
      guesses += 1
      #expect(limit.pause(of: other, now: now) == nil)
      now = now + (limit.pause(of: one, now: now) ?? .seconds(1))
    }
    #expect(guesses < 7 * 300)
  }

  @Test func `wrong passwords from many addresses for one name are limited, and everybody waits a minute at most`() {
    var limit = GuessLimit()
    var (now, guesses) = (start, 0)
    while now - start < .seconds(86_400) {
      let fresh = Guesser(address: "\(guesses)", name: "ana")
      if let pause = limit.pause(of: fresh, now: now) {
        #expect(pause <= GuessLimit.ofName.every)
        now = now + pause
      }
      limit.guessedWrong(by: fresh, now: now)
      guesses += 1
    }
    #expect(guesses <= 86_400 / 60 + GuessLimit.ofName.most + 1)
    #expect(limit.pause(of: other, now: now) != nil)
    // The limit does not apply to a browser that she has used, at any address, nor to other accounts.
    #expect(limit.pause(of: Guesser(address: "0", name: "ana", browser: "b"), now: now) == nil)
    #expect(limit.pause(of: Guesser(address: "fresh", name: "vera"), now: now) == nil)
  }

  @Test func `wrong passwords from many addresses for many names are limited`() {
    var limit = GuessLimit()
    var guesses = 0
    while limit.pause(of: Guesser(address: "a\(guesses)", name: "n\(guesses)"), now: start) == nil, guesses < 10_000 {
      limit.guessedWrong(by: Guesser(address: "a\(guesses)", name: "n\(guesses)"), now: start)
      guesses += 1
    }
    #expect(guesses <= GuessLimit.ofAll.most)
    #expect(limit.pause(of: other, now: start).map { $0 <= GuessLimit.ofAll.every } == true)
  }

  @Test func `signing in with one's own password gives no more guesses at another's`() {
    var limit = GuessLimit()
    let own = Guesser(address: "one", name: "vera")
    for _ in 0..<20 {
      limit.guessedWrong(by: one, now: start)
      limit.guessedRight(by: own)
    }
    #expect(limit.pause(of: one, now: start) != nil)
    // A browser that is known for its own person is not known for another.
    var browser = one
    browser.browser = "b"
    for _ in 0..<20 { limit.guessedWrong(by: browser, now: start) }
    #expect(limit.pause(of: browser, now: start) != nil)
    limit.guessedRight(by: browser)
    #expect(limit.pause(of: browser, now: start) == nil)
  }

  @Test func `with a single password, a right password resets the limit of its address`() {
    var limit = GuessLimit()
    let (home, fresh) = (Guesser(address: "home"), Guesser(address: "fresh"))
    for _ in 0..<6 { limit.guessedWrong(by: home, now: start) }
    #expect(limit.pause(of: home, now: start) != nil)
    limit.guessedRight(by: home)
    #expect(limit.pause(of: home, now: start) == nil)
    for number in 0..<200 { limit.guessedWrong(by: Guesser(address: "\(number)"), now: start) }
    #expect(limit.pause(of: fresh, now: start) != nil)
    #expect(limit.pause(of: home, now: start) == nil)
    let later = start + .seconds(86_400)
    #expect(limit.pause(of: fresh, now: later) == nil)
  }

  @Test func `any number of addresses and names takes bounded memory`() {
    var limit = GuessLimit(mostPlaces: 8)
    for number in 0..<5000 {
      limit.guessedWrong(by: Guesser(address: "\(number)", name: "\(number)"), now: start)
      limit.guessedRight(by: Guesser(address: "\(number)", name: "\(number)"))
    }
    #expect(limit.counts.places <= 8 && limit.counts.known <= 8 && limit.counts.names <= GuessLimit.nameCounts)
  }
}
