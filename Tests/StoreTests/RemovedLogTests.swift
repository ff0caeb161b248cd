// SPDX-License-Identifier: MIT

import CrashDisk
import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

/// A log that somebody removes: what is in it is lost, and nothing in the database shows that.
@Suite struct RemovedLogTests {
  private struct Card {
    let folder: Scratch
    let settings: Store.Settings
    let epoch: String
  }

  /// What a killed gateway leaves, without these files: five events are in the database, and two in the log alone.
  private func killed(without missing: [String] = []) throws -> Card {
    let (shop, card) = (try Shop(in: Scratch(inMemory: true)), Scratch(inMemory: true))
    try shop.append(5)
    try shop.store.checkpoint()
    try shop.append(2)
    for suffix in ["", "-wal", ".id", ".mark"] where !missing.contains(suffix) {
      try FileManager.default.copyItem(
        atPath: shop.scratch.location("gw.db" + suffix), toPath: card.location("gw.db" + suffix))
    }
    let settings = Store.Settings(location: card.location("gw.db"))
    return Card(folder: card, settings: settings, epoch: shop.store.epoch)
  }

  @Test func `a log that is removed after a kill is told once, in a new epoch`() throws {
    let card = try killed(without: ["-wal"])
    var begun = ""
    do {
      let store = try Store(card.settings)
      begun = store.epoch
      let loss = try #require(store.provenance.loss, "nothing is said")
      #expect(loss.cause == .log && loss.epoch == card.epoch && loss.saved == nil)
      #expect("\(loss)".contains("the database's log was removed"), "\(loss)")
      #expect(store.provenance.lostFromLog?.contains("was removed") == true)
      #expect(begun != card.epoch && store.identity.epochFirst == 6 && store.lastSeq == 6)
    }
    let again = try Store(card.settings)
    #expect(again.provenance.loss == nil && again.epoch == begun)
    withExtendedLifetime(card) {}
  }

  @Test(arguments: [0, 20, 500])
  func `a log that is emptied after a kill is told once, in a new epoch`(_ left: Int) throws {
    let card = try killed()
    let log = URL(filePath: card.settings.location + "-wal")
    try Data(contentsOf: log).prefix(left).write(to: log)
    var begun = ""
    do {
      let store = try Store(card.settings)
      begun = store.epoch
      let loss = try #require(store.provenance.loss, "nothing is said")
      #expect(loss.cause == .log && loss.epoch == card.epoch && loss.kept == 5 && loss.saved == nil)
      #expect("\(loss)".contains("removed or emptied"), "\(loss)")
      #expect(begun != card.epoch && store.identity.epochFirst == 6 && store.lastSeq == 6)
    }
    let again = try Store(card.settings)
    #expect(again.provenance.loss == nil && again.epoch == begun)
    withExtendedLifetime(card) {}
  }

  /// A block of the medium, or a frame, that has become zeros or ones has no salt of the log any more.
  @Test(arguments: [0x00, 0xFF] as [UInt8], [4096, 24 + Int(Store.pageSize)])
  func `a hole in the log is told, wherever it is, if two transactions follow it`(_ filler: UInt8, _ size: Int) throws {
    let shop = try Shop(in: Scratch(inMemory: true))
    try shop.store.checkpoint()
    for _ in 0..<30 { try shop.append(1) }
    let files = try ["", "-wal", ".id", ".mark"].map { suffix in
      (suffix, try Data(contentsOf: URL(filePath: shop.scratch.location("gw.db" + suffix))))
    }
    let (epoch, whole) = (shop.store.epoch, Array(files[1].1))
    let frame = 24 + Int(Store.pageSize)
    let commits = stride(from: 32, through: whole.count - frame, by: frame).filter { place in
      whole[place + 8..<place + 16] == whole[16..<24] && whole[place + 4..<place + 8].contains { $0 != 0 }
    }
    try #require(commits.count >= 30)
    let first = size == frame ? 32 : 0
    var holes = 0
    for place in stride(from: first, through: commits[commits.count - 2] - size, by: size * (size == frame ? 3 : 1)) {
      let card = Scratch(inMemory: true)
      defer { withExtendedLifetime(card) {} }
      let settings = Store.Settings(location: card.location("gw.db"))
      for (suffix, content) in files { try content.write(to: URL(filePath: settings.location + suffix)) }
      var log = whole
      log.replaceSubrange(place..<place + size, with: [UInt8](repeating: filler, count: size))
      try Data(log).write(to: URL(filePath: settings.location + "-wal"))
      #expect(Store.lostTransactions(of: settings.location) != nil, "a restoration is silent about \(place)")
      let store = try Store(settings)
      #expect(store.lastSeq < 30 && store.provenance.lostFromLog?.contains("is damaged") == true, "at \(place)")
      #expect(store.provenance.loss?.cause == .log && store.epoch != epoch, "at \(place)")
      holes += 1
    }
    #expect(holes > 5)
    withExtendedLifetime(shop) {}
  }

