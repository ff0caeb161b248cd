// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// An upstream as `meshpost status` shows it.
public struct UpstreamStatus: Equatable, Sendable {
  public enum State: String, Sendable { case idle, sending, waiting, stopped, paused }

  public struct Losses: Equatable, Sendable {
    /// Events after its cursor that were given up.
    public var ahead: Int64 = 0
    /// Events that were given up since the upstream was added.
    public var givenUp: Int64 = 0
    /// Events that were too old when their turn came (`max_age_s`), or of an unknown age.
    public var tooOld: Int64 = 0
  }

  /// What an operator does about one that is stopped. The service gets a copy of its credentials when it starts.
  public static let remedyOfStop =
    "Fix it, then run `meshpost upstream resume`; after a change in /etc/meshpost/credentials, "
    + "`sudo systemctl restart meshpost`"

  /// Rights that the server does not have and has asked for, by commands or edits of documents, and the line of the configuration that would give
  /// them.
  public struct Unpermitted: Equatable, Sendable {
    public var rights: [String]
    public var line: String

    /// For people.
    public var words: String { "it asked for \(rights.joined(separator: ", ")), which its `allow` does not name" }
  }

  public var name: String
  public var kind: String
  public var url: String
  /// The kind of a hub's connection: `live` or `http`.
  public var link: String?
  public var state: State
  /// Every lane is acknowledged up to here.
  public var cursor: Int64
  /// Each lane's state; `nil`: the server knows no lanes, and gets the whole journal in order.
  public var lanes: ByLane<LaneStatus>?
  /// Events that are not acknowledged, and those of them that are under way.
  public var pending: Int64
  public var inFlight: Int
  public var deadLetters: Int64
  /// Those of them that an operator skipped.
  public var skippedLetters: Int64 = 0
  /// Events that the upstream does not get.
  public var losses = Losses()
  /// The age of its oldest pending event, in seconds.
  public var age: Int64?
  /// Why it waits or is stopped.
  public var reason: String?
  /// Seconds until it tries again; `nil`: it does not wait for a known time.
  public var nextAttempt: Int64?
  /// The last acknowledgement of an event or, without one since the start, the first report that the server has everything; milliseconds since 1970.
  public var lastSuccess: Int64?
  public var batches: UInt64
  public var bytesSent: UInt64
  /// The expiry of the server's certificate, seconds since 1970.
  public var certificateExpiry: Int64?
  /// Acknowledged bytes of events a second, before compression; `nil`: unknown.
  public var rate: Int64?
  /// `nil`: there is no allowance.
  public var allowance: AllowanceStatus?
  /// Commands of the server, since the start, that were refused without an event.
  public var refusedCommands: Int64 = 0
  /// What the server has asked for since the start, and `allow` does not name; `nil`: nothing.
  public var unpermitted: Unpermitted?
  /// The server itself fails over an event, which an operator can skip.
  public var maySkip = false
  /// Bytes of the events sent since the start, before compression; those that were sent again count again.
  public var eventBytes = ByLane<UInt64>(all: 0)
}

/// An upstream's position in a lane, and the lane's backlog.
public struct LaneStatus: Equatable, Sendable {
  public var acknowledged: Int64
  public var pending: LaneAmount
  /// Seconds until the lane's backlog is acknowledged at the present rate, after that of higher lanes; `nil`: unknown, or there is none.
  public var seconds: Int64?
}

/// The server's updates, and changes that concern the connection.
extension Upstream {
  /// The state of the server's buckets; `nil`: it has none.
  public var updates: UpdatesReport? { bucketSync?.report }
  /// Keeps the newest state under its name, for servers that show it.
  public func setState(_ name: String, _ body: [UInt8]) { carrier.setState(name, body) }

  /// A greeting or a batch is under way.
  var isBusy: Bool { !isClosed && (shipment.state == .asking || !shipment.flights.isEmpty) }

  func radioIsUp() {
    guard carrier.needsRadio else { return }
    retryNow()
    guard [.asking, .ready].contains(shipment.state), carrier.isOfFormerRadio else { return }
    shipment.hold(.outdated)
    woken.resume()
  }

  /// The network has changed: waiting work is tried at once, and a kept connection must show that it works.
  public func networkChanged() {
    carrier.probe()
    hurry()
    retryNow()
  }

  private func retryNow() {
    guard case .waiting = shipment.state else { return }
    shipment.resume()
    wake()
  }

  /// The line may be up: connections that are being made try again at once, before the kernel would.
  func hurry() {
    // Over HTTP a batch makes a connection, too.
    if shipment.state == .asking || !underWay.flights.isEmpty { loop.hurryConnections() }
  }
}

extension Upstream {
  func reportHealth() { health.report(shipment.state) }

  /// Seconds since an event was journaled, whatever the clock was set to since; `nil`: unknown.
  private func age(of event: (seq: Int64, at: Moment)?) -> Int64? {
    guard let event else { return nil }
    let (times, now) = store.journalTimes
    return times.age(of: event.seq, event.at, wall: Moment(loop.wallClock), now: now)
      ?? times.leastAge(of: event.seq, now: now)
  }

