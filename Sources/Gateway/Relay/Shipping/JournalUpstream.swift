// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// Ships the journal to one server through a `Carrier`: each lane in order, as much under way as the line takes, the cursors behind
/// what was acknowledged.
public final class JournalUpstream: Upstream {
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

  private(set) var settings: Settings
  var carrier: any Carrier
  var built: (settings: UpstreamSettings, stamps: [UpstreamSettings.FileStamp?])?
  let store: Store
  let loop: EventLoop
  let log: Log
  let clock: WallClock
  /// Randomness of the pauses between attempts.
  var random = SeededRandom(seed: .random(in: .min ... .max))
  var shipment: Shipment
  /// How far each lane is. A server that knows no lanes gets the whole journal in order: then all is in the first.
  var lanes: ByLane<LaneProgress>
  var knowsLanes = true
  var folding: Folding?
  /// Times in a row that the server hung up over a dead letter that was sent again.
  var letterHangUps = 0
  /// Upstreams of this gateway that go to no hub: what a hub has is not from them.
  var unrelated: () -> [String] = { [] }
  /// Nothing before it is this server's.
  private(set) var beginning: Int64
  /// From `start` to `stop`.
  private var task: LoopTask?
  /// Keeps the connection.
  var holder: LoopTask?
  let woken = Waiter()
  var isOutdated = false
  /// An operator has the server greeted, and nothing else is said to it meanwhile.
  var isTesting = false
  /// A dead letter is on its way to disk: nothing is sent before the cursor is behind it.
  var isBurying = false
  /// The cursor is on its way to disk, and what can be folded waits for that.
  var isKeepingCursor = false
  /// Batches that are under way, in order.
  var flights: [Flight] = []
  private var flightsBegun: UInt64 = 0
  var hasMarkedDeadLetters = true
  /// Events that were too old for it: all, and those that the log has not told of yet.
  var tooOld: (all: Int64, untold: Int64) = (0, 0)
  /// What went wrong, and was logged, since something was answered.
  var trouble: Trouble? { didSet { if trouble != oldValue { troubleChanged() } } }
  /// What the log has said of a connection that comes and goes.
  var unrest = Unrest()
  /// What was in the way when events were to be taken, until some are. A server that answers and takes none is none that works: `trouble` ends
  /// with each connection.
  var obstacle: String? { didSet { if (obstacle == nil) != (oldValue == nil) { troubleChanged() } } }
  /// Since when events wait and none was acknowledged; `nil`: none wait.
  var waitsSince: MonotonicTime?
  /// Events were taken since this began.
  var hasTaken = false
  /// What goes wrong is another thing than before, or nothing; events were acknowledged.
  var (troubleChanged, acknowledged): (() -> Void, () -> Void) = ({}, {})
  var historyFound: (HistoryFinding) -> Void = { _ in }
  var (lastSuccess, batches): (Int64?, UInt64) = (nil, 0)
  private(set) var isClosed = false
  var tellsTooOld = Ration(most: 1, oneIn: .seconds(60))
  var isPaused = false
  /// A server that lies makes us spin no faster than this.
  var starts = FreshStarts()
  let commandIntake: CommandIntake
  var bucketSync: BucketSync?
  /// `nil`: it may use any number of bytes at any hour.
  let account: AllowanceAccount?
  /// Its connection was closed because nothing may be sent.
  var isResting = false
  /// The next event is larger than what is left.
  var isShort = false
  weak var radio: (any RadioAccess)? { didSet { (carrier as? MQTTCarrier)?.radio = radio } }

  public var name: String { settings.name }

  init(_ settings: Settings, carrier: any Carrier, store: Store, on loop: EventLoop, log: Log) throws(StoreError) {
    var settings = settings
    settings.filter.upstream = settings.name
    settings.filter.exchangesDocuments = !settings.allowed.isDisjoint(with: ["documents", "settings"])
    self.settings = settings
    self.carrier = carrier
    self.store = store
    self.loop = loop
    clock = loop.wallClock
    let log = log.about(.upstream, settings.name)
    self.log = log
    shipment = Shipment(maxEvents: settings.batchEvents, maxBytes: settings.batchBytes)
    commandIntake = CommandIntake(
      CommandIntake.Settings(
        allowed: settings.allowed, perMinute: settings.commandsPerMinute, perHour: settings.commandsPerHour),
      upstream: settings.name, store: store, on: loop, log: log)
    account = try Self.account(settings, store, loop, log)
    let (cursor, beginning) = try store.openCursor(of: settings.name, fromStart: settings.fromStart)
    self.beginning = beginning
    lanes = ByLane(
      messages: LaneProgress(cursor: cursor.messages), nodes: LaneProgress(cursor: cursor.nodes),
      packets: LaneProgress(cursor: cursor.packets))
    if settings.filter.age != nil { store.keepJournalTimes() }
    isPaused = try store.isPaused(settings.name)
    tooOld.all = try store.leftOut(of: settings.name).tooOld
    let told = try store.told(settings.name)
    for lane in Lane.allCases { lanes[lane].told.seq = told[lane] }
    store.underWay[Array(settings.name.utf8)] = { [weak self] in self?.underWay }
    account?.changed = { [weak self] in self?.woken.resume() }
    connect()
  }

