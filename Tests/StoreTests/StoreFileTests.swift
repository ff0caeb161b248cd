// SPDX-License-Identifier: MIT

import Documents
import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

/// The files of a store: their permissions, and damage that SQLite does not report.
@Suite struct StoreFileTests {
  private func mode(_ location: String) throws -> Int {
    try #require(FileManager.default.attributesOfItem(atPath: location)[.posixPermissions] as? Int)
  }

  @Test func `after a torn write of the reserved file, the write before it is read`() throws {
    let scratch = Scratch()
    let location = scratch.location("x.held")
    var file = ReservedFile(location)
    for content: [UInt8] in [[1, 2, 3], [4, 5]] {
      let isWritten = file.write(content)
      #expect(isWritten)
    }
    #expect(ReservedFile(location).content == [4, 5])
    for (offset, expected) in [(25, [1, 2, 3]), (ReservedFile.half + 25, [])] as [(Int, [UInt8])] {
      let descriptor = open(location, O_RDWR)
      defer { close(descriptor) }
      #expect(pwrite(descriptor, [9], 1, offset) == 1)
      #expect(ReservedFile(location).content == expected)
    }
    let tooMuch = file.write([UInt8](repeating: 0, count: ReservedFile.half))
    #expect(!tooMuch)
  }

  @Test func `all files of a store are for their owner, whatever the umask, and those of an older version become so`()
    throws
  {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    // The umask belongs to the whole process, so for a moment it applies to all its new files.
    let old = umask(0)
    let copy = scratch.location("copy")
    do {
      let store = try Store(settings)
      store.write { store throws(SQLiteError) in try store.append(.message, at: Shop.moment, body: [0x7B, 0x7D]) }
      try store.commitNow()
      for name in ["gw.db", "gw.db-wal", "gw.db.held"] { #expect(try mode(scratch.location(name)) == 0o600, "\(name)") }
      for name in ["gw.db.lock", "gw.db.id"] { #expect(try mode(scratch.location(name)) & 0o137 == 0, "\(name)") }
      let backup = try store.beginBackup(to: copy)
      while try !backup.step(pages: 100) {}
      #expect(try mode(copy) == 0o600)
    }
    _ = try Store.restore(copy, settings: settings)
    umask(old)
    #expect(try mode(settings.location) == 0o600)
    for name in ["gw.db"] { chmod(scratch.location(name), 0o664) }
    _ = try Store(settings)
    #expect(try mode(settings.location) == 0o640, "a group with the right to read keeps it")
  }

  @Test func `a backup with a trigger is refused`() throws {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    do { _ = try Store(settings) }
    do {
      let database = try Database(location: settings.location)
      try database.run("CREATE TRIGGER spy AFTER INSERT ON journal BEGIN DELETE FROM journal; END")
    }
    try FileManager.default.moveItem(atPath: settings.location, toPath: scratch.location("copy"))
    #expect { _ = try Store.restore(scratch.location("copy"), settings: settings) } throws: {
      "\($0)".contains("it has a trigger, spy")
    }
  }

  @Test(arguments: [
    "ALTER TABLE journal RENAME COLUMN body TO bodi", "DROP TABLE cursors", "PRAGMA user_version = 3",
    "INSERT INTO meta VALUES('epoch', 'x') ON CONFLICT DO NOTHING; PRAGMA user_version = 0",
  ])
  func `a backup that this program cannot use leaves the store unchanged`(change: String) throws {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    let epoch: String
    do {
      let store = try Store(settings)
      store.write { store throws(SQLiteError) in try store.append(.message, at: Shop.moment, body: [0x7B, 0x7D]) }
      try store.commitNow()
      epoch = store.epoch
    }
    let copy = scratch.location("copy")
    try FileManager.default.copyItem(atPath: settings.location, toPath: copy)
    do { try Database(location: copy).execute(change) }
    #expect(throws: StoreError.self) { try Store.restore(copy, settings: settings) }
    let store = try Store(settings)
    #expect((store.epoch, store.lastSeq) == (epoch, 1))
    let left = try FileManager.default.contentsOfDirectory(atPath: scratch.location("")).sorted()
    #expect(left.filter { $0.contains("restoring") || $0.contains("replaced") } == [])
  }

  @Test func `replacing a store reports the events that each upstream has not received`() throws {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    var heard: UInt32 = 0
    func hear(_ store: Store, _ count: Int) throws {
      for _ in 0..<count {
        store.write { store throws(SQLiteError) in
          heard += 1
          try store.append(.contact, at: Shop.moment, body: [0x7B, 0x7D])
          _ = try store.insert(Shop.direct("message \(heard)", time: heard), at: Shop.moment)
        }
      }
      try store.commitNow()
    }
    do {
      let store = try Store(settings)
      store.write { store throws(SQLiteError) in
        try store.database.run("INSERT INTO cursors(upstream, seq) VALUES('slow', 1), ('quick', 99)")
      }
      try hear(store, 4)
      let backup = try store.beginBackup(to: scratch.location("copy"))
      while try !backup.step(pages: 100) {}
      try hear(store, 5)
      let refused = JournalEvent(seq: 2, at: 1, trusted: true, kind: "contact", body: [0x7B, 0x7D])
      store.write { store throws(SQLiteError) in
        try store.bury(refused, upstream: "quick", status: 422, reason: "no", at: 1)
      }
      try store.commitNow()
    }
    // The backup lacks five messages and five contacts: one upstream has all of them, the other none. It also lacks a
    // dead letter.
    let replaced = try #require(try Store.restore(scratch.location("copy"), settings: settings))
    #expect(try #require(replaced.unsent).map { "\($0.upstream) \($0.events)" } == ["quick 1", "slow 10"])
    // Once more, after the gap that tells this and three other events: the epoch is a new one now, and events that both have are no loss.
    do {
      let store = try Store(settings)
      try store.renewEpoch()
      try hear(store, 3)
    }
    let again = try #require(try Store.restore(scratch.location("copy"), settings: settings))
    #expect(try #require(again.unsent).map { "\($0.upstream) \($0.events)" } == ["quick 0", "slow 7"])
    #expect(
      try FileManager.default.contentsOfDirectory(atPath: scratch.location("")).filter { $0.contains("restoring") }
        == [])
  }

