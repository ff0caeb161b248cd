// SPDX-License-Identifier: MIT

import EventLoop
import Testing
import Timing

@Suite struct ProgressTests {
  /// `moves`: the milliseconds at which something moves. Returns when the wait is given up, in milliseconds; `nil`: not within 3 s.
  private func end(patience: Int, moves: [Int], bytes: UInt64 = 256) -> Int? {
    let loop = EventLoop()
    let begin = loop.now
    var (moved, ended) = (UInt64(0), Int?.none)
    for time in moves { loop.schedule(after: .milliseconds(time)) { moved += bytes } }
    _ = loop.begin {
      do {
        try await loop.whileMoving(.milliseconds(patience), { moved }) { try await loop.sleep(for: .seconds(3)) }
      } catch {
        if error is TimedOut { ended = Int((loop.now - begin).inSeconds * 1000) }
      }
      loop.stop()
    }
    loop.run()
    return ended
  }

  @Test func `a transfer that progresses is waited for, and a stalled one is given up`() throws {
    #expect(try #require(end(patience: 200, moves: [])) >= 200)
    let slow = try #require(end(patience: 400, moves: Array(stride(from: 100, through: 1500, by: 100))))
    #expect(slow >= 1800)
  }

  @Test func `single bytes and pings do not count as progress`() throws {
    let times = Array(stride(from: 50, through: 2500, by: 50))
    #expect(try #require(end(patience: 400, moves: times, bytes: 8)) < 2000)
  }
}
