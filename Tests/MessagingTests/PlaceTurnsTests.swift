// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@testable import Messaging

@Suite struct PlaceTurnsTests {
  private func key(_ number: UInt8) -> PublicKey { PublicKey(bytes: Array(repeating: number, count: 32))! }
  private func keys(_ numbers: [UInt8]) -> Set<PublicKey> { Set(numbers.map(key)) }

  private func leaves(
    _ order: [UInt8], needed: [UInt8] = [], addressed: [UInt8] = [], underWay: [UInt8] = [], seated: [UInt8] = []
  ) -> UInt8? {
    Staying(
      needed: keys(needed), addressed: keys(addressed), underWay: keys(underWay), seated: keys(seated)
    ).whoLeaves(of: order.map(key))?.bytes.first
  }

  @Test func `the first in the order leaves, but nobody who is needed, written to, awaited, or has come just now`() {
    #expect(leaves([1, 2, 3]) == 1)
    #expect(leaves([1, 2, 3, 4, 5], needed: [1], addressed: [2, 3], underWay: [3], seated: [4]) == 5)
    #expect(leaves([1, 2, 3], needed: [1], addressed: [2, 3], underWay: [2]) == 3, "its message gets its turn later")
    #expect(leaves([1, 2, 3], needed: [1], addressed: [2, 3], underWay: [2, 3]) == nil)
    #expect(leaves([1, 2], addressed: [1, 2], seated: [1]) == 2)
    #expect(leaves([]) == nil)
  }

  @Test func `in no hour more places change hands than may, and some are left for nodes that knock`() {
    var turns = PlaceTurns()
    let begin = MonotonicTime(seconds: 5000)
    func change(_ reason: PlaceTurns.Reason, _ now: MonotonicTime) -> Bool {
      guard turns.mayChange(for: reason, now: now) else { return false }
      turns.changed(for: reason, now: now)
      return true
    }
    var changes: [MonotonicTime] = []
    for second in stride(from: 0, to: 5 * 3600, by: 20) {
      let now = begin + .seconds(second)
      if change(.ours, now) { changes.append(now) }
      if second % 200 == 0, change(.knock, now) { changes.append(now) }
      let recent = changes.filter { now - $0 < .seconds(3600) }
      #expect(recent.count <= PlaceTurns.most)
    }
    #expect(changes.count >= 5 * 58, "\(changes.count)")
    turns = PlaceTurns()
    #expect((0..<100).count { _ in change(.ours, begin) } == PlaceTurns.mostForOurs)
    #expect((0..<100).count { _ in change(.knock, begin) } == PlaceTurns.most - PlaceTurns.mostForOurs)
    #expect(!turns.mayChange(for: .knock, now: begin + .seconds(3599)))
    #expect(turns.mayChange(for: .ours, now: begin + .seconds(3600)))
  }

  @Test func `whoever got a place keeps it for two minutes`() {
    var turns = PlaceTurns()
    let begin = MonotonicTime(seconds: 5000)
    turns.tookPlace(key(1), now: begin)
    turns.tookPlace(key(2), now: begin + .seconds(100))
    #expect(turns.seated(now: begin + .seconds(119)) == keys([1, 2]))
    #expect(turns.seated(now: begin + .seconds(120)) == keys([2]))
  }

  @Test func `unread texts are counted at once, and told together`() {
    var unread = UnreadTexts()
    let begin = MonotonicTime(seconds: 5000)
    #expect(unread.add([0xA3], now: begin)?.count == 1)
    #expect(unread.add([0x17], now: begin + .seconds(60)) == nil)
    #expect(unread.add([0xA3], now: begin + .seconds(599)) == nil)
    let news = unread.add([0x02], now: begin + .seconds(600))
    #expect(news?.count == 3 && news?.senders == [0x02, 0x17, 0xA3])
    #expect(unread.nextNews == nil)
    #expect(unread.count == 4 && unread.senderBytes == ["17", "a3", "02"])
    for byte in 0..<20 as Range<UInt8> { _ = unread.add([byte], now: begin + .seconds(601)) }
    #expect(unread.senderBytes.count == UnreadTexts.mostSenders)
    // What is held back is told once it is time, also if nothing more comes.
    #expect(unread.nextNews == begin + .seconds(1200))
    #expect(unread.add([], now: begin + .seconds(1200))?.count == 20)
    #expect(unread.add([], now: begin + .seconds(3000)) == nil && unread.nextNews == nil)
  }
}
