// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import RadioSession
import Store
import Sync
import Timing

/// Store → radio: one durable queue for all outgoing messages.
///
/// `DeliverySession` decides; `Messenger` writes an attempt to disk before it makes it, hands messages to the radio, and reports the results. Each
/// message under way is a task (`deliver`), each state is written where it is decided (`MessengerStates`), and `run` handles deadlines.
public final class Messenger {
  public struct Settings: Sendable {
    public var delivery = DeliverySettings()
    /// The most messages that may wait; further ones are refused.
    public var maxWaiting = 1000
    /// How long a message is sent and held, if its sender does not say.
    public var lifetime: Duration = .seconds(24 * 3600)
    /// How long a message of another gateway waits: if our radio receives it itself meanwhile, it is not sent.
    public var exchangeHold: Duration = .seconds(10)
    /// In this time after a start, a hub tells whether this database was put back: then what waits in it may have been sent.
    public var untilHubsTell: Duration = .zero

    public init() {}
  }

  public struct Status: Sendable {
    public var waiting: Int
    public var inFlight: Int
    /// Messages that wait for a sign of life of their recipients; they count as waiting, too.
    public var heldForRecipients: Int
    public var waitsForBudget: Bool
    /// Milliseconds and messages of the last hour, and their limits.
    public var airtime: (used: Int64, limit: Int64)
    public var messages: (used: Int, limit: Int)
    public var delivered: Int
    public var failed: Int
    public var sentOnChannels: Int
    /// Per cent of the last two minutes in which the channel was used; the per cent from which on what is not urgent waits (100: it does not); and
    /// whether something waits.
    public var channel: (use: Double, limit: Int, waits: Bool)
  }

  public let store: Store
  let synchronizer: Synchronizer
  public let loop: EventLoop
  let log: Log
  public private(set) var settings: Settings
  var session: DeliverySession
  var senderClock: SenderClock
  var echoes = ChannelEchoes()
  var underWay = MessagesUnderWay()
  var unsaved = UnsavedStates()
  /// Changes of messages whose rows cannot be read, in their order, and the task that reads again.
  var unapplied: [StateChange] = []
  var applying: LoopTask?
  /// Waits to read the messages of a radio that was just attached.
  var resuming: LoopTask?
  /// Short tasks of sending, of nodes and of paths.
  let tasks: LoopTasks
  /// Rings at the machine's next deadline, or at the next expiry of a held message.
  private let alarm = Alarm()
  var isReady = false
  /// What each room has had from us, and may have had.
  var rooms: [PublicKey: RoomTimes] = [:]
  /// Called when a round of a post to the room was not acknowledged.
  var postWasUnanswered: (PublicKey) -> Void = { _ in }
  /// Rooms that are asked whether they were started anew: their posts wait for the answer.
  var doubted: Set<PublicKey> = []
  /// The last start of each room that had forgotten us by it.
  var forgettings: [PublicKey: Forgetting] = [:]
  /// When the first message for another radio expires.
  var nextHeldEnd: MonotonicTime?
  private var budgetToldAt: MonotonicTime?
  /// Messages whose recipients the radio did not know once.
  var unknownOnce: Set<Int64> = []
  /// Messages whose recipients have no place in the radio's table.
  var placeless: Set<Int64> = []
  /// Accepted messages that are not on disk yet.
  var arriving = 0
  var counts = (delivered: 0, failed: 0, channel: 0)
  /// Air time since the start, and that of the packets that were heard.
  var used = AirtimeTotals()
  var heardAirtime = HeardAirtime()
  /// Requests and adverts that wait until the channel is less in use.
  var waitingForChannel = 0
  var impatientBefore = 0
  var impatienceToldAt: MonotonicTime?

  /// Asks for paths, and knows which rooms are read-only for us.
  weak var nodes: NodeService?
  /// Restores nodes that were evicted from the radio's table.
  public weak var keeper: ContactEviction? {
    didSet { keeper?.recipients = { [weak self] in self?.recipients ?? ([], []) } }
  }
  weak var advert: SelfAdvert?

