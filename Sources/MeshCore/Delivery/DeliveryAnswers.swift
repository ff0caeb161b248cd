// SPDX-License-Identifier: MIT

import Companion
import Timing

extension DeliverySession {
  /// Sets the ack code of the current attempt before it is sent, so that a fast acknowledgement is recognised.
  public mutating func expect(_ code: AckCode, for id: Int64) {
    guard live[id]?.item.codes.contains(code) == false else { return }
    live[id]?.item.codes.append(code)
  }

  /// Whether the code is of another message that waits, so that the radio's answer with it was late.
  public func isOfAnother(_ code: AckCode, than id: Int64) -> Bool {
    live.values.contains { $0.item.id != id && $0.item.codes.contains(code) }
      || ended.contains { $0.id != id && $0.codes.contains(code) }
  }

  /// The result of a `transmit`.
  public mutating func answered(_ id: Int64, _ answer: DeliveryAnswer, now: MonotonicTime) -> [DeliveryAction] {
    guard inHand == id else { return [] }
    inHand = nil
    guard let message = live[id], case .sending(let route) = message.phase else {
      // The acknowledgement came before the radio's reply: only the model of the radio's ack memory needs an update.
      occupyRing(id, 0)
      return sendNext(now)
    }
    let actions =
      switch answer {
      case .sent(let code, let flooded, let timeout): sent(id, code, flooded, timeout, now)
      case .channelSent: channelSent(id, now)
      case .unanswered: unanswered(id, route, now)
      case .linkLost: interrupted(id, now)
      case .busy, .notTried: again(id, answer, now)
      case .unknown where message.wasHeld: again(id, .notTried, now) + hold(id, now)
      case .unknown: fail(id, .unknownToRadio, unspent: giveBack(id), now)
      case .regionUnknown: fail(id, .regionUnknown, unspent: giveBack(id), now)
      case .heardByRadio: fail(id, .heardByRadio, unspent: giveBack(id), now)
      case .beforeRestore: fail(id, .beforeRestore, unspent: giveBack(id), now)
      case .tooOld: fail(id, .noAcknowledgement, unspent: giveBack(id), now)
      case .refused: fail(id, .refused, unspent: giveBack(id), now)
      }
    return actions + (live[id]?.isCancelled == true ? fail(id, .cancelled, now) : []) + sendNext(now)
  }

  private mutating func sent(
    _ id: Int64, _ code: AckCode, _ flooded: Bool, _ timeout: UInt32, _ now: MonotonicTime
  ) -> [DeliveryAction] {
    expect(code, for: id)
    count(id, flooded)
    _ = accepted(live[id]?.charged ?? 0, now)
    let suggested = min(max(1000, (Double(timeout) * settings.timeoutFactor).rounded()), 3_600_000)
    let wait = patience(of: id, suggested, flooded)
    live[id]?.phase = .sent(until: now + .milliseconds(Int64(wait)))
    keepQuiet(for: id, flooded, atMost: wait, now)
    // A late acknowledgement counts all the same, so the next one in turn need not wait for it.
    if let quiet, let message = live[id], hasOthersInTurn(message, where: { mayGo($0, now) }) {
      live[id]?.phase = .sent(until: min(now + .milliseconds(Int64(wait)), quiet.until))
    }
    guard let item = live[id]?.item else { return [] }
    return [.sent(id: id, code: code, tries: item.tries, floods: item.floods)]
  }

  /// Milliseconds. After an attempt that had no answer, the radio's own suggestion counts: the mesh may be busier now.
  private func patience(of id: Int64, _ suggested: Double, _ flooded: Bool) -> Double {
    guard let message = live[id], case .node(let key) = message.item.destination, message.round.tries % 2 == 1 else {
      return suggested
    }
    return peers[key]?.patience(suggested: suggested, airtime: message.charged, flooded: flooded) ?? suggested
  }

  /// An attempt is on the air.
  private mutating func count(_ id: Int64, _ flooded: Bool) {
    guard var message = live[id] else { return }
    message.item.tries += 1
    message.round.tries += 1
    if flooded { (message.item.floods, message.round.floods) = (message.item.floods + 1, message.round.floods + 1) }
    if !flooded { message.directTries += 1 }
    message.lastRoute = flooded ? .flood : .direct
    message.refusals.reset()
    message.fullTables.reset()
    live[id] = message
    if case .node(let key) = message.item.destination {
      inTurn[key]? += 1
      if flooded { floodTookPath(to: key) }
    }
    occupyRing(id, message.item.attempt &- 1)
  }

