// SPDX-License-Identifier: MIT

import Testing
import Timing

@Suite struct KeepAliveTests {
  /// An idle link on a path that forgets silent connections after a given time.
  private struct Path {
    let forgets: Int64
    var keepAlive = KeepAlive(longest: .seconds(300))
    var now = MonotonicTime(seconds: 0)
    var (pings, deaths) = (0, 0)

    init(forgets: Int64) { self.forgets = forgets }

    mutating func pass(hours: Int64) {
      let end = now + .seconds(hours * 3600)
      while now < end {
        let silence = keepAlive.interval
        now = now + silence
        pings += 1
        if silence < .seconds(forgets) {
          keepAlive.answered(now: now)
        } else {
          deaths += 1
          let hasChanged = keepAlive.unanswered(after: silence, now: now)
          #expect(hasChanged)
        }
      }
    }
  }

  @Test func `on a path that keeps idle connections, pings are as rare as configured`() {
    var path = Path(forgets: .max)
    path.pass(hours: 24)
    #expect(path.pings == 288 && path.deaths == 0)
  }

  @Test(arguments: [30, 60, 120, 200, 290] as [Int64])
  func `a path that drops idle connections early costs few links a day, and few extra pings`(_ forgets: Int64) {
    var path = Path(forgets: forgets)
    path.pass(hours: 24)
    let first = path.deaths
    #expect(first <= 5, "halved four times at most, and one more try")
    path.pass(hours: 240)
    #expect(path.deaths - first <= 30, "tried again once a day: \(path.deaths)")
    #expect(path.keepAlive.interval < .seconds(forgets))
    let needed = 264 * 3600 / forgets
    #expect(path.pings < needed * 3, "\(path.pings) of \(needed)")
  }

  @Test func `a cut soon after received data does not shorten the ping interval`() {
    var keepAlive = KeepAlive(longest: .seconds(300))
    let hasChanged = keepAlive.unanswered(after: .seconds(40), now: MonotonicTime(seconds: 40))
    #expect(!hasChanged)
    #expect(keepAlive.interval == .seconds(300))
  }
}
