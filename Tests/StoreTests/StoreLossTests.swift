// SPDX-License-Identifier: MIT

import Foundation
import JSON
import SQLite
import TestSupport
import Testing

@testable import Store

/// A loss of a database is reported to every upstream, by the first event after it.
@Suite struct StoreLossTests {
  private let scratch = Scratch()
  private var settings: Store.Settings { Store.Settings(location: scratch.location("gw.db")) }

  /// Gaps of the journal, as JSON.
  private func gaps(_ store: Store) throws -> [JSONValue] {
    var found: [JSONValue] = []
    try store.readJournal(after: 0) { event, isSound in
      // `try?`: a body that is no JSON is missing below.
      if isSound, event.kind == "gap", let body = try? JSONValue(parsing: event.body) { found.append(body) }
      return true
    }
    return found
  }

  /// Creates a store with this many events, and closes it. Returns its epoch.
  private func filled(_ count: Int, _ settings: Store.Settings) throws -> String {
    let store = try Store(settings)
    store.write { store throws(SQLiteError) in
      for _ in 0..<count { try store.append(.message, at: Shop.moment, body: Array("{}".utf8)) }
    }
    try store.commitNow()
    try store.checkpoint()
    try store.markProgress()
    return store.epoch
  }

  private func damage() throws {
    let file = try FileHandle(forWritingTo: URL(filePath: settings.location))
    try file.write(contentsOf: Data(repeating: 0x55, count: 4096))
    try file.close()
  }

  @Test func `an epoch that ended here is news if a server has more of it later`() throws {
    let old = try filled(7, settings)
    for isFirst in [true, false] {
      let store = try Store(settings)
      if isFirst { try store.renewEpoch() }
      // How far servers are at its end, the first one tells; another database in this epoch has been in use if it is further later.
      if isFirst { #expect(try store.knows(old, through: 9)) }
      try store.note(old, through: 9)
      try store.note(old, through: isFirst ? 9 : 12)
      #expect(try store.knows(old, through: 9) && !store.knows(old, through: 10), "\(isFirst)")
      #expect(try store.knows(store.epoch, through: 1000) && !store.knows("feedfeedfeedfeed", through: 1))
    }
    let store = try Store(settings)
    let loss = try store.tellForeign(old, last: 11)
    #expect(loss.last == 11 && loss.epoch == old)
    #expect(try store.knows(old, through: 11) && !store.knows(old, through: 12))
  }

  @Test func `the loss of a database that was damaged at the start is sent first, also to new upstreams, and once`()
    throws
  {
    let epoch = try filled(7, settings)
    try damage()
    do {
      let store = try Store(settings)
      let told = try gaps(store)
      #expect(told.count == 1 && store.lastSeq == 1 && store.epoch != epoch)
      #expect(told.first?["reason"]?.string == "damaged" && told.first?["epoch"]?.string == epoch)
      #expect(told.first?["last"]?.integer == 7 && told.first?["at_most"] == nil)
      #expect(told.first?["saved"]?.string == store.provenance.setAside)
      for upstream in ["hub", "web"] {
        #expect(try store.openCursor(of: upstream, fromStart: false) == (ByLane(all: 0), 0), "\(upstream)")
      }
      let words = try #require(store.provenance.loss).description
      #expect(
        words.contains(store.provenance.setAside ?? "?") && words.contains("nobody knows how many events"), "\(words)")
    }
    let again = try Store(settings)
    #expect(again.provenance.loss == nil && again.lastSeq == 1)
  }