  /// The start moves a log into the database and begins it anew; at no moment does that look like a log that somebody emptied.
  @Test func `no log is missed wherever a start behind a kill ends, or the run behind that`() throws {
    let card = try killed()
    let disk = CrashDisk(watching: card.folder.folder.path())
    var (images, missed): ([Scratch], [String]) = ([], [])
    func kill() {
      let image = Scratch(inMemory: true)
      images.append(image)
      disk.image(into: image.folder.path(), .keepingAll)
      do {
        let store = try Store(Store.Settings(location: image.location("gw.db")))
        if let loss = store.provenance.loss { missed.append("\(images.count): \(loss)") }
        if store.epoch != card.epoch || store.lastSeq < 7 { missed.append("\(images.count): \(store.lastSeq)") }
      } catch {
        missed.append("\(images.count): \(error)")
      }
    }
    disk.onSync = { kill() }
    defer { disk.onSync = nil }
    for _ in 0..<2 {
      var store: Store? = try Store(card.settings)
      kill()
      try store?.checkpoint()
      kill()
      store?.write { store throws(SQLiteError) in try store.append(.alert, at: Shop.moment, body: [0x7B, 0x7D]) }
      try store?.commitNow()
      try store?.checkpoint()
      try store?.markProgress()
      kill()
      try store?.markEnd()
      kill()
      store = nil
      kill()
    }
    #expect(images.count > 14 && missed.isEmpty, "\(missed) of \(images.count)")
  }

  @Test func `a removed log is told, wherever the start behind it ends`() throws {
    // SQLite has made a log again, and nothing was told yet.
    let card = try killed(without: ["-wal"])
    try "\(card.epoch):0,missing\n".write(toFile: card.settings.location + ".mark", atomically: true, encoding: .utf8)
    try Data().write(to: URL(filePath: card.settings.location + "-wal"))
    let store = try Store(card.settings)
    #expect(store.provenance.loss?.cause == .log && store.epoch != card.epoch)
    withExtendedLifetime(card) {}
  }

  @Test func `a database that ends before its mark because its log was removed is no older copy`() throws {
    let card = try killed(without: ["-wal"])
    try "\(card.epoch):7,open\n".write(
      toFile: card.settings.location + ".mark", atomically: true, encoding: .utf8)
    let store = try Store(card.settings)
    let loss = try #require(store.provenance.loss)
    #expect(loss.cause == .log && loss.last == 7 && loss.kept == 5 && loss.atLeast == 2)
    #expect("\(loss)".contains("it lacks at least 2") && "\(loss)".contains("nobody knows how many events"), "\(loss)")
    #expect(store.provenance.putBack == nil && store.epoch != card.epoch && store.identity.epochFirst == 6)
    withExtendedLifetime(card) {}
  }

  @Test func `a log that is there is not missed, nor one that no mark names`() throws {
    let whole = try killed()
    let store = try Store(whole.settings)
    #expect(store.provenance.loss == nil && store.epoch == whole.epoch && store.lastSeq == 7)
    // A database that was copied alone, and one of an earlier version.
    for mark in [nil, "0"] as [String?] {
      let card = try killed(without: ["-wal", ".mark"])
      if let mark {
        try "\(card.epoch):\(mark)\n".write(
          toFile: card.settings.location + ".mark", atomically: true, encoding: .utf8)
      }
      let copied = try Store(card.settings)
      #expect(copied.provenance.loss == nil && copied.epoch == card.epoch && copied.lastSeq == 5)
      withExtendedLifetime(card) {}
    }
    withExtendedLifetime(whole) {}
  }

  @Test func `a start that fails leaves the log of the run before it`() throws {
    let card = try killed()
    func say(_ version: Int) throws -> Int {
      let database = try Database(location: card.settings.location)
      database.keepsLog = true
      let before = try database.schemaVersion()
      try database.execute("PRAGMA user_version = \(version)")
      return before
    }
    let version = try say(9999)
    #expect(throws: StoreError.self) { try Store(card.settings) }
    #expect(FileManager.default.fileExists(atPath: card.settings.location + "-wal"))
    _ = try say(version)
    let store = try Store(card.settings)
    #expect(store.provenance.loss == nil && store.epoch == card.epoch && store.lastSeq == 7)
    withExtendedLifetime(card) {}
  }

