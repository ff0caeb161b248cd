// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import RadioSession
import Store
import Sync
import Timing

/// Store → radio: one durable queue for everything that is said, whoever says it.
///
/// `DeliverySession` decides; this keeps its decisions on disk before they are carried out, hands messages to the radio
/// and tells it what became of them. A state that the disk does not take is kept here and written until it does;
/// meanwhile nothing new is handed over.
public final class Messenger {
  public struct Settings: Sendable {
    public var delivery = DeliverySettings()
    /// Messages that may wait; beyond it new ones are refused.
    public var maxWaiting = 1000

    public init() {}
  }

  public struct Status: Sendable {
    public var waiting: Int
    public var inFlight: Int
    public var waitsForBudget: Bool
    /// Milliseconds and messages of the last hour, and how many there may be.
    public var airtime: (used: Int64, limit: Int64)
    public var messages: (used: Int, limit: Int)
    public var delivered: Int
    public var failed: Int
    public var sentOnChannels: Int
  }

  public let store: Store
  let synchronizer: Synchronizer
  public let loop: EventLoop
  let log: Log
  public private(set) var settings: Settings
  var session: DeliverySession
  var senderClock: SenderClock
  var echoes = ChannelEchoes()
  /// Rows whose newest state is not on disk yet; the disk is asked again and again.
  var unsaved: [Int64: OutgoingMessage] = [:]
  private var saveTimer: LoopTimer?
  private var timer: LoopTimer?
  var isReady = false
  /// When the first message expires that waits for another radio.
  var heldTimer: LoopTimer?
  private var budgetToldAt: MonotonicTime?
  private var loggedDiskFailure = false
  /// Messages that were taken in and are not on disk yet.
  var arriving = 0
  var counts = (delivered: 0, failed: 0, channel: 0)

  /// Asks for paths, and knows which rooms let us read only.
  weak var nodes: NodeService?
  /// Puts nodes back that had given way in the radio's table.
  public weak var keeper: ContactEviction?
  weak var advert: SelfAdvert?

  public init(
    store: Store, synchronizer: Synchronizer, settings: Settings, on loop: EventLoop, log: Log
  ) throws(StoreError) {
    self.store = store
    self.synchronizer = synchronizer
    self.settings = settings
    self.loop = loop
    self.log = log
    senderClock = try SenderClock(store)
    let uses = try Self.readAirtime(store, synchronizer.now, loop.now)
    session = DeliverySession(settings.delivery, uses: uses, seed: UInt64.random(in: .min ... .max))
    try resume()
  }

  /// What was on the air within the last hour counts after a restart too, whatever became of the clock meanwhile.
  private static func readAirtime(
    _ store: Store, _ moment: Moment, _ now: MonotonicTime
  ) throws(StoreError) -> [AirtimeBudget.Use] {
    var uses: [AirtimeBudget.Use] = []
    let elapsed = store.elapsed(at: moment)
    try store.eachAirtime { at, milliseconds, channel in
      let age = elapsed > at ? min(elapsed - max(0, at), 3_600_000) : 0
      let time = MonotonicTime(nanoseconds: now.nanoseconds - age * 1_000_000)
      uses.append(AirtimeBudget.Use(at: time, airtime: milliseconds, channel: channel))
    }
    return uses
  }

  /// What had not ended when the program did.
  func resume() throws(StoreError) {
    var waiting: [OutgoingMessage] = []
    try store.eachLiveOutgoing { message in
      waiting.append(message)
      return true
    }
    for message in waiting { enqueue(message) }
    expireHeld()
  }

  /// The database was replaced by a new one. What was on the air within the last hour was on the air all the same.
  public func storeReplaced() {
    do {
      senderClock = try SenderClock(store)
    } catch {
      log.error("\(error)")
    }
    let (uses, now, at) = (session.budget.remembered, loop.now, store.elapsed(at: synchronizer.now))
    session = DeliverySession(settings.delivery, uses: uses, seed: UInt64.random(in: .min ... .max))
    (unsaved, isReady) = ([:], false)
    store.post("the last hour's air time") { store throws(SQLiteError) in
      for use in uses {
        let age = (now - use.at).wholeNanoseconds / 1_000_000
        try store.recordAirtime(use.airtime, channel: use.channel, at: at - age)
      }
    }
  }

  public func change(_ settings: Settings) {
    self.settings = settings
    perform(session.change(settings.delivery, now: loop.now))
  }

  public var status: Status {
    let used = session.budget.used(now: loop.now)
    return Status(
      waiting: session.pending, inFlight: session.inFlight, waitsForBudget: session.waitsForBudget,
      airtime: (used.airtime, session.budget.limits.airtime), messages: (used.messages, session.budget.limits.messages),
      delivered: counts.delivered, failed: counts.failed, sentOnChannels: counts.channel)
  }

  // MARK: What the radio does

  /// The link or the sync changed.
  public func radioChanged() {
    guard synchronizer.connection.state == .up else {
      if isReady { session.linkDown() }
      isReady = false
      return arm()
    }
    guard !isReady, synchronizer.isServing, synchronizer.isAttached else { return }
    isReady = true
    session.radio = synchronizer.connection.identity?.info.radio
    resetScope()
    perform(session.linkUp(now: loop.now))
  }

