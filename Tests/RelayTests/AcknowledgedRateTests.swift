// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Relay

@Suite struct AcknowledgedRateTests {
  private func at(_ milliseconds: Int) -> MonotonicTime { MonotonicTime(seconds: 100) + .milliseconds(milliseconds) }

  @Test func `overlapping acknowledgements are counted by the time between them`() {
    var rate = AcknowledgedRate()
    #expect(rate.bytesPerSecond(now: at(0)) == nil)
    // Both are sent at once: the second takes as long on the line, and is answered that much later.
    for number in 1...20 {
      rate.answered(bytes: 500, filledLine: true, sentAt: at(max(0, number - 2) * 500), now: at(number * 500))
    }
    #expect(rate.bytesPerSecond(now: at(10_000)).map { $0.rounded() } == 1000)
  }

  @Test func `a single event does not show the rate of the line, and an old rate is forgotten`() {
    var rate = AcknowledgedRate()
    rate.answered(bytes: 5000, filledLine: true, sentAt: at(0), now: at(1000))
    rate.answered(bytes: 100, filledLine: false, sentAt: at(2000), now: at(3000))
    #expect(rate.bytesPerSecond(now: at(3000)) == 5000)
    #expect(rate.bytesPerSecond(now: at(3000) + AcknowledgedRate.lasting) != nil)
    #expect(rate.bytesPerSecond(now: at(3001) + AcknowledgedRate.lasting) == nil)
  }

  @Test func `extreme times and byte counts do not trap`() {
    var rate = AcknowledgedRate()
    rate.answered(bytes: 0, filledLine: true, sentAt: at(0), now: at(0))
    #expect(rate.bytesPerSecond(now: at(0)) == nil)
    rate.answered(bytes: .max, filledLine: true, sentAt: at(0), now: at(0))
    #expect(rate.bytesPerSecond(now: at(0)).map { $0.isFinite } == true)
  }
}
