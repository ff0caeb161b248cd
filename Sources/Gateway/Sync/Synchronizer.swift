// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Timing

/// Radio → store. The sequence of a connection: time → contacts → channels → messages, then pushes. The store is
/// consistent whenever the link is lost; the next connection starts over.
///
/// `run` is this sequence. It does not store the radio's data: `told` and `heard` do that when a frame is decoded, so a
/// cancelled task loses nothing.
public final class Synchronizer {
  public struct Settings: Sendable {
    /// Sets the radio's clock to the system's, if the system's is synchronised.
    public var setsTime: Bool

    public init(setsTime: Bool = true) { self.setsTime = setsTime }
  }

  /// The gateway also asks for messages without a push: in case a push was lost, and to prove that the link works.
  static let pollInterval: Duration = .seconds(60)
  /// With each such poll the radio is also asked for how long it has been running: behind a serial chip its restart
  /// does not end the link.
  private static let pollsToStart = 5
  private var polls = 0
  /// The radio did not tell its name and settings when it was asked for them: those that are known may be old.
  public internal(set) var doubtsIdentity = false

  public let connection: RadioConnection
  let store: Store
  let loop: EventLoop
  let log: Log
  let inbox: Inbox
  public let ways: MessageWays
  /// A change takes effect with the next sync.
  public var settings: Settings
  public weak var observer: (any SyncObserver)?

  /// The task of `run`, or the daemon's end.
  var life = SyncLife.down
  /// Work beside `run`, which may begin it anew: `stop` ends it.
  let tasks: LoopTasks
  /// Resumed when the waiting task should check its conditions again.
  let woken = Waiter()
  var hints = MessageHints()
  var questions = MessageQuestions()
  private var unawaited = UnawaitedCommits()
  var contacts = RadioContacts()
  var plan = SyncPlan()
  var slots = ToldSlots()
  var losses = LossReports()
  var radioClock = RadioClock()
  public internal(set) var counters = SyncCounters()
  private var standing = SyncStanding()

  var clock: WallClock { loop.wallClock }
  var isCalled: Bool { hints.isCalled(at: loop.now) }
  /// Each part of the sync was tried since it began: messages can be sent, even if a part failed.
  public var isServing: Bool { plan.wasTried }
  /// Why, and since when, the radio withholds messages, over one link or several; `nil`: it does not.
  public var withheld: Withheld? { standing.withheld }
  public var state: SyncState { standing.state }
  public var lastSynced: Int64? { standing.lastSynced }
  /// False: nobody can say yet what the radio does not have.
  public var hasSyncedOnce: Bool { standing.hasSyncedOnce }

  public init(_ connection: RadioConnection, store: Store, settings: Settings, on loop: EventLoop, log: Log) {
    self.connection = connection
    self.store = store
    self.settings = settings
    self.loop = loop
    self.log = log
    tasks = LoopTasks(on: loop)
    ways = MessageWays(store, on: loop)
    inbox = Inbox(connection, store, ways, on: loop, log: log)
    // If the store cannot be read, the first sync reads the channels.
    standing.knewChannels = !(store.ifReadable { try store.channels() } ?? []).isEmpty
    connection.synchronizer = self
    inbox.synchronizer = self
  }

  public var now: Moment { Moment(clock) }

  func enter(_ next: SyncState) {
    if standing.enter(next) { observer?.syncChanged() }
  }

  // MARK: Sequence of a connection

  /// Does all parts in order, and starts over after a failure of the store. A part that fails because of the radio is
  /// skipped and retried later. The loss of the link cancels it.
  private func run(_ failure: SyncFailure?) async {
    var failure = failure
    while true {
      do {
        if let failure { try await pause(failure) }
        var wasTrusted = store.judgingNow.trusted
        try await syncTime()
        while true {
          // Once our clock is believed, or believed again, the radio's is set by it.
          let isTrusted = store.judgingNow.trusted
          if isTrusted && !wasTrusted || radioClock.isDue(at: loop.now) { try await syncTime() }
          wasTrusted = isTrusted
          try await perform(.contacts, syncContacts)
          try await perform(.channels, syncChannels)
          try await perform(.messages) {
            if !isServing { enter(.syncing(.messages, current: 0, total: 0)) }
            try await takeMessages()
          }
          finished()
          try await rest()
        }
      } catch {
        // Cancelled: another task replaces this one, or the link is down.
        guard !Task.isCancelled, !(error is CancellationError) else { return }
        plan.startOver()
        failure = SyncFailure(error)
      }
    }
  }

