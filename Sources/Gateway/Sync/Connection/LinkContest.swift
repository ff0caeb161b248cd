// SPDX-License-Identifier: MIT

import Timing

/// Notices that another program takes the radio: over TCP a radio serves only the newest client
/// (docs/protocol/companion.md § 1.2). If two programs both reconnect at once, neither ever receives anything.
///
/// A restart of the radio closes one connection, too. From the second early loss on, the gateway leaves the radio to
/// the other program, longer each time, until a connection has lasted for `undisturbed`. Pure.
struct LinkContest: Sendable, Equatable {
  /// If the radio closes a connection earlier, another program took the radio; later, it has restarted.
  static let undisturbed: Duration = .seconds(300)
  /// The minimum time for the other program, in addition to the back-off.
  static let truce: Duration = .seconds(10)

  private var defeats = 0
  private var backoff = Backoff(first: .seconds(20), limit: .seconds(600))

  /// The radio's side closed the connection, which was up for `lifetime`. Returns how long to leave the radio alone;
  /// `nil`: treat this as any other loss.
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

  /// The link was lost in another way.
  mutating func lost(after lifetime: Duration) { if lifetime >= Self.undisturbed { reset() } }

  private mutating func reset() {
    defeats = 0
    backoff.reset()
  }
}
