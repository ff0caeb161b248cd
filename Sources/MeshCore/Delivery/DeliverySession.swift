// SPDX-License-Identifier: MIT

import Companion
import Timing

/// Decides when and how each message is transmitted, and when it has ended.
///
///     pending ─▶ sending ─▶ sent ─ack─▶ delivered
///        ▲                    │ time-out: next attempt, along the path, then flooded
///        ├────────────────────┤
///        └─────── held ◀──────┴──────▶ failed (a late acknowledgement still makes it delivered)
///
/// A message whose round of attempts was not acknowledged is held for its recipient (`Absence`), and fails when its lifetime ends.
///
/// Pure: time is an argument, states are actions. Guarantees in all cases: delivered is final; every
/// message ends; a held message is always tried again; an attempt's number is used once; the budget of no hour is exceeded; at most `maxInFlight` messages
/// wait for acknowledgements, one per recipient, and never so many attempts that the radio drops an ack code that is still needed.
public struct DeliverySession: Sendable {
  struct Live: Equatable, Sendable {
    enum Phase: Equatable, Sendable {
      /// Waits for its turn, or until a time.
      case ready(notBefore: MonotonicTime?)
      /// The attempt is being written to disk, or the radio has not answered yet.
      case sending(DeliveryRoute)
      /// Transmitted; waits for the acknowledgement until the deadline. `nil`: the deadline is set when the link is up.
      case sent(until: MonotonicTime?)
      /// Waits for a sign of life of its recipient, or its next slow round.
      case held
    }

    var item: DeliveryItem
    var phase: Phase
    /// An attempt may be on the air, so the recipient cannot get another message.
    var isOpen: Bool
    var round: Round
    /// Attempts along the present path, in this round.
    var directTries = 0
    var lastRoute: DeliveryRoute?
    var isCancelled = false
    /// A channel message that the radio may have transmitted: it did not answer.
    var mayBeOnAir = false
    var refusals = Backoff(first: DeliverySettings.refusalFirst, limit: DeliverySettings.refusalLimit)
    /// Consecutive refusals because the radio's packet pool was full.
    var fullTables = Backoff(first: DeliverySettings.refusalFirst, limit: DeliverySettings.fullLimit)
    /// Air time reserved for the attempt in progress, in milliseconds.
    var charged: Int64 = 0

    /// A channel message that the radio has accepted before: it goes once more, for whoever missed it.
    var isRepeat: Bool { item.channel != nil && item.floods > 0 }
    var isReady: Bool { if case .ready = phase { true } else { false } }
    /// Whether it waits for its recipient again if the radio does not know it now: the shell may put it back.
    var wasHeld: Bool { item.channel == nil && round.kind != .first }
    /// Whether it takes turns with others to its recipient, attempt by attempt. Posts have an order.
    var takesTurns: Bool { !item.isOrdered && [.sign, .asked].contains(round.kind) }
  }

  struct Ended: Equatable, Sendable {
    let id: Int64
    let codes: [AckCode]
    var isDelivered: Bool
    var until: MonotonicTime
    /// Repeats that were heard but not reported; they are reported together, some time after the first.
    var heard = 0
    var tellAt: MonotonicTime?
    /// A channel message that the radio accepted, until a repeat is heard: the radio holds it in memory while the air
    /// is busy.
    var atRadio: AtRadio?

    struct AtRadio: Equatable {
      /// It expires when nodes no longer know that they have the message.
      var item: DeliveryItem
      var at: MonotonicTime
      /// By then the radio has transmitted it, if it runs.
      var out: MonotonicTime
    }

    mutating func hear(_ now: MonotonicTime) {
      atRadio = nil
      heard += 1
      tellAt = tellAt ?? min(now + DeliverySettings.heardDelay, until)
    }
  }