  @Test func `a backup of another gateway that heard the same has none of this gateway's events`() throws {
    let scratch = Scratch()
    let own = Store.Settings(location: scratch.location("gw.db"))
    let other = Store.Settings(location: scratch.location("other.db"))
    var ids: [String] = []
    for settings in [own, other] {
      let store = try Store(settings)
      store.write { store throws(SQLiteError) in
        try store.database.run("INSERT INTO cursors(upstream, seq) VALUES('hub', 99), ('web', 0)")
        for number in 1...4 {
          _ = try store.insert(Shop.direct("message \(number)", time: UInt32(number)), at: Shop.moment)
        }
      }
      try store.commitNow()
      ids.append(store.gatewayID)
      let backup = try store.beginBackup(to: settings.location + ".copy")
      while try !backup.step(pages: 100) {}
    }
    for (settings, gateway, lacks) in [(own, nil, 0), (other, ids[1], 4)] as [(Store.Settings, String?, Int)] {
      let replaced = try #require(try Store.restore(settings.location + ".copy", settings: own))
      #expect(replaced.otherGateway == gateway)
      #expect(try #require(replaced.unsent).map { "\($0.upstream) \($0.events)" } == ["hub 0", "web \(lacks)"])
    }
  }

  /// The file is overwritten by a copy or a backup of it, or only touched; `nil`: it is overwritten with equal content.
  @Test(arguments: ["copy", "backup", "nothing", nil])
  func `another program's write over the open file is found at the next write, and by a check`(_ what: String?)
    throws
  {
    for looks in [true, false] {
      let scratch = Scratch()
      let settings = Store.Settings(location: scratch.location("gw.db"))
      let store = try Store(settings)
      func hear(_ count: Int) throws {
        for _ in 0..<count {
          store.write { store throws(SQLiteError) in
            try store.append(.message, at: Shop.moment, body: [UInt8](repeating: 0x20, count: 200))
          }
        }
        try store.commitNow()
      }
      try hear(50)
      try store.checkpoint()
      let copy = scratch.location("copy")
      if what == "backup" {
        let backup = try store.beginBackup(to: copy)
        while try !backup.step(pages: 100) {}
      } else {
        // Another process does this, because closing the file in this process would release SQLite's locks.
        #expect(try Process.run(URL(filePath: "/bin/cp"), arguments: [settings.location, copy]).isDone == 0)
      }
      if what != nil { try hear(300) }
      // While all data is in the log alone, the copy equals the file.
      if what == "copy" { try store.checkpoint() }
      let source = what == "nothing" ? "/dev/null" : copy
      #expect(try Process.run(URL(filePath: "/bin/cp"), arguments: [source, settings.location]).isDone == 0)
      if looks {
        #expect(!store.lookAtOwnFile())
      } else {
        store.write { store throws(SQLiteError) in try store.append(.message, at: Shop.moment, body: [0x7B, 0x7D]) }
        store.commit()
      }
      #expect(store.isDamaged == (what != nil), "\(what ?? "the same") \(looks)")
      guard what != nil else { continue }
      let had = store.lastSeq
      let saved = try store.replaceDamaged(unsent: 0)
      #expect(saved.contains("corrupt") && store.provenance.loss?.last == had && had == 350)
      try hear(1)
      #expect(!store.isDamaged && store.lastSeq == 1)
    }
  }

