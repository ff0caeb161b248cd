// SPDX-License-Identifier: MIT

import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

@Suite struct StoreFaultTests {
  @Test func `a second program is refused, with the name of the first`() throws {
    let shop = try Shop()
    do {
      _ = try Store(Store.Settings(location: shop.scratch.location("gw.db")))
      Issue.record("opened twice")
    } catch {
      guard case .inUse(let owner, _) = error else {
        Issue.record("\(error)")
        return
      }
      #expect(owner == "process \(ProcessInfo.processInfo.processIdentifier)")
    }
  }

  @Test func `a released store can be opened again, although a child process still has its descriptors`() throws {
    var shop: Shop? = try Shop()
    let scratch = try #require(shop?.scratch)
    let lock = scratch.location("gw.db.lock")
    // As between a fork and its exec. `try?`: other tests close descriptors meanwhile.
    let own = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap { Int32($0) }.first {
      (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")) == lock
    }
    let inherited = dup(try #require(own))
    defer { close(inherited) }
    shop = nil
    _ = try Store(Store.Settings(location: scratch.location("gw.db")))
  }

  @Test func `a damaged file is set aside, never deleted, and a new epoch begins`() throws {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    var (id, epoch) = ("", "")
    do {
      let store = try Store(settings)
      (id, epoch) = (store.gatewayID, store.epoch)
      store.write { store throws(SQLiteError) in
        for _ in 0..<100 { try store.append(.message, at: Shop.moment, body: [UInt8](repeating: 1, count: 100)) }
      }
      try store.commitNow()
      try store.checkpoint()
    }
    let handle = try FileHandle(forWritingTo: URL(filePath: settings.location))
    try handle.write(contentsOf: Data(repeating: 0x55, count: 4096))
    try handle.close()
    let store = try Store(settings)
    let kept = try #require(store.provenance.setAside)
    #expect(FileManager.default.fileExists(atPath: kept))
    #expect(store.gatewayID == id, "it is still the same gateway")
    #expect(store.epoch != epoch)
    #expect(store.lastSeq == 1, "it reports the loss")
  }

  @Test func `a full store refuses writes, keeps its content, and continues when there is room`() throws {
    let scratch = Scratch()
    let location = scratch.location("gw.db")
    func fill(_ store: Store) -> StoreError? {
      let commit = store.write { store throws(SQLiteError) in
        try store.append(.message, at: Shop.moment, body: [UInt8](repeating: 7, count: 3000))
      }
      store.commit()
      return if case .failed(let failure) = commit.state { failure } else { nil }
    }
    var written: Int64 = 0
    do {
      let store = try Store(Store.Settings(location: location, maxSize: 200 * 1024))
      while fill(store) == nil { #expect(store.lastSeq < 1000) }
      guard case .full? = fill(store) else {
        Issue.record("\(String(describing: store.transactions.failure))")
        return
      }
      written = store.lastSeq
      #expect(store.transactions.failure != nil)
      // The cursor and the trimming still work: the queue is not blocked.
      store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: written) }
      store.commit()
      #expect(try store.cursor(of: "hub") == ByLane(all: written))
    }
    let store = try Store(Store.Settings(location: location, maxSize: 1 << 30))
    #expect(store.lastSeq == written)
    #expect(fill(store) == nil)
    #expect(store.transactions.failure == nil)
  }

  @Test func `a replacement of a damaged database does not count as damaged itself`() throws {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let epoch = store.epoch
    let isFound = { () -> Bool in
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 11, message: "malformed") }
      store.commit()
      return store.isDamaged
    }
    #expect(isFound())
    // Writes that still waited fail with it, and the failure is reported once more.
    #expect(isFound())
    _ = try store.replaceDamaged()
    #expect(!store.isDamaged && store.transactions.failure == nil && store.epoch != epoch)
    store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: 1) }
    store.commit()
    #expect(!store.isDamaged)
    #expect(try store.cursor(of: "hub") == ByLane(all: 1))
  }
}
