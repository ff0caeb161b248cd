// SPDX-License-Identifier: MIT

import Alerts
import EventLoop
import Relay
import SQLite
import TestSupport
import Testing
import Timing

@testable import Gateway
@testable import Store

/// What an operator learns of `meshpostd --restore`.
@Suite struct RestorationTests {
  private let scratch = Scratch()
  private let loop = EventLoop(on: LinuxMachine())

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

  /// A start of the daemon's alerts. Returns the words of those that the database's loss has.
  private func start() throws -> [String] {
    let store = try self.store()
    let log = Log(level: .info, sink: { _, _ in })
    let relay = try Relay([], store: store, on: loop, log: log)
    let alerts = GatewayAlerts(
      AlertConfiguration(), store, relay, contactTable: { nil }, changes: StateChange(), on: loop, log: log)
    loop.afterTurn { [weak store] in store?.commit() }
    alerts.begin()
    alerts.tellLosses()
    for _ in 0..<20 { loop.turn(wait: false) }
    alerts.stop()
    let told = alerts.board.open.filter { $0.rule == .storeLost }.compactMap { alerts.board.said(of: $0)?.text }
    #expect(try store.lossesForAlerts().isEmpty)
    return told
  }

  @Test func `a restoration has its alert once the gateway is started, and only one`() throws {
    let backup = try begin()
    let words = try Daemon.restore(backup, configuration)
    #expect(words.contains(".replaced-"))
    // A start that is killed before its alerts begin.
    _ = try store()
    let told = try start()
    #expect(told.count == 1 && told[0].contains("a backup replaced the database: it was saved as"), "\(told)")
    #expect(told[0].contains(".replaced-"))
    #expect(try start() == told, "it stays open, and is not told again")
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
