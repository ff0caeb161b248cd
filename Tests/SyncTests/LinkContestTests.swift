// SPDX-License-Identifier: MIT

import Testing
import Timing
import Transport

@testable import Sync

@Suite struct LinkContestTests {
  @Test func `a radio that another program takes repeatedly is left alone ever longer, but not for ever`() {
    var random = SeededRandom(seed: 1)
    var contest = LinkContest()
    #expect(contest.closed(after: .seconds(2), using: &random) == nil, "it may have restarted")
    contest.ranOn()
    var total: Duration = .zero
    for _ in 0..<40 {
      guard let wait = contest.closed(after: .seconds(2), using: &random) else {
        Issue.record("it was taken")
        return
      }
      #expect(wait >= .seconds(10) && wait <= .seconds(610))
      total += wait
    }
    #expect(total > .seconds(3600), "forty defeats take hours, and not seconds")
  }

  @Test func `a contest ends when the link lasted some minutes, however it ended then`() {
    var random = SeededRandom(seed: 2)
    var contest = LinkContest()
    for _ in 0..<2 { #expect(contest.closed(after: .seconds(2), using: &random) == nil, "two restarts") }
    #expect(contest.closed(after: .seconds(2), using: &random) != nil)
    #expect(contest.closed(after: .seconds(299), using: &random) != nil, "one loss every few minutes counts, too")
    #expect(contest.closed(after: .seconds(301), using: &random) == nil)
    #expect(contest.closed(after: .seconds(2), using: &random) == nil)
    contest.ranOn()
    #expect(contest.closed(after: .seconds(2), using: &random) != nil)
    contest.lost(after: .seconds(10))
    #expect(contest.closed(after: .seconds(2), using: &random) != nil)
    contest.lost(after: .seconds(400))
    #expect(contest.closed(after: .seconds(2), using: &random) == nil)
  }

  /// Whether the second and third of three quick losses are told as another program's doing. `started`: the start that
  /// the radio tells over each link, in seconds after that link came up; `isAway`: it refuses a connection between two.
  private func isTold(started: Double? = nil, isAway: Bool = false) -> [Bool] {
    var random = SeededRandom(seed: 3)
    var attempts = LinkAttempts()
    var told: [Bool] = []
    for number in 0..<3 {
      let up = 1000 + Double(number) * 4
      attempts.linkUp(now: MonotonicTime(seconds: up))
      if let started { attempts.radioStarted(at: MonotonicTime(seconds: up + started)) }
      let end = MonotonicTime(seconds: up + 2)
      let closed = LinkError.closedByPeer("radio")
      let (error, truce) = attempts.lost(closed, wasMet: true, healsItself: false, now: end, using: &random)
      #expect((truce != nil) == (error == .takenAway("radio")))
      told.append(truce != nil)
      guard isAway else { continue }
      let refused = LinkError.connection("refused")
      _ = attempts.lost(refused, wasMet: false, healsItself: false, now: end, using: &random)
    }
    return Array(told.dropFirst())
  }

  @Test(arguments: [(2.0, -500.0, true), (4000, -500, true), (2, 1001, false)])
  func `a radio that closed its link and ran on was taken by another program, which is told once`(
    _ lifetime: Double, _ started: Double, _ isTaken: Bool
  ) {
    var random = SeededRandom(seed: 4)
    var attempts = LinkAttempts()
    let (up, closed) = (MonotonicTime(seconds: 1000), LinkError.closedByPeer("radio"))
    attempts.linkUp(now: up)
    attempts.radioStarted(at: MonotonicTime(seconds: -500))
    let isTold = attempts.wasTaken()
    #expect(!isTold)
    let end = up + .seconds(lifetime)
    _ = attempts.lost(closed, wasMet: true, healsItself: false, now: end, using: &random)
    // The other program takes the radio again before the gateway has met it.
    attempts.linkUp(now: end + .seconds(5))
    _ = attempts.lost(closed, wasMet: false, healsItself: false, now: end + .seconds(6), using: &random)
    attempts.linkUp(now: end + .seconds(20))
    let isToldEarly = attempts.wasTaken()
    #expect(!isToldEarly, "it may have been restarted")
    attempts.radioStarted(at: MonotonicTime(seconds: started))
    let isToldThen = attempts.wasTaken()
    #expect(isToldThen == isTaken)
    attempts.radioStarted(at: MonotonicTime(seconds: started))
    let isToldAgain = attempts.wasTaken()
    #expect(!isToldAgain)
  }

  @Test func `quick restarts of a radio are not told as another program, and that program is`() {
    #expect(isTold(started: -1) == [false, false], "it has just started")
    #expect(isTold(isAway: true) == [false, false], "it refused a connection")
    #expect(isTold(started: -500) == [true, true], "it ran on, and lost its links")
    #expect(isTold() == [false, true], "it had no time to tell")
  }
}
