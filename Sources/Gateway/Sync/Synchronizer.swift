// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Timing

/// Radio → store. The order of every connection: time → contacts → channels → messages, then what the radio says by
/// itself. Losing the link at any point leaves the store consistent; the next connection starts over.
///
/// `run` is that order. What the radio says is not kept there but where it is decoded (`RadioDelegate`): a task that is cancelled loses
/// nothing of it.
public final class Synchronizer {
  public struct Settings: Sendable {
    /// Set the radio's clock from ours, when ours is synchronised.
    public var setsTime: Bool

    public init(setsTime: Bool = true) { self.setsTime = setsTime }
  }

  /// Messages are asked for now and then even unasked: it covers a lost push and proves that the link lives.
  static let pollInterval: Duration = .seconds(60)
  /// A failed phase is tried again after this, growing.
  private static let retryFirst: Duration = .seconds(2)

  public let connection: RadioConnection
  let store: Store
  let loop: EventLoop
  let log: Log
  let clock: WallClock
  let inbox: Inbox
  /// May be changed at any time: it counts from the next sync on.
  public var settings: Settings
  public weak var observer: (any SyncObserver)?

  /// While the link is up: `run`.
  var task: LoopTask?
  /// Resumed when something may have come that the task waits for; it looks then.
  let woken = Waiter()
  /// The radio has said that a message waits.
  var isHinted = false
  /// Until then its word counts for nothing: it handed over the same messages again and again, or hinted at none.
  var deafUntil: MonotonicTime?
  var fruitless = Ration(most: 64, oneIn: .milliseconds(200))
  var isCalled: Bool { isHinted && deafUntil.map { loop.now >= $0 } ?? true }
  /// SYNC_NEXT_MESSAGE that have no answer yet; all that were asked, and the number of the last that found nothing.
  var messagesAsked = 0
  var questions = (asked: 0, lastEmpty: 0)
  /// Kept when nothing is in hand any more: the daemon ends then.
  var ending: Promise<Void>?
  var isEnding = false
  private var backoff = Backoff(first: retryFirst, limit: .seconds(60))
  private var random = SystemRandomNumberGenerator()
  private var failureLogged: String?
  /// The last transaction that `write` has to do with.
  private weak var written: Commit?

  /// Resumed when the radio has no more messages, and when the disk has the last one.
  let queueRead = Waiter()

  /// The contact list that is under way.
  var contactList: ContactList?
  var plan = SyncPlan()
  var slots = ToldSlots()
  /// Each part of the sync was tried since it began: messages can be sent, even where the radio did not tell all.
  public private(set) var isServing = false
  var forgetsWatermark = false
  /// When a node that was heard for the first time was committed at once.
  var met: MonotonicTime?
  var fetches = ContactFetches()
  var isFetching = false
  /// Tasks that take messages until the radio has no more: one; an earlier one waits for its last answer at most.
  var takers = 0
  var messagesTaken = 0
  /// Losses that are told at once; a radio that tells of messages that it does not have would fill the journal with them.
  var losses = Ration(most: 16, oneIn: .seconds(60))
  /// What is told together, later.
  var untold: (loss: RadioQueue.Loss, at: LoopTimer)?
  /// Resumed when there may be time to ask for a contact.
  let idle = Waiter()
  /// The latest moment at which the radio may have started, as it has said over this link.
  public internal(set) var radioStarted: MonotonicTime?
  var radioClock: UInt32?
  var radioClockRead: MonotonicTime?

  /// The radio does not hand over its messages, over one link or several. `nil`: it does, as far as it was asked.
  public private(set) var withheld: Withheld?
  public internal(set) var counters = SyncCounters()
  public private(set) var state: SyncState = .idle
  public private(set) var lastSynced: Int64?
  private var knewChannels = false
  /// Before that nobody can say what the radio does not have.
  public var hasSyncedOnce: Bool { lastSynced != nil || knewChannels }

  public init(_ connection: RadioConnection, store: Store, settings: Settings, on loop: EventLoop, log: Log) {
    self.connection = connection
    self.store = store
    self.settings = settings
    self.loop = loop
    clock = loop.wallClock
    self.log = log
    inbox = Inbox(connection, store, on: loop, log: log)
    // What cannot be read is read with the first sync.
    store.ifReadable { try store.eachChannel { _ in knewChannels = true } }
    connection.delegate = self
    inbox.owner = self
  }

