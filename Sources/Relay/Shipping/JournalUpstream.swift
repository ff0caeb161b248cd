// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// Ships the journal to one server through a `Carrier`: in order, one batch under way, the cursor behind what was
/// acknowledged.
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

    /// What can be allowed: commands, and documents and settings that may be edited from afar.
    public static let knownRights = CommandIntake.known + ["documents", "settings"]

    public init(
      name: String, batchEvents: Int = 200, batchBytes: Int = 65536, filter: EventFilter = EventFilter(),
      fromStart: Bool = false, allowed: Set<String> = ["send"], commandsPerMinute: Int = 10
    ) {
      self.fromStart = fromStart
      self.name = name
      self.batchEvents = batchEvents
      self.batchBytes = batchBytes
      self.filter = filter
      self.allowed = allowed
      self.commandsPerMinute = commandsPerMinute
    }
  }

  public struct SetupError: Error, CustomStringConvertible, Sendable {
    public let description: String
  }

  private(set) var settings: Settings
  var carrier: any Carrier
  /// What it was made from; `nil`: not from a configuration.
  var built: (settings: UpstreamSettings, stamps: [UpstreamSettings.FileStamp?])?
  let store: Store
  let loop: EventLoop
  let log: Log
  let clock: WallClock
  var random = SystemRandomNumberGenerator()
  var shipment: Shipment
  var suspicion = Suspicion()
  /// Times in a row that the server hung up over a dead letter that was sent again.
  var letterHangUps = 0
  var cursor: Int64
  /// Nothing before it is this server's.
  private(set) var beginning: Int64
  /// From `start` to `stop`.
  private var task: LoopTask?
  /// Keeps the connection.
  private var holder: LoopTask?
  let woken = Waiter()
  /// The connection should be made anew, when nothing is under way.
  private var isOutdated = false
  /// An operator has the server greeted, and nothing else is said to it meanwhile.
  private var isTesting = false
  /// A dead letter is on its way to disk: nothing is sent before the cursor is behind it.
  var isBurying = false
  /// Batches that are under way, in order.
  var flights: [Flight] = []
  /// Acknowledged up to here; the cursor follows when that is on disk.
  var taken: Int64
  /// The last event that the server has, and the last one that it was sent.
  private var (serverHas, lastSent): (Int64, Int64) = (0, 0)
  var hasMarkedDeadLetters: Bool
  var troubleLogged: String?
  var lastSuccess: Int64?
  var batches: UInt64 = 0
  /// For good: another one takes its place.
  private(set) var isClosed = false
  var times: JournalTimes
  var isPaused = false
  private var epochRenewals = 0
  private let desk: CommandIntake
  var bucketSync: BucketSync?
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
    shipment = Shipment(maxEvents: settings.batchEvents)
    desk = CommandIntake(
      CommandIntake.Settings(allowed: settings.allowed, perMinute: settings.commandsPerMinute), upstream: settings.name,
      store: store, on: loop, log: log)
    (cursor, beginning) = try store.openCursor(of: settings.name, fromStart: settings.fromStart)
    taken = cursor
    times = JournalTimes(last: store.lastSeq)
    isPaused = try store.isPaused(settings.name)
    hasMarkedDeadLetters = true
    connect()
  }

  /// Whoever takes what comes from the server.
  func connect() {
    carrier.commands = desk
    guard let source = carrier as? any UpdatesSource else { return }
    settings.filter.own = settings.name
    let bucketSync = BucketSync(
      upstream: settings.name, rights: settings.allowed, store: store, source: source, commands: desk, on: loop,
      log: log, acknowledged: { [weak self] in self?.taken ?? 0 })
    bucketSync.host = host
    self.bucketSync = bucketSync
  }

  /// Who carries out what the server asks for, and gets what it sends.
  public weak var host: (any RelayHost)? {
    didSet {
      desk.host = host
      bucketSync?.host = host
      desk.runNext()
    }
  }

  /// Something may be new to send, or may be tried.
  public func wake() {
    if settings.filter.age != nil { times.committed(through: store.lastSeq, now: loop.now) }
    guard !isClosed else { return }
    if task == nil { task = loop.begin { [weak self] in await self?.run() } }
    woken.resume()
  }

  // MARK: Shipping

  /// Does what `Shipment` says, until it is cancelled.
  private func run() async {
    // Cancelled: nobody is left to be told.
    do throws(CancellationError) { while true { try await step() } } catch {}
  }

  private func step() async throws(CancellationError) {
    if isPaused || isBurying || isTesting { return try await woken.wait() }
    if isOutdated, flights.isEmpty {
      isOutdated = false
      shipment.greetAgain()
    }
    let window = suspicion.isActive ? 1 : carrier.window
    let wantsConnection = carrier.keepsConnection && shipment.isDisconnected
    let mayRetry = hasMarkedDeadLetters && flights.isEmpty
    let hasMore = store.lastSeq > readThrough || mayRetry || wantsConnection
    switch shipment.next(hasMore: hasMore && !isOutdated, now: loop.now, window: window) {
    case .nothing: try await woken.wait()
    case .wake(let time): try await woken.wait(until: time, on: loop)
    case .greet: try await greet()
    case .send(let limit): if !sendNext(limit) { try await woken.wait() }
    }
  }

  /// The journal was read up to here.
  private var readThrough: Int64 { max(taken, flights.last?.batch.last ?? taken) }

  /// A batch under way, and the task that waits for its answer.
  struct Flight {
    let batch: Batch
    let task: LoopTask
  }

  /// What is under way does not count.
  private func forgetFlights() {
    for flight in flights { flight.task.cancel() }
    flights = []
    lastSent = serverHas
  }

  public func resume() {
    hasMarkedDeadLetters = true
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

  public func test() async -> String? {
    if case .sending = shipment.state { return "busy sending; see its state in `meshpost status`" }
    isTesting = true
    mend()
    // Nothing else is sent meanwhile.
    shipment.greetingSent()
    release()
    let verdict = await carrier.test()
    isTesting = false
    shipment.greetAgain()
    wake()
    switch verdict {
    case .acknowledged: return nil
    case .retry(let reason, _), .hungUp(let reason), .stopped(let reason), .refused(_, let reason): return reason
    }
  }

  /// Nobody keeps the connection any more.
  private func release() {
    holder?.cancel()
    holder = nil
    isOutdated = false
  }

  public func stop() {
    isClosed = true
    task?.cancel()
    release()
    forgetFlights()
    bucketSync?.stop()
    carrier.close()
  }

  // MARK: Greeting

  private func greet() async throws(CancellationError) {
    mend()
    release()
    shipment.greetingSent()
    let greeting = await carrier.greet()
    if Task.isCancelled { throw CancellationError() }
    switch greeting {
    case .has(let acknowledged): known(acknowledged)
    case .ready: known(cursor)
    case .failed(let verdict): return took(verdict)
    }
    holder = loop.begin { [weak self, carrier] in
      // Cancelled: somebody else makes the next connection.
      guard let end = try? await carrier.hold() else { return }
      self?.ended(end)
    }
  }

  private func ended(_ end: ConnectionEnd) {
    holder = nil
    switch end {
    case .outdated: isOutdated = true
    case .lost(nil): break
    case .lost(let verdict?):
      forgetFlights()
      shipment.greetingSent()
      took(verdict)
    }
    woken.resume()
  }

  /// The server says what it has of this epoch; either side may have been restored meanwhile.
  private func known(_ acknowledged: Int64?) {
    let through = past(buried: acknowledged ?? max(beginning, min(cursor, store.epochFirst - 1)))
    guard through <= store.lastSeq else { return goneBack(acknowledged: through) }
    shipment.greeted()
    serverHas = acknowledged ?? 0
    forgetFlights()
    taken = through
    if through != cursor {
      // A filter leaves a tail out that the server never counts; then this is how it always is.
      let words = "\(name): the server has everything up to \(through), not \(cursor): going on from there"
      // Further on than where we were: that is written along with something else, and a power cut may have taken it.
      if through < cursor, settings.filter.leavesNothingOut { log.notice(words) } else { log.debug(words) }
      advance(to: through)
    } else {
      recovered()
    }
  }

  /// The server knows numbers of this epoch that we never gave out: our database is an older copy of itself.
  private func goneBack(acknowledged: Int64) {
    log.error(
      "\(name): the server has seq \(acknowledged) of this epoch, the journal ends at \(store.lastSeq): "
        + "the database is an older copy. A new epoch begins")
    epochRenewals += 1
    do {
      try store.renewEpoch()
      shipment.greetAgain()
      // Twice in a row cannot be; a server that says so all the same must not spin us.
      if epochRenewals > 1 {
        shipment.greetingSent()
        took(.retry(reason: "the server claims seqs of an epoch that it cannot know", after: nil))
      }
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
    }
  }

  // MARK: Sending

  /// False: nothing was sent, and nothing is to be done before something else happens.
  private func sendNext(_ limit: Int) -> Bool {
    do {
      if let letter = try nextDeadLetter() { return send(Batch(letter), as: .deadLetter) }
      if let proof = try nextProof() { return send(proof, as: .proof) }
      let limits = Batch.Limits(events: suspicion.wantsAlone ? 1 : limit, bytes: settings.batchBytes)
      var batch = try Batch(
        after: readThrough, of: store, limits: limits, filter: settings.filter, present: present)
      guard let last = batch.events.last else {
        // Nothing of it is for this server.
        guard batch.last > taken, flights.isEmpty else { return false }
        advance(to: batch.last)
        return true
      }
      batch.after = lastSent
      lastSent = last.seq
      return send(batch, as: .journal)
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
      return true
    }
  }

  private enum Purpose { case journal, deadLetter, proof }

  private func send(_ batch: Batch, as purpose: Purpose) -> Bool {
    shipment.sent(count: batch.events.count, isDeadLetter: purpose != .journal, now: loop.now)
    let task = loop.begin { [weak self, carrier] in
      let verdict = await carrier.carry(batch)
      // Void: something before it was not taken, or the upstream ends.
      if !Task.isCancelled { self?.answered(verdict, batch, purpose) }
    }
    flights.append(Flight(batch: batch, task: task))
    return true
  }

  private func answered(_ verdict: Verdict, _ batch: Batch, _ purpose: Purpose) {
    if !flights.isEmpty { flights.removeFirst() }
    if case .acknowledged(let through) = verdict {
      serverHas = max(serverHas, through)
    } else {
      forgetFlights()
    }
    switch purpose {
    case .journal: took(verdict, batch)
    case .deadLetter: tookDeadLetter(verdict, batch)
    case .proof: tookProof(verdict)
    }
    woken.resume()
  }
}
