// SPDX-License-Identifier: MIT

import Companion
import CrashDisk
import Documents
import Foundation
import MeshCrypto
import SQLite
import TestSupport
import Testing
import Timing

@testable import Store

/// What a power cut leaves at any sync of any transaction (issue 28).
@Suite struct CrashTests {
  private static let key = PublicKey(bytes: [UInt8](repeating: 0xAB, count: 32))!
  private static let other = PublicKey(bytes: [UInt8](repeating: 0xCD, count: 32))!

  private static func outgoing(_ key: String) -> OutgoingMessage {
    OutgoingMessage(
      key: key, origin: "control", priority: 1, kind: .direct, recipient: Self.key, text: "going out",
      created: Shop.moment, lifetime: 60_000)
  }

  typealias Step = (name: String, work: Store.Work)

  /// Every kind of write that the store has, each of them a transaction.
  static var writes: [Step] {
    [
      (
        "a message",
        { store throws(SQLiteError) in _ = try store.insert(Shop.direct("hello", time: 1), at: Shop.moment) }
      ),
      (
        "its copy",
        { store throws(SQLiteError) in _ = try store.insert(Shop.direct("hello", time: 1), at: Shop.moment) }
      ),
      (
        "a reaction",
        { store throws(SQLiteError) in
          _ = try store.insert(Shop.channel("A: hello", time: 2), at: Shop.moment)
          try store.keepOwnReaction(
            ReactionText(emoji: "👍", targetSender: nil, hash: "12345678"), conversation: "x", outgoing: 1,
            at: Shop.moment)
        }
      ),
      (
        "events of all kinds",
        { store throws(SQLiteError) in
          for kind in EventKind.allCases { try store.append(kind, at: Shop.moment, body: Array("{\"x\":1}".utf8)) }
        }
      ),
      (
        "nodes",
        { store throws(SQLiteError) in
          for number in 0..<60 as Range<UInt8> {
            let key = PublicKey(bytes: [UInt8](repeating: number, count: 32))!
            _ = try store.upsert(Contact(key: key, name: "Birch"), onRadio: number < 4, heard: true, at: 5)
          }
          try store.noteClock(of: PublicKey(bytes: [UInt8](repeating: 1, count: 32))!, advert: 77, at: Shop.moment)
          try store.setContactWatermark(radio: key, lastModified: 3, fullAt: 9)
        }
      ),
      (
        "nodes leave",
        { store throws(SQLiteError) in
          _ = try store.markRemoved(PublicKey(bytes: [UInt8](repeating: 1, count: 32))!)
          try store.setEvicted(PublicKey(bytes: [UInt8](repeating: 1, count: 32))!, true)
          try store.removeContacts(notIn: [], at: Shop.moment)
        }
      ),
      (
        "channels",
        { store throws(SQLiteError) in
          let secret = ChannelSecret(bytes: [UInt8](repeating: 3, count: 16))!
          _ = try store.setChannel(Channel(slot: 0, name: "public", secret: secret))
          try store.setRegion("de", ofChannel: secret.digest)
          try store.forgetChannels(from: 1)
        }
      ),
      ("an outgoing message", { store throws(SQLiteError) in _ = try store.insertOutgoing(outgoing("one")) }),
      (
        "an attempt",
        { store throws(SQLiteError) in
          guard var message = try store.readOutgoing(key: "one") else { return }
          message.state = .sending
          message.attempts.expect(AckCode(value: 77))
          try store.updateOutgoing(message, at: Shop.moment)
          try store.recordAirtime(100, channel: nil, at: 5)
        }
      ),
      (
        "its end",
        { store throws(SQLiteError) in
          guard var message = try store.readOutgoing(key: "one") else { return }
          (message.state, message.endedAt) = (.delivered, 7)
          try store.updateOutgoing(message, at: Shop.moment)
          try store.forgetAirtime(100, channel: nil)
          _ = try store.trimOutgoing()
        }
      ),
      ("a cursor", { store throws(SQLiteError) in try store.setCursor(of: "hub", to: 3) }),
      (
        "a dead letter",
        { store throws(SQLiteError) in
          try store.bury(
            JournalEvent(seq: 1, at: 1, trusted: true, kind: "message", body: [0x7B, 0x7D]), upstream: "hub",
            status: 422,
            reason: "no", at: 3)
          try store.setPaused("hub", true)
          try store.setAllowance(of: "hub", "12")
        }
      ),
      (
        "a letter accepted after all",
        { store throws(SQLiteError) in try store.removeDeadLetter(upstream: "hub", seq: 1) }
      ),
      (
        "documents",
        { store throws(SQLiteError) in
          try store.editDocument("settings/log_level", "\"info\"", at: Shop.moment)
          let theirs = Document(key: "settings/log_level", value: "\"debug\"", updatedAt: .max / 4096, byHub: true)
          _ = try store.applyDocument(theirs, via: "hub", acknowledged: 1 << 40, at: Shop.moment)
          try store.announceDocuments(at: Shop.moment)
          try store.setBucket("documents", of: "hub", to: BucketPosition(seq: 3, at: 4, since: 5))
        }
      ),
      (
        "a command",
        { store throws(SQLiteError) in
          _ = try store.queueCommand([0x7B, 0x7D], id: "c", of: "hub", age: 7)
          try store.setBucket("commands", of: "hub", to: BucketPosition(seq: 1, at: 4, since: 5))
        }
      ),
      (
        "its answer and event",
        { store throws(SQLiteError) in
          try store.answerCommand("c", of: "hub", body: [0x7B, 0x7D], answer: Array("{}".utf8))
          try store.append(.command, at: Shop.moment, body: Array("{}".utf8))
        }
      ),
      ("a client", { store throws(SQLiteError) in try store.setClientCursor("apps/1", message: 1, at: 9) }),
      (
        "an alert begins",
        { store throws(SQLiteError) in
          let alert = StoredAlert(id: 0, rule: "silent", subject: "x", text: "is silent", beganAt: 4)
          try store.beginAlert(alert, Store.AlertEvent(), at: Shop.moment)
          _ = try store.acknowledgeAlert(1, by: "me", note: nil, at: Shop.moment)
          try store.setHeardNodes([Store.HeardNode(key: [1, 2], elapsed: 3, lastHeard: 4)])
        }
      ),
      (
        "it ends",
        { store throws(SQLiteError) in
          try store.endAlert("silent", "x", Store.AlertEvent(), elapsed: 7, at: Shop.moment)
        }
      ),
      (
        "a reading and an advert of ours",
        { store throws(SQLiteError) in
          try store.keepReading(of: key, kind: .telemetry, body: Array("{}".utf8), at: Shop.moment)
          try store.setLastAdvert(AdvertRecord(radio: key, at: Shop.moment, isFlood: true, content: "x"))
        }
      ),
      ("the search index", { store throws(SQLiteError) in _ = try store.indexMessages() }),
      (
        "the list of conversations",
        { store throws(SQLiteError) in
          _ = try store.listConversations()
          let name = ConversationName.node(KeyPrefix(value: 1))
          _ = try store.markRead(name, upTo: 1, ofRadio: 1)
          try store.setLevel(.nothing, of: name, ofRadio: 1)
          try store.add(Block.key([1, 2, 3, 4]))
          _ = try store.recountUnread(in: nil)
        }
      ),
      (
        "many messages",
        { store throws(SQLiteError) in
          for time in 100..<140 as Range<UInt32> {
            _ = try store.insert(Shop.direct("many", time: time), at: Shop.moment)
          }
        }
      ),
      ("old messages go", { store throws(SQLiteError) in _ = try store.trimMessages() }),
      (
        "more than the cache holds",
        { store throws(SQLiteError) in
          for _ in 0..<24 { try store.append(.packet, at: Shop.moment, body: [UInt8](repeating: 0x20, count: 30_000)) }
        }
      ),
    ]
  }