  /// The radio's clock as far as it is known, seconds since 1970.
  public var radioTime: UInt32? {
    guard let radioClock, let radioClockRead else { return nil }
    return radioClock &+ UInt32(clamping: Int64((loop.now - radioClockRead).inSeconds))
  }

  public var now: Moment { Moment(clock) }

  func enter(_ next: SyncState) {
    guard next != state else { return }
    state = next
    observer?.syncChanged()
  }

  // MARK: Order of a connection

  /// Everything in order, and again from the start after a failure of the store. A part that the radio fails is left out, and tried
  /// again later. Cancelled when the link is lost.
  private func run(_ failure: SyncFailure?) async {
    var failure = failure
    while true {
      do {
        if let failure { try await pause(failure) }
        try await syncTime()
        while true {
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
        // Cancelled: another task has replaced this one, or the link is down.
        guard !Task.isCancelled, !(error is CancellationError) else { return }
        (plan, failure) = (SyncPlan(), SyncFailure(error))
      }
    }
  }

  /// Does a part if it is due. Throws what is not the radio's doing.
  private func perform(_ part: SyncPlan.Part, _ work: () async throws -> Void) async throws {
    guard plan.isDue(part, now: loop.now) else { return }
    do {
      try await work()
      plan.succeeded(part)
      if part == .messages { withheld = nil }
    } catch let failure as SyncFailure {
      if part == .messages {
        withheld = Withheld(why: failure.message, since: withheld?.since ?? loop.now)
        if isHinted { _ = mayFollowHint() }
      }
      let isNews = plan.failed(part, failure, now: loop.now, using: &random)
      if isNews { log.warning("sync: \(failure.message); retrying automatically. \(failure.remedy)") }
    }
  }

  /// Until the radio says that it has a message, a minute is over, or a part is to be done.
  private func rest() async throws(CancellationError) {
    let poll = loop.now + Self.pollInterval
    while !isCalled, loop.now < poll, plan.nextTry.map({ loop.now < $0 }) ?? true {
      try await wake(by: min(poll, plan.nextTry ?? poll, isHinted ? deafUntil ?? poll : poll))
    }
    if isCalled || loop.now >= poll { plan.needs(.messages, now: true) }
  }

  /// The store failed: until it is worth another try. Messages that the radio has meanwhile need not wait for that.
  private func pause(_ failure: SyncFailure) async throws {
    enter(failure)
    let end = loop.now + backoff.next(using: &random)
    let waitsForDisk = inbox.failure != nil
    while waitsForDisk ? inbox.failure != nil : loop.now < end {
      if isCalled, inbox.hasRoom { try await takeMessages() }
      try await wake(by: waitsForDisk ? nil : end)
    }
    // Once more: the database may be another one.
    if let identity = connection.identity { try attach(identity) }
  }

  /// Until something may have come, or the time has.
  func wake(by time: MonotonicTime?) async throws(CancellationError) {
    let timer = time.map { loop.schedule(at: $0) { [woken] in woken.resume() } }
    defer { timer?.cancel() }
    try await woken.wait()
  }

  /// Restarts `run`.
  func begin(after failure: SyncFailure? = nil) {
    task?.cancel()
    guard !isEnding else { return }
    (contactList, plan, isServing) = (nil, SyncPlan(), false)
    task = loop.begin { await self.run(failure) }
  }

  /// Something did not work out beside `run`: from the start again, later, if the link is up.
  func failed(_ failure: SyncFailure) {
    // The loss of the link fails every question; that is logged where it is noticed. And a disk that refuses messages is trouble enough.
    guard connection.state == .up, inbox.failure == nil, state != .failed(failure.message) else { return }
    enter(failure)
    begin(after: failure)
  }

  /// Each trouble is logged once.
  func enter(_ failure: SyncFailure) {
    enter(.failed(failure.message))
    if failureLogged != failure.message {
      log.warning("sync: \(failure.message); retrying automatically. \(failure.remedy)")
    }
    failureLogged = failure.message
  }

  /// Everything again, as after a new connection; on an operator's request.
  public func restart(fully: Bool) {
    guard connection.state == .up, let identity = connection.identity else { return }
    if fully { forgetsWatermark = true }
    attachAndBegin(identity)
  }

  /// Its tasks end, and none begins any more.
  public func stop() {
    isEnding = true
    task?.cancel()
    forgetNames()
    let lost = inbox.close(isAsked: messagesAsked > 0)
    if lost > 0 { log.error("stopping: \(lost) messages could not be written to disk and are lost") }
  }

  // MARK: The radio that is there

  /// Before anything is kept that this radio says.
  private func attach(_ identity: RadioIdentity) throws(StoreError) {
    let isOther = try store.attach(identity.info.key, name: identity.info.name, at: clock.milliseconds)
    // What it has in its table and channels is forgotten with the first contact list.
    guard isOther else { return }
    withheld = nil
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

  /// What the store keeps and sends just now is that of the radio that is there.
  public var isAttached: Bool { store.radioKey != nil && connection.identity?.info.key == store.radioKey }

  private func journal(_ identity: RadioIdentity) {
    write(
      when: .soon,
      { [now] store throws(SQLiteError) in
        _ = try store.append(.radio, at: now, body: EventBody.radio(identity))
      })
  }

  /// The gateway changed the radio's settings: reads them again.
  public func refreshIdentity() async {
    let before = connection.identity
    _ = connection.submit(.start(client: "meshpost"), .interactive)
    _ = await connection.ask(.deviceQuery(clientVersion: RadioSession.clientVersion), .interactive)
    guard let identity = connection.identity, identity != before else { return }
    journal(identity)
    observer?.linkChanged()
  }

  // MARK: What the parts of `run` use

  /// Throws if another task has replaced this one.
  func ask(_ command: Command) async throws(CancellationError) -> RadioSession.Outcome {
    let outcome = await connection.ask(command, .sync)
    note(outcome)
    if Task.isCancelled { throw CancellationError() }
    return outcome
  }

  func note(_ outcome: RadioSession.Outcome) { if case .failed(.timedOut) = outcome { counters.timeouts += 1 } }

  /// Writes without waiting. If it fails, the sync starts over once the disk is writable again.
  func write(when: When = .now, _ work: (Store) throws(SQLiteError) -> Void) {
    let commit = store.write(when: when, work)
    guard commit !== written else { return }
    written = commit
    loop.begin { [weak self] in
      if let failure = await commit.failure() { self?.failed(SyncFailure(failure)) }
    }
  }

  /// Each part was tried.
  private func finished() {
    backoff.reset()
    failureLogged = nil
    isServing = true
    if let (part, words) = plan.failure {
      enter(.failed(words, part.phase))
    } else {
      lastSynced = clock.milliseconds
      if state != .synced { log.log(connection.isFlapping ? .debug : .info, "synced with the radio") }
      enter(.synced)
    }
    if plan.isDone(.messages) { observer?.radioIsIdle() }
  }
}

// MARK: What the radio says

extension Synchronizer: RadioDelegate {
  func met(_ radio: RadioIdentity) {
    counters.connections += 1
    backoff.reset()
    forgetNames()
    (slots, radioStarted) = (ToldSlots(), nil)
    inbox.connected(to: radio.info.key)
    attachAndBegin(radio)
    if isAttached { journal(radio) }
  }

  func lost() {
    queueRead.resume()
    tellWhatIsUntold()
    task?.cancel()
    (contactList, plan, isServing) = (nil, SyncPlan(), false)
    forgetNames()
    store.radioSeen(at: clock.milliseconds)
    if inbox.failure == nil { enter(.idle) }
  }

  func connectionChanged() { observer?.linkChanged() }

  func told(_ reply: Reply, wasAsked: Bool) {
    if !wasAsked { counters.unaskedReplies += 1 }
    switch reply {
    case .message(let message): inbox.take(message, wasAsked: wasAsked)
    case .contact(let contact): keep(contact, as: wasAsked ? fetches.took(contact.key) : .change)
    case .channelInfo(let channel): keep(channel)
    case .noMoreMessages where !wasAsked: inbox.radioWasEmptyLate()
    default: break
    }
  }

  func heard(_ push: Push, in frame: [UInt8]) {
    switch push {
    case .messageWaiting:
      inbox.hinted()
      isHinted = true
      woken.resume()
    case .advert(let key):
      counters.adverts += 1
      contactList?.sync.changedMeanwhile = true
      fetch(key, .advert)
    case .pathUpdated(let key): fetch(key, .path)
    case .newAdvert(let contact):
      // Heard, and **not** in the radio's table: manual mode, hop limit or a full table.
      counters.adverts += 1
      keep(contact, as: .advert, onRadio: false)
    case .contactDeleted(let key): overwritten(key)
    // An alert tells of it.
    case .contactsFull: log.debug("the radio's contact table is full: a node was not added")
    default: break  // Acknowledgements and answers to requests belong to messaging; heard packets to the observer feed.
    }
    observer?.heard(push, in: frame)
  }
}
