// SPDX-License-Identifier: MIT

import Timing

/// Notices that another program takes the radio: over TCP a radio serves only the newest client
/// (docs/protocol/companion.md § 1.2). If two programs both reconnect at once, neither ever receives anything.
///
/// A restart of the radio closes a connection, too. It shows itself: the radio is away for a moment and refuses a
/// connection, or it tells over the next one that it has just started. If the radio tells that it ran through an early
/// loss, another program took it, and the next loss is told so. If connections are too short to hear of it, two losses
/// can be restarts, and the third is told. From then on the gateway leaves the radio to the other program, longer each
/// time, until a connection has lasted for `undisturbed`. Pure.
struct LinkContest: Sendable, Equatable {
  /// If the radio closes a connection earlier, another program took the radio; later, it has restarted.
  static let undisturbed: Duration = .seconds(300)
  /// The minimum time for the other program, in addition to the back-off.
  static let truce: Duration = .seconds(10)

  /// So many early losses can be restarts of the radio, as long as it tells nothing about them.
  private static let unexplained = 2

  private var defeats = 0
  /// The radio has told that it ran through one of the early losses.
  private var isProven = false
  /// The last early loss is counted, and may still turn out to be a restart.
  private var isLastOpen = false
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
    isLastOpen = true
    return defeats > (isProven ? 1 : Self.unexplained) ? Self.truce + backoff.next(using: &random) : nil
  }

  /// The link was lost in another way.
  mutating func lost(after lifetime: Duration) { if lifetime >= Self.undisturbed { reset() } }

  /// An attempt to connect failed. A radio that serves another program accepts connections: this one was restarting, or
  /// out of reach, when the last connection ended.
  mutating func wasAway() {
    guard isLastOpen else { return }
    (defeats, isLastOpen) = (defeats - 1, false)
  }

  /// The radio tells that it ran through the last loss.
  mutating func ranOn() { if isLastOpen { isProven = true } }

  private mutating func reset() {
    (defeats, isProven, isLastOpen) = (0, false, false)
    backoff.reset()
  }
}
