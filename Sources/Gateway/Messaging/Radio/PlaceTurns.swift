// SPDX-License-Identifier: MIT

import Companion
import Timing

/// Places of a full contact table that change hands although nobody in it is old enough to leave.
///
/// Each change makes the radio write its whole table to flash, so their number is bounded. Whoever got a place keeps it
/// for a while: a node that was let in for a message or a text would otherwise be the next to leave, because it was
/// heard longest ago.
///
/// Pure: time is an argument.
struct PlaceTurns {
  /// Why a node needs a place.
  enum Reason {
    /// A message or a question of ours.
    case ours
    /// A text that the radio could not read.
    case knock
  }

  /// Changes within an hour, and those of them that are for ours: the rest is left to nodes that knock.
  static let most = 60
  static let mostForOurs = 45
  /// How long a node keeps its place at least.
  static let stay: Duration = .seconds(120)
  private static let window: Duration = .seconds(3600)

  private var changes: [(at: MonotonicTime, reason: Reason)] = []
  private var seated: [PublicKey: MonotonicTime] = [:]

  /// Whether a place may change hands now.
  func mayChange(for reason: Reason, now: MonotonicTime) -> Bool {
    let recent = changes.filter { now - $0.at < Self.window }
    guard recent.count < Self.most else { return false }
    return reason == .knock || recent.count { $0.reason == .ours } < Self.mostForOurs
  }

  mutating func changed(for reason: Reason, now: MonotonicTime) {
    changes.removeAll { now - $0.at >= Self.window }
    changes.append((now, reason))
  }

  mutating func tookPlace(_ key: PublicKey, now: MonotonicTime) {
    seated = seated.filter { now - $0.value < Self.stay }
    seated[key] = now
  }

  /// Nodes that took their place just now.
  func seated(now: MonotonicTime) -> Set<PublicKey> { Set(seated.filter { now - $0.value < Self.stay }.keys) }
}

/// Who stays in the table, by reason.
struct Staying {
  /// Polled, watched, logged in to, let in to write, or asked something.
  var needed: Set<PublicKey>
  /// Recipients of messages that wait.
  var addressed: Set<PublicKey>
  /// Recipients whose acknowledgement is awaited.
  var underWay: Set<PublicKey>
  /// They took their place just now.
  var seated: Set<PublicKey>

  /// Whom the usual eviction spares.
  var usual: Set<PublicKey> { needed.union(addressed).union(underWay).union(seated) }

  /// Who leaves when a node needs a place and nobody may leave by the usual rules: the first of those that are not
  /// spared, in the order of leaving. If messages wait for all of them, somebody to whom nothing is under way: its own
  /// message gets its turn later.
  func whoLeaves(of order: [PublicKey]) -> PublicKey? {
    let usual = usual
    return order.first { !usual.contains($0) }
      ?? order.first { !needed.contains($0) && !underWay.contains($0) && !seated.contains($0) }
  }
}