  public init(
    store: Store, synchronizer: Synchronizer, settings: Settings, on loop: EventLoop, log: Log
  ) throws(StoreError) {
    self.store = store
    self.synchronizer = synchronizer
    self.settings = settings
    self.loop = loop
    self.log = log
    tasks = LoopTasks(on: loop)
    senderClock = try SenderClock(store)
    let uses = try Self.readAirtime(store, synchronizer.now, loop.now)
    session = DeliverySession(settings.delivery, uses: uses, seed: UInt64.random(in: .min ... .max))
    recallChannel()
    recallRooms()
    try resume()
  }

  /// Begins with another database. The air time of the last hour still counts.
  public func begin() throws(StoreError) {
    senderClock = try SenderClock(store)
    let uses = session.budget.remembered
    session = DeliverySession(settings.delivery, uses: uses, seed: UInt64.random(in: .min ... .max))
    underWay.forget()
    unsaved.forget()
    unapplied = []
    resuming?.cancel()
    // Rows of the new database get the same numbers.
    echoes = ChannelEchoes()
    isReady = false
    (unknownOnce, placeless) = ([], [])
    heardAirtime.forget()
    impatientBefore = 0
    keep(uses)
    if !rooms.isEmpty { keepRooms() }
    try resume()
  }

  private func keep(_ uses: [AirtimeBudget.Use]) {
    let (now, at) = (loop.now, store.elapsed(at: synchronizer.now))
    store.post("the last hour's air time") { store throws(SQLiteError) in
      for use in uses {
        let age = (now - use.at).wholeNanoseconds / 1_000_000
        try store.recordAirtime(use.airtime, channel: use.channel, at: at - age)
      }
    }
  }

  /// The last hour's air time counts after a restart, too, even if the clock was set meanwhile.
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

  // MARK: Running

  /// Handles time-outs, further attempts and the expiry of messages held for other radios, until it is cancelled. Messages under way then stay on
  /// disk, and continue at the next start.
  public func run() async throws(CancellationError) {
    defer {
      takeAnswer()
      unsaved.stop()
      applying?.cancel()
      resuming?.cancel()
      underWay.forget()
      tasks.cancel()
    }
    while true {
      try await alarm.wait(on: loop)
      if let nextHeldEnd, nextHeldEnd <= loop.now { expireHeld() }
      if let deadline = session.deadline, deadline <= loop.now { decide { $0.timedOut(now: $1) } }
      arm()
    }
  }

  /// Sets the alarm to the next deadline, which may have changed.
  func arm() {
    if session.waitsForBudget, budgetToldAt.map({ loop.now - $0 >= AirtimeBudget.window }) ?? true {
      budgetToldAt = loop.now
      log.notice(
        "sending is paused: the hour's air time is used up (see `meshpost status`; logged at most once an hour)")
    }
    sayIfImpatient()
    alarm.set([session.deadline, nextHeldEnd].compactMap { $0 }.min())
  }

  /// Takes up the messages that had not ended when the program did.
  func resume() throws(StoreError) {
    let waiting = try store.liveOutgoing()
    // All reads come before the first effect: after one that fails, a messenger can be made anew.
    var withPaths: Set<PublicKey> = []
    for row in waiting where row.attempts.next > 0 {
      guard let recipient = row.recipient, try store.contact(recipient)?.contact.outPath != nil else { continue }
      withPaths.insert(recipient)
    }
    for row in waiting {
      // Its end may not be on disk yet. And one that came meanwhile is in the queue already.
      var message = unsaved[row.id]?.message ?? row
      guard !message.hasEnded, message.radio == store.radio, !session.isLive(row.id) else { continue }
      // Nobody knows whether the radio got it.
      if message.state == .sending, message.kind != .channel, unsaved[message.id] == nil {
        (message.state, message.attempts.accepted) = (.sent, message.attempts.accepted + 1)
        save(message)
      }
      // Its flood has taken the path out of the radio, and no list of changes shows that.
      if let recipient = row.recipient, row.attempts.next > 0, withPaths.contains(recipient) {
        synchronizer.refresh(recipient)
      }
      enqueue(message, isFromEarlierRun: true)
    }
    expireHeld()
  }

  public func change(_ settings: Settings) {
    self.settings = settings
    decide { $0.change(settings.delivery, now: $1) }
  }