  @Test func `a log that is removed in use is noticed, and a regular end loses nothing`() throws {
    let scratch = Scratch(inMemory: true)
    var epoch = ""
    do {
      let shop = try Shop(in: scratch)
      epoch = shop.store.epoch
      try shop.append(3)
      #expect(!shop.store.isLogElsewhere && shop.store.missingFile == nil)
      unlink(scratch.location("gw.db-wal"))
      #expect(shop.store.isLogElsewhere && !shop.store.isElsewhere)
      #expect(shop.store.missingFile?.words.contains("log (-wal) was removed") == true)
      try shop.append(1)
    }
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    #expect(store.provenance.loss == nil && store.epoch == epoch && store.lastSeq == 4)
  }

  @Test func `a database is restored with its log, and without one of an attempt that was cut off`() throws {
    let (whole, lacking) = (try killed(without: [".id", ".mark"]), try killed(without: ["-wal", ".id", ".mark"]))
    func restored(_ card: Card, as name: String) throws -> Int64 {
      let settings = Store.Settings(location: whole.folder.location(name))
      #expect(try Store.restore(card.settings.location, settings: settings) == nil)
      return try Store(settings).lastSeq
    }
    #expect(try restored(whole, as: "first.db") == 7)
    try FileManager.default.copyItem(
      atPath: whole.settings.location + "-wal", toPath: whole.folder.location("second.db.restoring-wal"))
    #expect(try restored(lacking, as: "second.db") == 5)
    withExtendedLifetime((whole, lacking)) {}
  }

  @Test func `the log of a missing database is saved before a restoration, and is not read into the restored one`()
    throws
  {
    for isMissing in [true, false] {
      let (card, other) = (try killed(), try killed(without: ["-wal", ".id", ".mark"]))
      let log = try Data(contentsOf: URL(filePath: card.settings.location + "-wal"))
      unlink(card.settings.location)
      if !isMissing { try Data().write(to: URL(filePath: card.settings.location)) }
      let replaced = try #require(try Store.restore(other.settings.location, settings: card.settings))
      let isUnknown = replaced.unsent == nil
      #expect(isUnknown)
      let kept = isMissing ? replaced.location : replaced.location + "-wal"
      #expect(try Data(contentsOf: URL(filePath: kept)) == log)
      let store = try Store(card.settings, replaced: replaced)
      #expect(store.epoch != other.epoch && store.identity.epochFirst == 6)
      #expect(store.provenance.loss?.cause == .restored && store.provenance.loss?.saved == replaced.location)
      withExtendedLifetime((card, other)) {}
    }
  }