  /// Receives what the server sends.
  func connect() {
    carrier.commands = commandIntake
    guard let source = carrier as? any UpdatesSource else { return }
    settings.filter.own = settings.name
    let bucketSync = BucketSync(
      upstream: settings.name, rights: settings.allowed, store: store, source: source, commands: commandIntake,
      on: loop,
      log: log, acknowledged: { [weak self] in self?.lanes.messages.taken ?? 0 })
    bucketSync.host = host
    self.bucketSync = bucketSync
  }

  /// Who carries out what the server asks for, and gets what it sends.
  public weak var host: (any RelayHost)? {
    didSet {
      commandIntake.host = host
      bucketSync?.host = host
      commandIntake.runNext()
    }
  }

  /// Something may be new to send, or may be tried.
  public func wake() {
    guard !isClosed else { return }
    if waitsSince == nil, waiting != ByLane(all: false) { waitsSince = loop.now }
    if task == nil { task = loop.begin { [weak self] in await self?.run() } }
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
    if isPaused || isBurying || isTesting { return try await woken.wait() }
    if isOutdated, flights.isEmpty {
      isOutdated = false
      shipment.greetAgain()
    }
    shipment.came(to: loop.now)
    passOver()
    isShort = false
    let permitted = permittedLanes()
    guard permitted.messages else { return try await rest() }
    let wantsConnection = carrier.keepsConnection && shipment.isDisconnected
    let demand = Shipment.Demand(
      lanes: isOutdated ? ByLane(all: false) : unsuspected(waiting.and(permitted)),
      other: hasMarkedDeadLetters && flights.isEmpty || wantsConnection)
    if mayRetryLetter, retryLetter(permitted) { return }
    switch shipment.next(demand, now: loop.now, window: window, hasArrived: carrier.hasArrived) {
    case .nothing: try await pause()
    case .wake(let time): try await pause(until: time)
    case .greet: if mayConnect { try await greet() } else { try await pause() }
    case .send(let portion): if !sendNext(portion) { try await pause() }
    }
  }

  /// Nothing else is under way while an event is suspected.
  private var window: Int { activeLanes.contains { lanes[$0].suspicion.isActive } ? 1 : carrier.window }

  private var mayRetryLetter: Bool {
    shipment.state == .ready && flights.isEmpty && hasMarkedDeadLetters && !isOutdated
  }

  /// A dead letter that is to be tried again goes before everything else. False: there is none.
  private func retryLetter(_ permitted: ByLane<Bool>) -> Bool {
    do {
      guard let letter = try nextDeadLetter() else { return false }
      let lane = Lane(of: letter.event)
      let batch = Batch(letter.event, lane: laneSent(lane))
      // Before it is up to there, a hub that takes it would believe to have what is in between.
      guard lanes[laneSent(lane) ?? .messages].taken >= letter.event.seq else { return false }
      guard permitted[lane], mayUse(batch, lane) else { return false }
      return send(batch, lane, as: .deadLetter(marks: letter.marks))
    } catch {
      return cannotRead("\(error)")
    }
  }

  private func cannotRead(_ reason: String) -> Bool {
    shipment.greetingSent()
    forgetFlights()
    took(.retry(reason: reason, after: nil))
    return true
  }

  /// A batch under way, and the task that waits for its answer.
  struct Flight {
    let number: UInt64
    let batch: Batch
    let lane: Lane
    let task: LoopTask
    let epoch: String
  }

  /// What is under way does not count; `nil`: in any lane.
  func forgetFlights(in lane: Lane? = nil) {
    for flight in flights where lane == nil || flight.lane == lane { flight.task.cancel() }
    flights.removeAll { lane == nil || $0.lane == lane }
    for lane in lane.map({ [$0] }) ?? Lane.allCases { lanes[lane].lastSent = lanes[lane].serverHas }
  }

  /// What `Shipment` has given up is void, whatever still answers it: an answer must never be taken for that of another batch.
  func forgetVoidFlights() {
    if shipment.flights.isEmpty, !flights.isEmpty { forgetFlights() }
  }

