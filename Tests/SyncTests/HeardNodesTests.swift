// SPDX-License-Identifier: MIT

import Companion
import Store
import TestSupport
import Testing
import Timing

@testable import Sync

/// Frequent data waits to be written together; rare data does not.
@Suite struct HeardNodesTests {
  private func node(_ number: UInt8) -> Contact {
    Contact(key: PublicKey(bytes: Array(repeating: number, count: 32))!, name: Text("n\(number)"))
  }

  private func hear(_ number: UInt8, _ pair: Pair) {
    let before = pair.synchronizer.counters.adverts
    pair.radio.output?(Push.newAdvert(node(number)).encode())
    pair.run(until: { pair.synchronizer.counters.adverts > before }, "heard")
  }

  /// Whether the node survives a power cut.
  private func isKept(_ number: UInt8, _ pair: Pair) throws -> Bool {
    try Store(Store.Settings(location: try pair.scratch.afterCut("gw.db"))).contact(node(number).key) != nil
  }

  @Test func `a new node is on disk at once, a known one waits, and many invented nodes cause no more commits`()
    throws
  {
    let pair = try Pair(channels: 4, on: InventedMachine())
    pair.sync()
    pair.letsWait = true
    hear(1, pair)
    #expect(try !pair.store.transactions.hasUncommitted && isKept(1, pair))
    hear(1, pair)
    #expect(pair.store.transactions.hasUncommitted, "it will be heard again")
    for number in 2...9 { hear(UInt8(number), pair) }
    #expect(try pair.store.transactions.hasUncommitted && !isKept(2, pair), "so many new ones at once are invented")
    let end = pair.loop.now + .seconds(31)
    pair.run(until: { pair.loop.now >= end }, "half a minute")
    hear(10, pair)
    #expect(try !pair.store.transactions.hasUncommitted && (1...10).allSatisfy { try isKept($0, pair) })
  }

  @Test func `a message is on disk before the next one is requested, with earlier waiting writes`() throws {
    let pair = try Pair(channels: 4)
    pair.sync()
    pair.letsWait = true
    hear(1, pair)
    hear(1, pair)
    #expect(pair.store.transactions.hasUncommitted)
    var kept: [Int64] = []
    pair.link.onCommand = { [unowned pair] command in
      guard case .syncNextMessage = command, pair.link.messagesDelivered > kept.count else { return }
      // `try?`: an unreadable store has none.
      let store = try? Store(Store.Settings(location: try pair.scratch.afterCut("gw.db")))
      kept.append((try? store?.lastMessageID()) ?? 0)
    }
    for number in 1...6 { pair.radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
    pair.run(until: { pair.stored.count == 6 && kept.count == 6 }, "all of them")
    #expect(kept == Array(1...6))
  }
}