  @Test func `after a write that took a part, the reason is that of the rest`() throws {
    var pipes: [Int32] = [-1, -1]
    let isMade = pipe(&pipes) == 0
    try #require(isMade)
    defer { for end in pipes { close(end) } }
    _ = fcntl(pipes[1], F_SETFL, O_NONBLOCK)
    errno = ENOENT
    let isWritten = WholeFile.writeAll([UInt8](repeating: 1, count: 1 << 20)[...], to: pipes[1])
    let reason = errno
    #expect(!isWritten && reason == EAGAIN)
  }

  @Test(arguments: ["a pipe", "a file that is longer than its database"])
  func `an invalid backup is not copied`(what: String) throws {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    do { _ = try Store(settings) }
    let copy = scratch.location("copy")
    if what == "a pipe" {
      #expect(mkfifo(copy, 0o600) == 0)
    } else {
      try FileManager.default.copyItem(atPath: settings.location, toPath: copy)
      // A sparse file of 1 TiB: a copy would fill the disk.
      #expect(truncate(copy, 1 << 40) == 0)
    }
    #expect(throws: StoreError.self) { try Store.restore(copy, settings: settings) }
    _ = try Store(settings)
  }

  @Test func `a lock that is a symbolic link is refused, and its target is not written`() throws {
    let scratch = Scratch()
    let victim = scratch.write("victim", "precious")
    #expect(symlink(victim, scratch.location("gw.db.lock")) == 0)
    do {
      _ = try Store(Store.Settings(location: scratch.location("gw.db")))
      Issue.record("opened")
    } catch {
      #expect("\(error)".contains("is a symbolic link"), "\(error)")
    }
    #expect(try String(contentsOfFile: victim, encoding: .utf8) == "precious")
  }

  /// A store after a power cut: `count` transactions are in the log, and none in the database.
  private func cut(_ count: Int) throws -> (scratch: Scratch, settings: Store.Settings, epoch: String, log: Data) {
    let shop = try Shop()
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    try shop.store.checkpoint()
    for number in 0..<count { try shop.insert(Shop.direct("message \(number)", time: UInt32(number + 1))) }
    let file = try Data(contentsOf: URL(filePath: shop.scratch.location("gw.db-wal")))
    // Behind these frames, which have the header's salts, are some of before the checkpoint.
    var length = 32
    while length + Self.frame <= file.count, file[length + 8..<length + 16] == file[16..<24] { length += Self.frame }
    let log = Data(file.prefix(length))
    try FileManager.default.copyItem(atPath: shop.scratch.location("gw.db"), toPath: settings.location)
    try FileManager.default.copyItem(atPath: shop.scratch.location("gw.db.id"), toPath: settings.location + ".id")
    return (scratch, settings, shop.store.epoch, log)
  }

  private static let frame = 24 + Int(Store.pageSize)

