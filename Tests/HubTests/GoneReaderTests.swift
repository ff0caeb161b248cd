// SPDX-License-Identifier: MIT

import HTTP
import TestSupport
import Testing

@testable import Hub

/// A query whose client has disconnected.
@Suite struct GoneReaderTests {
  private let scratch = Scratch(inMemory: true)

  @Test func `a cancelled query ends, and the next one is answered`() async throws {
    _ = try HubStore(location: scratch.location("hub.db"))
    let store = HubStore(try SQLiteHubDatabase(reading: scratch.location("hub.db")))
    let asker = Task { try await store.countForEver() }
    asker.cancel()
    await #expect(throws: HubDatabaseError.self) { try await asker.value }
    #expect(try await store.gateways().isEmpty)
  }

  @Test func `a client that disconnected is kept for 2 s, and longer while its answer is being sent`() {
    var watch = RequestWatch(now: 0)
    watch.began(now: 0)
    watch.ended(now: 0)
    watch.hungUp(now: 1_000)
    func goesOn(_ now: Int64, waiting: Int = 0) -> Bool {
      var copy = watch
      return copy.mayGoOn(now: now, isKnown: true, waiting: waiting, taken: 0)
    }
    #expect(goesOn(2_999) && !goesOn(3_000))
    #expect(goesOn(3_000, waiting: 9), "its answer is on its way")
  }
}

extension HubStore {
  fileprivate func countForEver() throws(HubDatabaseError) -> Int64? {
    try database.first("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n") {
      $0.integer(0)
    }
  }
}