  private func remove() {
    // `try?`: there may be no log.
    for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: settings.location + suffix) }
  }

  @Test func `a database that is removed before its first hour is told with its epoch`() throws {
    let epoch = try Store(settings).epoch
    remove()
    let told = try gaps(Store(settings))
    #expect(told.map { $0["epoch"]?.string } == [epoch] && told.first?["reason"]?.string == "removed")
    #expect(told.first?["last"] == nil, "nobody knows")
  }

  /// `isTold`: the upstream got the event of the first loss before the second loss.
  @Test(arguments: [false, true]) func `a loss that was not sent before the next loss is sent with it`(_ isTold: Bool)
    throws
  {
    let first = try filled(7, settings)
    remove()
    let second: String
    do {
      let store = try Store(settings)
      second = store.epoch
      _ = try store.openCursor(of: "hub", fromStart: true)
      if isTold {
        store.write { store throws(SQLiteError) in
          try store.setCursor(of: "hub", to: 1)
        }
        try store.commitNow()
      }
    }
    _ = try filled(3, settings)
    remove()
    let third: String
    do {
      let store = try Store(settings)
      third = store.epoch
      let told = try gaps(store)
      #expect(told.map { $0["epoch"]?.string } == (isTold ? [second] : [first, second]))
      #expect(told.map { $0["last"]?.integer } == (isTold ? [4] : [7, 4]))
      #expect(told.allSatisfy { $0["reason"]?.string == "removed" })
      #expect(try store.openCursor(of: "web", fromStart: false).0 == ByLane(all: 0))
      try store.markProgress()
    }
    // A third loss does not hide them either.
    remove()
    #expect(try gaps(Store(settings)).map { $0["epoch"]?.string } == (isTold ? [] : [first]) + [second, third])
  }

  /// The older copy ends in the epoch that was lost first: that it knows the epoch does not mean that it has told the loss.
  @Test func `an older copy that is put back tells also the loss between it and now, in a gap of its own`() throws {
    let first = try filled(7, settings)
    let copy = try Data(contentsOf: URL(filePath: settings.location))
    #expect(try filled(3, settings) == first)
    remove()
    let second = try filled(2, settings)
    remove()
    try copy.write(to: URL(filePath: settings.location))
    let third: String
    do {
      let store = try Store(settings)
      third = store.epoch
      let told = try gaps(store)
      #expect(told.map { $0["epoch"]?.string } == [first, second], "\(told)")
      #expect(told.map { $0["reason"]?.string } == ["removed", "replaced"])
      #expect(told.map { $0["last"]?.integer } == [10, 3])
      #expect(store.provenance.losses.map(\.epoch) == [second, first])
    }
    let again = try Store(settings)
    #expect(again.provenance.loss == nil && again.epoch == third)
    #expect(try gaps(again).count == 2)
  }

  @Test func `a loss that is told again with the next one is no news from a server, and is shown, too`() throws {
    let first = try filled(7, settings)
    remove()
    do {
      let store = try Store(settings)
      _ = try store.openCursor(of: "hub", fromStart: true)
    }
    let second = try filled(3, settings)
    remove()
    let store = try Store(settings)
    #expect(try gaps(store).map { $0["epoch"]?.string } == [first, second])
    #expect(try store.knows(first, through: 9) && store.knows(second, through: 9))
    let words = try #require(store.provenance.lossWords)
    #expect(words.contains("7 events or more") && words.contains("4 events or more"), "\(words)")
    // A server tells how far it had the lost events.
    #expect(store.reaches(first, 5, at: "hub")?.contains("is 5") == true)
    #expect(store.reaches(first, 6, at: "hub") == nil && store.reaches(store.epoch, 1, at: "hub") == nil)
    #expect(store.provenance.lossWords?.hasSuffix("of epoch \(first) that hub has is 5") == true)
  }

  @Test func `a loss that is found later joins the earlier one, and only a new one replaces both`() throws {
    let first = try filled(7, settings)
    remove()
    let store = try Store(settings)
    _ = try store.tellForeign("feedfeedfeedfeed", last: 3)
    #expect(store.provenance.losses.map(\.epoch) == ["feedfeedfeedfeed", first])
    // Every upstream has both: with a further loss, none is told again.
    _ = try store.openCursor(of: "hub", fromStart: true)
    store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: store.lastSeq) }
    try store.commitNow()
    try store.markProgress()
    let epoch = store.epoch
    _ = try store.replaceDamaged(unsent: 2)
    #expect(store.provenance.losses.map(\.epoch) == [epoch], "\(store.provenance.lossWords ?? "")")
  }

  @Test func `a loss that every upstream has is no news to the databases after it`() throws {
    let first = try filled(7, settings)
    remove()
    do {
      let store = try Store(settings)
      _ = try store.openCursor(of: "hub", fromStart: true)
      store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: 1) }
      try store.commitNow()
      // The hub shows how far it has the lost epoch.
      try store.note(first, through: 9)
      try store.markProgress()
    }
    for _ in 0..<2 {
      remove()
      let store = try Store(settings)
      #expect(try gaps(store).allSatisfy { $0["epoch"]?.string != first })
      #expect(try store.knows(first, through: 9) && !store.knows(first, through: 10))
    }
  }

  @Test(arguments: [false, true])
  func `a server's other events are reported once, and not if it had none of them before`(
    _ wasInStep: Bool
  ) throws {
    let epoch = try filled(7, settings)
    let store = try Store(settings)
    let found = try (0..<2).map { _ in try store.renewEpoch(afterConflict: 9, wasInStep: wasInStep) != nil }
    #expect(found == [!wasInStep, false])
    let told = try gaps(store)
    #expect(told.map { $0["reason"]?.string } == (wasInStep ? [] : ["conflict"]))
    #expect(
      told.first?["epoch"]?.string == (wasInStep ? nil : epoch) && (wasInStep || told.first?["last"]?.integer == 9))
    #expect((store.provenance.loss == nil) == wasInStep)
  }

  /// `isNew`: as after a kill between the creation of the new database and its report.
  @Test(arguments: [true, false]) func `another database in the place of this one is reported`(_ isNew: Bool) throws {
    let epoch = try filled(7, settings)
    let other = Store.Settings(location: scratch.location("other.db"))
    _ = try filled(isNew ? 0 : 3, other)
    // `try?`: there may be no log.
    for suffix in ["", "-wal"] { try? FileManager.default.removeItem(atPath: settings.location + suffix) }
    try FileManager.default.copyItem(atPath: other.location, toPath: settings.location)
    let begun: String
    do {
      let store = try Store(settings)
      begun = store.epoch
      let told = try gaps(store)
      let reason = isNew ? "removed" : "replaced"
      #expect(told.map { $0["reason"]?.string } == [reason] && told.first?["epoch"]?.string == epoch)
      #expect(told.first?["last"]?.integer == 7)
      #expect(store.lastSeq == (isNew ? 1 : 4) && store.identity.epochFirst == store.lastSeq)
    }
    let again = try Store(settings)
    #expect(again.provenance.loss == nil && again.epoch == begun)
  }

  @Test func `an epoch that was renewed twice since the mark does not count as another database`() throws {
    _ = try filled(7, settings)
    do {
      let store = try Store(settings)
      try store.renewEpoch()
      try store.renewEpoch()
    }
    #expect(try Store(settings).provenance.loss == nil)
  }

  @Test func `an epoch that the disk did not take has not begun`() throws {
    let epoch = try filled(7, settings)
    let store = try Store(settings)
    let before = store.identity
    try store.database.execute("PRAGMA query_only = ON")
    #expect(throws: StoreError.self) { try store.renewEpoch(afterConflict: 9, wasInStep: false) }
    #expect(throws: StoreError.self) { try store.tellForeign("feedfeedfeedfeed", last: 3) }
    #expect(store.identity == before && store.epoch == epoch && store.provenance.loss == nil)
    try store.database.execute("PRAGMA query_only = OFF")
    #expect(try store.renewEpoch(afterConflict: 9, wasInStep: false)?.last == 9, "it is told at the next attempt")
    #expect(store.epoch != epoch && store.identity.epochFirst == 8)
    #expect(try gaps(store).map { $0["epoch"]?.string } == [epoch])
  }

  @Test(arguments: [12, 0, nil])
  func `a database that is damaged in use is reported with the missing events of upstreams`(
    _ unsent: Int64?
  ) throws {
    _ = try filled(70, settings)
    let store = try Store(settings)
    _ = try store.replaceDamaged(unsent: unsent)
    let told = try gaps(store)
    #expect(told.count == (unsent == 0 ? 0 : 1))
    #expect(told.first?["at_most"]?.integer == (unsent == 0 ? nil : unsent) && store.provenance.loss?.last == 70)
  }

  @Test(arguments: [false, true]) func `the loss of a second database does not hide the loss of the first`(
    _ isKilled: Bool
  ) throws {
    let first = try filled(7, settings)
    var second = ""
    do {
      let store = try Store(settings)
      _ = try store.replaceDamaged(unsent: 7)
      second = store.epoch
      _ = try store.openCursor(of: "hub", fromStart: true)
      if !isKilled {
        _ = try store.replaceDamaged(unsent: 3)
        let told = try gaps(store)
        #expect(told.map { $0["epoch"]?.string } == [first, second], "\(told)")
        #expect(told.map { $0["at_most"]?.integer } == [7, 3])
      }
    }
    guard isKilled else { return }
    for suffix in ["", "-wal"] { unlink(settings.location + suffix) }
    let told = try gaps(try Store(settings))
    #expect(told.map { $0["epoch"]?.string } == [first, second], "\(told)")
    #expect(told.map { $0["reason"]?.string } == ["damaged", "removed"])
  }

  @Test func `the loss of a database is told although the next one is damaged before it is stored there`() throws {
    let first = try filled(7, settings)
    let store = try Store(settings)
    // The disk does not take the first write of the new database.
    store.write { _ throws(SQLiteError) in throw SQLiteError(code: 13, message: "no room") }
    _ = try store.replaceDamaged(unsent: 7)
    let second = store.epoch
    let stored = try gaps(store)
    #expect(stored.isEmpty && second != first)
    _ = try store.replaceDamaged(unsent: 0)
    let told = try gaps(store)
    #expect(told.map { $0["epoch"]?.string } == [first] && told.first?["at_most"]?.integer == 7, "\(told)")
    #expect(store.provenance.losses.map(\.epoch) == [second, first])
  }

  @Test func `a database without a loss of its own does not hide the loss of the one before it`() throws {
    let first = try filled(7, settings)
    let store = try Store(settings)
    _ = try store.replaceDamaged(unsent: 7)
    _ = try store.openCursor(of: "hub", fromStart: true)
    _ = try store.replaceDamaged(unsent: 0)
    let told = try gaps(store)
    #expect(told.map { $0["epoch"]?.string } == [first] && told.first?["at_most"]?.integer == 7, "\(told)")
    // And not a second time when it was received.
    _ = try store.openCursor(of: "hub", fromStart: true)
    store.write { store throws(SQLiteError) in try store.setCursor(of: "hub", to: 1) }
    try store.commitNow()
    try store.markProgress()
    _ = try store.replaceDamaged(unsent: 0)
    #expect(try gaps(store).isEmpty)
  }

  @Test func `upstreams get a database that replaced a damaged one from its beginning`() throws {
    _ = try filled(7, settings)
    let store = try Store(settings)
    _ = try store.openCursor(of: "hub", fromStart: false)
    _ = try store.replaceDamaged(unsent: 0, upstreams: ["hub"])
    // Stored before the upstream begins again.
    store.write { store throws(SQLiteError) in
      try store.append(.message, at: Shop.moment, body: Array("{}".utf8))
    }
    try store.commitNow()
    #expect(try store.openCursor(of: "hub", fromStart: false) == (ByLane(all: 0), 0))
    #expect(try store.openCursor(of: "new", fromStart: false) == (ByLane(all: 1), 1))
  }

  @Test func `damage is confirmed by the content of the database`() throws {
    _ = try filled(3000, settings)
    let store = try Store(settings)
    func suspect() {
      store.write { _ throws(SQLiteError) in throw SQLiteError(code: 11, message: "malformed") }
      store.commit()
    }
    suspect()
    #expect(store.isDamaged)
    #expect(try !store.confirmDamage() && !store.isDamaged, "a failed read alone is no damage")
    store.write { store throws(SQLiteError) in
      try store.append(.message, at: Shop.moment, body: Array("{}".utf8))
    }
    try store.commitNow()
    let file = try FileHandle(forWritingTo: URL(filePath: settings.location))
    for page in 8..<16 as Range<UInt64> {
      try file.seek(toOffset: page * 4096)
      try file.write(contentsOf: Data(repeating: 0x55, count: 4096))
    }
    try file.close()
    store.releaseMemory()
    suspect()
    #expect(try store.confirmDamage() && store.isDamaged)
  }

  @Test(arguments: [5, 0]) func `a restored backup reports the greatest possible number of missing events`(_ more: Int)
    throws
  {
    let epoch = try filled(7, settings)
    let copy = scratch.location("copy")
    do {
      let store = try Store(settings)
      _ = try store.openCursor(of: "hub", fromStart: true)
      let backup = try store.beginBackup(to: copy)
      while try !backup.step(pages: 100) {}
    }
    _ = try filled(more, settings)
    let replaced = try Store.restore(copy, settings: settings)
    let store = try Store(settings, replaced: replaced)
    let told = try gaps(store)
    #expect(told.map { $0["at_most"]?.integer } == (more == 0 ? [] : [5]))
    #expect(store.epoch != epoch && store.identity.epochFirst == 8 && store.identity.epochBefore(of: 7) == epoch)
  }
}
