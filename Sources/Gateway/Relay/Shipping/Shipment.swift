// SPDX-License-Identifier: MIT

import Store
import Timing

/// Decides what an upstream does next, and how much of it at once: pure.
///
///     greeting ──▶ asking ──▶ ready ◀──acknowledged── batches under way
///        ▲            │         │ refused: half as much; a single event is buried
///        │            ▼         ▼ retryable
///        └───────── waiting (1 s … 5 min, or what Retry-After says)
///      busy: as waiting, but the connection stays; then ready
///            stopped: 401, 403; asked again every 5 min, or when an operator resumes it
///            testing: an operator tests the server; only the test's end ends it
///
/// A `Hold` forbids batches that the state would permit.
struct Shipment {
  enum State: Equatable {
    /// The server's position is unknown: ask for it.
    case greeting
    /// A greeting is under way.
    case asking
    /// An operator tests the server; nothing else is sent meanwhile.
    case testing
    case ready
    case waiting(until: MonotonicTime, reason: String)
    /// As `waiting`, but the server keeps the connection, and `ready` follows.
    case busy(until: MonotonicTime, reason: String)
    case stopped(until: MonotonicTime, reason: String)
  }

  /// Why nothing is sent although the server takes events.
  enum Hold: Hashable {
    case paused
    /// A dead letter is being written: the cursor must pass it first.
    case burying
    /// A dead letter that the server has taken is being deleted.
    case removing
    /// The cursor is being written, and events that may be folded wait for it.
    case keepingCursor
    /// The allowance permits nothing: the connection is closed.
    case resting
    /// A new connection is to be made once nothing is under way.
    case outdated
    /// The upstream that it replaces waits for the answers to its last requests.
    case succeeding
  }

  /// The waiting work.
  struct Demand: Equatable {
    /// Lanes with events that were not sent yet.
    var lanes = ByLane(all: false)
    /// A kept connection is missing, or dead letters wait for a retry.
    var other = false

    var isSome: Bool { other || Lane.allCases.contains { lanes[$0] } }
  }

  enum Next: Equatable {
    case greet
    case send(Portion)
    case nothing
    case wake(at: MonotonicTime)
  }

  /// The next batch: its lane, and the most events and bytes.
  struct Portion: Equatable {
    var lane: Lane
    var events: Int
    var bytes: Int
  }

  /// A batch under way.
  struct Flight: Equatable {
    var lane: Lane
    var events: Int
    var bytes: Int
    var isDeadLetter = false
    /// Bytes that were under way when it was sent.
    fileprivate var ahead = 0
    fileprivate var sentAt = MonotonicTime(seconds: 0)

    init(lane: Lane, events: Int, bytes: Int, isDeadLetter: Bool = false) {
      (self.lane, self.events, self.bytes, self.isDeadLetter) = (lane, events, bytes, isDeadLetter)
    }
  }

  /// What to do with an answered batch.
  enum Consequence: Equatable {
    /// The server has everything of the batch's lane up to here.
    case advance(to: Int64)
    /// The one event of the batch is refused for good.
    case bury(status: Int, reason: String)
    /// Nothing: the events are sent again later, whole or in part.
    case keep
  }

  /// After this pause, a stopped upstream tries its token again.
  static let stoppedFor: Duration = .seconds(300)
  /// The most bytes of events under way: they stay in memory until they are answered. A single batch may have more.
  static let maxInFlightBytes = 512 << 10
  /// The longest pause while `Suspicion` looks for the event over which the server hangs up.
  static let soon: Duration = .seconds(10)

  private(set) var state: State = .greeting
  private(set) var holds: Set<Hold> = []
  /// In the order in which they were sent, and are answered.
  private(set) var flights: [Flight] = []
  /// The most events in a batch: fewer after a refusal or a hang-up.
  private(set) var limit: Int
  private(set) var pacer = Pacer()
  private(set) var rate = AcknowledgedRate()
  private var shares = LaneShares()
  private let maxEvents: Int
  private let maxBytes: Int
  private var backoff = Backoff(first: RetryPolicy.first, limit: RetryPolicy.limit)
  /// Limits lost connections: an event taken on each resets `backoff`, but each costs a greeting.
  private var ends = Ration(most: 32, oneIn: .seconds(10))
  /// Randomness of the pauses between attempts.
  var random = SeededRandom(seed: .random(in: .min ... .max))

