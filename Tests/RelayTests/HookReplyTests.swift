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
    // As the daemon does: who does not read what it is given must not end this process.
    signal(SIGPIPE, SIG_IGN)
  }

  @Test func `a program that prints without end is ended, and its event is refused`() throws {
    let (scratch, loop) = (Scratch(), EventLoop())
    chmod(scratch.folder.path(), 0o777)
    let program = scratch.write("hook.sh", "#!/bin/sh\nyes\n")
    chmod(program, 0o755)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let hook = HookCarrier(
      .init(
        run: [program], user: geteuid() == 0 ? "nobody" : nil, timeout: .seconds(600), memory: 1 << 28, replies: true,
        socket: ""), name: "h", takesGaps: true, store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    var verdict: Verdict?
    loop.begin { verdict = await hook.test() }
    #expect(turn(loop) { verdict != nil })
    #expect(verdict == .refused(status: 0, reason: "it said more than 1 MiB and was ended"))
  }

  @Test func `replies that are not sent are logged once, and not with each message`() throws {
    let (scratch, loop) = (Scratch(), EventLoop())
    chmod(scratch.folder.path(), 0o777)
    let program = scratch.write("hook.sh", "#!/bin/sh\ncat >/dev/null\necho hello\n")
    chmod(program, 0o755)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    var lines: [String] = []
    let hook = HookCarrier(
      .init(
        run: [program], user: geteuid() == 0 ? "nobody" : nil, timeout: .seconds(10), memory: 1 << 28, replies: true,
        socket: ""), name: "h", takesGaps: true, store: store, on: loop,
      log: Log(level: .warning, sink: { _, line in lines.append(line) }))
    var taken = 0
    loop.begin {
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
}