  /// Does a part if it is due. Throws failures that are not the radio's.
  private func perform(_ part: SyncPlan.Part, _ work: () async throws -> Void) async throws {
    guard plan.isDue(part, now: loop.now) else { return }
    do {
      try await work()
      plan.succeeded(part)
      if part == .messages { standing.handsOver() }
    } catch let failure as SyncFailure {
      if part == .messages {
        standing.withholds(failure.message, now: loop.now)
        if hints.isHinted { _ = hints.mayFollow(at: loop.now) }
      }
      var random = SystemRandomNumberGenerator()
      let isNews = plan.failed(part, failure, now: loop.now, using: &random)
      if isNews { log.warning("sync: \(failure.message); retrying automatically. \(failure.remedy)") }
    }
  }

  /// Waits until the radio reports a message, a minute is over, or a part is due.
  private func rest() async throws(CancellationError) {
    let poll = loop.now + Self.pollInterval
    while !isCalled, loop.now < poll, plan.nextTry.map({ loop.now < $0 }) ?? true {
      try await waitToBeWoken(by: min(poll, plan.nextTry ?? poll, hints.nextCall ?? poll))
    }
    guard isCalled || loop.now >= poll else { return }
    plan.needs(.messages, now: true)
    // A radio's report of a change can be lost on the way.
    if !isCalled, contacts.isDue(at: loop.now) { plan.needs(.contacts) }
    if doubtsIdentity { tasks.begin { [weak self] in await self?.refreshIdentity() } }
    polls += 1
    if polls.isMultiple(of: Self.pollsToStart) { inbox.doubtsStart() }
  }

  /// The store failed: waits for the next attempt, or until the disk takes messages again. Meanwhile it reads the
  /// radio's messages if the inbox has room.
  private func pause(_ failure: SyncFailure) async throws {
    enter(failure)
    var random = SystemRandomNumberGenerator()
    let end = loop.now + standing.nextPause(using: &random)
    let waitsForDisk = inbox.failure != nil
    while waitsForDisk ? inbox.failure != nil : loop.now < end {
      // What a radio hands over before it is attached would be stored as its predecessor's.
      if isCalled, inbox.hasRoom, isAttached { try await takeMessages() }
      try await waitToBeWoken(by: waitsForDisk ? nil : end)
    }
    // The database may be another one now.
    if let identity = connection.identity { try attach(identity) }
  }

  /// Returns when `woken` is resumed, or at this time.
  func waitToBeWoken(by time: MonotonicTime?) async throws(CancellationError) {
    let timer = time.map { loop.schedule(at: $0) { [woken] in woken.resume() } }
    defer { timer?.cancel() }
    try await woken.wait()
  }

  /// Begins `run` anew, and cancels the one before.
  func begin(after failure: SyncFailure? = nil) {
    guard !life.isEnding else { return }
    startOver()
    life = .running(loop.begin { await self.run(failure) })
  }

  private func startOver() {
    life.halt()
    contacts.endList()
    plan = SyncPlan()
  }

  /// A failure outside of `run`: starts over after a pause, if the link is up.
  func failed(_ failure: SyncFailure) {
    // `RadioConnection` logs a lost link, which fails every question; the inbox reports a refusing disk.
    guard connection.state == .up, inbox.failure == nil, state != .failed(failure.message) else { return }
    enter(failure)
    begin(after: failure)
  }

  /// Enters and logs the failure, once for each reason.
  func enter(_ failure: SyncFailure) {
    enter(.failed(failure.message))
    guard standing.isNews(failure) else { return }
    log.warning("sync: \(failure.message); retrying automatically. \(failure.remedy)")
  }

  /// Does all parts again, as after a new connection; on an operator's request. `fully`: with a full contact list.
  public func restart(fully: Bool) {
    guard connection.state == .up, let identity = connection.identity else { return }
    if fully { contacts.doubt() }
    attachAndBegin(identity)
  }

  /// Ends all tasks for good; messages that the disk does not take now are lost.
  public func stop() {
    life.halt()
    if !life.isEnding { life = .ending(nil) }
    tasks.cancel()
    forgetNames()
    contacts.stop()
    let lost = inbox.close(isAsked: questions.isOpen)
    ways.stop()
    if lost > 0 { log.error("stopping: messages that could not be written to disk and are lost: \(lost)") }
  }

  // MARK: The attached radio

  /// Called before any data of this radio is stored.
  private func attach(_ identity: RadioIdentity) throws(StoreError) {
    let isOther = try store.attach(identity.info.key, name: identity.info.name, at: clock.milliseconds)
    recallContactChanges(of: identity.info.key)
    // Its predecessor's contacts and channels are removed from the store with the first contact list.
    guard isOther else { return }
    // The slots of this radio do not show what the other one has.
    slots.untaken = [:]
    radioClock.forgetTime()
    standing.handsOver()
    observer?.radioReplaced()
  }

