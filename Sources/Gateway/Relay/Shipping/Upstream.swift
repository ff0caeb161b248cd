// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// Ships the journal to one server through a `Carrier`: each lane in order, as much under way as the line takes, the cursors behind
/// what was acknowledged.
///
/// `Shipment` decides what is next, `JournalReader` reads it, and here it is carried out.
public final class Upstream {
  public struct Settings: Equatable, Sendable {
    public var name: String
    public var batchEvents: Int
    public var batchBytes: Int
    public var filter: EventFilter
    /// A new upstream gets what was journaled before it was added, too.
    public var fromStart: Bool
    /// What the server may ask of the gateway, and how often a minute.
    public var allowed: Set<String>
    public var commandsPerMinute: Int
    /// `nil`: as many as the minutes allow.
    public var commandsPerHour: Int?
    /// Whether only the newest of a node's waiting states is sent.
    public var folds: Bool
    /// Bytes a day and a month, and the hours for what is not urgent; `nil`: any number, at any hour.
    public var dailyBytes: Int64?
    public var monthlyBytes: Int64?
    public var bulkHours: BulkHours?

    /// What can be allowed: commands, and documents and settings that may be edited from afar.
    public static let knownRights = CommandIntake.known + ["documents", "settings"]

    public init(
      name: String, batchEvents: Int = 200, batchBytes: Int = 65536, filter: EventFilter = EventFilter(),
      fromStart: Bool = false, allowed: Set<String> = ["send"], commandsPerMinute: Int = 10,
      folds: Bool = false
    ) {
      self.fromStart = fromStart
      self.name = name
      self.batchEvents = batchEvents
      self.batchBytes = batchBytes
      self.filter = filter
      self.allowed = allowed
      self.commandsPerMinute = commandsPerMinute
      self.folds = folds
    }
  }

  public struct SetupError: Error, CustomStringConvertible, Sendable {
    public let description: String
  }

  private enum Life { case new, running(LoopTask), ended }

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
  private var life = Life.new

  public var name: String { settings.name }
  var store: Store { journal.store }
  var log: Log { journal.log }
  var isClosed: Bool { if case .ended = life { true } else { false } }

  init(_ settings: Settings, carrier: any Carrier, store: Store, on loop: EventLoop, log: Log) throws(StoreError) {
    (self.settings, self.carrier, self.loop) = (settings, carrier, loop)
    underWay = UnderWay(on: loop)
    let log = log.about(.upstream, settings.name)
    commands = CommandIntake(
      CommandIntake.Settings(
        allowed: settings.allowed, perMinute: settings.commandsPerMinute, perHour: settings.commandsPerHour),
      upstream: settings.name, store: store, on: loop, log: log)
    account = try Self.account(settings, store, loop, log)
    journal = try JournalReader(
      settings, serverKeepsCount: carrier.serverKeepsCount, store: store, clock: loop.wallClock, log: log)
    health = UpstreamHealth(settings.name, on: loop, log: log)
    shipment = Shipment(maxEvents: settings.batchEvents, maxBytes: settings.batchBytes)
    if try store.isPaused(settings.name) { shipment.hold(.paused) }
    account?.changed = { [weak self] in self?.woken.resume() }
    connect()
  }

  /// Receives what the server sends.
  private func connect() {
    carrier.commands = commands
    guard let source = carrier.updatesSource else { return }
    let bucketSync = BucketSync(
      upstream: settings.name, rights: settings.allowed, store: store, source: source, commands: commands,
      on: loop, log: log, acknowledged: { [weak self] in self?.journal.lanes.messages.taken ?? 0 })
    bucketSync.host = host
    self.bucketSync = bucketSync
  }

  /// The reason that kept the carrier from being built may be gone.
  func replaceCarrier() {
    guard let replacement = carrier.replacement() else { return }
    carrier = replacement
    connect()
  }

  /// Who carries out what the server asks for, and gets what it sends; `nil`: all commands are refused.
  public var host: (any RelayHost)? {
    get { commands.host }
    set {
      commands.host = newValue
      bucketSync?.host = newValue
      commands.runNext()
    }
  }

