// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Sync

@Suite struct LinkContestTests {
  @Test func `a radio that another program takes repeatedly is left alone ever longer, but not for ever`() {
    var random = SeededRandom(seed: 1)
    var contest = LinkContest()
    #expect(contest.closed(after: .seconds(2), using: &random) == nil, "it may have restarted")
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
    _ = contest.closed(after: .seconds(2), using: &random)
    #expect(contest.closed(after: .seconds(2), using: &random) != nil)
    #expect(contest.closed(after: .seconds(299), using: &random) != nil, "one loss every few minutes counts, too")
    #expect(contest.closed(after: .seconds(301), using: &random) == nil)
    #expect(contest.closed(after: .seconds(2), using: &random) == nil)
    #expect(contest.closed(after: .seconds(2), using: &random) != nil)
    contest.lost(after: .seconds(10))
    #expect(contest.closed(after: .seconds(2), using: &random) != nil)
    contest.lost(after: .seconds(400))
    #expect(contest.closed(after: .seconds(2), using: &random) == nil)
  }
}