  private var givenUp: Int64 {
    let counted = store.ifReadable { try store.leftOut(of: name).givenUp } ?? 0
    return max(0, counted - Lane.allCases.reduce(0) { $0 + journal.doubtful($1) })
  }

  public var status: UpstreamStatus {
    // Only people read these counts: without a readable store they are 0.
    let letters = store.ifReadable { try store.deadLetterCounts(of: name) } ?? DeadLetterCounts()
    let backlog = store.ifReadable { try store.backlog(after: journal.cursor) }
    let oldest = age(of: backlog?.oldest)
    let (state, reason) = stateForPeople
    return UpstreamStatus(
      name: name, kind: carrier.kind, url: carrier.place, link: carrier.link, state: state,
      cursor: journal.cursor.lowest, lanes: laneStatus,
      pending: pendingEvents, inFlight: underWay.flights.reduce(0) { $0 + $1.batch.events.count },
      deadLetters: letters.all, skippedLetters: letters.skipped,
      losses: UpstreamStatus.Losses(ahead: backlog?.lost ?? 0, givenUp: givenUp, tooOld: journal.tooOld.all),
      age: oldest,
      reason: reason,
      nextAttempt: isPaused ? nil : shipment.rest(now: loop.now).map { Int64($0.inSeconds.rounded(.up)) },
      lastSuccess: health.lastSuccess, batches: health.batches, bytesSent: carrier.bytesSent,
      certificateExpiry: carrier.certificateExpiry, rate: rate.map { Int64(min($0, Self.longest)) },
      allowance: allowanceStatus, refusedCommands: commands.refused, unpermitted: unpermitted, maySkip: maySkip,
      eventBytes: eventBytes)
  }

  private var unpermitted: UpstreamStatus.Unpermitted? {
    guard !commands.unpermitted.isEmpty else { return nil }
    return UpstreamStatus.Unpermitted(
      rights: commands.unpermitted.sorted(),
      line: Settings.line(permitting: settings.allowed.union(commands.unpermitted)))
  }

  private var laneStatus: ByLane<LaneStatus>? {
    guard journal.knowsLanes else { return nil }
    var status = ByLane(all: LaneStatus(acknowledged: 0, pending: LaneAmount()))
    var bytes = 0.0
    for lane in Lane.allCases {
      status[lane] = LaneStatus(acknowledged: journal.lanes[lane].taken, pending: journal.pending(lane))
      let pending = status[lane].pending
      // A lane that may not be sent now adds no time.
      guard pending.events > 0, account?.allowance.allows(lane) ?? true else { continue }
      bytes += Double(pending.bytes) + Double(pending.events) * Double(Batch.envelope)
      status[lane].seconds = rate.map { Int64(min((bytes / $0).rounded(.up), Self.longest)) }
    }
    return status
  }

  /// The largest number of seconds, and of bytes a second, that is shown.
  private static let longest = 1e12

  /// A paused or stopped upstream has no rate.
  private var rate: Double? {
    if isPaused { return nil }
    if case .stopped = shipment.state { return nil }
    return shipment.rate.bytesPerSecond(now: loop.now)
  }

  var pendingEvents: Int64 { journal.pendingEvents }

  var progress: Relay.Progress {
    let pending = pendingEvents
    if isPaused || pending == 0 { return .fine }
    let permitted = permittedEvents
    if shipment.holds.contains(.resting) || permitted == 0 { return .unknown }
    for lane in Lane.allCases where permits(lane) {
      // What other lanes do says nothing about the events of this one.
      guard let still = journal.lanes[lane].standsStill, UpstreamHealth.isLong(loop.now - still.since) else { continue }
      return .stuck(events: permitted, reason: still.reason)
    }
    return health.progress(pending: permitted)
  }

  /// A request is under way for long: on a thin line, or to a server that does not end its answer.
  private var silence: String? { pendingEvents > 0 ? health.silence : nil }

  private var stateForPeople: (UpstreamStatus.State, String?) {
    if isPaused { return (.paused, nil) }
    if shipment.holds.contains(.resting) { return (.waiting, "its allowance is used up") }
    if shipment.holds.contains(.succeeding), pendingEvents > 0 {
      return (.waiting, "what was under way before the change of this upstream has to end first (30 s at most)")
    }
    switch shipment.state {
    // An attempt is not a success: the trouble remains until one succeeds.
    case .greeting, .asking, .testing, .ready:
      if let trouble = health.trouble { return (trouble.isStopped ? .stopped : .waiting, trouble.reason) }
    case .waiting, .busy, .stopped: break
    }
    switch shipment.state {
    case .asking, .testing: return (.sending, silence ?? carrier.minorTrouble)
    case .greeting, .ready:
      let letter = journal.deadLetters.failure.map { "dead letter \($0.seq) is tried again and again: \($0.reason)" }
      if underWay.flights.isEmpty { return (.idle, letter ?? carrier.minorTrouble) }
      return (.sending, silence ?? letter ?? carrier.minorTrouble)
    case .waiting(_, let reason), .busy(_, let reason): return (.waiting, reason)
    case .stopped(_, let reason): return (.stopped, reason)
    }
  }
}