  private mutating func channelSent(_ id: Int64, _ now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live.removeValue(forKey: id) else { return [] }
    let out = accepted(message.charged, now)
    var item = message.item
    (item.tries, item.floods) = (item.tries + 1, item.floods + 1)
    // From the first time on: whoever has it does not note it again.
    item.expires = min(item.expires, now + DeliverySettings.duplicatesKnown)
    var ended = Ended(id: id, codes: [], isDelivered: true, until: now + DeliverySettings.grace)
    ended.atRadio = .init(item: item, at: now, out: out)
    remember(ended, now)
    return [.sent(id: id, code: nil, tries: item.tries, floods: item.floods)]
  }

  /// It is unknown whether the attempt was transmitted: it counts, and its acknowledgement is awaited.
  private mutating func unanswered(_ id: Int64, _ route: DeliveryRoute, _ now: MonotonicTime) -> [DeliveryAction] {
    guard live[id]?.item.channel == nil else { return again(id, .unanswered, now) }
    count(id, route.isFlood)
    live[id]?.phase = .sent(until: now + DeliverySettings.unknownTimeout)
    return []
  }

  /// The link was lost: outstanding acknowledgements are awaited once it is back. The current attempt does not count in
  /// its round, as it was probably not sent.
  private mutating func interrupted(_ id: Int64, _ now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live[id], message.item.channel == nil else { return again(id, .linkLost, now) }
    live[id]?.phase = .sent(until: isUp ? now + DeliverySettings.unknownTimeout : nil)
    live[id]?.item.tries += 1
    occupyRing(id, message.item.attempt &- 1)
    return []
  }

  private mutating func occupyRing(_ id: Int64, _ attempt: UInt8) {
    ring.append((id, attempt))
    if ring.count > DeliverySettings.radioMemory { ring.removeFirst() }
  }

  /// Repeats the attempt after a pause. If nothing was transmitted for certain, its air time is given back and its
  /// number is free again.
  private mutating func again(_ id: Int64, _ answer: DeliveryAnswer, _ now: MonotonicTime) -> [DeliveryAction] {
    guard var message = live[id] else { return [] }
    let wait =
      answer == .busy ? message.fullTables.next(using: &random) : message.refusals.next(using: &random)
    message.phase = .ready(notBefore: now + wait)
    message.isOpen = message.item.tries > 0 && message.item.channel == nil && !hasOthersInTurn(message)
    let isUnsent = answer == .busy || answer == .notTried
    if !isUnsent, message.item.channel != nil { message.mayBeOnAir = true }
    if isUnsent, message.item.channel == nil { message.item.attempt -= 1 }
    live[id] = message
    return [.waiting(id: id, unspent: isUnsent ? giveBack(id) : 0)]
  }

  /// Whether a waiting channel message may have been transmitted: the radio did not answer.
  public func mayBeOnAir(_ id: Int64) -> Bool { live[id]?.mayBeOnAir ?? false }

  /// How often in a row the radio's packet pool was full for this message, and the time of the next attempt, if there
  /// is one. `nil`: the radio has accepted it, or was not asked.
  public func refusals(of id: Int64) -> (count: Int, next: MonotonicTime?)? {
    guard let message = live[id], message.fullTables.failures > 0 else { return nil }
    guard case .ready(let next?) = message.phase, next < message.item.expires else {
      return (message.fullTables.failures, nil)
    }
    return (message.fullTables.failures, next)
  }

  /// Nothing was transmitted: returns the reserved air time to the budget. The result is that time in milliseconds.
  private mutating func giveBack(_ id: Int64) -> Int64 {
    guard let message = live[id] else { return 0 }
    budget.giveBack(message.charged, channel: message.item.channel)
    return message.charged
  }

  /// Whether the acknowledgement belongs to a message that is still remembered.
  public func knows(_ code: AckCode) -> Bool {
    live.values.contains { $0.item.codes.contains(code) } || ended.contains { $0.codes.contains(code) }
  }

