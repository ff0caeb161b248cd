// SPDX-License-Identifier: MIT

import EventLoop
import SQLite
import TestSupport
import Testing
import Timing

@testable import Gateway
@testable import Store

/// What an operator learns of `meshpostd --restore`.
@Suite struct RestorationTests {
  private let scratch = Scratch()

  private var configuration: GatewayConfiguration {
    get throws {
      try GatewayConfiguration(
        parsing: Array("[store]\nlocation = \"\(scratch.location("gw.db"))\"\n".utf8), file: scratch.location("gw.toml")
      )
    }
  }

  private func store() throws -> Store { try Store(configuration.store, clocks: LinuxClocks()) }

  /// A store with two events, and a backup with one of them.
  private func begin() throws -> String {
    let (store, backup) = (try self.store(), scratch.location("backup"))
    func append() throws {
      store.write { store throws(SQLiteError) in
        try store.append(.power, at: Moment(milliseconds: 1, trusted: false), body: Array("{}".utf8))
      }
      try store.commitNow()
    }
    try append()
    let copy = try store.beginBackup(to: backup)
    while try !copy.step(pages: 100) {}
    try append()
    try store.markProgress()
    return backup
  }

  @Test func `a backup of a newer version is refused as such, and not as damaged`() throws {
    let backup = try begin()
    do { try Database(location: backup).execute("PRAGMA user_version = 999") }
    let refusal = try #require(throws: Daemon.StartError.self) { try Daemon.restore(backup, configuration) }
    #expect(
      refusal.message.contains("newer version of Meshpost") && refusal.message.contains("schema 999")
        && refusal.message.contains("restore it with that version") && !refusal.message.contains("not a valid backup"),
      "\(refusal.message)")
  }
}
