// SPDX-License-Identifier: MIT

import EventLoop
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
}
