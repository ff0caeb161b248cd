// SPDX-License-Identifier: MIT

import Synchronization

/// A holder has too many waiting queries.
struct TooManyQueries: Error {
  static let message = "too many of your questions are waiting"
  static let retryAfter = 2
}

/// Connections for long queries, which holders (a token, a person) use in turn.
///
/// A holder has one query in progress, and holders with waiting queries take turns, whatever their number of earlier queries: forty searches of one
/// holder leave a connection to the others, and a new holder waits for at most one query of each other holder.
final class ReaderPool: Sendable {
  /// Most waiting queries of one holder. The tabs of a reopened browser make a dozen at once.
  static let mostWaiting = 16

  private struct Waiting {
    let id: Int
    let turn: CheckedContinuation<HubStore, any Error>
  }

  private struct State {
    var free: [HubStore]
    /// Holders with a query in progress.
    var running: Set<String> = []
    var waiting: [String: [Waiting]] = [:]
    /// The other holders with waiting queries, the next one first.
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

    /// Removes a waiting query; `nil`: it was not waiting.
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

  /// The number of queries in progress, and of waiting queries.
  var running: Int { state.withLock { $0.running.count } }
  var waiting: Int { state.withLock { $0.waiting.values.reduce(0) { $0 + $1.count } } }

  /// Runs the query when it is the holder's turn.
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
          guard own.count < Self.mostWaiting else { return TooManyQueries() }
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

  private static let isGone = HubDatabaseError(kind: .unavailable, message: "the client has disconnected")

  private func ended(_ holder: String, _ store: HubStore) {
    state.withLock { state in
      state.free.append(store)
      state.running.remove(holder)
      // Behind all other waiting holders.
      if state.waiting[holder] != nil { state.order.append(holder) }
    }
    begin()
  }

  /// Starts the next queries.
  private func begin() {
    while let (turn, store) = state.withLock({ $0.next() }) { turn.resume(returning: store) }
  }
}
