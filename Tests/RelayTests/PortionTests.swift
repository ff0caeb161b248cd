// SPDX-License-Identifier: MIT

import Store
import TestSupport
import Testing

@testable import Relay

@Suite struct PortionTests {
  @Test(arguments: [1, 400, 1000, 4096, 20_000])
  func `a batch has no more bytes than its portion, and is as full as that allows`(_ bytes: Int) throws {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let body = Array("{\"text\":\"\(String(repeating: "y", count: 100))\"}".utf8)
    store.write { store throws(SQLiteError) in
      for _ in 0..<50 { _ = try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: body) }
    }
    store.commit()
    let batch = try Batch(after: 0, of: store, lane: .messages, limits: Batch.Limits(events: 100, bytes: bytes))
    let one = batch.size / batch.events.count
    #expect(batch.size <= bytes || batch.events.count == 1)
    #expect(batch.events.count == min(50, max(1, bytes / one)))
  }
}
