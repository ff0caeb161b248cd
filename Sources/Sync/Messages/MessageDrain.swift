// SPDX-License-Identifier: MIT

import Companion
import RadioSession

/// Decides when to ask the radio for its next message.
///
/// The radio forgets a message once it has handed it over, so the next is asked for only when the last is on disk.
///
///     idle ──messageWaiting──▶ asked ──message──▶ storing ──committed──▶ asked … ──drained──▶ idle
///
/// A hint that comes meanwhile makes one more question follow after the end. Pure.
struct MessageDrain: Equatable {
  enum Action: Equatable { case ask, store(QueuedMessage), drained, failed, none }

  private enum State: Equatable { case idle, asked, storing }

  private var state: State = .idle
  private var wasHinted = false

  /// A message was asked for and is not on disk yet: the worst moment to stop.
  var isBusy: Bool { state != .idle }

  /// The radio has forgotten it, and it is not on disk yet.
  var isStoring: Bool { state == .storing }

  /// The radio says, or the clock suggests, that something waits.
  mutating func messageWaiting() -> Action {
    guard state == .idle else {
      wasHinted = true
      return .none
    }
    state = .asked
    return .ask
  }

  mutating func received(_ outcome: RadioSession.Outcome) -> Action {
    guard state == .asked else { return .none }
    switch outcome {
    case .replied(.message(let message)):
      state = .storing
      return .store(message)
    case .replied(.noMoreMessages):
      state = .idle
      guard wasHinted else { return .drained }
      wasHinted = false
      state = .asked
      return .ask
    default:
      state = .idle
      return .failed
    }
  }

  /// The message is on disk.
  mutating func committed() -> Action {
    guard state == .storing else { return .none }
    state = .asked
    return .ask
  }
}
