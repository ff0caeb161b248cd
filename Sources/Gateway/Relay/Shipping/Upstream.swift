// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// Ships the journal to one server through a `Carrier`: each lane in order, with as much under way as the line carries. The cursors follow the
/// acknowledgements.
///
/// `Shipment` decides on the next step, `JournalReader` reads for it, and `Upstream` carries it out.
public final class Upstream {
  public struct Settings: Equatable, Sendable {
    public var name: String
    public var batchEvents = 200
    public var batchBytes = 65536
    public var filter = EventFilter()
    /// A new upstream gets events from before it was added, too.
    public var fromStart = false
    /// The server's rights at the gateway, none unless they are named, and its commands a minute.
    public var allowed: Set<String> = []
    public var commandsPerMinute = 10
    /// `nil`: only the minute has a limit.
    public var commandsPerHour: Int?
    /// Whether only the newest of a node's waiting states is sent.
    public var folds = false
    /// Bytes a day and a month, and the hours for events that are not urgent; `nil`: no limit.
    public var dailyBytes: Int64?
    public var monthlyBytes: Int64?
    public var bulkHours: BulkHours?

    /// All rights: commands, and edits of documents and settings from afar.
    public static let knownRights = CommandIntake.known + ["documents", "settings"]

    /// The line of a configuration that gives these rights.
    public static func line(permitting rights: Set<String>) -> String {
      let names = knownRights.filter { rights.contains($0) }.map { "\"\($0)\"" }
      return "allow = [\(names.joined(separator: ", "))]"
    }
  }

  public struct SetupError: Error, CustomStringConvertible, Sendable {
    public let description: String
  }

  enum Life { case new, running(LoopTask), ended }

  let settings: Settings
  private(set) var carrier: any Carrier
  let loop: EventLoop
  let journal: JournalReader
  var shipment: Shipment
  let health: UpstreamHealth
  let account: AllowanceAccount?
  let commands: CommandIntake
  private(set) var bucketSync: BucketSync?
  var underWay: UnderWay
  let woken = Waiter()
  var life = Life.new
  /// The disk has refused the position last: it is written again after a pause, although nothing waits.
  var isPositionLost = false
  /// The last batch that the server has not taken, for an operator who skips its event.
  var untaken: Untaken?
  /// Bytes of the events that were given to the carrier, as `Batch.size` counts them, in the lanes to which they belong.
  private(set) var eventBytes = ByLane<UInt64>(all: 0)
  /// An operator waits to hear whether an event is skipped.
  var skipping: Skipping?
  /// It is removed or replaced, and waits for the answers to its last requests; `nil`: it goes on.
  var leaving: Leaving?
  /// Runs until what was under way at a pause is given up.
  var pausing: LoopTimer?

  public var name: String { settings.name }
  var store: Store { journal.store }
  var log: Log { journal.log }
  var isClosed: Bool { if case .ended = life { true } else { false } }

  init(_ settings: Settings, carrier: any Carrier, store: Store, on loop: EventLoop, log: Log) throws(StoreError) {
    (self.settings, self.carrier, self.loop) = (settings, carrier, loop)
    underWay = UnderWay(on: loop)
    let log = log.about(.upstream, settings.name)
    commands = CommandIntake(settings, store: store, on: loop, log: log)
    account = try Self.account(settings, store, loop, log)
    journal = try JournalReader(
      settings, serverKeepsCount: carrier.serverKeepsCount, store: store, clock: loop.wallClock, log: log)
    health = UpstreamHealth(settings.name, on: loop, log: log)
    shipment = Shipment(maxEvents: settings.batchEvents, maxBytes: settings.batchBytes)
    if try store.isPaused(settings.name) { shipment.hold(.paused) }
    account?.changed = { [weak self] in self?.woken.resume() }
    connect()
  }

  /// Prepares to receive the server's commands and updates.
  private func connect() {
    carrier.commands = commands
    guard let source = carrier.updatesSource else { return }
    let bucketSync = BucketSync(
      upstream: settings.name, rights: settings.allowed, store: store, source: source, commands: commands,
      on: loop, log: log, acknowledged: { [weak self] in self?.journal.lanes.messages.taken ?? 0 })
    bucketSync.host = host
    self.bucketSync = bucketSync
  }

  /// A carrier that could not be built may be possible now.
  func replaceCarrier() {
    guard let replacement = carrier.replacement() else { return }
    carrier = replacement
    connect()
  }

  /// Carries out the server's commands, and receives its updates; `nil`: all commands are refused.
  public var host: (any RelayHost)? {
    get { commands.host }
    set {
      commands.host = newValue
      bucketSync?.host = newValue
      commands.runNext()
    }
  }

  /// There may be something to send, or to try.
  public func wake() {
    if isClosed { return }
    noteWaiting()
    if case .new = life {
      journal.begins()
      life = .running(loop.begin { [weak self] in await self?.run() })
    }
    // Every commit calls this. During a pause the task need not run: it wakes itself at the pause's end.
    if !shipment.isResting(now: loop.now) { woken.resume() }
  }

