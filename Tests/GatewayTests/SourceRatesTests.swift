// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Gateway

@Suite struct SourceRatesTests {
  @Test func `each gateway has its own rate, and the number of omitted messages is logged once an hour`() {
    var rates = SourceRates()
    let start = MonotonicTime(seconds: 0)
    var number = 0
    func take(_ name: String, _ seconds: Double) -> SourceRates.Verdict {
      number += 1
      return rates.take(name, "message \(number)", perMinute: 6, now: start + .milliseconds(Int64(seconds * 1000)))
    }
    // One message a second, as from a stolen token.
    let forged = (0..<60).map { take("forger", Double($0)) }
    #expect(forged.count { $0 == .allowed } == 12 + 5, "two minutes' worth, and a further share: \(forged)")
    #expect(forged.compactMap { if case .refused(let told) = $0 { told } else { nil } } == [1])
    #expect(take("honest", 30) == .allowed, "another one's rate is its own")
    // An hour later the gateway accepts its messages again, and reports how many it has left out.
    #expect((0..<12).allSatisfy { _ in take("forger", 4000) == .allowed })
    #expect(take("forger", 4000) == .refused(told: 43))
    // Many names do not exceed the limit of memory, and honest sources continue.
    for number in 0..<1000 { _ = take("name \(number)", 5000) }
    #expect(take("honest", 5001) == .allowed)
  }

  @Test func `a message that comes again, because the disk refused its page, is charged once`() {
    var rates = SourceRates()
    func take(_ number: Int) -> SourceRates.Verdict {
      rates.take("a", "message \(number)", perMinute: 6, now: MonotonicTime(seconds: 0))
    }
    for _ in 1...3 { #expect((1...12).map(take) == Array(repeating: .allowed, count: 12)) }
    #expect(take(13) == .refused(told: 1))
  }
}
