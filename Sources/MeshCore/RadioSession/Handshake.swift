// SPDX-License-Identifier: MIT

import Companion
import Timing

/// The radio's identity: the result of the handshake.
public struct RadioIdentity: Equatable, Sendable {
  public var info: SelfInfo
  /// `nil` if the radio does not know DEVICE_QUERY (before 1.2).
  public var device: DeviceInfo?
}

/// DEVICE_QUERY, then APP_START; and the reaction if there is no answer (docs/protocol/companion.md §§ 1.1 and 2.1).
///
///     asking for the device ─▶ starting ─▶ done
///       │ 2 s of silence: invert DTR, once
///       │ then 200 zero bytes, which complete a command that an earlier client left half sent
///       ▼ then give the link up
struct Handshake: Equatable {
  enum Step: Equatable {
    case querying
    case starting(DeviceInfo?)
  }

  enum Remedy: Equatable { case otherLineSettings, flushTornCommand, giveUp }

  /// The silence after which the next remedy is tried.
  static let patience: Duration = .seconds(2)

  var step: Step = .querying
  private(set) var deadline: MonotonicTime
  private var remediesTried = 0

  init(now: MonotonicTime) { deadline = now + Self.patience }

  var command: Command {
    switch step {
    case .querying: .deviceQuery(clientVersion: RadioSession.clientVersion)
    case .starting: .start(client: "meshpost")
    }
  }

  mutating func advance(to next: Step, now: MonotonicTime) {
    step = next
    deadline = now + Self.patience
  }

  mutating func timedOut(now: MonotonicTime) -> Remedy {
    remediesTried += 1
    deadline = now + Self.patience
    step = .querying
    return switch remediesTried {
    case 1: .otherLineSettings
    case 2: .flushTornCommand
    default: .giveUp
    }
  }
}
