// SPDX-License-Identifier: MIT

import Companion
import CrashDisk
import EarlierSchemas
import Foundation
import MeshCrypto
import SQLite
import TestSupport
import Testing
import Timing

@testable import Store

/// Databases of earlier programs, made of present ones: the simulator upgrades such databases.
@Suite struct EarlierSchemaTests {
  private static let key = PublicKey(bytes: [UInt8](repeating: 0xAB, count: 32))!
  private let scratch = Scratch(inMemory: true)
  private var location: String { scratch.location("gw.db") }
  private var settings: Store.Settings { Store.Settings(location: location, messagesMax: 100) }

  @Test(arguments: EarlierSchema.gateway.versions)
  func `undone steps leave the schema of their time`(_ version: Int) throws {
    #expect(EarlierSchema.gateway.newest == Schema.migrations.last?.number, "a new step has to be undone, too")
    func make(_ name: String, _ migrations: [Migration]) throws -> Database {
      let database = try Database(location: scratch.location(name))
      try database.addTextFunction("spaced") { SearchWords.spaced($0) }
      try database.migrate(migrations)
      return database
    }
    let older = try EarlierSchema.shape(of: make("older.db", Array(Schema.migrations.prefix(version))))
    do { _ = try make("present.db", Schema.migrations) }
    try EarlierSchema.gateway.undo(to: version, in: scratch.location("present.db"))
    let undone = try EarlierSchema.shape(of: Database(location: scratch.location("present.db")))
    #expect(undone == older, "\(undone.symmetricDifference(older).sorted())")
  }

  /// What may be different after an upgrade: indexes that lag behind, clocks, and what steps make anew. Times of commands are those of another clock.
  private static let lagging = [
    "words", "sent_words", "identities", "conversations", "alerts", "heard_nodes", "sqlite_", "commands.at",
    "contacts.seen",
  ]

  /// The columns of a database whose content an upgrade keeps.
  private static func kept(of database: Database) throws -> [String] {
    try EarlierSchema.columns(of: database).filter { column in !lagging.contains { column.hasPrefix($0) } }
  }

  private static func content(_ columns: [String], _ database: Database) throws -> [String: [String]] {
    var content = try EarlierSchema.rows(of: columns, in: database)
    let told = ["'gateway_id'", "'epoch", "'radio", "'journal_from'", "'before_events'", "'deleted:", "'queue"]
    content["meta"]?.removeAll { row in !told.contains { row.hasPrefix($0) } }
    return content
  }

  /// A store with every kind of write in it.
  private func live() throws {
    let store = try Store(settings)
    _ = try store.openCursor(of: "hub", fromStart: true)
    try store.attach(Self.key, name: "radio", at: 1)
    for (_, work) in CrashTests.writes {
      store.write(work)
      try store.commitNow()
    }
    // What waits: a message to be sent, a command, and events for an upstream.
    store.write { store throws(SQLiteError) in
      _ = try store.insertOutgoing(
        OutgoingMessage(
          key: "waits", origin: "control", priority: 1, kind: .direct, recipient: Self.key, text: "x",
          created: Shop.moment, lifetime: 60_000))
      _ = try store.queueCommand([0x7B, 0x7D], id: "waits", of: "hub", age: 7)
    }
    try store.commitNow()
    try store.markProgress()
  }

  @Test(arguments: EarlierSchema.gateway.versions)
  func `a store of an earlier program keeps all that it has in its upgrade, wherever that is cut`(_ version: Int) throws
  {
    try live()
    do { try EarlierSchema.gateway.undo(to: version, in: location) }
    let (columns, before) = try {
      let older = try Database(location: location)
      let columns = try Self.kept(of: older)
      return (columns, try Self.content(columns, older))
    }()
    for table in ["messages", "journal", "outgoing", "cursors"] { #expect(before[table]?.isEmpty == false, "\(table)") }
    let target = Scratch(inMemory: true)
    var settings = settings
    settings.location = target.location("gw.db")
    let trial = CrashTrial(
      on: CrashDisk(watching: scratch.folder.path()), imagesIn: target.folder.path(), seed: UInt64(version) * 10_000
    ) { _ in
      let image = try Store(settings)
      var verdict = CrashTrial.Verdict(state: 0)
      let after = try Self.content(columns, image.database)
      verdict.faults = before.keys.sorted().filter { before[$0] != after[$0] }
      if let loss = image.provenance.loss { verdict.faults.append("a loss is told: \(loss)") }
      return verdict
    }
    defer { trial.disk.onSync = nil }
    var store: Store?
    try trial.step("the upgrade") { store = try Store(self.settings) }
    #expect(trial.faults == [])
    #expect(trial.syncs > EarlierSchema.gateway.newest - version)
    let upgraded = try #require(store)
    let last = upgraded.lastSeq
    #expect(try upgraded.waitingCommands(of: "hub") == 1)
    upgraded.write { store throws(SQLiteError) in
      _ = try store.insert(Shop.direct("after the upgrade", time: 9999), at: Shop.moment)
    }
    trial.disk.onSync = nil
    try upgraded.commitNow()
    #expect(upgraded.lastSeq == last + 1)
  }

  @Test func `nothing is unread in a conversation that was muted, and the rest is kept`() throws {
    do {
      let store = try Store(settings)
      try store.attach(Self.key, name: "radio", at: 1)
      store.write { store throws(SQLiteError) in _ = try store.listConversations() }
      try store.commitNow()
      store.write { store throws(SQLiteError) in
        for sender: UInt64 in [1, 2] {
          _ = try store.insert(Shop.direct("hello @[radio]", time: 1, from: sender), at: Shop.moment)
        }
        _ = try store.listConversations()
      }
      try store.commitNow()
      #expect(try store.conversations(ofRadio: store.radio).map(\.unread) == [1, 1])
    }
    try EarlierSchema.gateway.undo(to: 28, in: location)
    let muted = ConversationName.node(KeyPrefix(value: 1))
    do {
      let older = try Database(location: location)
      try older.run("UPDATE conversations SET muted = 1 WHERE name = ?", .text(muted.description))
    }
    let store = try Store(settings)
    try store.attach(Self.key, name: "radio", at: 2)
    let found = try store.conversations(ofRadio: store.radio)
    #expect(found.count == 2)
    for one in found {
      let isMuted = one.name == muted
      let level: ConversationLevel = isMuted ? .nothing : .all
      #expect(one.level == level, "\(one)")
      #expect(one.unread == (isMuted ? 0 : 1), "\(one)")
      #expect(one.isMentioned != isMuted, "\(one)")
    }
  }

  @Test func `a newer store is refused, is not touched, and goes on with the right program`() throws {
    try live()
    let newest = EarlierSchema.gateway.newest
    func say(_ version: Int) throws -> ([String], [String: [String]]) {
      let database = try Database(location: location)
      try database.execute("PRAGMA user_version = \(version); PRAGMA wal_checkpoint(TRUNCATE)")
      let columns = try Self.kept(of: database)
      return (columns, try Self.content(columns, database))
    }
    let (columns, before) = try say(newest + 1)
    let bytes = try Data(contentsOf: URL(filePath: location))
    #expect(
      throws: StoreError.newer(
        "its schema is of version \(newest + 1), and this program knows versions up to \(newest)")
    ) { try Store(settings) }
    #expect(try Data(contentsOf: URL(filePath: location)) == bytes)
    #expect(try say(newest).1 == before)
    #expect(try Self.content(columns, Store(settings).database) == before)
  }
}
