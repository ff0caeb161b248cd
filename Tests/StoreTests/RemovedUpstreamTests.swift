// SPDX-License-Identifier: MIT

import SQLite
import Testing

@testable import Store

@Suite struct RemovedUpstreamTests {
  private func trim(_ store: Store) throws -> [JournalTrim] {
    var trims: [JournalTrim] = []
    while let (trim, _) = store.trimJournal(now: Shop.moment) {
      try store.commitNow()
      trims.append(trim)
    }
    return trims
  }

  @Test
  func
    `a removed upstream is no loss to anybody, and one that is back goes on where it stood, with the exact number of what is gone`()
    throws
  {
    let shop = try Shop(journalMaxSize: 10)
    let store = shop.store
    try store.keepOnlyCursors(of: ["a", "b"])
    try shop.append(10)
    store.write { store throws(SQLiteError) in
      try store.setCursor(of: "a", to: 10)
      try store.setCursor(of: "b", to: ByLane(messages: 4, nodes: 10, packets: 10))
    }
    try store.commitNow()
    #expect(try store.keepOnlyCursors(of: ["a"]).map { [$0.name, "\($0.pending)"] } == [["b", "6"]])
    try shop.append(90)
    store.write { store throws(SQLiteError) in try store.setCursor(of: "a", to: 60) }
    try store.commitNow()
    let trims = try trim(store)
    #expect(store.journalSize.oldest == 100)
    #expect(trims.flatMap(\.missedBy) == [JournalTrim.Missed(upstream: "a", events: 39)], "\(trims)")
    #expect(try store.givenUp()?.events == 39)
    // None of the events that waited at the removal is left: the status counts the events that the journal still has.
    let removed = try #require(try store.removedUpstreams().first)
    #expect(removed.name == "b" && removed.pending == 1 && removed.givenUp == 95, "\(removed)")

    #expect(try store.keepOnlyCursors(of: ["a", "b"]).isEmpty)
    #expect(try store.removedUpstreams().isEmpty)
    let (cursor, _) = try store.openCursor(of: "b", fromStart: true)
    #expect(cursor == ByLane(messages: 4, nodes: 10, packets: 10))
    #expect(try store.backlog(after: cursor).lost == 95)
    #expect(try store.leftOut(of: "b").givenUp == 95)
  }

  @Test func `a forgotten upstream is new when it is back`() throws {
    let shop = try Shop()
    try shop.store.keepOnlyCursors(of: ["a", "b"])
    try shop.append(10)
    try shop.store.keepOnlyCursors(of: ["a"])
    shop.store.write { store throws(SQLiteError) in
      for upstream in ["a", "b"] {
        let event = JournalEvent(seq: 2, at: 1, trusted: true, kind: "message", body: Array("{}".utf8))
        try store.bury(event, upstream: upstream, status: 422, reason: "no", at: 1)
      }
    }
    try shop.store.commitNow()
    try shop.store.forgetUpstream("b")
    #expect(try shop.store.letter(2, of: "b") == nil && shop.store.letter(2, of: "a") == .dead)
    #expect(try shop.store.removedUpstreams().isEmpty)
    #expect(try shop.store.openCursor(of: "b", fromStart: false).cursor == ByLane(all: 10))
  }

  @Test func `the latest removed upstreams are remembered, whatever the clock shows`() throws {
    let shop = try Shop()
    for number in 0...16 { try shop.store.keepOnlyCursors(of: ["\(number)"]) }
    #expect(shop.store.transactions.takeNews().loss == nil)
    for number in 17...20 { try shop.store.keepOnlyCursors(of: ["\(number)"]) }
    let told = shop.store.transactions.takeNews().loss ?? ""
    #expect(told.contains("the position of 0, with dead letters: 0") && told.contains("position of 3,"), "\(told)")
    #expect(try shop.store.removedUpstreams().map(\.name) == (4...19).reversed().map { "\($0)" })
    let count = try shop.store.database.value("SELECT count(*) FROM cursors")?.integer
    #expect(count == 17)
  }
}
