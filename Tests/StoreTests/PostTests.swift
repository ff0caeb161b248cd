// SPDX-License-Identifier: MIT

import TestSupport
import Testing

@testable import Store

@Suite struct PostTests {
  @Test func `an unattended write is committed, and a lasting failure is reported once with the lost writes`() throws {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("s.db"), maxSize: 200 << 10))
    var losses: [String] = []
    func post(_ what: String, bytes: Int) {
      store.post(what) { store throws(SQLiteError) in
        try store.append(
          .gap, at: Moment(milliseconds: 0, trusted: false), body: [UInt8](repeating: 0x20, count: bytes))
      }
    }
    post("a small thing", bytes: 2)
    try store.commitNow()
    #expect(store.transactions.takeNews() == Store.News(hasGrown: true))
    #expect(store.lastSeq == 1 && losses.isEmpty)
    func postSome() {
      for what in ["this", "that", "this"] { post(what, bytes: 4000) }
      store.commit()
      if let loss = store.transactions.takeNews().loss { losses.append(loss) }
    }
    while losses.isEmpty { postSome() }
    #expect(losses.count == 1 && losses[0].contains("this, that."), "\(losses)")
    for _ in 0..<5 { postSome() }
    #expect(losses.count == 1)
  }

  @Test func `a failed read returns nothing, and is logged once`()
    throws
  {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("s.db")))
    #expect(store.ifReadable { try store.heldCount() } == 0)
    #expect(store.transactions.takeNews().loss == nil)
    for _ in 0..<3 { #expect(store.ifReadable { () throws -> Int? in throw StoreError.unavailable("torn") } == nil) }
    #expect(store.transactions.takeNews().loss == "a read failed: the disk is read-only or failing (torn)")
    for number in 0..<100 {
      store.ifReadable { () throws -> Int? in throw StoreError.other("no. \(number)") }
    }
    #expect(store.transactions.takeNews().loss?.contains("no. 14") == true)
    store.ifReadable { () throws -> Int? in throw StoreError.other("another") }
    #expect(store.transactions.takeNews().loss == nil)
  }
}
