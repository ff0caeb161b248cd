// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Relay

@Suite struct BucketHoldsTests {
  private var random = SeededRandom(seed: 1)
  private func time(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }

  @Test func `a fruitless bucket waits half a minute after 64 pages, and no other bucket does`() {
    var holds = BucketHolds()
    for _ in 1...63 { holds.wasFruitless("channel/a", at: time(0)) }
    #expect(holds.holdIfFruitless("channel/a", at: time(0)) == false)
    holds.wasFruitless("channel/a", at: time(0))
    #expect(holds.holdIfFruitless("channel/a", at: time(1)) && !holds.holdIfFruitless("channel/b", at: time(1)))
    #expect(holds.words(radioWasRead: true)?.contains("channel/a repeatedly brought nothing new") == true)
    #expect(holds.line(at: time(1)) != nil && holds.line(at: time(3600)) == nil)
    #expect(holds.end(at: time(30)) == [] && holds.firstEnd == time(31))
    #expect(holds.end(at: time(31)) == ["channel/a"] && holds.words(radioWasRead: true) == nil)
  }

  @Test mutating func `a channel waits only for an informed hub, which is informed again after five minutes`() {
    var holds = BucketHolds()
    #expect(holds.mustTell("channel/a", at: time(0)))
    #expect(!holds.holdUntilKnown("channel/a", at: time(0), using: &random) && holds.firstEnd == nil)
    holds.told("channel/a", at: time(0))
    #expect(!holds.mustTell("channel/a", at: time(299)) && holds.mustTell("channel/a", at: time(300)))
    #expect(holds.holdUntilKnown("channel/a", at: time(0), using: &random))
    #expect(holds.words(radioWasRead: true) == "the hub does not know yet that this gateway has channel/a")
    #expect(holds.end(at: time(5)) == ["channel/a"])
    holds.hubKnows("channel/a")
    #expect(holds.mustTell("channel/a", at: time(6)))
  }

  @Test mutating func `a bucket that this gateway limits waits alone, longer with each time`() {
    var holds = BucketHolds()
    for round in 0..<20 {
      let line = holds.holdLimited("documents", "too often", for: nil, at: time(0), using: &random)
      #expect((line != nil) == (round == 0) && holds.words(radioWasRead: true) == "too often")
      #expect(holds.firstEnd.map { $0 > time(0) && $0 <= time(300) } == true)
    }
    #expect(holds.end(at: time(300)) == ["documents"] && holds.words(radioWasRead: true) == "too often")
    holds.isNotLimited("documents")
    #expect(holds.words(radioWasRead: true) == nil)
    _ = holds.holdLimited("commands", "too many", for: .seconds(10), at: time(400), using: &random)
    #expect(holds.firstEnd == time(410))
  }

  @Test func `buckets that wait for the radio are released together`() {
    var holds = BucketHolds()
    holds.waitForRadio("channel/a")
    holds.waitForRadio("heard")
    #expect(holds.words(radioWasRead: true) == nil && holds.words(radioWasRead: false) != nil)
    #expect(holds.radioWasRead() == ["channel/a", "heard"] && holds.radioWasRead() == [])
  }

  @Test func `a hub may report many losses once, and lose documents twice an hour`() {
    var rations = BucketRations()
    let page = CatchUp.Outcome(lost: 1...9, position: CatchUp.Position(seq: 9))
    for _ in 1...64 { #expect(throws: Never.self) { try rations.mayKeep(page, of: "channel/a", at: time(0)) } }
    #expect(throws: BucketSync.Trouble.self) { try rations.mayKeep(page, of: "channel/b", at: time(59)) }
    let restored = CatchUp.Outcome(position: CatchUp.Position(), hasDiverged: true)
    for minute in [10.0, 11] {
      #expect(throws: Never.self) { try rations.mayKeep(restored, of: "documents", at: time(minute * 60)) }
    }
    #expect(throws: BucketSync.Trouble.self) { try rations.mayKeep(restored, of: "documents", at: time(720)) }
    #expect(throws: Never.self) { try rations.mayKeep(restored, of: "channel/a", at: time(780)) }
  }

  @Test mutating func `a trouble is new once, and ends when nothing is left to fetch`() {
    var health = UpdatesHealth()
    #expect(health.failed("HTTP 503", using: &random).isNew && !health.failed("HTTP 503", using: &random).isNew)
    #expect(health.failed("HTTP 401", using: &random).isNew)
    #expect(!health.succeeded(at: 7, hasAll: false) && health.trouble == "HTTP 401" && health.lastSuccess == 7)
    #expect(health.succeeded(at: 8, hasAll: true) && health.trouble == nil)
    #expect(health.succeeded(at: 9, hasAll: true) == false)
  }
}
