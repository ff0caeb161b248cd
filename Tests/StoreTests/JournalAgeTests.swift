// SPDX-License-Identifier: MIT

import SQLite
import TestSupport
import Testing
import Timing

@testable import Store

/// A store whose clocks a test sets: the wall clock, and the time since the boot.
private final class AgedShop {
  static let day: Int64 = 86_400_000
  static let hour: Int64 = 3_600_000
  let scratch = Scratch(inMemory: true)
  private(set) var store: Store
  var wall = Moment(milliseconds: 1_795_000_000_000, trusted: true)
  var uptime: Int64 = 60_000
  private let settings: Store.Settings
  private let clocks = InventedMachine()

  init(journalMaxSize: Int64 = 256 << 20) throws {
    settings = Store.Settings(location: scratch.location("gw.db"), journalMaxSize: journalMaxSize)
    store = try Store(settings, clocks: clocks)
    try store.keepOnlyCursors(of: ["hub"])
  }

  func append(_ count: Int = 1) throws {
    store.write { store throws(SQLiteError) in
      for _ in 0..<count { try store.append(.message, at: wall, body: Array("{\"x\":1}".utf8)) }
    }
    try store.commitNow()
  }

  /// Trims the journal, as the daemon does every hour.
  @discardableResult
  func trim() throws -> [JournalTrim] {
    var trims: [JournalTrim] = []
    while let (trim, _) = store.trimJournal(now: wall, uptime: uptime) {
      try store.commitNow()
      trims.append(trim)
    }
    try store.commitNow()
    return trims
  }

  /// Advances both clocks, and trims the journal.
  func pass(_ milliseconds: Int64) throws -> [JournalTrim] {
    var trims: [JournalTrim] = []
    for _ in 0..<milliseconds / Self.hour {
      uptime += Self.hour
      wall.milliseconds += Self.hour
      trims += try trim()
    }
    return trims
  }

  /// Restarts the store after the machine was off for a while.
  func restart(after away: Int64) throws {
    store.settle()
    clocks.boot += "."
    try restartProgram()
    wall.milliseconds += away
    uptime = 5000
  }

  func restartProgram() throws {
    store.settle()
    store = try Reopened.open(settings, clocks, closing: &self.store)
  }

  var left: Int64 { store.lastSeq - store.journalSize.oldest + 1 }
}

/// A store has a lock, so the previous one must end first.
private enum Reopened {
  static func open(_ settings: Store.Settings, _ clocks: any Clocks, closing old: inout Store) throws -> Store {
    let nowhere = Scratch(inMemory: true)
    old = try Store(Store.Settings(location: nowhere.location("none.db")))
    return try Store(settings, clocks: clocks)
  }
}

@Suite struct JournalAgeTests {
  @Test func `for an upstream that is away for 92 days only events older than 90 days are deleted`() throws {
    let shop = try AgedShop()
    var trims: [JournalTrim] = []
    // 21 events every four days: 483 within 92 days.
    for _ in 0..<23 {
      try shop.append(21)
      trims += try shop.pass(4 * AgedShop.day)
    }
    let given = trims.filter { $0.reason == "age" }
    #expect(given.first?.first == 1 && given.last?.last == 21, "\(trims)")
    #expect(given.allSatisfy { $0.missedBy.map(\.upstream) == ["hub"] })
    #expect(shop.left == 462)
    #expect(try shop.store.trims(of: .messages, after: 0).map(\.reason) == ["age"])
    #expect(try shop.store.givenUp()?.events == 21)
  }

  @Test func `setting a clock that was 120 days behind at the boot makes no event old`() throws {
    let shop = try AgedShop()
    let right = shop.wall.milliseconds
    shop.wall = Moment(milliseconds: right - 120 * AgedShop.day, trusted: false)
    try shop.append()
    try shop.trim()
    shop.uptime += 20_000
    shop.wall = Moment(milliseconds: right + 20_000, trusted: true)
    try shop.append(200)
    #expect(try shop.trim().isEmpty)
    #expect(try shop.pass(2 * AgedShop.day).isEmpty)
    #expect(shop.left == 201)
  }

