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
  let clock = WallClock()
  var random = SystemRandomNumberGenerator()
  var shipment: Shipment
  var suspicion = Suspicion()
  /// Times in a row that the server hung up over a dead letter that was sent again.
  var letterHangUps = 0
  var cursor: Int64
  /// Nothing before it is this server's.
  private(set) var beginning: Int64
  private var timer: LoopTimer?
  /// Batches that are under way, in order.
  var flights: [Batch] = []
  /// Acknowledged up to here; the cursor follows when that is on disk.
  var taken: Int64
  /// The last event that the server has, and the last one that it was sent.
  private var (serverHas, lastSent): (Int64, Int64) = (0, 0)
  var hasMarkedDeadLetters: Bool
  private var troubleLogged: String?
  var lastSuccess: Int64?
  var batches: UInt64 = 0
  var isClosed = false
  var times: JournalTimes
  var isPaused = false
  private var epochRenewals = 0
  private let desk: CommandIntake
  private(set) var bucketSync: BucketSync?
  /// Kept for a carrier that is built later.
  var receivers: BucketSync.Receivers? { didSet { if let receivers { bucketSync?.receivers = receivers } } }
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

  /// The carrier tells us of what comes.
  func connect() {
    carrier.onCommand = { [desk] payload, done in desk.take(payload, done) }
    carrier.onLost = { [weak self] verdict in self?.connectionLost(verdict) }
    (carrier as? HubConnection)?.onGreetAgain = { [weak self] in
      self?.shipment.greetAgain()
      self?.wake()
    }
    guard let source = carrier as? any UpdatesSource else { return }
    settings.filter.own = settings.name
    let bucketSync = BucketSync(
      upstream: settings.name, rights: settings.allowed, store: store, source: source, commands: desk, on: loop,
      log: log, acknowledged: { [weak self] in self?.taken ?? 0 })
    if let receivers { bucketSync.receivers = receivers }
    self.bucketSync = bucketSync
  }

  /// Who carries out what the server asks for.
  public var commandHandler: CommandHandler? {
    get { desk.handler }
    set {
      desk.handler = newValue
      desk.runNext()
    }
  }

  /// While it was idle, or just after a part of a batch was acknowledged.
  private func connectionLost(_ verdict: Verdict) {
    guard !isClosed else { return }
    forgetFlights()
    shipment.greetingSent()
    took(verdict)
  }

  public func wake() {
    if settings.filter.age != nil { times.committed(through: store.lastSeq, now: loop.now) }
    guard !isClosed, !isPaused else { return }
    let window = suspicion.isActive ? 1 : carrier.window
    for _ in 0..<max(1, window) {
      let wantsConnection = carrier.keepsConnection && shipment.isDisconnected
      let mayRetry = hasMarkedDeadLetters && flights.isEmpty
      let hasMore = store.lastSeq > readThrough || mayRetry || wantsConnection
      switch shipment.next(hasMore: hasMore, now: loop.now, window: window) {
      case .nothing: return
      case .wake(let time):
        timer?.cancel()
        timer = loop.schedule(at: time) { [weak self] in self?.wake() }
        return
      case .greet: return greet()
      case .send(let limit): sendNext(limit)
      }
    }
  }

  /// The journal was read up to here.
  private var readThrough: Int64 { max(taken, flights.last?.last ?? taken) }

  /// What is under way does not count.
  private func forgetFlights() {
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
    store.write({ [name] store throws(SQLiteError) in try store.setPaused(name, paused) }) { [log] failure in
      if let failure { log.warning("a pause is not kept over a restart: \(failure)") }
    }
    if paused {
      timer?.cancel()
    } else {
      resume()
    }
  }

  public func test(_ done: @escaping (String?) -> Void) {
    if case .sending = shipment.state { return done("busy sending; see its state in `meshpost status`") }
    mend()
    // Nothing else is sent meanwhile.
    shipment.greetingSent()
    carrier.test { [weak self] verdict in
      self?.shipment.greetAgain()
      switch verdict {
      case .acknowledged: done(nil)
      case .retry(let reason, _), .hungUp(let reason), .stopped(let reason), .refused(_, let reason): done(reason)
      }
      self?.wake()
    }
  }

  public func storeReplaced() {
    carrier.close()
    (cursor, beginning, taken, serverHas) = (0, 0, 0, 0)
    times.reset(last: 0)
    forgetFlights()
    bucketSync?.storeReplaced()
    shipment.greetAgain()
    wake()
  }

  public func stop() {
    isClosed = true
    timer?.cancel()
    bucketSync?.stop()
    carrier.close()
  }

  // MARK: Sending

  private func greet() {
    mend()
    shipment.greetingSent()
    carrier.greet { [weak self] greeting in
      guard let self, !self.isClosed else { return }
      switch greeting {
      case .has(let acknowledged): self.known(acknowledged)
      case .ready: self.known(self.cursor)
      case .failed(let verdict): self.took(verdict)
      }
    }
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
      wake()
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
      } else {
        wake()
      }
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
    }
  }

  private func sendNext(_ limit: Int) {
    do {
      if let letter = try nextDeadLetter() { return send(Batch(letter), as: .deadLetter) }
      if let proof = try nextProof() { return send(proof, as: .proof) }
      let limits = Batch.Limits(events: suspicion.wantsAlone ? 1 : limit, bytes: settings.batchBytes)
      var batch = try Batch(
        after: readThrough, of: store, limits: limits, filter: settings.filter, present: present)
      guard let last = batch.events.last else {
        // Nothing of it is for this server.
        if batch.last > taken, flights.isEmpty { advance(to: batch.last) }
        return
      }
      batch.after = lastSent
      lastSent = last.seq
      send(batch, as: .journal)
    } catch {
      shipment.greetingSent()
      took(.retry(reason: "\(error)", after: nil))
    }
  }

  private enum Purpose { case journal, deadLetter, proof }

  private func send(_ batch: Batch, as purpose: Purpose) {
    flights.append(batch)
    shipment.sent(count: batch.events.count, isDeadLetter: purpose != .journal, now: loop.now)
    carrier.carry(batch) { [weak self] verdict in
      guard let self, !self.isClosed else { return }
      if case .acknowledged(let through) = verdict, !self.flights.isEmpty {
        self.flights.removeFirst()
        self.serverHas = max(self.serverHas, through)
      } else {
        self.forgetFlights()
      }
      switch purpose {
      case .journal: self.took(verdict, batch)
      case .deadLetter: self.tookDeadLetter(verdict, batch)
      case .proof: self.tookProof(verdict)
      }
    }
  }

  // MARK: Answers

  private func took(_ verdict: Verdict, _ batch: Batch? = nil) {
    let isProven = isProven(verdict, batch)
    let consequence = shipment.answered(
      verdict, after: taken, isUrgent: suspicion.isUrgent, now: loop.now, using: &random)
    if isProven, case .hungUp(let reason) = verdict, let batch, let event = batch.events.first {
      shipment.resume()
      return bury(event, through: batch.last, status: 0, reason: "the server hangs up over it: \(reason)")
    }
    switch consequence {
    case .advance(let through):
      batches &+= 1
      advance(to: min(through, max(batch?.last ?? taken, taken)))
    case .bury(let status, let reason):
      guard let batch, let event = batch.events.first else { return wake() }
      bury(event, through: batch.last, status: status, reason: reason)
    case .keep:
      report()
      wake()
    }
  }

  func bury(_ event: JournalEvent, through: Int64, status: Int, reason: String) {
    log.warning("\(name): event \(event.seq) is refused for good (\(reason)); see `meshpost outbox`")
    let at = clock.milliseconds
    store.write({ [name] store throws(SQLiteError) in
      try store.bury(event, upstream: name, status: status, reason: reason, at: at)
      try store.setCursor(of: name, to: through)
    }) { [weak self] failure in self?.moved(to: through, failure) }
  }

  /// The cursor moves in a transaction of its own; if that is lost, events are sent again, which is always safe. A hub says itself
  /// what it has: where it is, goes along with something else.
  private func advance(to seq: Int64) {
    lastSuccess = clock.milliseconds
    taken = seq
    suspicion.advanced(to: seq)
    recovered()
    guard seq != cursor else { return wake() }
    if carrier.kind == "hub" {
      store.writeAlong("cursor:\(name)") { [name] store throws(SQLiteError) in try store.setCursor(of: name, to: seq) }
      return moved(to: seq, nil)
    }
    store.write(when: .soon, { [name] store throws(SQLiteError) in try store.setCursor(of: name, to: seq) }) {
      [weak self] failure in self?.moved(to: seq, failure)
    }
  }

  private func moved(to seq: Int64, _ failure: StoreError?) {
    if let failure {
      shipment.greetingSent()
      return took(.retry(reason: "\(failure)", after: nil))
    }
    (cursor, taken) = (seq, max(taken, seq))
    // After the turn: onCommit wakes all upstreams too, and the state must be whole by then.
    loop.later { [weak self] in self?.wake() }
  }

  private func recovered() {
    guard troubleLogged != nil else { return }
    log.notice("\(name): connected again, \(max(0, store.lastSeq - cursor)) events to send")
    troubleLogged = nil
  }

  /// Once per trouble, not per try.
  func report() {
    switch shipment.state {
    case .waiting(_, let reason) where troubleLogged != reason:
      log.warning("\(name): \(reason). Nothing is lost; trying again by itself")
      troubleLogged = reason
    case .stopped(_, let reason) where troubleLogged != reason:
      log.error("\(name): stopped: \(reason). Nothing is lost; mend it, then `meshpost outbox resume`")
      troubleLogged = reason
    default: break
    }
  }
}
