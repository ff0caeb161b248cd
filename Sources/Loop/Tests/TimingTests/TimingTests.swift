// SPDX-License-Identifier: MIT

import Testing
import Timing

@Suite struct TimingTests {
  @Test func `back-off waits grow up to the limit, and start over after a success`() {
    var random = SeededRandom(seed: 1)
    var backoff = Backoff(first: .seconds(1), limit: .seconds(300))
    var longest: Duration = .zero
    for failure in 0..<200 {
      let wait = backoff.next(using: &random)
      let ceiling = Duration.seconds(min(300, 1 << min(failure, 20)))
      #expect(wait <= ceiling, "failure \(failure)")
      #expect(wait >= .milliseconds(100))
      longest = max(longest, wait)
    }
    #expect(longest > .seconds(200))
    backoff.reset()
    #expect(backoff.next(using: &random) <= .seconds(1))
  }

  @Test func `time arithmetic saturates and does not trap`() {
    #expect(MonotonicTime.never + .seconds(1) == .never)
    #expect(MonotonicTime(nanoseconds: .min) + .seconds(-1) == MonotonicTime(nanoseconds: .min))
    #expect((MonotonicTime.never - MonotonicTime(nanoseconds: .min)).wholeNanoseconds == .max)
    #expect(Duration.seconds(Int64.max).wholeNanoseconds == .max)
    #expect(MonotonicTime(seconds: .infinity) == .never)
  }
}
