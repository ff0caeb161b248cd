// SPDX-License-Identifier: MIT

import TestSupport
import Testing
import Timing

@testable import Relay

@Suite struct DeadLetterRetriesTests {
  /// Letters by their ids, and the server's answers.
  private struct Course {
    var retries = DeadLetterRetries()
    var letters: [Int64]
    var now = MonotonicTime(seconds: 0)
    private(set) var tried: [(letter: Int64, at: MonotonicTime)] = []

    init(_ letters: [Int64]) { self.letters = letters }

    /// Sends the next letter, after its pause; false: there is none, or events come first.
    mutating func step(eventsWait: Bool = false, _ answer: (Int64) -> Verdict) -> Bool {
      if let time = retries.wait(now: now) { now = time }
      while retries.isNext(eventsWait: eventsWait, now: now) {
        guard let letter = letters.first(where: { $0 > retries.after }) else {
          retries.reachedEnd()
          continue
        }
        tried.append((letter, now))
        let verdict = answer(letter)
        if retries.answered(verdict, letter, seq: letter, now: now) != nil { letters.removeAll { $0 == letter } }
        switch verdict {
        case .acknowledged, .refused: letters.removeAll { $0 == letter }
        default: break
        }
        return true
      }
      return false
    }
  }

  @Test func `each letter is tried once, in order, before the first one that failed is tried again`() {
    var course = Course([3, 5, 8, 9])
    for _ in 0..<6 { _ = course.step { $0 == 5 || $0 == 3 ? .failing(reason: "HTTP 500") : .acknowledged(through: 0) } }
    #expect(course.tried.map(\.letter) == [3, 5, 8, 9, 3, 5])
    #expect(course.retries.failure?.seq == 5)
  }

  @Test func `a letter for which the server names a time waits alone, and no longer once it is dropped`() {
    var retries = DeadLetterRetries()
    let now = MonotonicTime(seconds: 0)
    let busy = Verdict.retry(reason: "HTTP 503", after: .seconds(600))
    #expect(retries.answered(busy, 3, seq: 7, isAlone: true, now: now) == nil)
    #expect(retries.wait(now: now) == now + .seconds(600))
    #expect(retries.failure?.seq == 7)
    retries.dropped(8)
    #expect(retries.failure?.seq == 7)
    retries.dropped(7)
    #expect(retries.wait(now: now) == nil)
    #expect(retries.failure == nil)
    let failing = Verdict.failing(reason: "HTTP 503", after: .seconds(600))
    #expect(retries.answered(failing, 3, seq: 7, now: now) == nil)
    #expect(retries.wait(now: now) == now + .seconds(600))
    // A time of a year is an hour, and a number without a bound no trap.
    let year = Verdict.busy(reason: "HTTP 429", after: .seconds(31_536_000))
    #expect(retries.answered(year, 3, seq: 7, isAlone: true, now: now) == nil)
    #expect(retries.wait(now: now) == now + .seconds(3600))
  }

  @Test func `a letter that a webhook forbids goes behind the others and the events, and is tried again later`() {
    var retries = DeadLetterRetries()
    let now = MonotonicTime(seconds: 0)
    #expect(retries.answered(.stopped(reason: "HTTP 403"), 3, seq: 7, isAlone: true, now: now) == nil)
    #expect(retries.failure?.seq == 7 && retries.after == 3)
    let then = now + RetryPolicy.first
    #expect(retries.wait(now: now) == then)
    let (first, idle) = (retries.isNext(eventsWait: true, now: then), retries.isNext(eventsWait: false, now: then))
    #expect(!first && idle)
  }

  @Test func `letters go ahead of events once, and then only if none waits`() {
    var course = Course([1, 2])
    let fails = { (_: Int64) in Verdict.failing(reason: "HTTP 500") }
    #expect(course.step(eventsWait: true, fails) && course.step(eventsWait: true, fails))
    let third = course.step(eventsWait: true, fails)
    #expect(!third)
    let fourth = course.step(eventsWait: false, fails)
    #expect(fourth)
    // A line in trouble: events come first at once.
    course.retries.asked()
    let first = course.step(eventsWait: true) { _ in .retry(reason: "no network", after: nil) }
    let second = course.step(eventsWait: true, fails)
    #expect(first && !second)
  }

  @Test func `a letter over which the server hangs up three times in a row is given up, the others are not`() {
    var course = Course([1, 2])
    for _ in 0..<20 { _ = course.step { $0 == 1 ? .hungUp(reason: "it hung up") : .failing(reason: "HTTP 500") } }
    #expect(course.tried.count { $0.letter == 1 } == 3 && course.letters == [2])
  }

  @Test(arguments: 1...30 as ClosedRange<UInt64>)
  func `a server that fails over everything gets few requests, and when it is well again all letters`(
    _ seed: UInt64
  ) {
    var random = SeededRandom(seed: seed)
    let count = Int64.random(in: 1...300, using: &random)
    let poison = Set((1...count).filter { _ in Int.random(in: 0..<5, using: &random) == 0 })
    var course = Course(Array(1...count))
    let day = MonotonicTime(seconds: 86_400)
    while course.now < day { _ = course.step { _ in .failing(reason: "HTTP 500") } }
    #expect(course.tried.count < 450 + 24, "seed \(seed): \(course.tried.count) requests")
    let mended = course.now
    while course.letters.contains(where: { !poison.contains($0) }), course.now < day + .seconds(86_400) {
      _ = course.step { poison.contains($0) ? .failing(reason: "HTTP 500") : .acknowledged(through: 0) }
    }
    #expect(Set(course.letters) == poison, "seed \(seed)")
    // Each success ends the long pauses.
    #expect(course.now - mended < .seconds(Int64(poison.count) * 300 + 600), "seed \(seed): \(course.now - mended)")
    let others = course.tried.count
    let end = course.now + .seconds(86_400)
    while course.now < end, course.step({ _ in .failing(reason: "HTTP 500") }) {}
    #expect(course.tried.count - others < 450 + 24, "seed \(seed)")
  }

  @Test func `a letter that the server has taken stays known until the disk has deleted it`() {
    var retries = DeadLetterRetries()
    _ = retries.answered(.acknowledged(through: 0), 4, seq: 9, now: MonotonicTime(seconds: 0))
    #expect(retries.taken == [4])
    retries.removed(4)
    #expect(retries.taken.isEmpty)
  }
}