  /// Takes a store through all of its life.
  private func live(_ disk: StoreOnDisk) throws {
    let trial = disk.trial!
    try trial.step("the first start", isFree: true) { try disk.open() }
    let store = try #require(disk.store)
    func write(_ name: String, _ work: Store.Work) throws {
      try trial.step(name) {
        store.write(work)
        try store.commitNow()
      }
    }
    try trial.step("a radio and an upstream") {
      _ = try store.openCursor(of: "hub", fromStart: true)
      try store.attach(Self.key, name: "radio", at: 1)
      store.keep(QueueCounts(taken: 1), ofQueue: Self.key)
      store.settle()
    }
    for (name, work) in Self.writes { try write(name, work) }
    try trial.step("a checkpoint") { try store.checkpoint() }
    try trial.step("dead letters again, and dropped") {
      _ = try store.retryDeadLetters(of: nil)
      _ = try store.dropDeadLetters(of: "hub")
    }
    try trial.step("the journal exceeds its quota") {
      for _ in 0..<6 {
        store.trimJournal(now: Shop.moment)
        try store.commitNow()
      }
    }
    trial.step("the journal becomes old") {
      for _ in 0..<4 {
        disk.machine.wait(milliseconds: 3_000_000) { _, _ in }
        store.trimJournal(now: Moment(WallClock(disk.machine)))
        store.settle()
      }
    }
    try trial.step("another radio") {
      _ = try store.attach(Self.other, name: "other", at: 2)
      store.radioSeen(at: 3)
      store.settle()
    }
    try trial.step("upstreams come and go") {
      _ = try store.keepOnlyCursors(of: ["web"])
      try store.forgetUpstream("hub")
    }
    try trial.step("a mark") { try store.markProgress() }
    for (name, work) in Self.writes.dropLast() { try write("\(name), once more", work) }
    trial.step("a held message") {
      let held = TakenMessage(Shop.direct("held"), at: Shop.moment, wait: .none, by: KeyPrefix(value: 1))
      #expect(store.hold([held]))
    }
    try trial.step("a backup") {
      let backup = try store.beginBackup(to: disk.location("backup"))
      while try !backup.step(pages: 20) {}
    }
    // It is on disk before the store says so.
    disk.mayBe = { $0 == "another epoch" }
    try trial.step("a new epoch") { try store.renewEpoch() }
    disk.mayBe = { _ in false }
  }

