// SPDX-License-Identifier: MIT

import Synchronization

/// A holder has too many waiting queries.
struct TooManyQueries: Error {
  static let message = "too many of your questions are waiting"
  static let retryAfter = 2
}

/// Things that holders use in turn, whatever their number of earlier turns: forty requests of one holder leave a thing to the others, and a new
/// holder waits for at most the turns in progress.
final class FairPool<Thing: Sendable>: Sendable {
  private struct Waiting {
    let id: Int
    let holder: String
    let turn: CheckedContinuation<Thing, any Error>
  }

  private struct State {
    var free: [Thing]
    /// The turns in progress, by holder.
    var running: [String: Int] = [:]
    /// In the order of arrival.
    var waiting: [Waiting] = []
    /// The number of the last turn of a holder that runs or waits.
    var served: [String: Int] = [:]
    var last = 0

    mutating func forgetIfGone(_ holder: String) {
      if running[holder] == nil, !waiting.contains(where: { $0.holder == holder }) { served[holder] = nil }
    }
  }

  /// Most turns in progress of one holder, and most waiting ones of one holder and of all.
  let mostOfOne: Int
  let mostWaitingOfOne: Int
  private let mostWaiting: Int
  private let state: Mutex<State>

  init(_ things: [Thing], mostOfOne: Int, mostWaitingOfOne: Int, mostWaiting: Int = .max) {
    (self.mostOfOne, self.mostWaitingOfOne, self.mostWaiting) = (mostOfOne, mostWaitingOfOne, mostWaiting)
    state = Mutex(State(free: things))
  }

  var running: Int { state.withLock { $0.running.values.reduce(0, +) } }
  var waiting: Int { state.withLock { $0.waiting.count } }

  /// Waits for the holder's turn; the caller then has to give the thing back.
  func take(for holder: String) async throws -> Thing {
    let id = state.withLock { state in
      state.last += 1
      return state.last
    }
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { turn in
        let failure = state.withLock { state -> (any Error)? in
          if Task.isCancelled { return Self.isGone }
          let own = state.waiting.count { $0.holder == holder }
          guard own < mostWaitingOfOne, state.waiting.count < mostWaiting else { return TooManyQueries() }
          state.waiting.append(Waiting(id: id, holder: holder, turn: turn))
          return nil
        }
        if let failure { turn.resume(throwing: failure) } else { begin() }
      }
    } onCancel: {
      let gone = state.withLock { state -> Waiting? in
        guard let place = state.waiting.firstIndex(where: { $0.id == id }) else { return nil }
        defer { state.forgetIfGone(holder) }
        return state.waiting.remove(at: place)
      }
      gone?.turn.resume(throwing: Self.isGone)
    }
  }

  private static var isGone: HubDatabaseError { .init(kind: .unavailable, message: "the client has disconnected") }

  func giveBack(_ thing: Thing, of holder: String) {
    state.withLock { state in
      state.free.append(thing)
      let left = (state.running[holder] ?? 1) - 1
      state.running[holder] = left > 0 ? left : nil
      state.forgetIfGone(holder)
    }
    begin()
  }

  /// Begins the next turns: of the holders that had none for the longest time.
  private func begin() {
    while true {
      let next = state.withLock { state -> (Waiting, Thing)? in
        let ready = state.waiting.enumerated().filter { state.running[$0.element.holder, default: 0] < mostOfOne }
        let next = ready.min { (state.served[$0.element.holder] ?? 0) < (state.served[$1.element.holder] ?? 0) }
        guard let next, let thing = state.free.popLast() else { return nil }
        state.last += 1
        state.running[next.element.holder, default: 0] += 1
        state.served[next.element.holder] = state.last
        return (state.waiting.remove(at: next.offset), thing)
      }
      guard let (waiting, thing) = next else { return }
      waiting.turn.resume(returning: thing)
    }
  }
}

/// Connections for long queries. A holder, a token or a person, has one query in progress.
typealias ReaderPool = FairPool<HubStore>

extension FairPool where Thing == HubStore {
  /// Most waiting queries of one holder. The tabs of a reopened browser make a dozen at once.
  static var mostWaiting: Int { 16 }

  convenience init(_ stores: [HubStore]) { self.init(stores, mostOfOne: 1, mostWaitingOfOne: Self.mostWaiting) }

  /// Runs the query when it is the holder's turn.
  func ask<Answer: Sendable>(
    _ holder: String, _ question: @Sendable (isolated HubStore) throws -> Answer
  ) async throws -> Answer {
    let store = try await take(for: holder)
    defer { giveBack(store, of: holder) }
    return try await question(store)
  }
}
