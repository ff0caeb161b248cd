// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Glibc
import SQLite
import TestSupport
import Testing
import Timing

@testable import Relay
@testable import Store

@Suite struct HookGapTests {
  @Test(arguments: [true, false])
  func `a hook that asks for gaps is told of all that was deleted while it was away`(_ asks: Bool) throws {
    let scratch = Scratch(), loop = EventLoop()
    let (away, tries, taken) = (scratch.location("away"), scratch.location("tries"), scratch.location("taken"))
    let program = scratch.write(
      "hook.sh", "#!/bin/sh\nif [ -e \(away) ]; then echo try >>\(tries); exit 75; fi\ncat >>\(taken)\n")
    chmod(program, 0o755)
    _ = scratch.write("away", "")
    var settings = Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill")
    settings.journalMaxSize = 10
    let store = try Store(settings), now = Moment(milliseconds: 1_795_000_000_000, trusted: true)
    var filter = EventFilter(kinds: asks ? ["radio", "gap"] : ["radio"])
    filter.age = AgeLimit(oldest: 300, isStrict: true)
    let upstream = try JournalUpstream(
      UpstreamSettings(
        kind: .hook(
          .init(run: [program], user: nil, timeout: .seconds(10), memory: 1 << 28, replies: false, socket: "")),
        journal: JournalUpstream.Settings(name: "hook/h", batchEvents: 1, filter: filter), url: program),
      store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    defer { upstream.stop() }
    try store.keepOnlyCursors(of: ["hook/h"])
    func outgrow() throws {
      store.write { store throws(SQLiteError) in
        for _ in 0..<5 { try store.append(.radio, at: now, body: Array("{}".utf8)) }
      }
      try store.commitNow()
      while store.trimJournal(now: now) != nil { try store.commitNow() }
    }
    func text(_ file: String) -> String { String(decoding: FileManager.default.contents(atPath: file) ?? Data(), as: UTF8.self) }
    try outgrow()
    upstream.wake()
    if asks {
      let isTried = turn(loop, until: { !text(tries).isEmpty })
      #expect(isTried)
    }
    try outgrow()
    unlink(away)
    upstream.resume()
    let isThrough = turn(
      loop,
      until: {
        upstream.resume()
        return upstream.pendingEvents == 0
      })
    #expect(isThrough)
    #expect(text(taken).contains("\"kind\":\"gap\"") == asks, "\(text(taken))")
    #expect(text(taken).contains("\"count\":9") == asks, "\(text(taken))")
  }
}