  @Test func `a power cut loses nothing that was promised, and leaves no part of a transaction`() throws {
    let disk = StoreOnDisk(seed: 1_000_000)
    try live(disk)
    disk.close()
    try disk.trial.step("the next start") { try disk.open() }
    #expect(disk.trial.faults == [])
    #expect(disk.trial.syncs > 80 && disk.trial.images > 4 * disk.trial.syncs)
  }

  /// `balanced` and `wear` commit less often; what they have committed is promised as with `durable`.
  @Test(arguments: [.balanced, .wear] as [StoreProfile])
  func `data that may wait is lost whole, and goes with the next urgent write`(_ profile: StoreProfile) throws {
    let disk = StoreOnDisk(seed: 2_000_000, profile: profile)
    try disk.trial.prepare { try disk.open() }
    let store = try #require(disk.store)
    for round in 0..<6 as Range<UInt32> {
      // Nothing is promised: `lastSeq`, to which upstreams read, does not include it.
      disk.trial.step("data that may wait") {
        let waiting = store.write(when: profile == .wear ? .message : .heard) { store throws(SQLiteError) in
          _ = try store.insert(Shop.direct("waits", time: round + 1), at: Shop.moment)
        }
        store.commit()
        #expect(!waiting.isDurable)
      }
      let sent = store.write { store throws(SQLiteError) in
        try store.append(.outgoing, at: Shop.moment, body: Array("{}".utf8))
      }
      disk.trial.step("an urgent write") { store.commit() }
      #expect(sent.isDurable && store.lastSeq == Int64(2 * round + 2))
      disk.trial.step("after its time") {
        store.write(when: .heard) { store throws(SQLiteError) in
          try store.setCursor(of: "web", to: Int64(round))
        }
        store.commit()
        disk.machine.wait(milliseconds: 60_000) { _, _ in }
        store.commitGathered()
      }
      #expect(try store.cursor(of: "web") == ByLane(all: Int64(round)))
    }
    #expect(disk.trial.faults == [])
  }