  public internal(set) var settings: DeliverySettings
  public internal(set) var budget: AirtimeBudget
  public internal(set) var isUp = false
  /// Needed for times on air; `nil`: they cannot be estimated, and only the number of messages counts.
  public var radio: RadioParameters?
  /// Whether the radio has a default region, which makes its floods longer.
  public var floodsInRegion = false
  var live: [Int64: Live] = [:]
  var ended: [Ended] = []
  /// Path bytes to each recipient; without an entry, messages are flooded.
  var paths: [PublicKey: Int] = [:]
  /// Paths that a flood has taken out of the radio in the present round.
  var shelved: [PublicKey: Int] = [:]
  var peers: [PublicKey: Peer] = [:]
  /// Attempts whose codes the radio remembers, oldest first.
  var ring: [(id: Int64, attempt: UInt8)] = []
  var discoveries: [PublicKey: MonotonicTime] = [:]
  /// Recipients of held messages.
  var absences: [PublicKey: Absence] = [:]
  /// Attempts to a recipient whose messages take turns, since its last acknowledgement.
  var inTurn: [PublicKey: Int] = [:]
  var served: [String: UInt64] = [:]
  var turn: UInt64 = 0
  /// Until then the last attempt's acknowledgement is probably on its way: recipients behind repeaters are not heard here, so the radio would drown it
  /// there.
  var quiet: (until: MonotonicTime, id: Int64)?
  /// The message that is being written to disk or handed to the radio. It may have ended already, by a fast acknowledgement.
  var inHand: Int64?
  /// When the radio has transmitted all that it has accepted, if the air is free.
  var radioDone = MonotonicTime(seconds: 0)
  /// When the radio last gave a sign of life: until then, it did not stop.
  var radioRanAt: MonotonicTime?
  /// When the budget has room for the next message.
  var budgetWait: MonotonicTime?
  /// Who waits while the channel is busy.
  public internal(set) var manners: Manners
  /// When messages that wait for the channel are looked at again; `nil`: none waits.
  var channelWait: MonotonicTime?
  /// A message waits because the channel is busy.
  public var waitsForChannel: Bool { channelWait != nil }
  /// A message waits because the hourly air time is used up. Slow rounds have only a share of it, and may wait.
  public internal(set) var waitsForBudget = false
  var random: SeededRandom

  public init(_ settings: DeliverySettings, uses: [AirtimeBudget.Use] = [], seed: UInt64) {
    self.settings = settings
    budget = AirtimeBudget(settings.budget, uses: uses)
    manners = Manners(limit: settings.busyPercent)
    random = SeededRandom(seed: seed)
  }

  // MARK: State

  public var pending: Int { live.values.count { !$0.isOpen } }
  public var inFlight: Int { live.values.count { $0.isOpen && $0.item.channel == nil } }
  public func isLive(_ id: Int64) -> Bool { live[id] != nil }
  /// Whether an attempt is on the air or in progress, or the message is between two attempts.
  public func isUnderWay(_ id: Int64) -> Bool { live[id]?.isOpen ?? false }

  /// Nodes with messages that wait, and those to which an attempt is in progress or whose acknowledgement is awaited:
  /// the radio must have these.
  public var recipients: (waiting: Set<PublicKey>, underWay: Set<PublicKey>) {
    var (waiting, underWay): (Set<PublicKey>, Set<PublicKey>) = ([], [])
    for message in live.values {
      guard case .node(let key) = message.item.destination else { continue }
      waiting.insert(key)
      if message.isOpen { underWay.insert(key) }
    }
    return (waiting, underWay)
  }

  /// When to call `timedOut`.
  public var deadline: MonotonicTime? {
    var next = min(budgetWait ?? .never, channelWait ?? .never)
    for message in live.values {
      switch message.phase {
      case .ready(let time): next = min(next, message.item.expires, (isUp ? time : nil) ?? .never)
      case .sent(let time): next = min(next, isUp ? time ?? .never : message.item.expires)
      case .sending: break
      case .held: next = min(next, message.item.expires)
      }
    }
    if isUp { for absence in absences.values { next = min(next, absence.next) } }
    if isUp, let quiet { next = min(next, quiet.until) }
    for message in ended {
      next = min(next, message.until, message.tellAt ?? .never)
      if isUp { next = min(next, repetition(of: message) ?? .never) }
    }
    if isUp { for time in discoveries.values { next = min(next, time) } }
    return next == .never ? nil : next
  }

  // MARK: Events