  public func resume() {
    hasMarkedDeadLetters = true
    hurry()
    shipment.resume()
    wake()
  }

  public func setPaused(_ paused: Bool) {
    guard paused != isPaused else { return }
    isPaused = paused
    log.notice("\(name): \(paused ? "paused by an operator; nothing is lost" : "goes on")")
    store.post("whether \(name) is paused, over a restart") { [name] store throws(SQLiteError) in
      try store.setPaused(name, paused)
    }
    if paused { woken.resume() } else { resume() }
  }

  /// Nobody keeps the connection any more.
  func release() {
    holder?.cancel()
    holder = nil
    isOutdated = false
  }

  public func stop() {
    isClosed = true
    tellTooOld()
    task?.cancel()
    release()
    forgetFlights()
    bucketSync?.stop()
    carrier.close()
    account?.close(line: carrier.lineBytes)
  }

  // MARK: Sending

  /// False: nothing was sent, and nothing is to be done before something else happens.
  private func sendNext(_ portion: Shipment.Portion) -> Bool {
    do {
      let lane = portion.lane
      if let proof = try nextProof(lane) { return mayUse(proof, lane) && send(proof, lane, as: .proof) }
      if lane == Folding.lane, keepsCursorFirst() { return false }
      let events = lanes[lane].suspicion.wantsAlone ? 1 : portion.events
      let bytes = min(portion.bytes, settings.batchBytes, maxBatchBytes(lane))
      var batch = try read(lane, after: readThrough(lane), limits: Batch.Limits(events: events, bytes: bytes))
      guard let last = batch.events.last else {
        // Nothing of it is for this server.
        guard !flights.contains(where: { $0.lane == lane }) else { return false }
        guard batch.last > lanes[lane].taken else {
          return cannotRead(
            "events wait in \(lane), and the journal has none after \(batch.last): report this as a bug")
        }
        advance(lane, batch, to: batch.last)
        return true
      }
      guard mayUse(batch, lane) else { return false }
      batch.after = lanes[lane].lastSent
      batch.isAgain = (batch.events.first?.seq ?? .max) <= lanes[lane].wasTaken
      lanes[lane].lastSent = last.seq
      noteSent(batch, lane)
      return send(batch, lane, as: .journal)
    } catch {
      return cannotRead("\(error)")
    }
  }

  private enum Purpose: Equatable { case journal, deadLetter(marks: Int64), proof }

  private func send(_ batch: Batch, _ lane: Lane, as purpose: Purpose) -> Bool {
    flightsBegun += 1
    let number = flightsBegun
    let task = loop.begin { [weak self, carrier] in
      let verdict = await carrier.carry(batch)
      // Void: something before it was not taken, or the upstream ends.
      if !Task.isCancelled { self?.answered(verdict, number, purpose) }
    }
    flights.append(Flight(number: number, batch: batch, lane: lane, task: task, epoch: store.epoch))
    shipment.sent(
      Shipment.Flight(
        lane: lane, events: batch.events.count, bytes: batch.size, isDeadLetter: purpose != .journal),
      waiting: waiting, now: loop.now)
    return true
  }

  private func answered(_ verdict: Verdict, _ number: UInt64, _ purpose: Purpose) {
    guard let index = flights.firstIndex(where: { $0.number == number }) else { return }
    let (batch, lane, epoch) = (flights[index].batch, flights[index].lane, flights[index].epoch)
    // A connection may end for a later batch first; what else is said of one before those ahead of it, is not to be relied on.
    var verdict = verdict
    switch verdict {
    case .acknowledged, .refused:
      if index > 0 { verdict = .retry(reason: "the server's answers are out of order", after: nil) }
    case .retry, .busy, .hungUp, .diverged, .stopped: break
    }
    if index == 0 { flights.removeFirst() }
    switch verdict {
    case .acknowledged(let through):
      serverHas(through, in: lane)
      if carrier.mayTakeInPart, through < batch.events.last?.seq ?? 0 {
        forgetFlights(in: lane)
        shipment.tookInPart(lane)
      }
    case .refused: forgetFlights(in: lane)
    case .retry, .busy, .hungUp, .diverged, .stopped: forgetFlights()
    }
    defer { woken.resume() }
    if case .diverged(let reason) = verdict {
      // Another upstream has begun a new epoch since, over the same perhaps.
      return epoch == store.epoch ? diverged(reason) : shipment.greetAgain()
    }
    switch purpose {
    case .journal: took(verdict, batch, in: lane)
    case .deadLetter(let marks): tookDeadLetter(verdict, batch, marks)
    case .proof: tookProof(verdict, batch, lane)
    }
    forgetVoidFlights()
  }
}
