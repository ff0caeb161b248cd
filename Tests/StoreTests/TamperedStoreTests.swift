// SPDX-License-Identifier: MIT

import Companion
import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

/// Numbers in the database that none of our programs has written, such as flipped bits.
@Suite struct TamperedStoreTests {
  private static let numbers: [Int64] = [.min, .max, 1 << 53, (1 << 53) + 1, -1, 1 << 32, -(1 << 62)]

  /// A store with at least one row in each table.
  private func furnished() throws -> Shop {
    let shop = try Shop()
    let key = try #require(PublicKey(hex: String(repeating: "ab", count: 32)))
    try shop.append(5)
    for place in 0..<3 { try shop.insert(Shop.direct("message \(place)", time: UInt32(place + 1))) }
    try shop.insert(Shop.channel("on a channel"))
    shop.store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, name: "Birch"), onRadio: true, heard: true, at: 5)
      try store.setCursor(of: "hub", to: 2)
      try store.setBucket("commands", of: "hub", to: BucketPosition(seq: 3, at: 4, since: 5))
      _ = try store.queueCommand([0x7B, 0x7D], id: "c", of: "hub", age: 7)
      _ = try store.editDocument("settings/log_level", "\"info\"", at: Shop.moment)
      try store.setClientCursor("apps/1", message: 1, at: 9)
      try store.recordAirtime(100, channel: nil, at: Shop.moment.milliseconds)
      try store.setMeta("from:hub", .integer(0))
      try store.setMeta("contacts_full_at", .integer(1))
      _ = try store.indexMessages()
      try store.bury(
        JournalEvent(seq: 1, at: 1, trusted: true, kind: "message", body: [0x7B, 0x7D]), upstream: "hub", status: 422,
        reason: "no", at: 3)
    }
    try shop.store.commitNow()
    return shop
  }

  /// Runs all code that calculates with numbers of the database; results and failures do not matter.
  private func useEverything(_ settings: Store.Settings) throws {
    let store = try Store(settings)
    _ = try? store.keepOnlyCursors(of: ["hub", "other"])
    _ = try? store.openCursor(of: "hub", fromStart: false)
    _ = try? store.backlog(after: ByLane(all: 0))
    _ = try? store.trims(of: .messages, after: 0)
    _ = try? store.bucket("commands", of: "hub")
    _ = try? store.nextCommand(of: "hub", after: 0, at: Moment(milliseconds: 9, trusted: true))
    _ = try? store.contactWatermark()
    _ = try? store.lastSenderTime()
    _ = try? store.messageCount()
    _ = try? store.messageCount(since: 0)
    _ = try? store.unindexedMessages()
    _ = try? store.clientCursor("apps/1")
    _ = try? store.message(after: 0)
    _ = try? store.evictable(types: [], age: 0, elapsed: 0, limit: 5)
    try? store.readJournal(after: 0) { _, _ in true }
    try? store.eachMessage(limit: 10) { _ in true }
    try? store.eachRow(MessageQuery(words: "message", since: 1, until: 5), limit: 10) { _ in true }
    try? store.eachContact { _ in true }
    try? store.eachOutgoing(limit: 10) { _ in true }
    try? store.eachDocument { _ in true }
    try? store.eachDeadLetter { _ in true }
    try? store.eachAirtime { at, milliseconds, _ in _ = (at, milliseconds) }
    store.write { store throws(SQLiteError) in
      _ = try store.append(.message, at: Shop.moment, body: [0x7B, 0x7D])
      _ = try store.insert(Shop.direct("one more"), at: Shop.moment)
      _ = try store.editDocument("settings/log_level", "\"debug\"", at: Shop.moment)
      _ = try store.trimMessages()
      _ = try store.trimOutgoing()
      _ = try store.indexMessages()
    }
    try? store.commitNow()
    store.trimJournal(now: Shop.moment)
    try? store.commitNow()
    try? store.renewEpoch()
  }

  @Test func `no number in any column of any table ends the program`() throws {
    let shop = try furnished()
    let settings = shop.store.settings
    let columns = try Self.columns(shop.store.database)
    #expect(columns.count > 50)
    try shop.store.checkpoint()
    let master = try Data(contentsOf: URL(filePath: settings.location))
    for (table, column) in columns {
      let scratch = Scratch(inMemory: true)
      var settings = settings
      settings.location = scratch.location("gw.db")
      for number in Self.numbers {
        for suffix in ["", "-wal", "-shm"] { unlink(settings.location + suffix) }
        try master.write(to: URL(filePath: settings.location))
        do {
          let database = try Database(location: settings.location)
          try database.execute("PRAGMA ignore_check_constraints = ON")
          // `OR IGNORE`: a number that must be unique and exists in another row is left out.
          _ = try database.run("UPDATE OR IGNORE \"\(table)\" SET \"\(column)\" = ?", .integer(number))
        }
        try useEverything(settings)
      }
    }
  }

  private static func columns(_ database: Database) throws -> [(table: String, column: String)] {
    var found: [(String, String)] = []
    try database.each(
      """
      SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
      WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.sql NOT LIKE '%fts%' AND m.name NOT LIKE 'words%'
      """, []
    ) { (row) throws(SQLiteError) in
      found.append((row.text(0), row.text(1)))
      return true
    }
    return found
  }
}
