// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// What comes from the server besides acknowledgements.
extension JournalUpstream {
  public var updates: UpdatesReport? { bucketSync?.report }
  public func channelsChanged() { bucketSync?.wantsChanged() }
  public func radioWasRead() { bucketSync?.radioWasRead() }
  public func refresh() { bucketSync?.refresh() }
  public func setState(_ name: String, _ body: [UInt8]) {
    (carrier as? HubConnection)?.setState(name, body)
    (carrier as? StoppedCarrier)?.setState(name, body)
  }

  /// Greeting, or sending.
  var isBusy: Bool { !isClosed && (shipment.state == .asking || !shipment.flights.isEmpty) }

  var wantsPackets: Bool { settings.filter.kinds.contains(EventKind.packet.rawValue) }

  func radioIsUp() {
    guard let carrier = carrier as? MQTTCarrier, carrier.settings.observer != nil || carrier.settings.token != nil,
      case .waiting = shipment.state
    else { return }
    shipment.resume()
    wake()
  }

  /// The network is another than before: what waits is tried at once, what is connected has to show it.
  public func networkChanged() {
    (carrier as? HubConnection)?.probe()
    hurry()
    if case .waiting = shipment.state {
      shipment.resume()
      wake()
    }
  }

  /// The line may be up: a connection that is being made does not wait until the kernel asks again.
  func hurry() {
    // By HTTP a batch makes its connection, too.
    if shipment.state == .asking || !flights.isEmpty { loop.hurryConnections() }
  }
}

extension JournalUpstream {
  public var status: UpstreamStatus {
    // The count is for people.
    let deadLetters = store.ifReadable { try store.deadLetterCount(of: name) } ?? 0
    let backlog = store.ifReadable { try store.backlog(after: cursor) }
    let age = backlog?.oldest.map { max(0, (clock.milliseconds - max(0, $0)) / 1000) }
    let (state, reason) = stateForPeople
    let counted = store.ifReadable { try store.leftOut(of: name).givenUp } ?? 0
    let givenUp = max(0, counted - Lane.allCases.reduce(0) { $0 + doubtful($1) })
    return UpstreamStatus(
      name: name, kind: carrier.kind, url: carrier.place, link: (carrier as? HubConnection)?.linkKind, state: state,
      cursor: cursor.lowest, lanes: laneStatus,
      pending: pendingEvents, inFlight: flights.reduce(0) { $0 + $1.batch.events.count },
      deadLetters: deadLetters,
      lost: backlog?.lost ?? 0, age: age, givenUp: givenUp, tooOld: tooOld.all,
      reason: reason, lastSuccess: lastSuccess, batches: batches, bytesSent: carrier.bytesSent,
      certificateExpiry: carrier.certificateExpiry, rate: rate.map { Int64(min($0, Self.longest)) },
      allowance: allowanceStatus, refusedCommands: commandIntake.refused)
  }

  /// Events are delivered, or there are none; questions and states are not.
  private var questionTrouble: String? {
    let hub = carrier as? HubConnection
    return hub?.http.trouble ?? hub?.linkTrouble
  }

  private var laneStatus: ByLane<LaneStatus>? {
    guard knowsLanes else { return nil }
    var status = ByLane(all: LaneStatus(acknowledged: 0, pending: LaneAmount()))
    var bytes = 0.0
    for lane in Lane.allCases {
      status[lane] = LaneStatus(acknowledged: lanes[lane].taken, pending: pending(lane))
      let pending = status[lane].pending
      // What may not be sent now takes no time.
      guard pending.events > 0, account?.allowance.allows(lane) ?? true else { continue }
      bytes += Double(pending.bytes) + Double(pending.events) * Double(Batch.envelope)
      status[lane].seconds = rate.map { Int64(min((bytes / $0).rounded(.up), Self.longest)) }
    }
    return status
  }

  /// Seconds, and bytes a second, that are for ever.
  private static let longest = 1e12

  /// What is not sent has no rate.
  private var rate: Double? {
    if isPaused { return nil }
    if case .stopped = shipment.state { return nil }
    return shipment.rate.bytesPerSecond(now: loop.now)
  }

  /// So long what waits may go without an acknowledgement, before an upstream without any trouble is said to be stuck.
  private static let longestSilence: Duration = .seconds(60)

  var progress: Relay.Progress {
    if isPaused || pendingEvents == 0 { return .fine }
    if isResting { return .unknown }
    if let obstacle { return .stuck(events: pendingEvents, reason: obstacle) }
    guard hasTaken else { return .unknown }
    // That something was taken once says nothing of what waits now.
    guard let waitsSince, loop.now - waitsSince >= Self.longestSilence else { return .fine }
    return .stuck(
      events: pendingEvents, reason: "nothing was acknowledged for \(Int((loop.now - waitsSince).inSeconds)) s")
  }

  private var stateForPeople: (UpstreamStatus.State, String?) {
    if isPaused { return (.paused, nil) }
    if isResting { return (.waiting, "its allowance is used up") }
    switch shipment.state {
    // A try is not a success: until one is, the trouble stands.
    case .greeting, .asking, .ready:
      if let trouble { return (trouble.isStopped ? .stopped : .waiting, trouble.reason) }
    case .waiting, .busy, .stopped: break
    }
    switch shipment.state {
    case .asking: return (.sending, questionTrouble)
    case .greeting, .ready: return (flights.isEmpty ? .idle : .sending, questionTrouble)
    case .waiting(_, let reason), .busy(_, let reason): return (.waiting, reason)
    case .stopped(_, let reason): return (.stopped, reason)
    }
  }
}
