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
///      stopped: 401, 403; asked again every 5 min, or when told
///      testing: an operator has the server asked; nothing else ends it
///
/// A `Hold` keeps back what the state would permit.
struct Shipment {
  enum State: Equatable {
    /// What the server has is not known yet: ask it.
    case greeting
    /// The server is being asked what it has.
    case asking
    /// An operator has the server asked, and nothing else is said to it meanwhile.
    case testing
    case ready
    case waiting(until: MonotonicTime, reason: String)
    /// As `waiting`, and then as `ready`: the server keeps the connection, and said when to come back.
    case busy(until: MonotonicTime, reason: String)
    case stopped(until: MonotonicTime, reason: String)
  }

  /// Why nothing is sent although the server takes events.
  enum Hold: Hashable {
    /// An operator has paused the upstream.
    case paused
    /// A dead letter is on its way to disk: the cursor must be behind it first.
    case burying
    /// The cursor is on its way to disk, and events that could be folded wait for that.
    case keepingCursor
    /// The allowance permits nothing: the connection is closed.
    case resting
    /// The connection is to be made anew once nothing is under way.
    case outdated
  }

  /// What there is to do.
  struct Demand: Equatable {
    /// Lanes that have events which were not sent yet.
    var lanes = ByLane(all: false)
    /// A connection is to be kept, or dead letters are to be tried again.
    var other = false

    var isSome: Bool { other || Lane.allCases.contains { lanes[$0] } }
  }

  enum Next: Equatable {
    case greet
    case send(Portion)
    case nothing
    case wake(at: MonotonicTime)
  }

  /// A batch to be made: of that lane, of so many events and bytes at most.
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
    /// Bytes that were under way before it.
    fileprivate var ahead = 0
    fileprivate var sentAt = MonotonicTime(seconds: 0)

    init(lane: Lane, events: Int, bytes: Int, isDeadLetter: Bool = false) {
      (self.lane, self.events, self.bytes, self.isDeadLetter) = (lane, events, bytes, isDeadLetter)
    }
  }

  /// What to do with the batch that was answered.
  enum Consequence: Equatable {
    /// The server has everything of the batch's lane up to here.
    case advance(to: Int64)
    /// The one event of the batch is refused for good.
    case bury(status: Int, reason: String)
    /// Nothing: the same again, sooner or later, whole or in part.
    case keep
  }

  /// How long a stopped upstream waits before it asks whether its token is taken now.
  static let stoppedFor: Duration = .seconds(300)
  /// Bytes of events under way to a server, at most: they are kept in memory until they are answered. One batch may have more.
  static let maxInFlightBytes = 512 << 10
  /// While it is looked into over which event the server hangs up.
  static let soon: Duration = .seconds(10)

  private(set) var state: State = .greeting
  private(set) var holds: Set<Hold> = []
  /// In the order in which they were sent, and are answered.
  private(set) var flights: [Flight] = []
  /// Events of a batch: fewer after one that was refused or over which the server hung up.
  private(set) var limit: Int
  private(set) var pacer = Pacer()
  private(set) var rate = AcknowledgedRate()
  private var shares = LaneShares()
  private let maxEvents: Int
  private let maxBytes: Int
  private var backoff = Backoff(first: RetryPolicy.first, limit: RetryPolicy.limit)
  /// Connections that ended: what each took sets `backoff` back, and each costs a greeting.
  private var ends = Ration(most: 32, oneIn: .seconds(10))
  /// Randomness of the pauses between attempts.
  var random = SeededRandom(seed: .random(in: .min ... .max))

  /// `maxEvents`, `maxBytes`: of a batch.
  init(maxEvents: Int, maxBytes: Int = 65536) {
    self.maxEvents = max(1, maxEvents)
    self.maxBytes = max(1, maxBytes)
    limit = self.maxEvents
  }

  /// `window`: batches that may be under way at once. `hasArrived`: nothing of what was sent is on the line any more.
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
    // What comes first does not wait for what is below it: one batch of it may always be under way.
    let isAhead = flights.allSatisfy { $0.lane.isBelow(lane) }
    return isAhead && credit == nil ? Portion(lane: lane, events: limit, bytes: min(bytes, LaneShares.least)) : nil
  }

  /// Nothing is done before a time that is known.
  func isResting(now: MonotonicTime) -> Bool {
    switch state {
    case .waiting(let until, _), .busy(let until, _), .stopped(let until, _): now < until
    case .greeting, .asking, .testing, .ready: false
    }
  }

  /// A dead letter may be sent again: nothing is under way, and nothing holds it back.
  var mayRetryLetter: Bool {
    state == .ready && flights.isEmpty && !isHeld && !holds.contains(.outdated)
  }

  /// A pause of a server that keeps its connection may have ended; one that is outdated ends when nothing is under way.
  mutating func came(to now: MonotonicTime) {
    if case .busy(let until, _) = state, now >= until { state = .ready }
    if holds.contains(.outdated), flights.isEmpty { greetAgain() }
  }

  /// Nothing is done before something else happens.
  var isHeld: Bool { state == .testing || holds.contains(.paused) || holds.contains(.burying) }

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

  /// `waiting`: lanes that have more.
  mutating func sent(_ flight: Flight, waiting: ByLane<Bool> = ByLane(all: false), now: MonotonicTime) {
    var flight = flight
    (flight.ahead, flight.sentAt) = (bytesUnderWay, now)
    flights.append(flight)
    if !flight.isDeadLetter { shares.sent(flight.bytes, in: flight.lane, waiting: waiting) }
  }

  /// The server is asked what it has, or is tested for an operator: on a new connection.
  mutating func asks(isTest: Bool = false) {
    state = isTest ? .testing : .asking
    holds.subtract([.resting, .outdated])
    flights = []
  }

  /// The server told what it has.
  mutating func greeted() {
    state = .ready
    pacer.reset()
  }

  /// The test has ended.
  mutating func tested() {
    if state == .testing { greetAgain() }
  }

  /// A greeting, the connection or the disk failed, and with it all that was under way.
  mutating func failed(_ verdict: Verdict, now: MonotonicTime) {
    // What a test finds is told by its own answer; the server is asked anew after it.
    guard state != .testing else { return }
    flights = []
    _ = answered(verdict, after: .max, now: now)
  }

  /// The batch that was sent first is answered; without one, a greeting. With anything but an acknowledgement those of its lane behind it
  /// are void; with anything but an acknowledgement or a refusal, all of them: they are sent again.
  ///
  /// `cursor`: what the server had before. `isUrgent`: it is looked into over which event the server hangs up; the next try comes soon.
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
    case .retry(let reason, let after): return wait(reason, after, now: now)
    case .busy(let reason, let after):
      flights = []
      state = .busy(until: now + max(backoff.next(using: &random), after ?? .zero), reason: reason)
      return .keep
    case .hungUp(let reason):
      // Too much for the line, or for the server: less of it.
      if let flight, !flight.isDeadLetter { limit = max(1, min(limit, flight.events) / 4) }
      return wait(reason, nil, most: isUrgent ? Self.soon : RetryPolicy.limit, now: now)
    case .stopped(let reason):
      state = .stopped(until: now + Self.stoppedFor, reason: reason)
      flights = []
      return .keep
    }
  }

  /// Of the first batch, which is of that lane and is about to be answered, only the beginning was taken: those behind it are void.
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

  /// The store changed under us, or the server did: ask what it has before anything is sent.
  mutating func greetAgain() {
    state = .greeting
    holds.remove(.outdated)
    flights = []
  }
}
