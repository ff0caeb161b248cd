// SPDX-License-Identifier: MIT

import Synchronization

/// A holder has too many waiting queries.
struct TooManyQueries: Error {
  static let message = "too many of your questions are waiting"
  static let retryAfter = 2
}

/// How long a holder may use things: `most` at once, and `part` of the time in the long run.
struct TurnAllowance: Sendable {
  struct Use: Sendable {
    var spent: Duration
    var at: ContinuousClock.Instant
  }

  let most: Duration
  let part: Double

  /// What the holder has still to make up for.
  func spent(_ use: Use?, _ now: ContinuousClock.Instant) -> Duration {
    use.map { max(.zero, $0.spent - (now - $0.at) * part) } ?? .zero
  }

  /// How long the holder has to wait before its next turn.
  func wait(_ use: Use?, _ now: ContinuousClock.Instant) -> Duration { max(.zero, (spent(use, now) - most) / part) }
}

/// Things that holders use in turn, whatever their number of earlier turns: forty requests of one holder leave a thing to the others, and a new
/// holder waits for at most the turns in progress. Holders with long turns leave `reserved` things to the others, however many they are.
final class FairPool<Thing: Sendable>: Sendable {
  private struct Waiting {
    let id: Int
    let holder: String
    let turn: CheckedContinuation<Thing, any Error>
  }

  private struct State {
    var free: [Thing]
    /// The begins of the turns in progress, by holder.
    var running: [String: [ContinuousClock.Instant]] = [:]
    /// Until when holders count as slow after a long turn.
    var slowUntil: [String: ContinuousClock.Instant] = [:]
    /// In the order of arrival.
    var waiting: [Waiting] = []
    /// The number of the last turn of a holder that runs or waits.
    var served: [String: Int] = [:]
    var last = 0
    var uses = KeptForGateways<TurnAllowance.Use>()
    /// When the next turns begin by time; `nil`: none waits for one.
    var wakes: ContinuousClock.Instant?

    mutating func forgetIfGone(_ holder: String) {
      if running[holder] == nil, !waiting.contains(where: { $0.holder == holder }) { served[holder] = nil }
    }
  }

  /// Most turns in progress of one holder, and most waiting ones of one holder and of all.
  let mostOfOne: Int
  let mostWaitingOfOne: Int
  private let mostWaiting: Int
  /// Most turns in progress of slow holders; a longer turn is slow; and how long its holder counts as slow.
  private let mostSlow: Int
  private let longTurn: Duration
  /// `nil`: a holder may use things all the time.
  private let allowance: TurnAllowance?
  private static var slowness: Duration { .seconds(30) }
  private static var mostSlowHolders: Int { 1000 }
  private let state: Mutex<State>

  init(
    _ things: [Thing], mostOfOne: Int, mostWaitingOfOne: Int, mostWaiting: Int = .max, reserved: Int = 0,
    longTurn: Duration = .milliseconds(100), allowance: TurnAllowance? = nil
  ) {
    self.allowance = allowance
    (self.mostOfOne, self.mostWaitingOfOne, self.mostWaiting) = (mostOfOne, mostWaitingOfOne, mostWaiting)
    (mostSlow, self.longTurn) = (max(1, things.count - reserved), longTurn)
    state = Mutex(State(free: things))
  }

  var running: Int { state.withLock { $0.running.values.reduce(0) { $0 + $1.count } } }
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
      var turns = state.running[holder] ?? []
      let now = ContinuousClock.now
      if let begun = turns.first, now - begun > longTurn {
        if state.slowUntil.count >= Self.mostSlowHolders { state.slowUntil = state.slowUntil.filter { $0.value > now } }
        state.slowUntil[holder] = now + Self.slowness
      }
      if let allowance, let begun = turns.first {
        let spent = allowance.spent(state.uses[holder], now) + (now - begun)
        state.uses.keep(TurnAllowance.Use(spent: spent, at: now), of: holder) {
          allowance.spent($0, now) == .zero
        }
      }
      turns = Array(turns.dropFirst())
      state.running[holder] = turns.isEmpty ? nil : turns
      state.forgetIfGone(holder)
    }
    begin()
  }

  /// Begins the next turns: of the holders that had none for the longest time. A slow holder waits for the end of another slow holder's turn if
  /// these have all things but the reserved ones.
  private func begin() {
    while true {
      let (next, wake) = state.withLock { state -> ((Waiting, Thing)?, Duration?) in
        guard !state.free.isEmpty else { return (nil, nil) }
        let now = ContinuousClock.now
        func isSlow(_ holder: String) -> Bool { state.slowUntil[holder].map { $0 > now } ?? false }
        let slow = state.running.reduce(0) { sum, one in
          sum + (isSlow(one.key) ? one.value.count : one.value.count { now - $0 > longTurn })
        }
        var (first, least) = (Int?.none, Int.max)
        var wake: Duration?
        for (offset, one) in state.waiting.enumerated() {
          guard state.running[one.holder, default: []].count < mostOfOne, slow < mostSlow || !isSlow(one.holder)
          else { continue }
          let wait = allowance?.wait(state.uses[one.holder], now) ?? .zero
          if wait > .zero {
            wake = min(wake ?? wait, wait)
            continue
          }
          let served = state.served[one.holder] ?? 0
          if served < least { (first, least) = (offset, served) }
          // A whole fleet may wait: the first one without an earlier turn is found soon.
          if served == 0 { break }
        }
        guard let place = first, let thing = state.free.popLast() else {
          guard let wake, state.wakes.map({ now + wake < $0 }) ?? true else { return (nil, nil) }
          state.wakes = now + wake
          return (nil, wake)
        }
        let next = state.waiting.remove(at: place)
        state.last += 1
        state.running[next.holder, default: []].append(now)
        state.served[next.holder] = state.last
        return ((next, thing), nil)
      }
      if let wake { begin(after: wake) }
      guard let (waiting, thing) = next else { return }
      waiting.turn.resume(returning: thing)
    }
  }

  private func begin(after pause: Duration) {
    Task { [weak self] in
      // `try?`: nobody cancels it.
      try? await Task.sleep(for: pause)
      guard let self else { return }
      state.withLock { $0.wakes = nil }
      begin()
    }
  }
}

/// Connections for long queries. A holder, a token, a person or a gateway, has one query in progress.
typealias ReaderPool = FairPool<HubStore>

extension FairPool where Thing == HubStore {
  /// Most waiting queries of one holder. The tabs of a reopened browser make a dozen at once.
  static var mostWaiting: Int { 16 }

  convenience init(
    _ stores: [HubStore], reserved: Int = 0, longTurn: Duration = .milliseconds(100), allowance: TurnAllowance? = nil
  ) {
    self.init(
      stores, mostOfOne: 1, mostWaitingOfOne: Self.mostWaiting, reserved: reserved, longTurn: longTurn,
      allowance: allowance)
  }

  /// Runs the query when it is the holder's turn.
  func ask<Answer: Sendable>(
    _ holder: String, _ question: @Sendable (isolated HubStore) throws -> Answer
  ) async throws -> Answer {
    let store = try await take(for: holder)
    defer { giveBack(store, of: holder) }
    return try await question(store)
  }
}
