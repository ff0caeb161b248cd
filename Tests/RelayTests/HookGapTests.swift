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
  /// A hook whose program requests a retry while a file exists, and a journal with almost no room.
  private final class Bench {
    let scratch = Scratch(), loop = EventLoop(), store: Store, upstream: Upstream
    private(set) var logged: [String] = []

    init(kinds: Set<String>) throws {
      chmod(scratch.folder.path(), 0o777)
      let program = scratch.write(
        "hook.sh",
        """
        #!/bin/sh
        if [ -e \(scratch.location("away")) ]; then echo try >>\(scratch.location("tries")); exit 75; fi
        cat >>\(scratch.location("taken"))

        """)
      chmod(program, 0o755)
      var settings = Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill")
      settings.journalMaxSize = 10
      store = try Store(settings)
      var filter = EventFilter(kinds: kinds)
      filter.age = AgeLimit(oldest: 300, isStrict: true)
      final class Lines { var all: [String] = [] }
      let lines = Lines()
      upstream = try Upstream(
        UpstreamSettings(
          kind: .hook(
            // A program with data from the air never runs as root.
            .init(
              run: [program], user: geteuid() == 0 ? "nobody" : nil, timeout: .seconds(10), memory: 1 << 28,
              replies: false, socket: "")),
          journal: Upstream.Settings(name: "hook/h", batchEvents: 1, filter: filter), url: program),
        store: store, on: loop, log: Log(level: .warning, sink: { _, line in lines.all.append(line) }))
      try store.keepOnlyCursors(of: ["hook/h"])
      loop.afterTurn { [unowned self] in
        store.commit()
        logged = lines.all
      }
    }

    deinit { upstream.stop() }

    func text(_ file: String) -> String {
      String(decoding: FileManager.default.contents(atPath: scratch.location(file)) ?? Data(), as: UTF8.self)
    }

    func outgrow() throws {
      let now = Moment(loop.wallClock)
      store.write { store throws(SQLiteError) in
        for _ in 0..<5 { try store.append(.radio, at: now, body: Array("{}".utf8)) }
      }
      try store.commitNow()
      while store.trimJournal(now: now) != nil { try store.commitNow() }
    }
  }

  @Test(arguments: [true, false])
  func `a hook that was away gets gaps if it asks for them, and the log has them in any case`(
    _ asks: Bool
  ) throws {
    let bench = try Bench(kinds: asks ? ["radio", "gap"] : ["radio"])
    _ = bench.scratch.write("away", "")
    try bench.outgrow()
    bench.upstream.wake()
    let isTried = turn(bench.loop) { !bench.text("tries").isEmpty }
    #expect(isTried, "\(bench.logged)")
    try bench.outgrow()
    unlink(bench.scratch.location("away"))
    let isThrough = turn(bench.loop) {
      bench.upstream.resume()
      return bench.upstream.pendingEvents == 0
    }
    #expect(isThrough, "\(bench.upstream.status) \(bench.logged)")
    let taken = bench.text("taken")
    #expect(taken.contains(#""kind":"radio""#), "\(taken)")
    // An event that was deleted while it was under way has a gap of its own.
    let counts = taken.split(separator: #""count":"#).dropFirst().compactMap { Int($0.prefix { $0.isNumber }) }
    #expect(taken.contains(#""kind":"gap""#) == asks && counts.reduce(0, +) == (asks ? 9 : 0), "\(taken)")
    #expect(bench.upstream.status.losses.givenUp == 9)
    let told = bench.logged.filter { $0.contains("missing events") }
    // A program that requests no retry passes the first gap at once.
    let events = told.compactMap { $0.firstMatch(of: /database: (\d+)\./).flatMap { Int($0.1) } }
    #expect(events.reduce(0, +) == (asks ? 0 : 9) && events.first == (asks ? nil : 4), "\(bench.logged)")
  }
}
