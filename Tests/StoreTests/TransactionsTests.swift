// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Store

/// The rules of transactions, without a database.
@Suite struct TransactionsTests {
  private let transactions = Transactions(profile: .balanced)
  private let now = MonotonicTime(seconds: 1000)

  private func isDue(round: Int = 0) -> Bool { transactions.isDue(round: round, now: now) }

  @Test func `deferred work of a failed transaction is repeated, and committed work is not`() {
    for name in ["a", "b"] { transactions.writeAlong(name) { _ in } }
    transactions.add(.now)
    #expect(transactions.takeDeferred().keys.sorted() == ["a", "b"] && !transactions.hasDeferred)
    transactions.writeAlong("c") { _ in }
    transactions.fail(.full("no room"))
    transactions.end()
    #expect(transactions.failure == .full("no room") && transactions.doom == nil && !transactions.hasUncommitted)
    #expect(transactions.takeDeferred().keys.sorted() == ["a", "b", "c"])
    transactions.end()
    #expect(transactions.failure == nil && !transactions.hasDeferred)
  }

  @Test func `writes that can wait share one pause, and an urgent one ends it`() {
    transactions.add(.heard)
    #expect(!isDue() && transactions.takeNews().pause == .seconds(2))
    transactions.add(.heard)
    #expect(!isDue() && transactions.takeNews().pause == nil, "the first pause is for all")
    transactions.add(.now)
    #expect(isDue())
    transactions.end()
    #expect(!isDue(round: 1) && !transactions.endPause(now: now), "nothing waits any longer")
    transactions.add(.heard)
    #expect(!isDue() && transactions.endPause(now: now))
    transactions.hasten(.now)
    #expect(isDue())
    transactions.end()
    transactions.add(.heard)
    #expect(!isDue() && transactions.takeNews().pause == .seconds(60), "the last such commit is this moment")
  }

  @Test func `a turn ends after a limited number of commits`() {
    var rounds = 0
    transactions.add(.now)
    while isDue(round: rounds) {
      transactions.end()
      transactions.add(.now)
      rounds += 1
    }
    #expect(rounds == 64 && transactions.hasUncommitted)
  }

  @Test func `a failing write without a waiter is reported once, until a write succeeds`() {
    func fail(_ names: String...) -> String? {
      for name in names {
        transactions.add(.now)
        transactions.post { name }
      }
      transactions.fail(.other("torn"))
      transactions.end()
      return transactions.takeNews().loss
    }
    #expect(fail("this", "that", "this") == "not kept: this, that. the store failed (torn)")
    #expect(fail("this") == nil)
    transactions.add(.now)
    transactions.end()
    #expect(transactions.takeNews() == Store.News(hasGrown: true))
    #expect(fail("this") != nil)
  }
}
