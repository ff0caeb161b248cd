// SPDX-License-Identifier: MIT

import Synchronization

/// One holder has as many questions as may wait.
struct TooManyQuestions: Error {
  static let message = "too many of your questions are waiting"
  static let retryAfter = 2
}

/// Connections for questions that may take long, of which holders (a token, a person) take turns.
///
/// A holder has one question under way, and those who wait are asked one after another, however much each of them has asked before: forty
/// searches of one leave a connection to all others, and those of many cost a newcomer one question of each at most.
final class ReaderTurns: Sendable {
  /// Questions of one holder that wait. The tabs of a browser that comes back ask a dozen at once.
  static let mostWaiting = 16

  private struct Waiting {
    let id: Int
    let turn: CheckedContinuation<HubStore, any Error>
  }

  private struct State {
    var free: [HubStore]
    /// Who has a question under way.
    var running: Set<String> = []
    var waiting: [String: [Waiting]] = [:]
    /// Those of the others who have one that waits, the next one first.
    var order: [String] = []
    var last = 0

    mutating func next() -> (CheckedContinuation<HubStore, any Error>, HubStore)? {
      guard !free.isEmpty, let holder = order.first, let id = waiting[holder]?.first?.id,
        let turn = remove(id, of: holder)
      else { return nil }
      order.removeAll { $0 == holder }
      running.insert(holder)
      return (turn, free.removeLast())
    }

    /// What does not wait any more; `nil`: it did not.
    mutating func remove(_ id: Int, of holder: String) -> CheckedContinuation<HubStore, any Error>? {
      guard let place = waiting[holder]?.firstIndex(where: { $0.id == id }) else { return nil }
      let turn = waiting[holder]?.remove(at: place).turn
      if waiting[holder]?.isEmpty == true {
        waiting[holder] = nil
        order.removeAll { $0 == holder }
      }
      return turn
    }
  }

  private let state: Mutex<State>

  init(_ stores: [HubStore]) { state = Mutex(State(free: stores)) }

  /// Questions under way, and those that wait.
  var running: Int { state.withLock { $0.running.count } }
  var waiting: Int { state.withLock { $0.waiting.values.reduce(0) { $0 + $1.count } } }

  /// Asks when it is the holder's turn.
  func ask<Answer: Sendable>(
    _ holder: String, _ question: @Sendable (isolated HubStore) throws -> Answer
  ) async throws -> Answer {
    let store = try await turn(of: holder)
    defer { ended(holder, store) }
    return try await question(store)
  }

  private func turn(of holder: String) async throws -> HubStore {
    let id = state.withLock { state in
      state.last += 1
      return state.last
    }
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { turn in
        let failure = state.withLock { state -> (any Error)? in
          if Task.isCancelled { return Self.isGone }
          let own = state.waiting[holder] ?? []
          guard own.count < Self.mostWaiting else { return TooManyQuestions() }
          if own.isEmpty, !state.running.contains(holder) { state.order.append(holder) }
          state.waiting[holder] = own + [Waiting(id: id, turn: turn)]
          return nil
        }
        if let failure { turn.resume(throwing: failure) } else { begin() }
      }
    } onCancel: {
      state.withLock { $0.remove(id, of: holder) }?.resume(throwing: Self.isGone)
    }
  }

  private static let isGone = HubDatabaseError(kind: .unavailable, message: "who asked is gone")

  private func ended(_ holder: String, _ store: HubStore) {
    state.withLock { state in
      state.free.append(store)
      state.running.remove(holder)
      // Behind all others who wait.
      if state.waiting[holder] != nil { state.order.append(holder) }
    }
    begin()
  }

  /// Whoever may run now does.
  private func begin() {
    while let (turn, store) = state.withLock({ $0.next() }) { turn.resume(returning: store) }
  }
}
