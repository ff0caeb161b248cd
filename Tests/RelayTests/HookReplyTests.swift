// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import TestSupport
import Testing
import Timing

@testable import Relay
@testable import Store

@Suite struct HookReplyTests {
  init() {
    // As in the daemon: a program that does not read its input must not end this process.
    signal(SIGPIPE, SIG_IGN)
  }

  private let scratch = Scratch()
  private let loop = EventLoop()

  private func hook(
    _ script: String, timeout: Duration, takesGaps: Bool = true, log: Log
  ) throws -> HookCarrier {
    chmod(scratch.folder.path(), 0o777)
    let program = scratch.write("hook.sh", "#!/bin/sh\n\(script)\n")
    chmod(program, 0o755)
    return HookCarrier(
      .init(
        run: [program], user: geteuid() == 0 ? "nobody" : nil, timeout: timeout, memory: 1 << 28, replies: true,
        socket: ""), name: "h", takesGaps: takesGaps,
      store: try Store(Store.Settings(location: scratch.location("gw.db"))), on: loop, log: log)
  }

  @Test func `a program that prints without end is killed, and its event is refused`() throws {
    let hook = try hook("yes", timeout: .seconds(600), log: Log(level: .error, sink: { _, _ in }))
    var verdict: Verdict?
    _ = loop.begin { verdict = await hook.test() }
    #expect(turn(loop) { verdict != nil })
    #expect(verdict == .refused(status: 0, reason: "it said more than 1 MiB and was ended"))
  }

  @Test func `unsent replies are logged once, not with each message`() throws {
    var lines: [String] = []
    let log = Log(level: .warning, sink: { _, line in lines.append(line) })
    let hook = try hook("cat >/dev/null\necho hello", timeout: .seconds(10), log: log)
    var taken = 0
    _ = loop.begin {
      for seq in 1...3 {
        let body = Array(#"{"kind":"direct","sender":"0102030405060708","text":"hi"}"#.utf8)
        let event = JournalEvent(seq: Int64(seq), at: 1, trusted: true, kind: "message", body: body)
        if case .acknowledged = await hook.carry(Batch(event, lane: nil)) { taken += 1 }
      }
    }
    #expect(turn(loop) { taken == 3 }, "\(lines)")
    #expect(
      lines == ["h: a reply is not sent: the message's sender is not certain (logged at most once an hour)"],
      "\(lines)")
  }

  @Test func `gaps of which the program is not told are logged a few times, not one by one`() throws {
    var lines: [String] = []
    let log = Log(level: .warning, sink: { _, line in lines.append(line) })
    let hook = try hook("exit 1", timeout: .seconds(10), takesGaps: false, log: log)
    var taken = 0
    _ = loop.begin {
      for seq in 1...1000 {
        let gap = Array(#"{"first":1,"last":1,"count":1,"reason":"damaged"}"#.utf8)
        let event = JournalEvent(seq: Int64(seq), at: 1, trusted: true, kind: "gap", body: gap)
        if case .acknowledged = await hook.carry(Batch(event, lane: nil)) { taken += 1 }
      }
    }
    #expect(turn(loop) { taken == 1000 }, "\(lines.last ?? "")")
    #expect(lines.count == 8 && lines.allSatisfy { $0.contains("missing events") }, "\(lines)")
  }

  @Test func `output of which nothing is seen is no reply`() throws {
    var lines: [String] = []
    let log = Log(level: .warning, sink: { _, line in lines.append(line) })
    // A zero width space and a blank.
    let hook = try hook("cat >/dev/null\nprintf '\\342\\200\\213 '", timeout: .seconds(10), log: log)
    var isTaken = false
    _ = loop.begin {
      let body = Array(#"{"kind":"direct","sender":"0102030405060708","text":"hi"}"#.utf8)
      let event = JournalEvent(seq: 1, at: 1, trusted: true, kind: "message", body: body)
      if case .acknowledged = await hook.carry(Batch(event, lane: nil)) { isTaken = true }
    }
    #expect(turn(loop) { isTaken })
    #expect(lines == [], "a reply would be missed here, because nobody knows its addressee")
  }
}
