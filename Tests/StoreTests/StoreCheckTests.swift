// SPDX-License-Identifier: MIT

import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

/// A look at a database that no gateway has open.
@Suite struct StoreCheckTests {
  private let scratch = Scratch()
  /// A name that a URI would read in another way.
  private var settings: Store.Settings { Store.Settings(location: scratch.location("g") + "%20w?.db") }

  private func trouble(_ location: String? = nil) -> StoreError? { Store.trouble(location ?? settings.location) }

  private func names() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: scratch.location("")).sorted()
  }

  /// A store with an event, which is closed again.
  private func make() throws {
    let store = try Store(settings)
    store.write { store throws(SQLiteError) in try store.append(.message, at: Shop.moment, body: [0x7B, 0x7D]) }
    try store.commitNow()
  }

  @Test func `a sound store has no trouble, before its first start, in use, and closed, and no file is made`() throws {
    #expect(trouble() == nil)
    #expect(try names() == [])
    do {
      let store = try Store(settings)
      #expect(trouble() == nil)
      store.write { store throws(SQLiteError) in try store.append(.message, at: Shop.moment, body: [0x7B, 0x7D]) }
      try store.commitNow()
      // As after a kill: the event is in the log alone.
      for suffix in ["", "-wal"] {
        try FileManager.default.copyItem(
          atPath: settings.location + suffix, toPath: scratch.location("killed.db" + suffix))
      }
    }
    let before = try names()
    #expect(trouble() == nil)
    #expect(trouble(scratch.location("killed.db")) == nil)
    #expect(try names() == before)
  }

  @Test func `a damaged database is found`() throws {
    try make()
    let file = try #require(FileHandle(forUpdatingAtPath: settings.location))
    let size = try file.seekToEnd()
    try file.seek(toOffset: 1024)
    try file.write(contentsOf: Data(repeating: 0xAA, count: Int(size) - 1024))
    try file.close()
    guard case .corrupt = trouble() else {
      Issue.record("\(String(describing: trouble()))")
      return
    }
  }

  @Test func `a database of a newer version is found`() throws {
    try make()
    do { try Database(location: settings.location).execute("PRAGMA user_version = 999") }
    guard case .newer(let words) = trouble() else {
      Issue.record("\(String(describing: trouble()))")
      return
    }
    #expect(words.contains("999"))
  }

  @Test func `a folder in the database's place, and a log without its database, are found`() throws {
    try FileManager.default.createDirectory(atPath: settings.location, withIntermediateDirectories: false)
    guard case .misplaced = trouble() else {
      Issue.record("\(String(describing: trouble()))")
      return
    }
    _ = scratch.write("lost.db-wal", String(repeating: "x", count: 4096))
    guard case .corrupt = trouble(scratch.location("lost.db")) else {
      Issue.record("\(String(describing: trouble(scratch.location("lost.db"))))")
      return
    }
  }
}
