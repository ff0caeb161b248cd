// SPDX-License-Identifier: MIT

import Delivery
import SQLite
import TestSupport
import Testing
import Timing

@testable import Messaging
@testable import Store

@Suite struct HeardAirtimeTests {
  @Test func `what was heard in an hour that cannot be read at first is added to it, and does not replace it`() throws {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let moment = Moment(milliseconds: 1_795_000_000_000, trusted: true)
    var heard = HeardAirtime()
    func note(_ milliseconds: Int64) {
      heard.note(milliseconds, store, at: moment, now: MonotonicTime(seconds: 1000))
      store.settle()
    }
    func stored() throws -> Store.AirtimeEntry? {
      try store.storedAirtime(for: AirtimePurpose.heard.rawValue, in: Store.hour(of: moment))
    }
    note(100)
    #expect(try stored() == Store.AirtimeEntry(milliseconds: 100, packets: 1))
    heard.forget()
    try store.database.execute("ALTER TABLE airtime_hours RENAME TO hidden")
    note(20)
    try store.database.execute("ALTER TABLE hidden RENAME TO airtime_hours")
    #expect(try stored() == Store.AirtimeEntry(milliseconds: 100, packets: 1))
    note(3)
    #expect(try stored() == Store.AirtimeEntry(milliseconds: 123, packets: 3))
    withExtendedLifetime(scratch) {}
  }
}