  /// `maxEvents`, `maxBytes`: of a batch.
  init(maxEvents: Int, maxBytes: Int = 65536) {
    self.maxEvents = max(1, maxEvents)
    self.maxBytes = max(1, maxBytes)
    limit = self.maxEvents
  }

  /// `window`: batches that may be under way at once. `hasArrived`: the other end's kernel has received all sent bytes.
  mutating func next(
    _ demand: Demand, now: MonotonicTime, window: Int = 1, hasArrived: @autoclosure () -> Bool = false
  ) -> Next {
    if isHeld { return .nothing }
    came(to: now)
    var demand = demand
    if holds.contains(.outdated) { demand.lanes = ByLane(all: false) }
    switch state {
    case .asking, .testing: return .nothing
    case .waiting(let until, _), .stopped(let until, _):
      if now < until { return .wake(at: until) }
      return demand.isSome ? .greet : .nothing
    case .greeting: return demand.isSome ? .greet : .nothing
    case .busy(let until, _): return .wake(at: until)
    case .ready: return portion(demand.lanes, window, hasArrived).map { .send($0) } ?? .nothing
    }
  }

  private var bytesUnderWay: Int { flights.reduce(0) { $0 + $1.bytes } }

  private func portion(_ lanes: ByLane<Bool>, _ window: Int, _ hasArrived: () -> Bool) -> Portion? {
    guard flights.count < window, !flights.contains(where: \.isDeadLetter) else { return nil }
    guard let (lane, credit) = shares.next(lanes) else { return nil }
    let whole = min(max(pacer.window / pacer.parts(window), 1), maxBytes)
    let bytes = credit.map { min(whole, $0) } ?? whole
    let portion = Portion(lane: lane, events: limit, bytes: bytes)
    let then = bytesUnderWay + whole
    let fits =
      flights.isEmpty || then <= pacer.window || then <= pacer.windowAfterArrival && hasArrived()
    if fits, flights.count < max(1, window - 1) { return portion }
    // A higher lane does not wait for lower ones: one batch of it may always be under way.
    let isAhead = flights.allSatisfy { $0.lane.isBelow(lane) }
    return isAhead && credit == nil ? Portion(lane: lane, events: limit, bytes: min(bytes, LaneShares.least)) : nil
  }

  /// It waits until a known time.
  func isResting(now: MonotonicTime) -> Bool { rest(now: now) != nil }

  /// The time until the next attempt; `nil`: it does not wait for a known time.
  func rest(now: MonotonicTime) -> Duration? {
    switch state {
    case .waiting(let until, _), .busy(let until, _), .stopped(let until, _): now < until ? until - now : nil
    case .greeting, .asking, .testing, .ready: nil
    }
  }

  /// A dead letter may be sent again: nothing is under way, and nothing holds it back.
  var mayRetryLetter: Bool {
    state == .ready && flights.isEmpty && !isHeld && !holds.contains(.outdated)
  }

  /// Ends a `busy` pause that is over, and an outdated connection once nothing is under way.
  mutating func came(to now: MonotonicTime) {
    if case .busy(let until, _) = state, now >= until { state = .ready }
    if holds.contains(.outdated), flights.isEmpty { greetAgain() }
  }

  /// It waits for the end of a test, of a pause or of its predecessor, or for a dead letter that is being written or deleted.
  var isHeld: Bool { state == .testing || !holds.isDisjoint(with: [.paused, .burying, .removing, .succeeding]) }

  /// No connection is known to work, and none is being opened.
  var isDisconnected: Bool {
    switch state {
    case .greeting, .waiting, .stopped: true
    case .asking, .testing, .ready, .busy: false
    }
  }

  // MARK: Holds

  mutating func hold(_ hold: Hold) { holds.insert(hold) }
  mutating func release(_ released: Set<Hold>) { holds.subtract(released) }

  /// `waiting`: lanes with more events.
  mutating func sent(_ flight: Flight, waiting: ByLane<Bool> = ByLane(all: false), now: MonotonicTime) {
    var flight = flight
    (flight.ahead, flight.sentAt) = (bytesUnderWay, now)
    flights.append(flight)
    if !flight.isDeadLetter { shares.sent(flight.bytes, in: flight.lane, waiting: waiting) }
  }