  @Test func `an empty backup beside a log is refused, and its log stays`() throws {
    let card = try killed(without: [".id", ".mark"])
    try Data().write(to: URL(filePath: card.settings.location))
    let settings = Store.Settings(location: card.folder.location("new.db"))
    #expect { _ = try Store.restore(card.settings.location, settings: settings) } throws: {
      "\($0)".contains("it is empty, and its log (-wal)")
    }
    #expect(FileManager.default.fileExists(atPath: card.settings.location + "-wal"))
    withExtendedLifetime(card) {}
  }

  /// `isBackup`: it is the backup's log; otherwise that of the database that is replaced.
  @Test(arguments: [true, false]) func `what a damaged log has is not counted as restored, or as known`(
    _ isBackup: Bool
  ) throws {
    let (shop, card) = (try Shop(in: Scratch(inMemory: true)), Scratch(inMemory: true))
    defer { withExtendedLifetime(card) {} }
    _ = try shop.store.openCursor(of: "hub", fromStart: true)
    try shop.store.checkpoint()
    for _ in 0..<12 { try shop.append(1) }
    let (damaged, whole) = (Store.Settings(location: card.location("damaged")), card.location("whole"))
    for suffix in ["", "-wal"] {
      let source = shop.scratch.location("gw.db" + suffix)
      try FileManager.default.copyItem(atPath: source, toPath: damaged.location + suffix)
      try FileManager.default.copyItem(atPath: source, toPath: whole + suffix)
    }
    var log = try Data(contentsOf: URL(filePath: damaged.location + "-wal"))
    log[32 + 3 * (24 + Int(Store.pageSize)) + 300] ^= 1
    try log.write(to: URL(filePath: damaged.location + "-wal"))
    #expect(Store.lostTransactions(of: whole) == nil)
    #expect(try #require(Store.lostTransactions(of: damaged.location)) > 1)
    guard isBackup else {
      let replaced = try #require(try Store.restore(whole, settings: damaged))
      let isUnknown = replaced.unsent == nil
      #expect(isUnknown)
      return
    }
    let settings = Store.Settings(location: card.location("gw.db"))
    #expect(try Store.restore(damaged.location, settings: settings) == nil)
    let store = try Store(settings)
    let had = store.lastSeq
    #expect(had < 12)
    try store.renewEpoch(telling: store.lossOfBackup(log: damaged.location + "-wal"))
    var told: [String] = []
    try store.readJournal(after: had) { event, _ in
      told.append("\(event.kind) \(String(decoding: event.body, as: UTF8.self))")
      return true
    }
    #expect(told.count == 1 && told.first?.contains("gap") == true, "\(told)")
    #expect(told.first?.contains("\"kept\":\(had)") == true && told.first?.contains("damaged-wal") == true, "\(told)")
  }

  @Test func `an emptied log of a backup is told as a possible loss, and a missing one is not`() throws {
    let (shop, card) = (try Shop(in: Scratch(inMemory: true)), Scratch(inMemory: true))
    defer { withExtendedLifetime(card) {} }
    try shop.append(3)
    try shop.store.checkpoint()
    let backup = card.location("backup")
    try FileManager.default.copyItem(atPath: shop.scratch.location("gw.db"), toPath: backup)
    #expect(!Store.isLogEmptied(of: backup))
    let (log, header) = (URL(filePath: backup + "-wal"), WriteAheadLog.headerSize)
    for content in [Data(), Data(repeating: 0, count: header)] {
      try content.write(to: log)
      #expect(Store.isLogEmptied(of: backup), "\(content.count) bytes")
    }
    let settings = Store.Settings(location: card.location("gw.db"))
    #expect(try Store.restore(backup, settings: settings) == nil)
    let store = try Store(settings)
    let loss = store.lossOfBackup(log: nil)
    #expect(loss.cause == .log && loss.kept == store.lastSeq)
    #expect("\(loss)".contains("the database's log was removed or emptied"), "\(loss)")
  }

  @Test func `restoring leaves no empty log beside a backup, or beside the database before`() throws {
    let (shop, card) = (try Shop(in: Scratch(inMemory: true)), Scratch(inMemory: true))
    defer { withExtendedLifetime(card) {} }
    try shop.append(3)
    try shop.store.checkpoint()
    let backup = card.location("backup")
    try FileManager.default.copyItem(atPath: shop.scratch.location("gw.db"), toPath: backup)
    let settings = Store.Settings(location: card.location("gw.db"))
    #expect(try Store.restore(backup, settings: settings) == nil)
    #expect(!Store.isLogEmptied(of: backup))
    // It is opened and closed, so that its log is gone.
    _ = try Store(settings)
    let replaced = try #require(try Store.restore(backup, settings: settings))
    #expect(!Store.isLogEmptied(of: backup))
    #expect(!Store.isLogEmptied(of: replaced.location), "it may be restored, too")
  }

  @Test func `while a backup without a log is read, nothing is beside it that a kill would leave`() throws {
    let (shop, card) = (try Shop(in: Scratch(inMemory: true)), Scratch(inMemory: true))
    try shop.append(3)
    try shop.store.checkpoint()
    let backup = card.location("backup")
    try FileManager.default.copyItem(atPath: shop.scratch.location("gw.db"), toPath: backup)
    let database = try Store.openToRead(backup)
    #expect(try database.meta("epoch")?.text == shop.store.epoch)
    #expect(try FileManager.default.contentsOfDirectory(atPath: card.folder.path()) == ["backup"])
    withExtendedLifetime(database) {}
  }

  @Test func `a database that replaces a damaged one is marked with its log`() throws {
    let (shop, card) = (try Shop(in: Scratch(inMemory: true)), Scratch(inMemory: true))
    try shop.append(3)
    _ = try shop.store.replaceDamaged(unsent: 3)
    #expect(!shop.store.isLogElsewhere)
    try shop.store.checkpoint()
    try shop.append(2)
    for suffix in ["", ".id", ".mark"] {
      try FileManager.default.copyItem(
        atPath: shop.scratch.location("gw.db" + suffix), toPath: card.location("gw.db" + suffix))
    }
    let store = try Store(Store.Settings(location: card.location("gw.db")))
    #expect(store.provenance.loss?.cause == .log && store.provenance.loss?.epoch == shop.store.epoch)
  }
}