  @Test(arguments: [Int64(100), -100, 40_000, -20_000]) func `a jump of the trusted clock by days makes no event old`(
    _ days: Int64
  ) throws {
    let shop = try AgedShop()
    try shop.append(53)
    _ = try shop.pass(AgedShop.day)
    shop.wall.milliseconds += days * AgedShop.day
    #expect(try shop.trim().isEmpty)
    try shop.append(2)
    #expect(try shop.pass(AgedShop.day).isEmpty)
    // Nor after a restart, with the present clock or a corrected one.
    try shop.restart(after: 60_000)
    #expect(try shop.trim().isEmpty)
    try shop.restart(after: -days * AgedShop.day)
    #expect(try shop.trim().isEmpty)
    #expect(try shop.pass(AgedShop.day).isEmpty)
    #expect(shop.left == 55)
  }

  @Test(arguments: [Int64(0), 400, -400])
  func `time passes while only the program is away, whatever the clock shows`(
    _ days: Int64
  ) throws {
    let shop = try AgedShop()
    try shop.trim()
    let before = shop.store.elapsed(at: shop.wall, uptime: shop.uptime)
    try shop.restartProgram()
    shop.uptime += 5 * AgedShop.day
    shop.wall.milliseconds += (5 + days) * AgedShop.day
    #expect(shop.store.elapsed(at: shop.wall, uptime: shop.uptime) - before == 5 * AgedShop.day)
  }

  @Test func `the age of an event is known after a restart of the program, whatever the clock shows`() throws {
    let shop = try AgedShop()
    shop.store.keepJournalTimes()
    try shop.append()
    func age() -> Int64? {
      let event = JournalEvent(seq: 1, at: shop.wall.milliseconds - 7_200_000, trusted: true, kind: "message", body: [])
      let (times, now) = shop.store.journalTimes
      return times.age(of: event, wall: shop.wall, now: now)
    }
    #expect(age() == 0)
    try shop.restartProgram()
    #expect(age() == 0)
    try shop.restart(after: 0)
    #expect(age() == 7200, "of before the machine's start only the clock can tell")
  }

  @Test(arguments: 1...4 as ClosedRange<UInt64>)
  func
    `without a clock an event's age is told to an eighth also after a restart of the program`(
      _ seed: UInt64
    )
  {
    var random = SeededRandom(seed: seed)
    var (times, came): (JournalTimes, [Int64]) = (JournalTimes(boot: "b"), [])
    var now: Int64 = 60_000
    var most = 0
    // About a hundred days, of which the last hours are the busiest.
    while now < 100 * AgedShop.day {
      let left = 100 * AgedShop.day - now
      now += Int64.random(in: 0...max(400, left / 500), using: &random)
      came.append(now)
      if times.comes(Int64(came.count), at: now) { most = max(most, times.kept.utf8.count) }
    }
    #expect(most < 1300, "\(most)")
    let again = JournalTimes(boot: "b", kept: times.kept)
    now += 2000
    for (index, time) in came.enumerated() {
      let event = JournalEvent(seq: Int64(index + 1), at: 0, trusted: false, kind: "message", body: [])
      let age = again.age(of: event, wall: Moment(milliseconds: 0, trusted: false), now: now) ?? -1
      let real = Double(now - time) / 1000
      guard (real.rounded(.down)...real * 1.125 + 3).contains(Double(age)) else {
        Issue.record("\(index): \(age) for \(real)")
        return
      }
    }
  }

  @Test func `times that an older version stored are read`() {
    let times = JournalTimes(boot: "b", kept: "b\n5:1000\n9:61000")
    let event = JournalEvent(seq: 9, at: 0, trusted: false, kind: "message", body: [])
    #expect(times.age(of: event, wall: Moment(milliseconds: 0, trusted: false), now: 71_000) == 10)
  }

