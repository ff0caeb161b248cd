// SPDX-License-Identifier: MIT

import Companion
import Timing

/// Which message goes next.
extension DeliverySession {
  /// Hands over the next message; the radio has at most one at a time.
  mutating func sendNext(_ now: MonotonicTime) -> [DeliveryAction] {
    (budgetWait, waitsForBudget, channelWait) = (nil, false, nil)
    guard isUp, inHand == nil else { return [] }
    if let quiet, quiet.until > now { return [] }
    quiet = nil
    var best: Live?
    var waiting: Set<DeliveryPriority> = []
    var calm: [DeliveryPriority: MonotonicTime] = [:]
    let (taken, flying) = (Set(live.values.filter(\.isOpen).map(\.item.destination)), inFlight)
    let turns = turns(now)
    for message in live.values where isEligible(message, taken, flying, now) {
      if let turn = turns[message.item.destination], message.takesTurns, turn.id != message.item.id { continue }
      guard best.map({ goesBefore(message, $0) }) ?? true else { continue }
      let (priority, courtesy) = (priority(of: message), courtesy(of: message))
      switch budget.fits(cost(message), channel: message.item.channel, priority, now: now) {
      case .some(let time) where time <= now:
        // A round that has begun goes on: others wait for its end.
        let time = message.isOpen ? now : calm[courtesy] ?? manners.next(courtesy, now: now)
        if !message.isOpen { calm[courtesy] = time }
        if time <= now {
          best = message
        } else {
          channelWait = min(channelWait ?? time, time)
          waiting.insert(courtesy)
        }
      case .some(let time):
        budgetWait = min(budgetWait ?? time, time)
        if priority == message.item.priority { waitsForBudget = true }
      case nil: break  // it never fits, so it expires
      }
    }
    guard let best else {
      // A message that cannot be sent for another reason keeps its place.
      let present = manners.isBusy(now: now) ? live.values.filter(\.isReady).map { courtesy(of: $0) } : []
      manners.note(waiting: waiting, present: Set(present), now: now)
      return []
    }
    if !best.isOpen { manners.went(courtesy(of: best), now: now) }
    return transmit(best, now)
  }

  private func isEligible(_ message: Live, _ taken: Set<Destination>, _ flying: Int, _ now: MonotonicTime) -> Bool {
    guard case .ready(let notBefore) = message.phase, notBefore ?? now <= now, message.item.expires > now else {
      return false
    }
    guard message.item.channel == nil else { return true }
    guard radioHasRoom else { return false }
    if message.isOpen { return true }
    return flying < settings.maxInFlight && !taken.contains(message.item.destination) && !isBehindAnother(message)
  }

  /// Whose turn it is, where messages to a recipient take turns: one that may not go now does not keep the others back.
  private func turns(_ now: MonotonicTime) -> [Destination: (tries: Int, id: Int64)] {
    var turns: [Destination: (tries: Int, id: Int64)] = [:]
    for message in live.values where message.takesTurns && mayGo(message, now) {
      let turn = (tries: message.round.tries, id: message.item.id)
      if turns[message.item.destination].map({ turn < $0 }) ?? true { turns[message.item.destination] = turn }
    }
    return turns
  }

  /// Whether the message waits for nothing but others to its recipient, and the radio.
  func mayGo(_ message: Live, _ now: MonotonicTime) -> Bool {
    guard case .ready(let notBefore) = message.phase, notBefore ?? now <= now, message.item.expires > now,
      let time = budget.fits(cost(message), channel: nil, priority(of: message), now: now), time <= now
    else { return false }
    return message.isOpen || manners.next(courtesy(of: message), now: now) <= now
  }

  /// Whether the radio can take another attempt without forgetting an ack code that is still needed.
  private var radioHasRoom: Bool {
    guard ring.count >= DeliverySettings.radioMemory, let oldest = ring.first, let message = live[oldest.id] else {
      return true
    }
    guard case .sent = message.phase else { return true }
    return message.item.attempt != oldest.attempt &+ 1
  }

  /// Orders messages by priority, then by the least recently served source, then by arrival.
  private func goesBefore(_ one: Live, _ other: Live) -> Bool {
    let (first, second) = (priority(of: one), priority(of: other))
    if first != second { return first < second }
    if one.isRepeat != other.isRepeat { return other.isRepeat }
    // So that the oldest messages to absent recipients do not use up the air time of all.
    if let mine = lastTry(one), let theirs = lastTry(other), mine != theirs { return mine < theirs }
    let (mine, theirs) = (served[one.item.origin] ?? 0, served[other.item.origin] ?? 0)
    if mine != theirs { return mine < theirs }
    return one.item.id < other.item.id
  }

  /// When the recipient of a message in a slow round was tried last.
  private func lastTry(_ message: Live) -> MonotonicTime? {
    guard message.round.kind == .slow, !message.isOpen, case .node(let key) = message.item.destination else {
      return nil
    }
    return absences[key]?.tried
  }

  /// How long the message lets others go first on a busy channel. Somebody waits for a held message, too.
  private func courtesy(of message: Live) -> DeliveryPriority {
    // A repeat has no time to wait.
    if message.isRepeat { return message.item.priority }
    return min(priority(of: message), max(message.item.priority, .relayed))
  }

  /// The air time of the next attempt in milliseconds.
  func cost(_ message: Live) -> Int64 {
    guard let radio else { return 0 }
    let item = message.item
    let region = item.isInRegion ?? floodsInRegion ? PacketLength.transportCodes : 0
    let length: Int
    switch item.destination {
    case .channel: length = PacketLength.channelText(item.bytes) + region
    case .node(let key) where route(of: message) == .direct:
      length = PacketLength.text(item.bytes, path: paths[key] ?? 0)
    case .node: length = PacketLength.text(item.bytes, path: 0) + region
    }
    return Int64(Airtime.milliseconds(bytes: length, radio).rounded(.up))
  }

  private mutating func transmit(_ message: Live, _ now: MonotonicTime) -> [DeliveryAction] {
    let id = message.item.id
    guard let route = route(of: message) else { return hold(id, now) + sendNext(now) }
    let airtime = cost(message)
    budget.charge(airtime, channel: message.item.channel, now: now)
    manners.heard(airtime, now: now)
    turn += 1
    if served.count > 256 { served.removeAll() }
    served[message.item.origin] = turn
    inHand = id
    live[id]?.phase = .sending(route)
    live[id]?.charged = airtime
    live[id]?.isOpen = true
    let attempt = message.item.attempt
    // A repeated channel message is the same packet, so it has a single attempt number.
    if message.item.channel == nil { live[id]?.item.attempt += 1 }
    return [.transmit(id: id, attempt: attempt, route: route, airtime: airtime)]
  }
}