  /// Adds a message that is on disk.
  public mutating func add(_ item: DeliveryItem, path: Int?, now: MonotonicTime) -> [DeliveryAction] {
    guard live[item.id] == nil else { return [] }
    let round = Round(tries: item.tries, floods: item.floods, limit: settings.maxAttempts)
    var message = Live(item: item, phase: .ready(notBefore: item.notBefore), isOpen: false, round: round)
    if item.progress == .interrupted {
      // The acknowledgement may still come. A channel message is repeated as the same packet instead.
      message.isOpen =
        item.channel == nil && !live.values.contains { $0.isOpen && $0.item.destination == item.destination }
      message.mayBeOnAir = item.channel != nil
      if item.channel == nil { message.phase = .sent(until: isUp ? now + DeliverySettings.unknownTimeout : nil) }
    }
    ended.removeAll { $0.id == item.id }
    var actions: [DeliveryAction] = []
    if case .node(let key) = item.destination {
      paths[key] = path
      if item.progress == .held || item.tries >= settings.maxAttempts { resume(item, key, now) }
      if let absence = absences[key], item.progress == .pending {
        message.round.limit = 1
        // The oldest goes ahead, so that they arrive in their order.
        if isUp, now - absence.tried >= DeliverySettings.leastPause { actions = begin(.ahead, key, now) }
        if item.isOrdered { message.phase = .held }
      }
      if item.progress == .held { message.phase = .held }
    }
    live[item.id] = message
    if message.phase == .held, item.progress != .held { actions.append(.held(id: item.id, isFirst: true)) }
    return actions + sendNext(now)
  }

  /// The radio is connected and synced. `radioStarted`: the latest moment at which it may have started; `nil`: unknown.
  ///
  /// A channel message that the radio accepted shortly before a restart may not have been transmitted. It is sent again
  /// as the same packet, which nodes that have it drop for a while, at most as often as a direct message.
  public mutating func linkUp(now: MonotonicTime, radioStarted: MonotonicTime? = nil) -> [DeliveryAction] {
    isUp = true
    let actions = repeatCutOff(radioStarted, now)
    for (id, message) in live {
      switch message.phase {
      case .sent(nil): live[id]?.phase = .sent(until: now + DeliverySettings.unknownTimeout)
      // The radio may have restarted, with an empty packet pool.
      case .ready where message.fullTables.failures > 0: live[id]?.phase = .ready(notBefore: nil)
      default: break
      }
    }
    return actions + sendNext(now)
  }

  public mutating func linkDown() { isUp = false }

  /// Another radio is attached: waiting messages are not for it, and its acknowledgements belong to none of them. The
  /// air time of the last hour still counts, because the air is the same.
  public mutating func forgetMessages() {
    (isUp, inHand, budgetWait, waitsForBudget, channelWait) = (false, nil, nil, false, nil)
    (live, paths, shelved, peers) = ([:], [:], [:], [:])
    (discoveries, absences, inTurn, quiet) = ([:], [:], [:], nil)
    (ended, ring) = ([], [])
  }

  /// A path to a node was learnt or lost.
  public mutating func pathChanged(_ key: PublicKey, bytes: Int?, now: MonotonicTime) -> [DeliveryAction] {
    guard isOfInterest(key), paths[key] != bytes else { return [] }
    paths[key] = bytes
    shelved[key] = nil
    for (id, message) in live where message.item.destination == .node(key) { live[id]?.directTries = 0 }
    return sendNext(now)
  }

  private func isOfInterest(_ key: PublicKey) -> Bool {
    discoveries[key] != nil || live.values.contains { $0.item.destination == .node(key) }
  }

  /// Cancels a message: there are no further attempts. An attempt in progress is not aborted.
  public mutating func cancel(_ id: Int64, now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live[id] else { return [] }
    if case .sending = message.phase {
      live[id]?.isCancelled = true
      return []
    }
    return fail(id, .cancelled, now) + sendNext(now)
  }

  public mutating func timedOut(now: MonotonicTime) -> [DeliveryAction] {
    var actions: [DeliveryAction] = []
    for id in live.values.filter({ isDue($0, now) }).map(\.item.id).sorted() { actions += expire(id, now) }
    actions += tryAbsentees(now)
    for place in ended.indices {
      guard let time = ended[place].tellAt, time <= now else { continue }
      actions.append(.heard(id: ended[place].id, count: ended[place].heard))
      ended[place].heard = 0
      ended[place].tellAt = nil
    }
    if isUp { actions += repeatUnheard(now) }
    ended.removeAll { $0.until <= now }
    if isUp {
      for (key, time) in discoveries where time <= now {
        discoveries[key] = nil
        if paths[key] == nil { actions.append(.discoverPath(key)) }
        forgetPath(key)
      }
    }
    return actions + sendNext(now)
  }