  @Test func `a schema of any earlier version is upgraded step by step, and keeps its content`() throws {
    for version in [1, 13] {
      let disk = StoreOnDisk(seed: 5_000_000 + UInt64(version) * 10_000)
      try disk.trial.prepare {
        let database = try Database(location: disk.settings.location)
        try database.execute("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        try database.addTextFunction("spaced") { SearchWords.spaced($0) }
        try database.migrate(Array(Schema.migrations.prefix(version)))
        try database.execute(
          """
          INSERT INTO meta VALUES ('gateway_id', '0123456789abcdef'), ('epoch', 'fedcba9876543210');
          INSERT INTO cursors(upstream, seq) VALUES ('hub', 3)
          """)
        for seq in 1...5 as ClosedRange<Int64> {
          let sum = RowChecksum.of(seq: seq, at: 1, kind: "advert", body: [0x7B, 0x7D])
          try database.run(
            "INSERT INTO journal VALUES (?, 1, 1, 'advert', x'7b7d', ?)", .integer(seq), .integer(sum))
        }
      }
      try disk.trial.step("the upgrade", isFree: true) { try disk.open() }
      let store = try #require(disk.store)
      #expect((store.epoch, store.lastSeq) == ("fedcba9876543210", 5))
      #expect(try store.cursor(of: "hub") == ByLane(all: 3))
      #expect(disk.trial.faults == [], "version \(version)")
      #expect(disk.trial.syncs > 20 - version)
    }
  }

  /// The database is damaged on disk, not by a power cut, which only comes while it is replaced.
  @Test(arguments: [true, false]) func `a damaged database is set aside once, and told, wherever the power is cut`(
    _ isRunning: Bool
  ) throws {
    let disk = StoreOnDisk(seed: 6_000_000)
    try disk.trial.prepare { try disk.open() }
    try disk.trial.step("events") {
      disk.store?.write { store throws(SQLiteError) in
        for _ in 0..<100 { try store.append(.alert, at: Shop.moment, body: [UInt8](repeating: 0x20, count: 100)) }
      }
      try disk.store?.commitNow()
      try disk.store?.checkpoint()
      try disk.store?.markProgress()
    }
    let epoch = try #require(disk.store?.epoch)
    // In every image, the damage is found, or the new database has told it.
    disk.mayBe = { $0.hasPrefix("a loss is told") || $0 == "another epoch" || $0.contains("was shown") }
    if isRunning {
      try disk.trial.step("replaced in use", isFree: true) { _ = try disk.store?.replaceDamaged(unsent: 3) }
    } else {
      disk.close()
      let file = try FileHandle(forWritingTo: URL(filePath: disk.settings.location))
      try file.write(contentsOf: Data(repeating: 0x55, count: 4096))
      try file.close()
      try disk.trial.step("set aside at the start", isFree: true) { try disk.open() }
    }
    #expect(disk.trial.faults == [])
    let store = try #require(disk.store)
    #expect(store.epoch != epoch && store.lastSeq == 1 && store.provenance.loss?.last == 100)
    let saved = try #require(store.provenance.setAside)
    // Its new name is on disk, too, and so is the event.
    let image = Scratch(inMemory: true)
    disk.trial.disk.image(into: image.folder.path(), .losingAll)
    #expect(FileManager.default.fileExists(atPath: image.location(URL(filePath: saved).lastPathComponent)))
    let again = try Store(Store.Settings(location: image.location("gw.db")))
    #expect((again.epoch, again.lastSeq) == (store.epoch, 1))
  }

  @Test func `a loss from the log is told, wherever the start behind it ends`() throws {
    let disk = StoreOnDisk(seed: 8_000_000)
    try disk.trial.prepare { try disk.open() }
    disk.trial.disk.onSync = nil
    let killed = Scratch(inMemory: true)
    var epoch = ""
    do {
      let store = try #require(disk.store)
      epoch = store.epoch
      try store.checkpoint()
      for _ in 0..<20 {
        store.write { store throws(SQLiteError) in try store.append(.alert, at: Shop.moment, body: [0x7B, 0x7D]) }
        try store.commitNow()
      }
      disk.trial.disk.image(into: killed.folder.path(), .keepingAll)
    }
    disk.close()
    for name in ["gw.db", "gw.db-wal"] {
      var content = try Data(contentsOf: URL(filePath: killed.location(name)))
      if name.hasSuffix("-wal") { content[32 + 3 * (24 + Int(Store.pageSize)) + 300] ^= 1 }
      try content.write(to: URL(filePath: disk.location(name)))
    }
    // Each in a folder of its own: a store may outlive its statement, and keeps its file to itself.
    var (images, forgotten): ([Scratch], Int) = ([], 0)
    disk.trial.disk.onSync = {
      let image = Scratch(inMemory: true)
      images.append(image)
      disk.trial.disk.image(into: image.folder.path(), .keepingAll)
      // `try?`: one that cannot be opened has not told anything either.
      let store = try? Store(Store.Settings(location: image.location("gw.db")))
      if store?.provenance.loss == nil, store?.epoch ?? epoch == epoch { forgotten += 1 }
    }
    defer { disk.trial.disk.onSync = nil }
    try disk.open()
    #expect(disk.store?.provenance.lostFromLog != nil && disk.store?.epoch != epoch)
    #expect(images.count > 2 && forgotten == 0, "\(forgotten) of \(images.count)")
  }

  @Test func `files beside the database are on disk when the store says so`() throws {
    let disk = StoreOnDisk(seed: 7_000_000)
    // Each in a folder of its own: a store may outlive its statement, and keeps its file to itself.
    var image = Scratch(inMemory: true)
    var images: [Scratch] = []
    func cut() throws -> Store {
      images.append(image)
      image = Scratch(inMemory: true)
      disk.trial.disk.image(into: image.folder.path(), .losingAll)
      return try Store(Store.Settings(location: image.location("gw.db")))
    }
    try disk.trial.prepare { try disk.open() }
    disk.trial.disk.onSync = nil
    do {
      let store = try #require(disk.store)
      store.write { store throws(SQLiteError) in try store.append(.alert, at: Shop.moment, body: [0x7B, 0x7D]) }
      try store.commitNow()
      try store.markProgress()
      let held = TakenMessage(Shop.direct("held"), at: Shop.moment, wait: .none, by: KeyPrefix(value: 1))
      #expect(store.hold([held]))
      let backup = try store.beginBackup(to: disk.location("backup"))
      while try !backup.step(pages: 20) {}
      #expect(try cut().mark?.seq == 1)
      #expect(try cut().heldMessages.map(\.message) == [held.message])
      _ = try cut()
      let settings = Store.Settings(location: image.location("other.db"))
      #expect(try Store.restore(image.location("backup"), settings: settings) == nil)
      #expect(try Store(settings).lastSeq == 1)
      // The identity survives without its database.
      images.append(image)
      image = Scratch(inMemory: true)
      disk.trial.disk.image(into: image.folder.path(), .losingAll)
      for suffix in ["", "-wal", ".mark"] { unlink(image.location("gw.db") + suffix) }
      #expect(try Store(Store.Settings(location: image.location("gw.db"))).gatewayID == store.gatewayID)
    }
    // A restored database is in its place when the command returns, and the one before it is kept.
    disk.close()
    let replaced = try #require(try Store.restore(disk.location("backup"), settings: disk.settings))
    images.append(image)
    image = Scratch(inMemory: true)
    disk.trial.disk.image(into: image.folder.path(), .losingAll)
    #expect(FileManager.default.fileExists(atPath: image.location(URL(filePath: replaced.location).lastPathComponent)))
    #expect(try Store(Store.Settings(location: image.location("gw.db"))).lastSeq == 1)
  }

  // MARK: Planted mistakes

  enum Mistake: CaseIterable { case diskLies, syncsTooLittle }

  @Test(arguments: Mistake.allCases) func `images find a disk that lies, and a store that syncs too little`(
    mistake: Mistake
  ) throws {
    let disk = StoreOnDisk(seed: 3_000_000)
    try disk.trial.prepare { try disk.open() }
    let store = try #require(disk.store)
    switch mistake {
    case .diskLies: disk.trial.disk.ignoresSyncs = true
    case .syncsTooLittle: try store.database.execute("PRAGMA synchronous = NORMAL")
    }
    for (name, work) in Self.writes.prefix(4) {
      try disk.trial.step(name) {
        store.write(work)
        try store.commitNow()
      }
    }
    #expect(disk.trial.faults.count { $0.contains("neither the promised state") } >= 4)
    #expect(disk.trial.faults.count { $0.contains("was shown") } >= 4)
  }
}