  /// A greeting or an operator's test begins, on a new connection.
  mutating func asks(isTest: Bool = false) {
    state = isTest ? .testing : .asking
    holds.subtract([.resting, .outdated])
    flights = []
  }

  mutating func greeted() {
    state = .ready
    pacer.reset()
  }

  mutating func tested() {
    if state == .testing { greetAgain() }
  }

  /// A greeting, the connection or the disk has failed, and every batch under way with it.
  mutating func failed(_ verdict: Verdict, now: MonotonicTime) {
    // The test reports its own result, and a greeting follows it.
    guard state != .testing else { return }
    flights = []
    _ = answered(verdict, after: .max, now: now)
  }

  /// Handles the answer to the batch that was sent first or, without one, to a greeting. A refusal voids the later batches of its lane; any other
  /// failure voids all batches, and they are sent again.
  ///
  /// `cursor`: the server's position before. `isUrgent`: the next try comes soon, because `Suspicion` looks for the event over which the server hangs
  /// up.
  mutating func answered(
    _ verdict: Verdict, after cursor: Int64, isUrgent: Bool = false, window: Int = 1, now: MonotonicTime
  ) -> Consequence {
    let flight = flights.isEmpty ? nil : flights.removeFirst()
    switch verdict {
    case .acknowledged(let through):
      guard through > cursor || flight?.isDeadLetter ?? true else {
        return wait("the server acknowledges nothing new (\(through))", nil, now: now)
      }
      backoff.reset()
      if state == .asking { state = .ready }
      if let flight {
        limit = min(maxEvents, limit * 2)
        let filledLine = flight.ahead > 0 || flight.bytes >= pacer.window / 2
        let tells = pacer.answered(
          bytes: flight.bytes, ahead: flight.ahead, isSingle: flight.events == 1, sentAt: flight.sentAt, now: now,
          limit: max(maxBytes, min(maxBytes * max(1, window), Self.maxInFlightBytes)), parts: pacer.parts(window))
        rate.answered(bytes: flight.bytes, filledLine: filledLine && tells, sentAt: flight.sentAt, now: now)
      }
      return .advance(to: through)
    case .refused(let status, let reason):
      guard let flight else { return wait(reason, nil, now: now) }
      flights.removeAll { $0.lane == flight.lane }
      guard flight.events > 1 else { return .bury(status: status, reason: reason) }
      limit = max(1, flight.events / 2)
      return .keep
    case .diverged(let reason): return wait(reason, nil, now: now)
    case .retry(let reason, let after), .failing(let reason, let after): return wait(reason, after, now: now)
    case .busy(let reason, let after):
      flights = []
      state = .busy(until: now + max(backoff.next(using: &random), after ?? .zero), reason: reason)
      return .keep
    case .hungUp(let reason):
      // The batch may be too large for the line, or for the server.
      if let flight, !flight.isDeadLetter { limit = max(1, min(limit, flight.events) / 4) }
      return wait(reason, nil, most: isUrgent ? Self.soon : RetryPolicy.limit, now: now)
    case .stopped(let reason):
      state = .stopped(until: now + Self.stoppedFor, reason: reason)
      flights = []
      return .keep
    }
  }

  /// The server failed over a dead letter, by its own answer, which says nothing about events.
  mutating func setLetterAside() { if !flights.isEmpty { flights.removeFirst() } }

  /// Sends one event at a time, and then more with each success.
  mutating func sendsOne() { limit = 1 }

  /// The server took only the beginning of the first batch, which is of this lane: the lane's later batches are void.
  mutating func tookInPart(_ lane: Lane) {
    guard let first = flights.first else { return }
    flights = [first] + flights.dropFirst().filter { $0.lane != lane }
  }

  private mutating func wait(
    _ reason: String, _ after: Duration?, most: Duration = RetryPolicy.limit, now: MonotonicTime
  ) -> Consequence {
    let pause = max(min(backoff.next(using: &random), most), ends.wait(at: now))
    flights = []
    state = .waiting(until: now + max(pause, after ?? .zero), reason: reason)
    return .keep
  }

  /// The token or the network has changed: retry at once.
  mutating func resume() {
    switch state {
    case .waiting, .stopped: state = .greeting
    case .busy: state = .ready
    case .greeting, .asking, .testing, .ready: break
    }
  }

  /// The store or the server has changed: ask for its position before sending.
  mutating func greetAgain() {
    state = .greeting
    holds.remove(.outdated)
    flights = []
  }
}