  private func attachAndBegin(_ identity: RadioIdentity) {
    do throws(StoreError) {
      try attach(identity)
      begin()
    } catch {
      enter(SyncFailure(error))
      begin(after: SyncFailure(error))
    }
  }

  /// The store writes and sends for the connected radio.
  public var isAttached: Bool { store.radioKey != nil && connection.identity?.info.key == store.radioKey }

  // MARK: Used by the parts of `run`

  /// Throws if another task has replaced this one.
  func ask(_ command: Command) async throws(CancellationError) -> RadioSession.Outcome {
    let outcome = await connection.ask(command, .sync)
    note(outcome)
    if Task.isCancelled { throw CancellationError() }
    return outcome
  }

  func note(_ outcome: RadioSession.Outcome) { if case .failed(.timedOut) = outcome { counters.timeouts += 1 } }

  /// Writes without waiting. If the commit fails, the sync starts over after a pause.
  @discardableResult
  func write(when: When = .now, _ work: (Store) throws(SQLiteError) -> Void) -> Commit {
    let commit = store.write(when: when, work)
    unawaited.add(commit) {
      loop.begin { [weak self] in
        while let commit = self?.unawaited.next() {
          let failure = await commit.failure()
          self?.unawaited.ended()
          if let failure { self?.failed(SyncFailure(failure)) }
        }
      }
    }
    return commit
  }

  /// Each part was tried.
  private func finished() {
    standing.wasTried()
    plan.triedAll()
    if let (part, words) = plan.failure {
      enter(.failed(words, part.phase))
    } else {
      standing.synced(at: clock.milliseconds)
      if state != .synced { log.log(connection.isFlapping ? .debug : .info, "synced with the radio") }
      enter(.synced)
    }
    if plan.isDone(.messages) { observer?.radioIsIdle() }
  }
}

// MARK: The radio's data

extension Synchronizer {
  /// The handshake is done.
  func met(_ radio: RadioIdentity) {
    counters.connections += 1
    doubtsIdentity = false
    standing.connected()
    forgetNames()
    slots.begin()
    recallUntaken()
    radioClock.forgetStart()
    inbox.connected(to: radio.info.key)
    attachAndBegin(radio)
    if isAttached { journal(radio) }
    ways.resume()
  }

  /// The link is lost, or the radio has become another node.
  func lost(_ end: LinkEnd) {
    inbox.disconnected(end)
    contacts.changes.lost(at: end.silentSince ?? end.at)
    questions.queueRead.resume()
    tellWhatIsUntold()
    startOver()
    forgetNames()
    store.radioSeen(at: clock.milliseconds)
    if inbox.failure == nil { enter(.idle) }
  }

  func connectionChanged() { observer?.linkChanged() }

  /// `wasAsked`: the reply answers a command of ours; otherwise it is late, or belongs to another client.
  func told(_ reply: Reply, wasAsked: Bool) {
    if !wasAsked { counters.unaskedReplies += 1 }
    switch reply {
    case .message(let message): inbox.take(message, wasAsked: wasAsked)
    case .contact(let contact): keep(contact, as: wasAsked ? contacts.took(contact.key) : .change)
    case .channelInfo(let channel): keep(channel)
    case .noMoreMessages where !wasAsked: inbox.radioWasEmptyLate()
    case .defaultFloodScope(let scope): ways.defaultRegion = scope
    default: break
    }
  }

  func heard(_ push: Push, in frame: [UInt8]) {
    switch push {
    case .messageWaiting:
      ways.wasRead()
      inbox.hinted()
      hints.hinted()
      woken.resume()
    case .advert(let key):
      counters.adverts += 1
      contacts.changedMeanwhile()
      fetch(key, .advert)
    case .pathUpdated(let key):
      contacts.changes.pathCame(to: key)
      fetch(key, .path)
    case .newAdvert(let contact):
      // A heard node that is **not** in the radio's table: manual mode, hop limit or a full table.
      counters.adverts += 1
      keep(contact, as: .advert, onRadio: false)
    case .contactDeleted(let key): overwritten(key)
    case .logRxData(let snr, let rssi, let packet):
      ways.heard(packet, snr: snr, rssi: rssi, own: connection.identity?.info.key)
    // An alert reports it.
    case .contactsFull: log.debug("the radio's contact table is full: a node was not added")
    default: break  // Messaging handles acknowledgements and answers to requests; the packet feed has heard packets.
    }
    observer?.heard(push, in: frame)
  }
}