  // MARK: Shipping

  /// Carries out the decisions of `Shipment` until it is cancelled.
  func run() async {
    // Cancelled: there is no caller.
    do throws(CancellationError) { while true { try await step() } } catch {}
  }

  private func step() async throws(CancellationError) {
    if let leaving { return try await finish(leaving) }
    if shipment.isHeld { return try await woken.wait() }
    shipment.came(to: loop.now)
    journal.advanceIdleLanes()
    account?.isShort = false
    let permitted = permittedLanes()
    noteWaiting()
    guard permitted.messages else { return try await rest() }
    let lanes = journal.unsuspected(journal.waiting.and(permitted))
    let isLetterNext = journal.deadLetters.isNext(eventsWait: lanes != ByLane(all: false), now: loop.now)
    if isLetterNext, skipping == nil, shipment.mayRetryLetter, retryLetter(permitted, lanes) { return }
    let wantsConnection = carrier.keepsConnection && shipment.isDisconnected
    let demand = Shipment.Demand(
      lanes: lanes,
      other: isLetterNext && underWay.flights.isEmpty || wantsConnection || isPositionLost)
    switch shipment.next(demand, now: loop.now, window: window, hasArrived: carrier.hasArrived) {
    case .nothing:
      if hasLostConnection { return failed(.retry(reason: "the connection has ended", after: nil)) }
      try await pause(until: journal.deadLetters.wait(now: loop.now))
    case .wake(let time): try await pause(until: time)
    case .greet: if mayConnect { try await greet() } else { try await pause() }
    case .send(let portion): if !sendNext(portion, of: demand) { try await pause() }
    }
  }

  /// The connection ended when the last batches were answered: none of them reports it, and there is no other to send.
  private var hasLostConnection: Bool {
    carrier.keepsConnection && shipment.state == .ready && underWay.holder == nil && underWay.flights.isEmpty
  }

  /// Nothing else is under way while an event is suspected.
  private var window: Int {
    journal.activeLanes.contains { journal.lanes[$0].suspicion.isActive } ? 1 : carrier.window
  }

  /// Sends a dead letter that is marked for a retry. `waiting`: lanes with events. False: it sent none.
  private func retryLetter(_ permitted: ByLane<Bool>, _ waiting: ByLane<Bool>) -> Bool {
    do {
      let eventsWait = waiting != ByLane(all: false)
      guard let letter = try journal.nextDeadLetter(of: permitted, eventsWait: eventsWait, now: loop.now) else {
        return false
      }
      if journal.deadLetters.taken.contains(letter.id) {
        remove(letter.id, letter.event.seq)
        return true
      }
      let lane = Lane(of: letter.event)
      let batch = Batch(letter.event, lane: journal.laneSent(lane))
      // A hub that is not up to there yet would believe that it had the events in between.
      guard journal.lanes[journal.laneSent(lane) ?? .messages].taken >= letter.event.seq else { return false }
      guard permitted[lane], mayUse(batch, lane) else { return false }
      return send(batch, lane, as: .deadLetter(id: letter.id, marks: letter.marks))
    } catch {
      return cannotRead("\(error)")
    }
  }

  private func cannotRead(_ reason: String) -> Bool {
    failed(.retry(reason: reason, after: nil))
    return true
  }

  /// A greeting, the connection, the disk or the journal has failed: all batches under way are void.
  func failed(_ verdict: Verdict) {
    forgetFlights()
    shipment.failed(verdict, now: loop.now)
    reportHealth()
    answerSkipping(verdict)
  }

  /// Voids the batches under way in a lane; `nil`: in all lanes.
  func forgetFlights(in lane: Lane? = nil) {
    underWay.forget(in: lane)
    for lane in lane.map({ [$0] }) ?? Lane.allCases {
      journal.lanes[lane].lastSent = journal.lanes[lane].serverHas
      if journal.lanes[lane].underWay > 0 { journal.lanes[lane].isMiscounted = true }
      journal.lanes[lane].underWay = 0
      if journal.lanes[lane].named?.isSent == false { journal.lanes[lane].named = nil }
    }
  }

  /// Tries at once, with fresh credentials, for an operator.
  public func resume() {
    journal.deadLetters.asked()
    hurry()
    shipment.resume()
    wake()
  }

  /// An operator has dropped the dead letter with this seq; `nil`: all of them.
  public func lettersDropped(_ seq: Int64?, _ count: Int) {
    log.notice("\(name): dead letters that an operator has deleted, which the server never gets: \(count)")
    journal.deadLetters.dropped(seq)
    wake()
  }

  public var isPaused: Bool { shipment.holds.contains(.paused) }