  public var status: Status {
    let used = session.budget.used(now: loop.now)
    return Status(
      waiting: session.pending, inFlight: session.inFlight, heldForRecipients: session.held,
      waitsForBudget: session.waitsForBudget,
      airtime: (used.airtime, session.budget.limits.airtime), messages: (used.messages, session.budget.limits.messages),
      delivered: counts.delivered, failed: counts.failed, sentOnChannels: counts.channel,
      channel: (
        session.manners.use.percent(now: loop.now), session.manners.limit,
        session.waitsForChannel || waitingForChannel > 0
      ))
  }

  /// Whether a message waits until the hour's air time has room for it.
  public func waitsForAirtime(_ id: Int64) -> Bool { session.waitsForAirtime(id, now: loop.now) }

  /// When a held message is tried at the latest, in milliseconds since 1970; `nil`: it is not held.
  public func nextAttempt(of id: Int64) -> Int64? { session.nextAttempt(of: id).map(wallTime) }

  private func wallTime(_ time: MonotonicTime) -> Int64 {
    synchronizer.now.milliseconds + max(.zero, time - loop.now).wholeNanoseconds / 1_000_000
  }

  /// Milliseconds since the start, by purpose.
  public var airtimeCounters: [AirtimePurpose: Int64] { used.counters }

  /// How often in a row the radio had no room for a waiting message, and when it is tried again, in milliseconds since 1970.
  public func refusals(of id: Int64) -> (count: Int, next: Int64?)? {
    guard let (count, next) = session.refusals(of: id) else { return nil }
    return (count, next.map(wallTime))
  }

  // MARK: Events of the radio

  /// The link or the sync changed.
  public func radioChanged() {
    takeAnswer()
    guard synchronizer.connection.state == .up else {
      if isReady { session.linkDown() }
      isReady = false
      return arm()
    }
    // Its parameters may have changed, and with them the air time of packets.
    session.radio = synchronizer.connection.identity?.info.radio
    guard !isReady, synchronizer.isServing, synchronizer.isAttached else { return }
    isReady = true
    resetScope()
    decide { [started = synchronizer.radioStarted] in $0.linkUp(now: $1, radioStarted: started) }
  }

  public func received(_ push: Push) {
    takeAnswer()
    noteSign(in: push)
    switch push {
    case .sendConfirmed(let code, let tripTime):
      guard session.knows(code) else { return acknowledgedLate(code, tripTime) }
      decide { $0.acknowledged(code, tripTime: tripTime, now: $1) }
    case .binaryResponse(let tag, let data):
      guard let code = AckInResponse.code(in: tag.bytes + data), session.knows(code) else { return }
      decide { $0.acknowledged(code, tripTime: 0, now: $1) }
    case .logRxData(_, _, let packet):
      heardPacket(packet.count)
      guard let id = echoes.heard(packet, now: loop.now) else { return }
      session.heardRepeat(of: id, now: loop.now)
      arm()
    default: break
    }
  }

  /// The session does not know this code: a message that failed before a restart, or long ago, has arrived after all; or another program sent it.
  private func acknowledgedLate(_ code: AckCode, _ tripTime: UInt32) {
    let failed: OutgoingMessage?
    do {
      failed = try store.unacknowledgedOutgoing(with: code)
    } catch {
      return log.error("an acknowledgement cannot be matched: \(error)")
    }
    guard let failed else { return }
    roomTook(failed)
    carryOut(.delivered(id: failed.id, tripTime: tripTime))
    if let recipient = failed.recipient { heard(recipient) }
  }

  /// A contact's record has arrived.
  public func contactChanged(_ contact: Contact) {
    decide { $0.pathChanged(contact.key, bytes: contact.outPath?.bytes.count, now: $1) }
  }
}

extension Messenger {
  /// A program that shares the radio has advertised it, through the mesh or to direct neighbours.
  public func noteAdvert(isFlood: Bool) { advert?.wasSent(isFlood: isFlood) }

  /// Why no program may flood the radio's advert now; `nil`: it may.
  public var advertRefusal: Refusal? { advert?.floodRefusal }

  func isReadOnly(_ room: PublicKey) -> Bool { nodes?.isReadOnly(room) ?? false }
}
