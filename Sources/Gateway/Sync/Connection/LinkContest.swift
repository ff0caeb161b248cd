// SPDX-License-Identifier: MIT

import Timing

/// Notices that another program takes over the radio: a radio on TCP serves one client, the newest, and throws out the one before
/// (docs/protocol/companion.md § 1.2). Two programs that both reconnect at once compete for ever, and neither receives
/// anything.
///
/// Once may be the radio's own doing. From the second time on the gateway leaves the radio to the other for a while, longer each
/// time; when it has had the radio undisturbed for some minutes the contest is over. Pure.
struct LinkContest: Sendable, Equatable {
  /// Closed so soon after it was opened, it was taken; later than that, the radio has restarted.
  static let undisturbed: Duration = .seconds(300)
  /// The least that the other has the radio for. The back-off comes on top of it.
  static let truce: Duration = .seconds(10)

  private var defeats = 0
  private var backoff = Backoff(first: .seconds(20), limit: .seconds(600))

  /// The radio's side closed the connection, which was up for so long. `nil`: as any other loss. Else how long to leave it alone.
  mutating func closed(
    after lifetime: Duration, using random: inout some RandomNumberGenerator
  ) -> Duration? {
    guard lifetime < Self.undisturbed else {
      reset()
      return nil
    }
    defeats = min(defeats + 1, 1000)
    return defeats > 1 ? Self.truce + backoff.next(using: &random) : nil
  }

  /// It was lost in another way: after long enough the contest is over.
  mutating func lost(after lifetime: Duration) { if lifetime >= Self.undisturbed { reset() } }

  private mutating func reset() {
    defeats = 0
    backoff.reset()
  }
}
