// SPDX-License-Identifier: MIT

import CrashDisk
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

  @Test func `a lock that a killed program's child still has for a moment is waited for`() throws {
    let scratch = Scratch()
    let other = open(scratch.location("gw.db.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0o640)
    let isLocked = flock(other, LOCK_EX | LOCK_NB) == 0
    try #require(isLocked)
    Thread.detachNewThread {
      usleep(50_000)
      close(other)
    }
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

  @Test func `a read that the disk refuses once while the store is opened costs no database`() throws {
    let scratch = Scratch(inMemory: true)
    let settings = Store.Settings(location: scratch.location("gw.db"))
    let disk = CrashDisk(watching: scratch.folder.path())
    var epoch = ""
    do {
      let store = try Store(settings)
      epoch = store.epoch
      store.write { store throws(SQLiteError) in
        for _ in 0..<100 { try store.append(.message, at: Shop.moment, body: [UInt8](repeating: 1, count: 100)) }
      }
      try store.commitNow()
    }
    var (refused, lookedDamaged) = (0, 0)
    while refused < 2000 {
      refused += 1
      var reads = 0
      disk.refusesRead = {
        reads += 1
        return reads == refused
      }
      defer { disk.refusesRead = nil }
      do throws(StoreError) {
        let store = try Store(settings)
        #expect(store.provenance.setAside == nil, "read \(refused)")
        #expect(store.epoch == epoch && store.lastSeq == 100, "read \(refused)")
        if store.provenance.refusedRead != nil { lookedDamaged += 1 }
      } catch {
        // The daemon waits, and tries again.
        #expect(error.isOfDisk, "read \(refused): \(error)")
      }
      if reads < refused { break }
    }
    #expect(lookedDamaged > 0)
    #expect(refused < 2000)
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

  @Test func `a clock that was set before the database was replaced is doubted after it, also over a restart`() throws {
    let (scratch, machine) = (Scratch(), InventedMachine())
    do {
      let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: machine)
      #expect(store.clockDoubt == nil)
      store.keepClockProof()
      machine.wallOffset = 3_600_000
      #expect(store.clockDoubt == .moved(3_600_000))
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 11, message: "malformed") }
      store.commit()
      _ = try store.replaceDamaged()
      #expect(store.clockDoubt == .moved(3_600_000))
      store.settle()
    }
    let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: machine)
    #expect(store.clockDoubt == .moved(3_600_000))
  }

  /// `when`: the read fails between two writes, within a write, or after the last one.
  @Test(arguments: ["between", "within", "after"])
  func `a turn whose transaction a failed read has rolled back is not reported as durable`(_ when: String) throws {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    // As SQLite does by itself when a read ends with SQLITE_IOERR.
    func failRead(_ now: String) throws(SQLiteError) { if now == when { try store.database.execute("ROLLBACK") } }
    func append() -> Commit {
      store.write { store throws(SQLiteError) in
        try store.append(.message, at: Shop.moment, body: Array("{}".utf8))
        try failRead("within")
        try store.append(.message, at: Shop.moment, body: Array("{}".utf8))
      }
    }
    var commits = [append()]
    try failRead("between")
    if when != "after" { commits.append(append()) }
    try failRead("after")
    store.commit()
    for commit in commits {
      guard case .failed(.unavailable) = commit.state else {
        Issue.record("\(when): \(commit.state)")
        continue
      }
    }
    #expect(store.lastSeq == 0 && !store.database.isInTransaction)
    #expect(try store.database.value("SELECT count(*) FROM journal") == .integer(0), "nothing stays of the turn")
    let later = store.write { store throws(SQLiteError) in
      try store.append(.message, at: Shop.moment, body: Array("{}".utf8))
    }
    store.commit()
    #expect(later.isDurable && store.lastSeq == 1)
  }

  @Test func `while no database has the place of the damaged one, nothing is stored in it`() throws {
    let scratch = Scratch()
    let location = scratch.location("gw.db")
    let store = try Store(Store.Settings(location: location))
    func append() -> Commit.State {
      let commit = store.write { store throws(SQLiteError) in
        try store.append(.message, at: Shop.moment, body: Array("{}".utf8))
      }
      store.commit()
      return commit.state
    }
    #expect(append() == .durable)
    // SQLite cannot make a new database where its first journal would be a folder.
    #expect(mkdir(location + "-journal", 0o700) == 0)
    #expect(throws: StoreError.self) { try store.replaceDamaged(unsent: 1) }
    #expect(store.isSetAside)
    guard case .failed(.unavailable) = append() else {
      Issue.record("it was stored in the damaged database")
      return
    }
    #expect(rmdir(location + "-journal") == 0)
    _ = try store.replaceDamaged(unsent: 1)
    #expect(!store.isSetAside && append() == .durable && store.lastSeq == 2, "the loss, and the event")
  }

  @Test func `the room of deleted rows does not count as used, although the file stays as large`() throws {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    store.write { store throws(SQLiteError) in
      for _ in 0..<50 { try store.append(.alert, at: Shop.moment, body: [UInt8](repeating: 7, count: 3000)) }
    }
    try store.commitNow()
    let (size, used) = (try store.size(), try store.usedSize())
    #expect(size > 150_000 && used > 150_000 && used <= size)
    store.write { store throws(SQLiteError) in try store.database.run("DELETE FROM journal WHERE seq < 50") }
    try store.commitNow()
    #expect(try store.size() == size && store.usedSize() < used - 100_000)
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
