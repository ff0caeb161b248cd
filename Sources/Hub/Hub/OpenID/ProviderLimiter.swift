// SPDX-License-Identifier: MIT

import Synchronization

/// Limits simultaneous requests to the provider: a few in total, fewer from one address, and the others wait in the order of arrival. Many requests
/// delay other people on the same address, which may be an office or a whole carrier, but do not cause refusals later.
final class ProviderLimiter: Sendable {
  static let most = 8
  static let mostOfOne = 2
  static let mostWaiting = 256
  static let mostWaitingOfOne = 32

  private struct State {
    var inside: [String: Int] = [:]
    var count = 0
    var waiting: [(address: String, turn: CheckedContinuation<Bool, Never>)] = []

    func hasRoom(for address: String) -> Bool {
      count < ProviderLimiter.most && inside[address, default: 0] < ProviderLimiter.mostOfOne
    }

    mutating func enter(_ address: String) {
      count += 1
      inside[address, default: 0] += 1
    }
  }

  private let state = Mutex(State())

  /// Waits for a turn; the caller then has to leave. `false`: too many wait.
  func enter(from address: String) async -> Bool {
    await withCheckedContinuation { turn in
      let answer = state.withLock { state -> Bool? in
        if state.hasRoom(for: address) {
          state.enter(address)
          return true
        }
        let others = state.waiting.count { $0.address == address }
        guard state.waiting.count < Self.mostWaiting, others < Self.mostWaitingOfOne else { return false }
        state.waiting.append((address, turn))
        return nil
      }
      if let answer { turn.resume(returning: answer) }
    }
  }

  func leave(from address: String) {
    let next = state.withLock { state -> CheckedContinuation<Bool, Never>? in
      state.count -= 1
      let left = state.inside[address, default: 1] - 1
      state.inside[address] = left > 0 ? left : nil
      guard let place = state.waiting.firstIndex(where: { state.hasRoom(for: $0.address) }) else { return nil }
      let next = state.waiting.remove(at: place)
      state.enter(next.address)
      return next.turn
    }
    next?.resume(returning: true)
  }

  /// The numbers of those inside, and of those that wait.
  var counts: (inside: Int, waiting: Int) { state.withLock { ($0.count, $0.waiting.count) } }
}
