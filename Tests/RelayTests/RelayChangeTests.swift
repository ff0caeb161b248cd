// SPDX-License-Identifier: MIT

import EventLoop
import SQLite
import TestSupport
import Testing

@testable import Relay
@testable import Store

@Suite struct RelayChangeTests {
  private func settings(_ name: String) -> UpstreamSettings {
    UpstreamSettings(
      kind: .webhook(secretFile: nil, template: nil, contentType: "application/json", batches: false),
      journal: Upstream.Settings(name: name), url: "http://127.0.0.1:1")
  }

  @Test func `a change that fails half-way changes nothing`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let relay = try Relay([settings("a")], store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    try store.database.execute(
      "CREATE TRIGGER refuses BEFORE INSERT ON cursors WHEN NEW.upstream = 'c' BEGIN SELECT RAISE(ABORT, 'no'); END")
    #expect(throws: StoreError.self) { _ = try relay.change(to: [settings("b"), settings("c")]) }
    #expect(relay.upstreams.map(\.name) == ["a"] && relay.upstreams.allSatisfy { !$0.isClosed })
    #expect(try store.hasUpstream("a") && !store.hasUpstream("b"))
    #expect(try store.removedUpstreams().isEmpty)
    try store.database.execute("DROP TRIGGER refuses")
    try relay.change(to: [settings("b"), settings("c")])
    #expect(relay.upstreams.map(\.name) == ["b", "c"])
    #expect(try store.removedUpstreams().map(\.name) == ["a"])
    relay.stop()
  }

  @Test func `dead letters are among what upstreams lack, and an unreadable table of them makes that unknown`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop())
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let relay = try Relay(
      [settings("a"), settings("b")], store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    func lacking() -> [String] { relay.lacking.map { "\($0.upstream) \($0.events.map { "\($0)" } ?? "?")" } }
    #expect(lacking() == [])
    store.write { store throws(SQLiteError) in
      let seq = try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
      let event = JournalEvent(seq: seq, at: 1, trusted: true, kind: "message", body: Array("{}".utf8))
      try store.bury(event, upstream: "b", status: 422, reason: "no", at: 1)
    }
    try store.commitNow()
    #expect(lacking() == ["a 1", "b 2"])
    try store.database.execute("ALTER TABLE dead_letters RENAME TO gone")
    #expect(lacking() == ["a ?", "b ?"])
    relay.stop()
  }

  @Test func `an upstream that comes back says that it waits for the end of what was under way before`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    let server = try StandingServer(.silent, on: loop)
    let hook = UpstreamSettings(
      kind: .webhook(secretFile: nil, template: nil, contentType: "application/json", batches: false),
      journal: Upstream.Settings(name: "a", batchEvents: 1, fromStart: true), url: "http://127.0.0.1:\(server.port)")
    let relay = try Relay([hook], store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn { store.commit(everything: true) }
    store.write { store throws(SQLiteError) in
      _ = try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array(#"{"text":"1"}"#.utf8))
    }
    try store.commitNow()
    relay.wake()
    #expect(loop.pass(.seconds(10)) { relay.upstreams.first?.status.inFlight == 1 })
    try relay.change(to: [])
    try relay.change(to: [hook])
    relay.wake()
    let (status, words) = (relay.upstreams.first?.status, "has to end first")
    #expect(status?.state == .waiting && status?.reason?.contains(words) == true, "\(status?.reason ?? "-")")
    #expect(loop.pass(.seconds(60)) { relay.upstreams.first?.status.reason?.contains(words) != true })
    relay.stop()
    server.stop()
  }

  @Test func `a disk that refuses what a batch contains does not hold up its events`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    let server = try StandingServer(.well, on: loop)
    let hook = UpstreamSettings(
      kind: .webhook(secretFile: nil, template: nil, contentType: "application/json", batches: true),
      journal: Upstream.Settings(name: "a", fromStart: true), url: "http://127.0.0.1:\(server.port)")
    let relay = try Relay([hook], store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn {
      store.commit(everything: true)
      if store.transactions.takeNews().hasGrown { relay.wake() }
    }
    try store.database.execute(
      "CREATE TRIGGER refuses BEFORE INSERT ON meta WHEN NEW.name LIKE 'batch:%' BEGIN SELECT RAISE(ABORT, 'no'); END")
    store.write { store throws(SQLiteError) in
      for number in 1...9 {
        let body = Array("{\"text\":\"\(number)\"}".utf8)
        _ = try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: body)
      }
    }
    try store.commitNow()
    relay.wake()
    #expect(loop.pass(.seconds(3600)) { server.taken.count >= 9 }, "\(server.taken)")
    #expect(server.taken == (1...9).map { "\($0)" })
    relay.stop()
    server.stop()
  }

  @Test func `a position that the disk refuses is told, with what a kill would send again, and is written later`()
    throws
  {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    let server = try StandingServer(.well, on: loop)
    let hook = UpstreamSettings(
      kind: .webhook(secretFile: nil, template: nil, contentType: "application/json", batches: false),
      journal: Upstream.Settings(name: "a", batchEvents: 1, fromStart: true), url: "http://127.0.0.1:\(server.port)")
    let relay = try Relay([hook], store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn {
      store.commit(everything: true)
      if store.transactions.takeNews().hasGrown { relay.wake() }
    }
    try store.database.execute(
      "CREATE TRIGGER refuses BEFORE UPDATE OF seq ON cursors WHEN NEW.seq > 0 BEGIN SELECT RAISE(ABORT, 'no'); END")
    store.write { store throws(SQLiteError) in
      _ = try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array(#"{"text":"1"}"#.utf8))
    }
    try store.commitNow()
    relay.wake()
    let words = "events up to 1 are sent again: 1 at most"
    #expect(
      loop.pass(.seconds(60)) { relay.upstreams.first?.status.reason?.contains(words) == true },
      "\(relay.upstreams.first?.status.reason ?? "-")")
    try store.database.execute("DROP TRIGGER refuses")
    #expect(loop.pass(.seconds(600)) { relay.upstreams.first?.status.reason == nil }, "although nothing else waits")
    #expect(try store.cursor(of: "a").messages == 1)
    #expect(server.taken == ["1"])
    relay.stop()
    server.stop()
  }
}
