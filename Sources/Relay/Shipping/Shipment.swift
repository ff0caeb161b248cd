// SPDX-License-Identifier: MIT

import Timing

/// Decides what an upstream does next, and how much of it at once: pure.
///
///     greeting ──▶ ready ──▶ sending ──acknowledged──▶ ready …
///        │           ▲          │ refused: half as much; a single event is buried
///        ▼           │          ▼ retryable
///      waiting ──────┴───── waiting (1 s … 5 min, or what Retry-After says)
///      stopped: 401, 403; asked again every 5 min, or when told
struct Shipment {
  enum State: Equatable {
    /// What the server has is not known yet: ask it.
    case greeting
    case ready
    case sending(count: Int, isDeadLetter: Bool)
    case waiting(until: MonotonicTime, reason: String)
    case stopped(until: MonotonicTime, reason: String)
  }

  enum Next: Equatable {
    case greet
    case send(limit: Int)
    case nothing
    case wake(at: MonotonicTime)
  }

  /// What to do with the batch that was answered.
  enum Consequence: Equatable {
    /// The server has everything up to here.
    case advance(to: Int64)
    /// The one event of the batch is refused for good.
    case bury(status: Int, reason: String)
    /// Nothing: the same again, sooner or later, whole or in part.
    case keep
  }

  /// How long a stopped upstream waits before it asks whether its token is taken now.
  static let stoppedFor: Duration = .seconds(300)
  /// Events of the first batch.
  static let firstEvents = 16
  /// An answer within the first is quick; after the second, batches are too large for the line.
  static let quick: Duration = .seconds(3)
  static let slow: Duration = .seconds(8)
  /// While it is looked into over which event the server hangs up.
  static let soon: Duration = .seconds(10)

  private(set) var state: State = .greeting
  /// Events of the batches that are under way behind the one of `state`.
  private var behind: [Int] = []
  /// Events of a batch. It begins small and grows while answers come quickly; over a narrow line it stays as small as the line.
  private(set) var limit: Int
  /// When each batch that is under way was sent.
  private var sentAt: [MonotonicTime] = []
  private let maxEvents: Int
  private var backoff = Backoff(first: RetryPolicy.first, limit: RetryPolicy.limit)

  init(maxEvents: Int) {
    self.maxEvents = max(1, maxEvents)
    limit = max(1, min(maxEvents, Self.firstEvents))
  }

  /// `hasMore`: there are events after the cursor, or dead letters to be tried again.
  /// `window`: batches that may be under way at once.
  func next(hasMore: Bool, now: MonotonicTime, window: Int = 1) -> Next {
    switch state {
    case .sending(let count, let isDeadLetter):
      // Several at once only where batches have their full size: on a narrow line they would wait for each other.
      let hasRoom = count > 0 && !isDeadLetter && behind.count + 1 < window && limit == maxEvents
      return hasMore && hasRoom ? .send(limit: limit) : .nothing
    case .waiting(let until, _), .stopped(let until, _):
      if now < until { return .wake(at: until) }
      return hasMore ? .greet : .nothing
    case .greeting: return hasMore ? .greet : .nothing
    case .ready: return hasMore ? .send(limit: limit) : .nothing
    }
  }

  /// There is no connection that is known to work, and none is being made.
  var isDisconnected: Bool {
    switch state {
    case .greeting, .waiting, .stopped: true
    case .ready, .sending: false
    }
  }

  mutating func sent(count: Int, isDeadLetter: Bool = false, now: MonotonicTime) {
    sentAt.append(now)
    if case .sending(1..., false) = state { return behind.append(count) }
    state = .sending(count: count, isDeadLetter: isDeadLetter)
  }

  mutating func greetingSent() {
    state = .sending(count: 0, isDeadLetter: false)
    forgetFlights()
  }

  private mutating func forgetFlights() {
    behind = []
    sentAt = []
  }

  /// The server told what it has.
  mutating func greeted() { state = .ready }

  /// The batch that was sent first is answered. With anything but an acknowledgement those behind it are void: they are sent
  /// again.
  ///
  /// `isUrgent`: it is looked into over which event the server hangs up; the next try comes soon.
  mutating func answered(
    _ verdict: Verdict, after cursor: Int64, isUrgent: Bool = false, now: MonotonicTime,
    using random: inout some RandomNumberGenerator
  ) -> Consequence {
    guard case .sending(let count, let isDeadLetter) = state else { return .keep }
    switch verdict {
    case .acknowledged(let through):
      guard through > cursor || isDeadLetter || count == 0 else {
        return wait("the server acknowledges nothing new (\(through))", nil, now: now, using: &random)
      }
      backoff.reset()
      adapt(now)
      state = behind.isEmpty ? .ready : .sending(count: behind.removeFirst(), isDeadLetter: false)
      return .advance(to: through)
    case .refused(let status, let reason):
      guard count > 0 else { return wait(reason, nil, now: now, using: &random) }
      state = .ready
      forgetFlights()
      guard count > 1 else { return .bury(status: status, reason: reason) }
      limit = max(1, count / 2)
      return .keep
    case .retry(let reason, let after): return wait(reason, after, now: now, using: &random)
    case .hungUp(let reason):
      // Too much for the line, or for the server: less of it.
      if count > 0, !isDeadLetter { limit = max(1, min(limit, count) / 4) }
      return wait(reason, nil, most: isUrgent ? Self.soon : RetryPolicy.limit, now: now, using: &random)
    case .stopped(let reason):
      state = .stopped(until: now + Self.stoppedFor, reason: reason)
      forgetFlights()
      return .keep
    }
  }

  /// By how long the answer took.
  private mutating func adapt(_ now: MonotonicTime) {
    guard !sentAt.isEmpty else { return }
    let took = now - sentAt.removeFirst()
    if took <= Self.quick { limit = min(maxEvents, limit * 2) }
    if took > Self.slow { limit = max(1, limit / 2) }
  }

  private mutating func wait(
    _ reason: String, _ after: Duration?, most: Duration = RetryPolicy.limit, now: MonotonicTime,
    using random: inout some RandomNumberGenerator
  ) -> Consequence {
    let pause = min(backoff.next(using: &random), most)
    forgetFlights()
    state = .waiting(until: now + max(pause, after ?? .zero), reason: reason)
    return .keep
  }

  /// Somebody changed something (token, network): try at once.
  mutating func resume() {
    switch state {
    case .waiting, .stopped: state = .greeting
    case .greeting, .ready, .sending: break
    }
  }

  /// The store changed under us, or the server did: ask what it has before anything is sent.
  mutating func greetAgain() {
    state = .greeting
    forgetFlights()
  }
}
