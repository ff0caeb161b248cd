// SPDX-License-Identifier: MIT

import Glibc
import Testing

@testable import EventLoop

@Suite(.serialized) struct SignalQueueTests {
  @Test func `a burst of one signal counts once, and displaces no other signal`() {
    let loop = EventLoop()
    let signals = SignalQueue([SIGUSR1, SIGUSR2], on: loop)
    for _ in 0..<100 {
      raise(SIGUSR1)
      loop.later {}
      loop.turn(wait: true)
    }
    raise(SIGUSR2)
    loop.later {}
    loop.turn(wait: true)
    var seen: [Int32] = []
    let reader = loop.begin {
      // Cancelled at the end.
      do { while true { seen.append(try await signals.next()) } } catch {}
    }
    loop.turn(wait: false)
    #expect(seen == [SIGUSR1, SIGUSR2])
    raise(SIGUSR1)
    loop.turn(wait: true)
    #expect(seen == [SIGUSR1, SIGUSR2, SIGUSR1], "one that comes later is another one")
    reader.cancel()
    loop.turn(wait: false)
    #expect(loop.taskCount == 0)
  }
}