  private func isDue(_ message: Live, _ now: MonotonicTime) -> Bool {
    switch message.phase {
    case .sending: false
    case .ready(let time), .sent(let time): message.item.expires <= now || time.map { $0 <= now } ?? false
    case .held: message.item.expires <= now
    }
  }

  private mutating func expire(_ id: Int64, _ now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live[id] else { return [] }
    switch message.phase {
    case .sending: return []
    case .sent(let until?) where isUp && until <= now:
      if message.item.expires <= now { return fail(id, lateness(of: message), now) }
      let (route, hasOthers) = (route(of: message), hasOthersInTurn(message))
      if route == nil || hasOthers && areTurnsOver(message) { return hold(id, now) }
      live[id]?.phase = .ready(notBefore: nil)
      if hasOthers { live[id]?.isOpen = false }
      return [.waiting(id: id)]
    case .sent:
      // An attempt that was transmitted may still be acknowledged, unless the link is down.
      return !isUp && message.item.expires <= now ? fail(id, lateness(of: message), now) : []
    case .held: return message.item.expires <= now ? fail(id, lateness(of: message), now) : []
    case .ready(let time):
      if message.item.expires <= now { return fail(id, lateness(of: message), now) }
      if let time, time <= now { live[id]?.phase = .ready(notBefore: nil) }
      return []
    }
  }

  /// Why the message ends with its lifetime. If it was transmitted, nobody knows whether it has arrived.
  private func lateness(of message: Live) -> DeliveryFailure {
    if message.item.tries > 0 { return .noAcknowledgement }
    return message.fullTables.failures > 0 ? .tableFull : .expired
  }

  /// The route of the next attempt; `nil`: the round has ended.
  func route(of message: Live) -> DeliveryRoute? {
    guard case .node(let key) = message.item.destination else { return .flood }
    let round = message.round
    guard round.tries < round.limit, message.item.attempt < DeliverySettings.lastAttempt else { return nil }
    let hasPath = paths[key] != nil
    // A short round leaves an attempt for the flood.
    let alongPath = round.limit < settings.maxAttempts ? min(1, settings.floodAfter) : settings.floodAfter
    if hasPath, message.directTries < alongPath { return .direct }
    // Whoever was heard just now is there: without a path to it, floods are all that reaches it.
    let isThere = [.sign, .asked].contains(round.kind) && absences[key]?.fruitless ?? 0 == 0
    guard round.floods < (isThere ? max(round.limit, settings.maxFloods) : settings.maxFloods) else { return nil }
    return hasPath ? .resetAndFlood : .flood
  }

  mutating func fail(
    _ id: Int64, _ failure: DeliveryFailure, unspent: Int64 = 0, _ now: MonotonicTime
  ) -> [DeliveryAction] {
    guard let message = live.removeValue(forKey: id) else { return [] }
    if message.item.channel != nil, message.item.tries > 0 || message.mayBeOnAir {
      // The radio has accepted it, or may have: if the message were reported as failed, its sender would send it again.
      remember(Ended(id: id, codes: [], isDelivered: true, until: now + DeliverySettings.grace), now)
      return [.sent(id: id, code: nil, tries: max(1, message.item.tries), floods: max(1, message.item.floods))]
    }
    if message.item.tries > 0 || !message.item.codes.isEmpty {
      remember(
        Ended(id: id, codes: message.item.codes, isDelivered: false, until: now + DeliverySettings.lateGrace), now)
    }
    forget(message.item.destination)
    return [.failed(id: id, failure, unspent: unspent)]
  }

  /// Beyond the limit the oldest is forgotten, and its repeats are no longer counted.
  mutating func remember(_ message: Ended, _ now: MonotonicTime) {
    if ended.count >= DeliverySettings.maxEnded { ended.removeFirst() }
    ended.append(message)
  }

  mutating func forget(_ destination: Destination) {
    if case .node(let key) = destination { forgetPath(key) }
  }

  private mutating func forgetPath(_ key: PublicKey) {
    if !isOfInterest(key) { (paths[key], shelved[key], absences[key], inTurn[key]) = (nil, nil, nil, nil) }
  }
}
