// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Timing

/// Radio → store. The order of every connection: time → contacts → channels → messages, then what the radio says by
/// itself. Losing the link at any point leaves the store consistent; the next connection starts over.
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
  let clock = WallClock()
  /// May be changed at any time: it counts from the next sync on.
  public var settings: Settings
  private var poll: LoopTimer?
  private var retry: LoopTimer?
  private var backoff = Backoff(first: retryFirst, limit: .seconds(60))
  private var random = SystemRandomNumberGenerator()
  /// Counts connections: an answer of an earlier one changes nothing.
  private(set) var generation = 0
  private var failureLogged: String?

  var contactSync: ContactSync?
  /// Since the link came up.
  var hasListedContacts = false
  var contactListID: UInt64?
  var radioClock: UInt32?
  private var radioClockRead: MonotonicTime?
  var drain = MessageDrain()
  var queue = RadioQueue()
  var discovery = ContactFetches()
  /// Messages that the radio has forgotten and the disk does not have yet: usually one, for the time of a commit.
  var held: [HeldMessage] = []
  var heldRetry: LoopTimer?
  /// Messages about which the radio is asked before they are kept.
  var undecided = 0
  /// Unasked messages beyond it are lost while the disk refuses, and said so.
  static let maxHeld = 64

  public internal(set) var counters = SyncCounters()
  public private(set) var state: SyncState = .idle
  public private(set) var lastSynced: Int64?
  public var onStateChange: () -> Void = {}
  /// The link came or went.
  public var onLinkChange: () -> Void = {}
  /// What the radio says by itself, after it was looked at here.
  public var onPush: (Push) -> Void = { _ in }
  /// A contact's record came, new or not.
  public var onContact: (Contact) -> Void = { _ in }
  /// A record came that belongs to the contact list of this command, which somebody else asked for.
  public var onForeignContact: (UInt64) -> Void = { _ in }
  /// Another radio is attached than the last, or it has become another node: nothing that waits is for this one.
  public var onOtherRadio: () -> Void = {}
  /// The radio was asked for messages, and has none.
  public var onIdle: () -> Void = {}
  /// A message is on disk for the first time.
  public var onMessage: (QueuedMessage) -> Void = { _ in }

  public init(_ connection: RadioConnection, store: Store, settings: Settings, on loop: EventLoop, log: Log) {
    self.connection = connection
    self.store = store
    self.settings = settings
    self.loop = loop
    self.log = log
    connection.onReady = { [weak self] identity in self?.begin(identity) }
    connection.onLost = { [weak self] in self?.ended() }
    connection.onContact = { [weak self] id, contact in self?.received(contact, ofList: id) }
    connection.onPush = { [weak self] push in
      self?.received(push)
      self?.onPush(push)
    }
    connection.onStateChange = { [weak self] in self?.onLinkChange() }
    connection.onUnasked = { [weak self] reply in self?.receivedUnasked(reply) }
  }

  /// The radio has handed over a message that is not on disk yet.
  public var hasMessageInHand: Bool { !held.isEmpty || undecided > 0 || drain.isStoring }

  /// The radio's clock as far as it is known, seconds since 1970.
  public var radioTime: UInt32? {
    guard let radioClock, let radioClockRead else { return nil }
    return radioClock &+ UInt32(clamping: Int64((loop.now - radioClockRead).inSeconds))
  }

  public var now: Moment { Moment(milliseconds: clock.milliseconds, trusted: clock.isSynchronised) }

  func enter(_ next: SyncState) {
    guard next != state else { return }
    state = next
    onStateChange()
  }

  // MARK: Order of a connection

  private func begin(_ identity: RadioIdentity) {
    generation += 1
    counters.connections += 1
    retry?.cancel()
    backoff.reset()
    discovery = ContactFetches()
    drain = MessageDrain()
    queue.connected(to: identity.info.key)
    hasListedContacts = false
    guard attach(identity) else { return }
    journal(identity)
    syncTime()
  }

  /// Before anything is kept that this radio says. False: the store cannot be read, and it is tried again.
  private func attach(_ identity: RadioIdentity) -> Bool {
    do {
      let isOther = try store.attach(identity.info.key, name: identity.info.name, at: clock.milliseconds)
      // What it has in its table and channels is forgotten with the first contact list.
      if isOther { onOtherRadio() }
      return true
    } catch {
      failed("\(error)", error.remedy)
      return false
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

  /// The radio's settings were changed from here: what it says of itself is asked for anew.
  public func refreshIdentity() async {
    let before = connection.identity
    connection.submit(.start(client: "meshpost"), .interactive) { _ in }
    _ = await connection.ask(.deviceQuery(clientVersion: RadioSession.clientVersion), .interactive)
    if let identity = connection.identity, identity != before { journal(identity) }
  }

  private func ended() {
    generation += 1
    store.radioSeen(at: clock.milliseconds)
    poll?.cancel()
    retry?.cancel()
    contactSync = nil
    contactListID = nil
    hasListedContacts = false
    drain = MessageDrain()
    if held.isEmpty { enter(.idle) }
  }

  /// Something did not work out. From the start again, later, if the link is up.
  func failed(_ words: String, _ remedy: String = "") {
    // The loss of the link fails every question; that is told where it is noticed.
    guard connection.state == .up || !held.isEmpty else { return }
    if case .failed(words) = state { return }
    generation += 1
    contactSync = nil
    contactListID = nil
    drain = MessageDrain()
    discovery = ContactFetches()
    enter(.failed(words))
    if failureLogged != words { log.warning("sync: \(words); trying again by itself. \(remedy)") }
    failureLogged = words
    let attempt = generation
    retry?.cancel()
    retry = loop.schedule(after: backoff.next(using: &random)) { [weak self] in
      guard let self, self.generation == attempt, self.connection.state == .up else { return }
      self.resume()
    }
  }

  /// From the start; what waits for the disk is stored by its own timer.
  func resume() {
    retry?.cancel()
    poll?.cancel()
    // Once more: the database may be another one.
    guard let identity = connection.identity, attach(identity) else { return }
    syncTime()
  }

  /// Ask the radio, unless the connection has changed meanwhile.
  func ask(
    _ command: Command, _ priority: CommandPriority = .sync, _ done: @escaping (RadioSession.Outcome) -> Void
  ) {
    let attempt = generation
    let id = connection.submit(command, priority) { [weak self] outcome in
      guard let self, self.generation == attempt else { return }
      if case .failed(.timedOut) = outcome { self.counters.timeouts += 1 }
      done(outcome)
    }
    if id == nil { loop.later { done(.failed(.linkLost)) } }
  }

  /// Write, and tell when it failed: then the sync starts over once the disk is well again.
  func write(
    when: When = .now, _ work: (Store) throws(SQLiteError) -> Void, _ done: @escaping () -> Void = {}
  ) {
    let attempt = generation
    store.write(when: when, work) { [weak self] failure in
      guard let self, self.generation == attempt else { return }
      if let failure { return self.failed("\(failure)") }
      done()
    }
  }

  // MARK: Time

  private func syncTime() {
    enter(.syncing(.time, current: 0, total: 0))
    ask(.getDeviceTime) { [weak self] outcome in
      guard let self else { return }
      guard case .replied(.currentTime(let time)) = outcome else { return self.syncContacts() }
      self.radioClock = time
      self.radioClockRead = self.loop.now
      self.setTime(radio: time)
    }
  }

  /// Only forwards, only from a synchronised clock, never from one that is older than this program
  /// (companion.md § 9.2): a radio that was set into the future cannot be brought back.
  private func setTime(radio time: UInt32) {
    let ours = clock.seconds
    guard settings.setsTime, clock.isSynchronised, ours >= Self.earliestPlausible, ours <= Self.latestPlausible else {
      return syncContacts()
    }
    guard ours > Int64(time) + 1 else {
      if Int64(time) > ours + 60 {
        log.warning("the radio's clock is \(Int64(time) - ours) s ahead; only losing its power can bring it back")
      }
      return syncContacts()
    }
    ask(.setDeviceTime(UInt32(clamping: ours))) { [weak self] outcome in
      switch outcome {
      case .failed(let failure): self?.log.info("the radio refused its time: \(failure)")
      default: self?.radioClock = UInt32(clamping: ours)
      }
      self?.syncContacts()
    }
  }

  /// 1 November 2026, before which this was not written, and 1 January 2100.
  private static let earliestPlausible: Int64 = 1_793_491_200
  private static let latestPlausible: Int64 = 4_102_444_800

  // MARK: The end of it

  func finished() {
    backoff.reset()
    failureLogged = nil
    lastSynced = clock.milliseconds
    if state != .synced { log.log(connection.isFlapping ? .debug : .info, "synced with the radio") }
    enter(.synced)
    onIdle()
    schedulePoll()
  }

  private func schedulePoll() {
    poll?.cancel()
    poll = loop.schedule(after: Self.pollInterval) { [weak self] in self?.messageWaiting() }
  }

  /// Everything again, as after a new connection; on an operator's request.
  public func restart(fully: Bool) {
    guard connection.state == .up else { return }
    generation += 1
    contactSync = nil
    contactListID = nil
    drain = MessageDrain()
    if fully { forgetsWatermark = true }
    resume()
  }

  var forgetsWatermark = false
  /// What waits for the message in hand before the daemon ends.
  var ending: (() -> Void)?
}
