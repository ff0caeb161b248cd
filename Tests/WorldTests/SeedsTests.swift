// SPDX-License-Identifier: MIT

import Foundation
import Testing
import World

/// Worlds of gateways, radios, a hub, a broker and a webhook, with faults that seeds choose.
@Suite(.serialized) struct SeedsTests {
  /// $MESHPOST_SEEDS: how many.
  private static let seeds =
    ProcessInfo.processInfo.environment["MESHPOST_SEEDS"].flatMap(UInt64.init) ?? 40

  @Test func `in each seed's day of faults the laws hold`() {
    for seed in 1...Self.seeds {
      let outcome = Trial.run(seed: seed, days: 1)
      guard !outcome.problems.isEmpty else { continue }
      let short = Trial.shrink(seed: seed, days: 1, most: 30)
      Issue.record(
        """
        make simulate SEED=\(seed) N=1 DAYS=1:
        \(outcome.problems.joined(separator: "\n"))
        what happened:
        \(short.happenings.joined(separator: "\n"))
        \(short.story.suffix(30).joined(separator: "\n"))
        """)
    }
  }
}