  /// Something may be new to send, or may be tried.
  public func wake() {
    if isClosed { return }
    if journal.waiting != ByLane(all: false) { health.eventsWait() }
    if case .new = life { life = .running(loop.begin { [weak self] in await self?.run() }) }
    // Each commit comes by here: one that finds a pause is not worth a turn of the task, which knows itself when that ends.
    if !shipment.isResting(now: loop.now) { woken.resume() }
  }

  // MARK: Shipping

  /// Does what `Shipment` says, until it is cancelled.
  private func run() async {
    // Cancelled: there is no caller.
    do throws(CancellationError) { while true { try await step() } } catch {}
  }

  private func step() async throws(CancellationError) {
    if shipment.isHeld { return try await woken.wait() }
    shipment.came(to: loop.now)
    journal.advanceIdleLanes()
    account?.isShort = false
    let permitted = permittedLanes()
    guard permitted.messages else { return try await rest() }
    if shipment.mayRetryLetter, journal.deadLetters.areMarked, retryLetter(permitted) { return }
    let wantsConnection = carrier.keepsConnection && shipment.isDisconnected
    let demand = Shipment.Demand(
      lanes: journal.unsuspected(journal.waiting.and(permitted)),
      other: journal.deadLetters.areMarked && underWay.flights.isEmpty || wantsConnection)
    switch shipment.next(demand, now: loop.now, window: window, hasArrived: carrier.hasArrived) {
    case .nothing: try await pause()
    case .wake(let time): try await pause(until: time)
    case .greet: if mayConnect { try await greet() } else { try await pause() }
    case .send(let portion): if !sendNext(portion) { try await pause() }
    }
  }

  /// Nothing else is under way while an event is suspected.
  private var window: Int {
    journal.activeLanes.contains { journal.lanes[$0].suspicion.isActive } ? 1 : carrier.window
  }

  /// A dead letter that is to be tried again goes before everything else. False: there is none.
  private func retryLetter(_ permitted: ByLane<Bool>) -> Bool {
    do {
      guard let letter = try journal.nextDeadLetter() else { return false }
      let lane = Lane(of: letter.event)
      let batch = Batch(letter.event, lane: journal.laneSent(lane))
      // Before it is up to there, a hub that takes it would believe to have what is in between.
      guard journal.lanes[journal.laneSent(lane) ?? .messages].taken >= letter.event.seq else { return false }
      guard permitted[lane], mayUse(batch, lane) else { return false }
      return send(batch, lane, as: .deadLetter(marks: letter.marks))
    } catch {
      return cannotRead("\(error)")
    }
  }

  private func cannotRead(_ reason: String) -> Bool {
    failed(.retry(reason: reason, after: nil))
    return true
  }

  /// A greeting, the connection, the disk or the journal failed: nothing that is under way counts.
  func failed(_ verdict: Verdict) {
    forgetFlights()
    shipment.failed(verdict, now: loop.now)
    health.report(shipment.state)
  }

  /// What is under way does not count; `nil`: in any lane.
  func forgetFlights(in lane: Lane? = nil) {
    underWay.forget(in: lane)
    for lane in lane.map({ [$0] }) ?? Lane.allCases {
      journal.lanes[lane].lastSent = journal.lanes[lane].serverHas
      journal.lanes[lane].underWay = 0
    }
  }

  /// Tries at once, with fresh credentials: an operator says so.
  public func resume() {
    journal.deadLetters.areMarked = true
    hurry()
    shipment.resume()
    wake()
  }

  public var isPaused: Bool { shipment.holds.contains(.paused) }

  /// Send nothing until told otherwise; kept over restarts.
  public func setPaused(_ paused: Bool) {
    guard paused != isPaused else { return }
    log.notice("\(name): \(paused ? "paused by an operator; nothing is lost" : "goes on")")
    store.post("whether \(name) is paused, over a restart") { [name] store throws(SQLiteError) in
      try store.setPaused(name, paused)
    }
    if paused {
      shipment.hold(.paused)
      woken.resume()
    } else {
      shipment.release([.paused])
      resume()
    }
  }

  /// Closes the connection; what is under way is sent again after the next start.
  public func stop() {
    if case .running(let task) = life { task.cancel() }
    life = .ended
    journal.reportTooOld()
    underWay.end()
    health.end()
    bucketSync?.stop()
    carrier.close()
    account?.close(line: carrier.lineBytes)
  }

