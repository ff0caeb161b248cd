// SPDX-License-Identifier: MIT

import SQLite
import TestSupport
import Testing

@testable import Store

/// The time at which data reaches the disk, in each profile.
@Suite struct ProfileTests {
  private final class Shelf {
    let scratch = Scratch()
    let machine = InventedMachine()
    let store: Store
    var written: [(name: String, commit: Commit)] = []
    var told: [String] {
      written.compactMap { name, commit in
        switch commit.state {
        case .open: nil
        case .durable: name
        case .failed: "\(name) failed"
        }
      }
    }
    var pauses: [Duration] = []

    func commit() {
      store.commit()
      if let pause = store.transactions.takeNews().pause { pauses.append(pause) }
    }

    init(_ profile: StoreProfile) throws {
      store = try Store(Store.Settings(location: scratch.location("gw.db"), profile: profile), clocks: machine)
    }

    func pass(_ seconds: Int32) { machine.wait(milliseconds: seconds * 1000) { _, _ in } }

    func append(_ name: String, _ when: When) {
      let commit = store.write(when: when) { store throws(SQLiteError) in
        try store.append(.advert, at: Shop.moment, body: Array("{}".utf8))
      }
      written.append((name, commit))
    }

    func onDisk() throws -> Int64 {
      let reader = try Database(location: try scratch.afterCut("gw.db"))
      return try reader.value("SELECT count(*) FROM journal")?.integer ?? 0
    }

    func toBeSent() throws -> Int {
      var count = 0
      try store.readJournal(after: 0) { _, _ in
        count += 1
        return true
      }
      return count
    }
  }

  @Test func `deferred writes cost no commit, and are on disk with the next one, the last of each name`() throws {
    let shelf = try Shelf(.durable)
    shelf.store.transactions.writeAlong("a") { store throws(SQLiteError) in try store.setCursor(of: "a", to: 1) }
    shelf.store.transactions.writeAlong("a") { store throws(SQLiteError) in try store.setCursor(of: "a", to: 2) }
    shelf.store.commit(everything: true)
    #expect(try shelf.store.cursor(of: "a") == ByLane(all: 0), "nothing else was written")
    shelf.append("x", .now)
    shelf.commit()
    // The same in the middle of a transaction that is kept open for data that may wait.
    shelf.append("y", .heard)
    shelf.commit()
    shelf.store.transactions.writeAlong("a") { store throws(SQLiteError) in try store.setCursor(of: "a", to: 3) }
    #expect(try shelf.store.cursor(of: "a") == ByLane(all: 2))
    shelf.append("z", .now)
    shelf.commit()
    #expect(try shelf.store.cursor(of: "a") == ByLane(all: 3))
    shelf.store.transactions.writeAlong("a") { store throws(SQLiteError) in try store.setCursor(of: "a", to: 4) }
    shelf.store.settle()
    #expect(try shelf.store.cursor(of: "a") == ByLane(all: 4))
    #expect(shelf.told == ["x", "y", "z"])
  }