  /// Sends nothing while it is paused, over restarts, too.
  public func setPaused(_ paused: Bool) {
    guard paused != isPaused else { return }
    log.notice("\(name): \(paused ? "paused by an operator; its events wait" : "goes on")")
    store.post("whether \(name) is paused, over a restart") { [name] store throws(SQLiteError) in
      try store.setPaused(name, paused)
    }
    if paused {
      shipment.hold(.paused)
      stopSkipping("the upstream was paused meanwhile")
      endPaused()
      woken.resume()
    } else {
      pausing?.cancel()
      shipment.release([.paused])
      // Events waited for the operator, and wait for the server from now on.
      health.nothingWaits()
      resume()
    }
  }

  /// Closes the connection; batches under way are sent again after the next start.
  public func stop() {
    if case .running(let task) = life { task.cancel() }
    life = .ended
    pausing?.cancel()
    stopSkipping(Self.replacedMeanwhile)
    journal.reportTooOld()
    underWay.end()
    health.end()
    bucketSync?.stop()
    carrier.close()
    account?.close(line: carrier.lineBytes)
    let ended = leaving?.ended
    leaving = nil
    ended?()
  }

  // MARK: Sending

  /// Sends the next batch. A lower lane that has its turn, and has to wait, does not hold up the lanes above it. False:
  /// nothing was sent; wait for news.
  private func sendNext(_ portion: Shipment.Portion, of demand: Shipment.Demand) -> Bool {
    var (portion, demand) = (portion, demand)
    while !send(portion) {
      guard portion.lane != Lane.allCases.first(where: { demand.lanes[$0] }) else { return false }
      demand.lanes[portion.lane] = false
      let next = shipment.next(demand, now: loop.now, window: window, hasArrived: carrier.hasArrived)
      guard case .send(let other) = next else { return false }
      portion = other
    }
    return true
  }

  /// False: the lane has to wait.
  private func send(_ portion: Shipment.Portion) -> Bool {
    do {
      let lane = portion.lane
      if journal.lanes[lane].suspicion.wantsProof, underWay.flights.isEmpty, let proof = try journal.proof(lane) {
        return mayUse(proof, lane) && send(proof, lane, as: .proof)
      }
      if lane == Folding.lane, keepsCursorFirst() { return false }
      var batch = try nextBatch(portion)
      guard let last = batch.events.last else {
        // None of these events are for this server.
        guard journal.lanes[lane].underWay == 0 else { return false }
        guard batch.last > journal.lanes[lane].taken else {
          return cannotRead(
            "events wait in \(lane), and the journal has none after \(batch.last): report this as a bug")
        }
        advance(lane, batch, to: batch.last)
        return true
      }
      guard mayUse(batch, lane), !keepsNameFirst(batch, lane) else { return false }
      batch.after = journal.lanes[lane].lastSent
      batch.isAgain = (batch.events.first?.seq ?? .max) <= journal.lanes[lane].wasTaken
      journal.lanes[lane].lastSent = last.seq
      journal.noteSent(batch, lane)
      return send(batch, lane, as: .journal)
    } catch {
      return cannotRead("\(error)")
    }
  }

  /// Writes the cursor before a stretch of folded events begins. True: wait for it.
  private func keepsCursorFirst() -> Bool {
    guard journal.wantsCursorKeptFirst else { return false }
    // Batches under way come first: until they are answered, the cursor cannot get there.
    guard journal.lanes[Folding.lane].underWay == 0 else { return true }
    if !shipment.holds.contains(.keepingCursor) { move(to: journal.taken, when: .now) }
    shipment.hold(.keepingCursor)
    return true
  }

  private func send(_ batch: Batch, _ lane: Lane, as purpose: UnderWay.Purpose) -> Bool {
    count(batch)
    let number = underWay.nextNumber()
    let task = loop.begin { [weak self, carrier] in
      let verdict = await carrier.carry(batch)
      // A cancelled batch is void: an earlier one was not taken, or the upstream has ended.
      if !Task.isCancelled { self?.answered(verdict, number) }
    }
    underWay.flights.append(
      UnderWay.Flight(number: number, batch: batch, lane: lane, purpose: purpose, task: task, epoch: store.epoch))
    journal.lanes[lane].underWay = max(journal.lanes[lane].underWay, batch.last)
    shipment.sent(
      Shipment.Flight(lane: lane, events: batch.events.count, bytes: batch.size, isDeadLetter: purpose != .journal),
      waiting: journal.waiting, now: loop.now)
    return true
  }

  private func count(_ batch: Batch) {
    if let lane = batch.lane { return eventBytes[lane] &+= UInt64(batch.size) }
    for event in batch.events { eventBytes[Lane(of: event)] &+= UInt64(event.body.count + Batch.envelope) }
  }
}

/// A batch that a server has not taken.
struct Untaken: Equatable {
  let lane: Lane
  let first: Int64
  let count: Int
  let reason: String
  /// The server itself has judged it.
  let isAnswer: Bool
  let epoch: String
}

/// Receives an upstream's news.
protocol UpstreamObserver: AnyObject {
  /// The trouble has begun, changed or ended.
  func upstreamTroubleChanged()
  func upstream(_ name: String, found finding: HistoryFinding)
  /// Upstreams whose server keeps no count: another server cannot have its events from them.
  var uncountedUpstreams: [String] { get }
}