  @Test func `a flipped bit in the log is reported, except at its end, and a new epoch begins`() throws {
    let (scratch, settings, epoch, log) = try cut(60)
    let database = try Data(contentsOf: URL(filePath: settings.location))
    let frames = (log.count - 32) / Self.frame
    #expect(frames > 60)
    // The header's magic, version, page size, salt, checksum; then of frames: number, end, salt, checksum, page.
    let places =
      [0, 9, 17, 21, 25, 29]
      + stride(from: 0, to: frames - 12, by: 5).flatMap { number in
        [2, 6, 9, 13, 17, 22, 24, 500].map { 32 + number * Self.frame + $0 }
      }
    for place in places {
      for name in try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path())
      where !name.hasSuffix(".id") {
        try FileManager.default.removeItem(atPath: scratch.location(name))
      }
      var log = log
      log[place] ^= 0x10
      try database.write(to: URL(filePath: settings.location))
      try log.write(to: URL(filePath: settings.location + "-wal"))
      let store = try Store(settings)
      let messages = try store.messageCount()
      #expect(messages < 60, "at \(place)")
      let words = try #require(
        store.provenance.lostFromLog, "at \(place): \(60 - messages) of 60 are gone without a word")
      #expect(
        store.epoch != epoch && store.identity.epochFirst == store.lastSeq && store.provenance.loss?.cause == .log,
        "at \(place)")
      let kept = try #require(words.split(separator: " ").last.map(String.init))
      #expect(try Data(contentsOf: URL(filePath: kept)) == log, "the log is kept unchanged")
      #expect(try mode(kept) == 0o600)
    }
  }

  @Test func `a restored database begins a new epoch, and reports the number of missing events`() throws {
    let scratch = Scratch()
    let settings = Store.Settings(location: scratch.location("gw.db"))
    func hear(_ count: Int, _ store: Store) throws {
      for _ in 0..<count {
        store.write { store throws(SQLiteError) in
          try store.append(.alert, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
        }
      }
      try store.commitNow()
      try store.checkpoint()
      try store.markProgress()
    }
    var store: Store? = try Store(settings)
    let epoch = try #require(store?.epoch)
    try hear(5, #require(store))
    store = nil
    let image = try Data(contentsOf: URL(filePath: settings.location))
    store = try Store(settings)
    #expect(store?.epoch == epoch && store?.provenance.putBack == nil, "the same database is no restored one")
    try hear(3, #require(store))
    store = nil
    try image.write(to: URL(filePath: settings.location))
    try? FileManager.default.removeItem(atPath: settings.location + "-wal")  // `try?`: there may be none
    store = try Store(settings)
    #expect(store?.epoch != epoch && store?.identity.epochFirst == 6 && store?.identity.epochBefore(of: 5) == epoch)
    #expect(store?.provenance.putBack?.contains("ends with event 5, and there was an event 8") == true)
    try hear(1, #require(store))
    let renewed = try #require(store?.epoch)
    store = nil
    #expect(try Store(settings).epoch == renewed, "the loss is reported once")
  }

  @Test func `a loss from the log is reported once`() throws {
    let (scratch, settings, _, log) = try cut(22)
    var damaged = log
    damaged[32 + 3 * Self.frame + 300] ^= 1
    try damaged.write(to: URL(filePath: settings.location + "-wal"))
    var store: Store? = try Store(settings)
    let epoch = try #require(store?.epoch)
    #expect(store?.provenance.lostFromLog != nil)
    // As after a kill: the log is not copied into the database.
    for name in ["gw.db", "gw.db-wal"] {
      try FileManager.default.copyItem(atPath: scratch.location(name), toPath: scratch.location("copy-" + name))
    }
    store = nil
    for name in ["gw.db", "gw.db-wal"] {
      try? FileManager.default.removeItem(atPath: scratch.location(name))
      try FileManager.default.moveItem(atPath: scratch.location("copy-" + name), toPath: scratch.location(name))
    }
    let again = try Store(settings)
    #expect(again.provenance.lostFromLog == nil && again.epoch == epoch)
  }

  @Test func `the remains of the last transaction after a power cut are no damage`() throws {
    let (scratch, settings, epoch, log) = try cut(6)
    let database = try Data(contentsOf: URL(filePath: settings.location))
    let ends = stride(from: 32, to: log.count, by: Self.frame).filter { log[$0 + 4..<$0 + 8].contains { $0 != 0 } }
    let last = try #require(ends.dropLast().last) + Self.frame
    #expect(log.count - last >= Self.frame)
    // The log is cut anywhere, or its pages were written in another order.
    for place in [last, last + 7, last + 24, last + 900, log.count - 1] {
      for torn in [Data(log[..<place]), log[..<last] + Data(count: place - last) + log[place...]] {
        for name in try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path())
        where !name.hasSuffix(".id") {
          try FileManager.default.removeItem(atPath: scratch.location(name))
        }
        try database.write(to: URL(filePath: settings.location))
        try torn.write(to: URL(filePath: settings.location + "-wal"))
        let store = try Store(settings)
        #expect(store.provenance.lostFromLog == nil && store.provenance.setAside == nil, "at \(place - last)")
        #expect(try store.epoch == epoch && store.messageCount() >= 5, "at \(place - last)")
      }
    }
  }

  @Test func `an empty or missing database beside a log with content is set aside with the log`() throws {
    for isMissing in [false, true] {
      let (scratch, settings, epoch, log) = try cut(3)
      try log.write(to: URL(filePath: settings.location + "-wal"))
      if isMissing {
        try FileManager.default.removeItem(atPath: settings.location)
      } else {
        try Data().write(to: URL(filePath: settings.location))
      }
      let store = try Store(settings)
      let loss = try #require(store.provenance.loss, "nothing is said")
      let kept = try #require(loss.saved)
      #expect(try Data(contentsOf: URL(filePath: isMissing ? kept : kept + "-wal")) == log)
      #expect(loss.cause == (isMissing ? .removed : .damaged) && FileManager.default.fileExists(atPath: kept))
      #expect((store.provenance.setAside == nil) == isMissing && store.epoch != epoch)
      withExtendedLifetime(scratch) {}
    }
  }

  @Test func `a database that is missing beside the mark of another is reported once`() throws {
    let shop = try Shop()
    #expect(shop.store.provenance.loss == nil, "a first start")
    try shop.append(7)
    try shop.store.markProgress()
    let settings = shop.store.settings
    unlink(settings.location)
    #expect(shop.store.isElsewhere)
    try withExtendedLifetime(shop.scratch) {
      let copy = Scratch()
      for suffix in [".mark", ".id"] {
        try FileManager.default.copyItem(
          atPath: settings.location + suffix, toPath: copy.location("gw.db") + suffix)
      }
      var store: Store? = try Store(Store.Settings(location: copy.location("gw.db")))
      #expect(
        store?.provenance.loss?.cause == .removed
          && store?.provenance.loss?.description.contains("there had been 7 events") == true)
      #expect(store?.provenance.putBack == nil && store?.provenance.setAside == nil)
      store = nil
      #expect(try Store(Store.Settings(location: copy.location("gw.db"))).provenance.loss == nil)
    }
  }

  @Test func `the number of documents is bounded, and existing ones can still be edited`() throws {
    let shop = try Shop()
    func key(_ number: Int) -> String {
      "node/" + String(repeating: "0", count: 64 - "\(number)".count) + "\(number)/alias"
    }
    func apply(_ number: Int, _ value: String) throws -> Bool {
      var isNew = false
      shop.store.write { store throws(SQLiteError) in
        isNew = try store.applyDocument(
          Document(key: key(number), value: value, updatedAt: 5, byHub: true), via: "hub", acknowledged: 1 << 40,
          at: Shop.moment)
      }
      try shop.store.commitNow()
      return isNew
    }
    shop.store.write { store throws(SQLiteError) in
      for number in 0..<Int(Store.maxDocuments) {
        try store.database.run(
          "INSERT INTO documents(key, value, updated_at, by_hub, seq) VALUES (?, '\"x\"', 1, 1, 0)", .text(key(number)))
      }
    }
    try shop.store.commitNow()
    let seq = shop.store.lastSeq
    #expect(try !apply(Int(Store.maxDocuments), "\"one more\""))
    #expect(shop.store.lastSeq == seq, "and it is not sent to other hubs")
    #expect(try shop.store.hasRoomForDocument(key(7)) && !shop.store.hasRoomForDocument("settings/log_level"))
    #expect(try apply(7, "\"another\""))
  }

  @Test func `two hubs with different clocks do not exchange one document for ever`() throws {
    let shop = try Shop()
    let (key, ahead) = ("settings/log_level", Int64(1) << 45)
    func apply(_ value: String, at time: Int64, via hub: String) throws -> Bool {
      var isNew = false
      shop.store.write { store throws(SQLiteError) in
        isNew = try store.applyDocument(
          Document(key: key, value: value, updatedAt: time, byHub: hub == "fast"), via: hub, acknowledged: .max,
          at: Shop.moment)
      }
      try shop.store.commitNow()
      return isNew
    }
    #expect(try apply("\"debug\"", at: ahead, via: "fast"))
    let seq = shop.store.lastSeq
    // The other hub gives it a time of its own, and reports it to the gateway; then the first hub reports its own time again.
    #expect(try !apply("\"debug\"", at: 1000, via: "slow") && !apply("\"debug\"", at: ahead, via: "fast"))
    #expect(shop.store.lastSeq == seq, "nothing is passed on")
    shop.store.write { store throws(SQLiteError) in try store.editDocument(key, "\"info\"", at: Shop.moment) }
    try shop.store.commitNow()
    #expect(try shop.store.document(key)?.updatedAt == ahead + 1, "later than the time of both hubs")
  }
}

extension Process {
  /// The exit code, when it has ended.
  fileprivate var isDone: Int32 {
    waitUntilExit()
    return terminationStatus
  }
}