  @Test func `deferred writes of a failed transaction are in the next one`() throws {
    let shelf = try Shelf(.durable)
    shelf.store.transactions.writeAlong("a") { store throws(SQLiteError) in try store.setCursor(of: "a", to: 1) }
    shelf.store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "full") }
    shelf.commit()
    #expect(try shelf.store.cursor(of: "a") == ByLane(all: 0))
    shelf.append("x", .now)
    shelf.commit()
    #expect(try shelf.store.cursor(of: "a") == ByLane(all: 1))
  }

  @Test(arguments: [
    (StoreProfile.durable, [When.now, .soon, .message], [When.heard]),
    (.balanced, [.now, .message], [.soon, .heard]), (.wear, [.now], [.soon, .message, .heard]),
  ]) func `each profile delays the commits that may wait, and commits the others at the end of the turn`(
    _ profile: StoreProfile, _ atOnce: [When], _ later: [When]
  ) throws {
    for when in atOnce {
      let shelf = try Shelf(profile)
      shelf.append("a", when)
      shelf.commit()
      #expect(try shelf.onDisk() == 1 && shelf.told == ["a"] && shelf.pauses.isEmpty, "\(profile) \(when)")
    }
    for when in later {
      let shelf = try Shelf(profile)
      shelf.append("a", when)
      shelf.commit()
      shelf.append("b", when)
      shelf.commit()
      #expect(try shelf.onDisk() == 0 && shelf.told.isEmpty && shelf.pauses.count == 1, "\(profile) \(when)")
      #expect(try shelf.toBeSent() == 0, "an uncommitted event is not sent: its seq is not final")
      #expect(shelf.store.lastSeq == 0)
      shelf.append("c", .now)
      shelf.commit()
      #expect(try shelf.onDisk() == 3 && shelf.told == ["a", "b", "c"])
      #expect(try shelf.toBeSent() == 3)
      shelf.append("d", when)
      shelf.commit()
      #expect(shelf.pauses.count == 2, "the next write that may wait gets a new pause")
      shelf.store.commit(everything: true)
      #expect(try shelf.onDisk() == 4)
    }
  }

  @Test(arguments: [StoreProfile.durable, .balanced])
  func `a commit that may wait comes two seconds after a quiet time, and at most once a minute`(
    _ profile: StoreProfile
  ) throws {
    let shelf = try Shelf(profile)
    /// Writes a name; returns how long its commit may wait.
    func hear(_ name: String) -> Duration? {
      shelf.append(name, .heard)
      shelf.commit()
      return shelf.pauses.popLast()
    }
    #expect(hear("a") == .seconds(2))
    shelf.pass(2)
    #expect(hear("b") == nil, "it goes along")
    shelf.store.commitGathered()
    #expect(try shelf.onDisk() == 2)
    shelf.pass(5)
    #expect(hear("c") == .seconds(55))
    shelf.append("d", .message)
    shelf.commit()
    #expect(try shelf.onDisk() == 4, "a message commits the waiting writes, too")
    shelf.store.commitGathered()
    #expect(hear("e") == .seconds(55), "nothing waited just now")
    shelf.pass(55)
    shelf.store.commitGathered()
    shelf.pass(600)
    #expect(hear("f") == .seconds(2))
  }

  @Test(arguments: StoreProfile.allCases)
  func `a write that becomes urgent commits earlier waiting writes, if the profile says so`(_ profile: StoreProfile)
    throws
  {
    let shelf = try Shelf(profile)
    shelf.append("a", .heard)
    shelf.commit()
    shelf.store.write(when: .heard) { store throws(SQLiteError) in store.transactions.hasten(.soon) }
    shelf.commit()
    #expect(try shelf.onDisk() == (profile == .durable ? 1 : 0))
    #expect(shelf.store.transactions.hasUncommitted == (profile != .durable))
  }

  @Test func `at most 500 writes wait for a commit`() throws {
    let shelf = try Shelf(.wear)
    for number in 1...499 {
      shelf.append("\(number)", .soon)
      shelf.commit()
    }
    #expect(try shelf.onDisk() == 0)
    shelf.append("500", .soon)
    shelf.commit()
    #expect(try shelf.onDisk() == 500)
  }

  @Test func `waiting writes that fail fail together, and their numbers are used again`() throws {
    let shelf = try Shelf(.balanced)
    shelf.append("a", .soon)
    shelf.commit()
    let commit = shelf.store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "full") }
    shelf.written.append(("b", commit))
    shelf.commit()
    #expect(shelf.told == ["a failed", "b failed"])
    #expect(try shelf.onDisk() == 0 && shelf.store.lastSeq == 0)
    shelf.append("c", .now)
    shelf.commit()
    #expect(shelf.store.lastSeq == 1)
  }
}