  @Test func `time without power counts in part, so that recent events are still sent`() throws {
    let shop = try AgedShop()
    try shop.append(10)
    _ = try shop.pass(70 * AgedShop.day)
    try shop.append(10)
    _ = try shop.pass(2 * AgedShop.day)
    try shop.restart(after: 200 * AgedShop.day)
    try shop.trim()
    #expect(shop.left == 10, "the first are 102 days old at least, the others have been away for 30 of 90")
  }

  @Test func `without a trusted clock rows age while the machine runs, and are not kept for ever`() throws {
    let shop = try AgedShop()
    shop.wall = Moment(milliseconds: 1000, trusted: false)
    try shop.append(10)
    for _ in 0..<4 {
      #expect(try shop.pass(20 * AgedShop.day).isEmpty)
      try shop.restart(after: 0)
      try shop.append()
    }
    #expect(!(try shop.pass(12 * AgedShop.day)).isEmpty)
    #expect(shop.left == 4)
  }

  @Test func `rows that arrive rarely age, too`() throws {
    let shop = try AgedShop()
    try shop.append(2)
    #expect(try shop.pass(90 * AgedShop.day).isEmpty)
    #expect(try shop.pass(2 * AgedShop.day).map(\.last) == [1], "the newest row stays")
  }

  @Test func `events that every upstream has received do not count as given up`() throws {
    let shop = try AgedShop()
    try shop.append(100)
    shop.store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: 60) }
    try shop.store.commitNow()
    let trims = try shop.pass(92 * AgedShop.day)
    #expect(trims.map(\.reason) == [nil, "age"])
    #expect(trims.map(\.last) == [60, 99])
    #expect(try shop.store.givenUp()?.events == 39)
  }

  @Test func `a quota deletes as few rows as necessary`() throws {
    let shop = try AgedShop(journalMaxSize: 64 * 400)
    // Rows of 7 bytes, with an overhead of 39 each.
    while shop.store.journalSize.bytes <= 64 * 400 { try shop.append() }
    let before = shop.store.lastSeq
    let trims = try shop.trim()
    #expect(trims.count == 1 && trims.first?.reason == "quota", "\(trims)")
    #expect((trims.first?.last ?? .max) <= before / 50, "\(trims) of \(before)")
    #expect(shop.store.journalSize.bytes <= 64 * 400)
  }

  @Test func `absurd numbers on disk delete nothing and do not trap`() throws {
    let shop = try AgedShop()
    try shop.append(20)
    try shop.trim()
    for value in [Int64.max, .min, -1] {
      try shop.store.database.run("INSERT OR REPLACE INTO meta(name, value) VALUES ('elapsed', ?)", .integer(value))
      try shop.store.database.run(
        "INSERT OR REPLACE INTO meta(name, value) VALUES ('elapsed_wall', ?)", .integer(value))
      try shop.restart(after: 0)
      _ = try shop.trim()
    }
    #expect(shop.store.lastSeq == 20)
  }

  @Test func `setting the clock back forgets no program that shares the radio`() throws {
    let shop = try AgedShop()
    func use(_ name: String, at milliseconds: Int64) throws {
      shop.store.write { store throws(SQLiteError) in
        try store.setClientCursor(name, message: 7, at: milliseconds)
      }
      try shop.store.commitNow()
    }
    for number in 0..<Store.maxClients { try use("\(number)", at: 1_795_000_000_000 + number) }
    try use("new", at: 1000)
    try use("newer", at: 1001)
    #expect(try shop.store.clientCursor("new") == 7 && shop.store.clientCursor("newer") == 7)
    #expect(try shop.store.clientCursor("0") == nil)
    var forgotten: [String] = []
    shop.store.write { store throws(SQLiteError) in
      forgotten = try store.setClientCursor("newest", message: 7, at: 1002)
    }
    try shop.store.commitNow()
    #expect(forgotten == ["2"])
  }
}