  /// SEND_CONFIRMED, for any attempt.
  public mutating func acknowledged(_ code: AckCode, tripTime: UInt32, now: MonotonicTime) -> [DeliveryAction] {
    if let message = live.values.first(where: { $0.item.codes.contains(code) }) {
      learn(from: code, message, tripTime, now)
      return delivered(message, tripTime, now) + sendNext(now)
    }
    guard let place = ended.lastIndex(where: { $0.codes.contains(code) }) else { return [] }
    if ended[place].isDelivered {
      ended[place].hear(now)
      return []
    }
    ended[place].isDelivered = true
    ended[place].until = now + DeliverySettings.grace
    return [.delivered(id: ended[place].id, tripTime: tripTime)]
  }

  /// The time for the packet, its repetitions, the acknowledgement, and its repetitions, as multiples of the packet's air time.
  private mutating func keepQuiet(for id: Int64, _ flooded: Bool, atMost wait: Double, _ now: MonotonicTime) {
    guard let message = live[id], message.charged > 0, case .node(let key) = message.item.destination else { return }
    let multiple = flooded ? 6 : min(8, 2 + 2.5 * Double(paths[key] ?? 0))
    quiet = (now + .milliseconds(Int64(min(wait, 500 + multiple * Double(message.charged)))), id)
  }

  private mutating func learn(from code: AckCode, _ message: Live, _ tripTime: UInt32, _ now: MonotonicTime) {
    guard case .node(let key) = message.item.destination else { return }
    let isLast = code == message.item.codes.last
    learn(key) { peer in
      (peer.heardAt, peer.restored) = (now, 0)
      guard isLast, let route = message.lastRoute else { return }
      peer.acknowledged(after: tripTime, airtime: message.charged, flooded: route.isFlood)
    }
  }

  private mutating func delivered(_ message: Live, _ tripTime: UInt32, _ now: MonotonicTime) -> [DeliveryAction] {
    let id = message.item.id
    live[id] = nil
    if quiet?.id == id { quiet = nil }
    remember(Ended(id: id, codes: message.item.codes, isDelivered: true, until: now + DeliverySettings.grace), now)
    if case .node(let key) = message.item.destination, settings.discoversPaths, message.lastRoute == .flood,
      paths[key] == nil, discoveries.count < DeliverySettings.maxEnded
    {
      discoveries[key] = now + DeliverySettings.discoveryDelay
    }
    if case .node(let key) = message.item.destination { isThere(key) }
    forget(message.item.destination)
    return [.delivered(id: id, tripTime: tripTime)]
  }

  /// A repeater's repetition of a sent channel message was heard.
  public mutating func heardRepeat(of id: Int64, now: MonotonicTime) {
    guard let place = ended.lastIndex(where: { $0.id == id }) else { return }
    ended[place].hear(now)
  }

  /// Changes the limits; attempts in progress continue.
  public mutating func change(_ settings: DeliverySettings, now: MonotonicTime) -> [DeliveryAction] {
    self.settings = settings
    budget.limits = settings.budget
    manners.limit = settings.busyPercent
    return sendNext(now)
  }

  /// Returns unused air time that `spend` reserved.
  public mutating func giveBack(
    _ airtime: Int64, channel: String? = nil, now: MonotonicTime
  ) -> [DeliveryAction] {
    budget.giveBack(airtime, channel: channel)
    return sendNext(now)
  }

  /// Reserves air time for a packet that is not a message. False: the budget has no room now.
  public mutating func spend(
    _ airtime: Int64, _ priority: DeliveryPriority, channel: String? = nil, now: MonotonicTime
  ) -> Bool {
    guard let time = budget.fits(airtime, channel: channel, priority, now: now), time <= now else { return false }
    budget.charge(airtime, channel: channel, now: now)
    manners.heard(airtime, now: now)
    return true
  }

  /// The radio has heard a packet. Nothing is decided: what waits looks again when its time comes.
  public mutating func heardPacket(_ milliseconds: Int64, now: MonotonicTime) {
    manners.heard(milliseconds, now: now)
    if isUp { radioRanAt = now }
  }

  /// How busy the channel was when the program ended: what waited for it waits on.
  public mutating func recallChannel(percent: Double, age: Duration, now: MonotonicTime) {
    manners.recall(percent: percent, age: age, now: now)
  }

  /// Something other than a message goes out on a busy channel.
  public mutating func wentImpatiently(_ priority: DeliveryPriority, now: MonotonicTime) {
    manners.went(priority, now: now)
  }
}