  public func received(_ push: Push) {
    switch push {
    case .sendConfirmed(let code, let tripTime):
      guard session.knows(code) else { return acknowledgedLate(code, tripTime) }
      perform(session.acknowledged(code, tripTime: tripTime, now: loop.now))
    case .binaryResponse(let tag, let data):
      guard let code = AckInResponse.code(in: tag.bytes + data), session.knows(code) else { return }
      perform(session.acknowledged(code, tripTime: 0, now: loop.now))
    case .logRxData(_, _, let packet):
      guard let id = echoes.heard(packet, now: loop.now) else { return }
      session.heardRepeat(of: id, now: loop.now)
      arm()
    default: break
    }
  }

  /// Nobody in memory waits for it: a message that failed before a restart, or long ago, has arrived after all; or another program sent it.
  private func acknowledgedLate(_ code: AckCode, _ tripTime: UInt32) {
    let failed: OutgoingMessage?
    do {
      failed = try store.unacknowledgedOutgoing(with: code)
    } catch {
      return log.error("an acknowledgement cannot be matched: \(error)")
    }
    guard let failed else { return }
    perform([.delivered(id: failed.id, tripTime: tripTime)])
  }

  /// A contact's record came.
  public func contactChanged(_ contact: Contact) {
    perform(session.pathChanged(contact.key, bytes: contact.outPath?.bytes.count, now: loop.now))
  }

  // MARK: Carrying out

  func perform(_ actions: [DeliveryAction]) {
    for action in actions { carryOut(action) }
    arm()
  }

  private func arm() {
    timer?.cancel()
    if session.waitsForBudget, budgetToldAt.map({ loop.now - $0 >= AirtimeBudget.window }) ?? true {
      budgetToldAt = loop.now
      log.notice("sending waits: the hour's air time is used up (see `meshpost status`; told once an hour)")
    }
    guard let deadline = session.deadline else { return }
    timer = loop.schedule(at: deadline) { [weak self] in
      guard let self else { return }
      self.perform(self.session.timedOut(now: self.loop.now))
    }
  }

  /// The newest state of a row: what the disk has not taken yet goes before what it has.
  func row(_ id: Int64) -> OutgoingMessage? {
    if let row = unsaved[id] { return row }
    do {
      return try store.outgoing(id: id)
    } catch {
      log.error("an outgoing message cannot be read: \(error)")
      return nil
    }
  }

  /// Keeps a state, however long it takes; calls `done` with whether the disk took it at once.
  func save(_ message: OutgoingMessage, airtime: Int64? = nil, _ done: @escaping (Bool) -> Void = { _ in }) {
    let moment = synchronizer.now
    unsaved[message.id] = message
    store.write({ store throws(SQLiteError) in
      try store.updateOutgoing(message, at: moment)
      if let airtime { try store.recordAirtime(airtime, channel: message.channel, at: store.elapsed(at: moment)) }
    }) { [weak self] failure in
      guard let self else { return }
      self.saved(message, failure)
      done(failure == nil)
    }
  }

  func saved(_ message: OutgoingMessage, _ failure: StoreError?) {
    guard let failure else {
      if unsaved[message.id] == message { unsaved[message.id] = nil }
      if unsaved.isEmpty, loggedDiskFailure {
        loggedDiskFailure = false
        log.notice("sending: states are on disk again")
      }
      return
    }
    if !loggedDiskFailure {
      log.error("sending: \(failure); nothing new is handed to the radio until states can be kept. \(failure.remedy)")
    }
    loggedDiskFailure = true
    saveLater()
  }

  private func saveLater() {
    guard saveTimer == nil else { return }
    saveTimer = loop.schedule(after: .seconds(2)) { [weak self] in
      guard let self else { return }
      self.saveTimer = nil
      for message in self.unsaved.values { self.save(message) }
    }
  }
}

extension Messenger {
  /// A program that shares the radio had it advertise itself: through the mesh, or to direct neighbours.
  public func noteAdvert(isFlood: Bool) { advert?.wasSent(isFlood: isFlood) }

  func isReadOnly(_ room: PublicKey) -> Bool { nodes?.isReadOnly(room) ?? false }

  /// A program that shares the radio puts so many bytes on the air, if the hour's budget has room for them.
  public func spendShared(bytes: Int) -> Bool {
    guard let radio = synchronizer.connection.identity?.info.radio else { return true }
    return spend(Int64(Airtime.milliseconds(bytes: bytes, radio).rounded(.up)), .interactive)
  }

  /// Something that is no message goes on the air, if the hour's budget has room for it.
  func spend(_ airtime: Int64, _ priority: DeliveryPriority) -> Bool {
    guard session.spend(airtime, priority, now: loop.now) else { return false }
    let moment = synchronizer.now
    store.post(when: .soon, "air time") { store throws(SQLiteError) in
      try store.recordAirtime(airtime, channel: nil, at: store.elapsed(at: moment))
    }
    return true
  }
}