  // MARK: Sending

  /// False: nothing was sent, and nothing is to be done before something else happens.
  private func sendNext(_ portion: Shipment.Portion) -> Bool {
    do {
      let lane = portion.lane
      if journal.lanes[lane].suspicion.wantsProof, underWay.flights.isEmpty, let proof = try journal.proof(lane) {
        return mayUse(proof, lane) && send(proof, lane, as: .proof)
      }
      if lane == Folding.lane, keepsCursorFirst() { return false }
      let events = journal.lanes[lane].suspicion.wantsAlone ? 1 : portion.events
      let bytes = min(portion.bytes, settings.batchBytes, maxBatchBytes(lane))
      let limits = Batch.Limits(events: events, bytes: bytes)
      var batch = try journal.read(lane, after: journal.lanes[lane].readThrough, limits: limits)
      guard let last = batch.events.last else {
        // Nothing of it is for this server.
        guard journal.lanes[lane].underWay == 0 else { return false }
        guard batch.last > journal.lanes[lane].taken else {
          return cannotRead(
            "events wait in \(lane), and the journal has none after \(batch.last): report this as a bug")
        }
        advance(lane, batch, to: batch.last)
        return true
      }
      guard mayUse(batch, lane) else { return false }
      batch.after = journal.lanes[lane].lastSent
      batch.isAgain = (batch.events.first?.seq ?? .max) <= journal.lanes[lane].wasTaken
      journal.lanes[lane].lastSent = last.seq
      journal.noteSent(batch, lane)
      return send(batch, lane, as: .journal)
    } catch {
      return cannotRead("\(error)")
    }
  }

  /// Whether the cursor is to be on disk before a stretch of folded events begins. True: it is on its way.
  private func keepsCursorFirst() -> Bool {
    guard journal.wantsCursorKeptFirst else { return false }
    // What is under way first: until it is answered the cursor cannot get there.
    guard journal.lanes[Folding.lane].underWay == 0 else { return true }
    if !shipment.holds.contains(.keepingCursor) { move(to: journal.taken, when: .now) }
    shipment.hold(.keepingCursor)
    return true
  }

  private func send(_ batch: Batch, _ lane: Lane, as purpose: UnderWay.Purpose) -> Bool {
    let number = underWay.nextNumber()
    let task = loop.begin { [weak self, carrier] in
      let verdict = await carrier.carry(batch)
      // Void: something before it was not taken, or the upstream ends.
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
}

/// What is under way: batches in the order in which they were sent, the task that keeps the connection, cursors that are being written.
struct UnderWay {
  enum Purpose: Equatable { case journal, deadLetter(marks: Int64), proof }

  /// A batch, and the task that waits for its answer.
  struct Flight {
    let number: UInt64
    let batch: Batch
    let lane: Lane
    let purpose: Purpose
    let task: LoopTask
    let epoch: String
  }

  var flights: [Flight] = []
  private var lastNumber: UInt64 = 0
  var holder: LoopTask?
  let writes: LoopTasks

  init(on loop: EventLoop) { writes = LoopTasks(on: loop) }

  mutating func nextNumber() -> UInt64 {
    lastNumber += 1
    return lastNumber
  }

  mutating func forget(in lane: Lane?) {
    for flight in flights where lane == nil || flight.lane == lane { flight.task.cancel() }
    flights.removeAll { lane == nil || $0.lane == lane }
  }

  /// The connection is not kept any more.
  mutating func release() {
    holder?.cancel()
    holder = nil
  }

  /// Cursors that are being written are not cancelled: their commit ends them.
  mutating func end() {
    forget(in: nil)
    release()
  }
}

/// What the relay learns from its upstreams.
protocol UpstreamObserver: AnyObject {
  /// What goes wrong is another thing than before, or nothing.
  func upstreamTroubleChanged()
  /// Events were acknowledged. That need not write anything.
  func upstreamAcknowledged()
  func upstream(_ name: String, found finding: HistoryFinding)
  /// Upstreams of this gateway whose server keeps no count: what another server has is not from them.
  var uncountedUpstreams: [String] { get }
}
