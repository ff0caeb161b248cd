// SPDX-License-Identifier: MIT

import Companion
import Timing

/// A recipient that did not acknowledge a whole round of attempts. Its messages are held until a sign of life, and meanwhile one of them is tried from
/// time to time.
struct Absence: Equatable, Sendable {
  /// Slow rounds in a row that were not acknowledged.
  var rounds: Int
  /// When the next round begins. There always is one, so that no held message is forgotten.
  var next: MonotonicTime
  /// What begins it.
  var kind = Round.Kind.slow
  /// The end of the last round.
  var tried: MonotonicTime
  /// When it began, as far as is known.
  var since: MonotonicTime
  /// Rounds in a row that a sign of life began and that were not acknowledged: the gateway hears the node, and the node perhaps not the gateway.
  var fruitless = 0
  /// The last sign of life.
  var sign: MonotonicTime?
}

/// A series of attempts to send one message.
struct Round: Equatable, Sendable {
  /// What begins it. A later one is begun in place of an earlier one that waits for air time.
  enum Kind: Comparable, Sendable {
    /// Somebody was heard who may be the recipient: one attempt.
    case hint
    /// The pause is over.
    case slow
    /// A newer message has come: one attempt of the oldest goes ahead of it.
    case ahead
    /// The recipient's radio was certainly heard, or has acknowledged another message. Its messages take turns, attempt by attempt: more of them have come
    /// when the first acknowledgement gets through.
    case sign
    /// Somebody asks for it. It takes turns, too.
    case asked
    /// The message has come.
    case first
  }

  var kind = Kind.first
  /// The attempts that were made, and the flooded ones among them.
  var tries = 0
  var floods = 0
  var limit: Int
}

/// A sign that a node may receive.
public enum SignOfLife: Sendable {
  /// The node's radio was heard: its advert, its message, its answer.
  case certain
  /// A packet that another node may have sent: the hash of its sender is one byte, and names are not unique.
  case hint
}

extension DeliverySession {
  // MARK: Queries

  /// Recipients whose messages wait for a sign of life.
  public var absentees: [PublicKey] { Array(absences.keys) }
  public var hasAbsentees: Bool { !absences.isEmpty }

  /// The number of messages that wait for a sign of life of their recipients.
  public var held: Int { live.values.count { $0.phase == .held } }

  /// When a held message may be tried next, at the latest; `nil`: it is not held.
  public func nextAttempt(of id: Int64) -> MonotonicTime? {
    guard let message = live[id], message.phase == .held, case .node(let key) = message.item.destination else {
      return nil
    }
    return absences[key].map { min($0.next, message.item.expires) }
  }

  /// Whether the message was held before, and is tried again in vain so far.
  public func isInLaterRound(_ id: Int64) -> Bool { live[id].map { $0.round.kind != .first } ?? false }

  /// Whether the message waits for nothing but air time: the hour's is used up, or the share of it for what may be in vain.
  public func waitsForAirtime(_ id: Int64, now: MonotonicTime) -> Bool {
    guard let message = live[id], message.isReady,
      let time = budget.fits(cost(message), channel: message.item.channel, priority(of: message), now: now)
    else { return false }
    return time > now
  }

  /// Whether a message to this node was transmitted and has not ended.
  public func hasTransmitted(to key: PublicKey) -> Bool { live.values.contains { Self.wasTransmitted($0, to: key) } }

  /// The messages to this node that were transmitted and have not ended.
  public func transmitted(to key: PublicKey) -> [Int64] {
    live.compactMap { Self.wasTransmitted($0.value, to: key) ? $0.key : nil }
  }

  private static func wasTransmitted(_ message: Live, to key: PublicKey) -> Bool {
    message.item.destination == .node(key) && message.item.tries > 0
  }

  /// The number of messages that wait for this recipient, if it does not acknowledge.
  public func waiting(for key: PublicKey) -> Int {
    absences[key] == nil ? 0 : live.values.count { $0.item.destination == .node(key) }
  }

  // MARK: Rounds

  /// The round has ended without an acknowledgement. Other messages to that recipient that have had a round wait, too.
  mutating func hold(_ id: Int64, _ now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live[id], case .node(let key) = message.item.destination else { return [] }
    let wasAway = absences[key] != nil
    var absence = absences[key] ?? Absence(rounds: 0, next: now, tried: now, since: now)
    var isFruitless = false
    switch message.round.kind {
    // Somebody wants something of it again.
    case .first: absence.rounds = min(absence.rounds, DeliverySettings.slowPauses.count - 1)
    case .ahead, .asked: break
    case .slow: absence.rounds += 1
    case .sign, .hint: isFruitless = wasAway
    }
    // It may have come back after the attempt was sent.
    let wasHeard = absence.kind == .sign
    (absence.tried, absence.kind) = (now, .slow)
    absence.next = now + pause(after: absence.rounds, key, now)
    var actions = [put(aside: id)]
    for other in live.keys.sorted() {
      guard let waiting = live[other], waiting.item.destination == message.item.destination, !waiting.isOpen,
        case .ready = waiting.phase
      else { continue }
      // It has its turn next, but a post does not go before an older one.
      if waiting.takesTurns, !areTurnsOver(waiting) { continue }
      if waiting.item.tries > 0 || waiting.item.isOrdered {
        actions.append(put(aside: other))
      } else {
        live[other]?.round.limit = 1
      }
    }
    // The messages that take turns are one round.
    if !hasOthersInTurn(message) {
      if isFruitless { absence.fruitless += 1 }
      actions += putPathBack(to: key)
    }
    let time = now + leastPause(DeliverySettings.leastPause, absence)
    if wasHeard, absence.fruitless == 0 || time < absence.next {
      (absence.next, absence.kind) = (min(time, absence.next), .sign)
    }
    absences[key] = absence
    return actions
  }

  private mutating func put(aside id: Int64) -> DeliveryAction {
    live[id]?.phase = .held
    live[id]?.isOpen = false
    return .held(id: id, isFirst: live[id]?.round.kind == .first)
  }

  /// The pause after this many slow rounds, with a jitter of a fifth. A node that was heard of late has hardly left: packets were lost.
  private mutating func pause(after rounds: Int, _ key: PublicKey, _ now: MonotonicTime) -> Duration {
    let isNear = peers[key]?.heardAt.map { now - $0 <= DeliverySettings.late } ?? false
    let pauses = isNear ? DeliverySettings.shortPauses : DeliverySettings.slowPauses
    let rarest = max(DeliverySettings.longestPause, evenPause(to: key, now))
    let pause =
      rounds < pauses.count
      ? pauses[rounds]
      : isNear
        ? DeliverySettings.slowPauses.last ?? .zero
        : rounds < DeliverySettings.hourlyRounds ? DeliverySettings.hourlyPause : rarest
    let milliseconds = min(pause, longestPause(to: key, now)).wholeNanoseconds / 1_000_000
    return .milliseconds(Int64.random(in: milliseconds * 4 / 5...milliseconds * 6 / 5, using: &random))
  }

  /// The pause with which the numbers of the attempts last until the lifetime of a message to this recipient ends: of several messages, that of the one
  /// that has most left.
  private func evenPause(to key: PublicKey, _ now: MonotonicTime) -> Duration {
    let inRound = max(1, min(DeliverySettings.slowAttempts, settings.maxAttempts))
    let waiting = live.values.filter {
      $0.item.destination == .node(key) && $0.item.attempt < DeliverySettings.lastAttempt
    }
    // Each round tries one of them, in turns; but the oldest post has all rounds.
    let sharing = waiting.contains { $0.item.isOrdered } ? 1 : waiting.count
    let pauses = waiting.map { (message) -> Duration in
      let rounds = Int(DeliverySettings.lastAttempt - message.item.attempt) / inRound * sharing
      return (message.item.expires - now) / (rounds + 1)
    }
    return pauses.min() ?? .zero
  }

  /// Half of what is left of the message to this recipient that ends first, so that none is left alone for much of its lifetime. Where messages end one after
  /// the other that is always little: so the longer the absence has lasted, the less it shortens.
  private func longestPause(to key: PublicKey, _ now: MonotonicTime) -> Duration {
    let ends = live.values.filter { $0.item.destination == .node(key) }.map(\.item.expires)
    let half = ((ends.min() ?? .never) - now).wholeNanoseconds / 2
    let part = absences[key].map { (now - $0.since).wholeNanoseconds / DeliverySettings.partsOfAbsence } ?? 0
    return max(DeliverySettings.leastShortened, .nanoseconds(max(half, part)))
  }

  /// Messages that were held when the program ended.
  mutating func resume(_ item: DeliveryItem, _ key: PublicKey, _ now: MonotonicTime) {
    guard absences[key] == nil else { return }
    // The longest pauses begin anew: nobody knows how long the program did not run.
    let made = max(0, item.tries - settings.maxAttempts) / DeliverySettings.slowAttempts
    let rounds = min(made, DeliverySettings.slowPauses.count)
    let next = min(pause(after: rounds, key, now), pause(after: 1, key, now))
    absences[key] = Absence(rounds: rounds, next: now + next, tried: now, since: now)
  }

  /// Begins the rounds that are due.
  mutating func tryAbsentees(_ now: MonotonicTime) -> [DeliveryAction] {
    guard isUp else { return [] }
    let due = absences.filter { $0.value.next <= now }.keys
    return due.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
      .flatMap { key in begin(absences[key]?.kind ?? .slow, key, now) }
  }

  /// Tries one held message of this recipient: the oldest, but none so often that it keeps the others back.
  mutating func begin(_ kind: Round.Kind, _ key: PublicKey, _ now: MonotonicTime) -> [DeliveryAction] {
    guard let rounds = absences[key]?.rounds else { return [] }
    let next = now + pause(after: rounds, key, now)
    absences[key]?.next = next
    let messages = live.values.filter { $0.item.destination == .node(key) }.sorted { $0.item.id < $1.item.id }
    guard !messages.contains(where: { !isPutOff($0, by: kind) && goesByItself($0) }) else { return [] }
    // A sign that came while another round goes on, or that this one does not answer, is answered after it.
    if kind >= absences[key]?.kind ?? .slow { absences[key]?.kind = .slow }
    let waiting = messages.filter { isPutOff($0, by: kind) && canEverGo($0) }
    let isByAge = kind != .slow || waiting.contains { $0.item.isOrdered }
    func share(_ message: Live) -> UInt8 { isByAge ? 0 : message.item.attempt / DeliverySettings.attemptsInTurn }
    guard let chosen = waiting.min(by: { (share($0), $0.item.id) < (share($1), $1.item.id) }) else { return [] }
    for message in waiting { live[message.item.id]?.phase = .held }
    switch kind {
    case .first, .sign, .asked:
      releaseInTurns(waiting, chosen)
      inTurn[key] = 0
    case .slow:
      release(chosen.item.id, Round(kind: kind, limit: min(DeliverySettings.slowAttempts, settings.maxAttempts)))
    case .hint, .ahead: release(chosen.item.id, Round(kind: kind, limit: 1))
    }
    return waiting.filter { $0.isReady && live[$0.item.id]?.phase == .held }.map { put(aside: $0.item.id) }
  }

  /// Whether a round of this kind may begin with the message: it is held, or waits in a round that matters less, perhaps long, for air time.
  private func isPutOff(_ message: Live, by kind: Round.Kind) -> Bool {
    message.phase == .held || message.isReady && !message.isOpen && message.round.kind < kind
  }

  /// Whether the message has a time at which it goes on, so that others to its recipient may wait for it.
  private func goesByItself(_ message: Live) -> Bool {
    switch message.phase {
    case .held: false
    case .sending, .sent: true
    case .ready: message.isOpen || canEverGo(message) && !isBehindAnother(message)
    }
  }

  /// Whether another attempt is possible. If not, nothing waits for the message.
  private func canEverGo(_ message: Live) -> Bool {
    message.item.attempt < DeliverySettings.lastAttempt
      && budget.canFit(cost(message), message.item.priority)
  }

  /// Whether the message is a post that waits for an older one.
  func isBehindAnother(_ message: Live) -> Bool {
    message.item.isOrdered && live.values.contains { $0.item.isBefore(message.item) && canEverGo($0) }
  }

  /// A round that several messages share, the oldest first. Posts have an order, so one has it alone.
  private mutating func releaseInTurns(_ held: [Live], _ oldest: Live) {
    let most = held.contains { $0.item.isOrdered } ? 1 : DeliverySettings.mostInTurn
    let some = most == 1 ? [oldest] : Array(held.prefix(min(most, settings.maxAttempts)))
    let attempts = max(settings.maxAttempts, min(2 * some.count, DeliverySettings.mostAttemptsInTurn))
    for (place, message) in some.enumerated() {
      let limit = attempts / some.count + (place < attempts % some.count ? 1 : 0)
      release(message.item.id, Round(kind: .sign, limit: min(limit, settings.maxAttempts)))
    }
  }

  /// Whether other messages to the same recipient take turns with this one, and there is one of this kind among them.
  func hasOthersInTurn(_ message: Live, where isMeant: (Live) -> Bool = { _ in true }) -> Bool {
    message.takesTurns
      && live.values.contains {
        $0.item.id != message.item.id && $0.item.destination == message.item.destination && $0.takesTurns && $0.isReady
          && isMeant($0)
      }
  }

  /// Whether the recipient's messages have had their attempts, and wait again. What somebody asks for has its own.
  func areTurnsOver(_ message: Live) -> Bool {
    guard message.round.kind == .sign, case .node(let key) = message.item.destination else { return false }
    return inTurn[key] ?? 0 >= max(settings.maxAttempts, DeliverySettings.mostAttemptsInTurn)
  }

  private mutating func release(_ id: Int64, _ round: Round) {
    live[id]?.phase = .ready(notBefore: nil)
    live[id]?.round = round
    live[id]?.directTries = 0
  }

  /// The recipient has acknowledged a message: all others go out, the oldest first.
  mutating func isThere(_ key: PublicKey) {
    inTurn[key] = 0
    guard absences.removeValue(forKey: key) != nil else { return }
    for (id, message) in live where message.item.destination == .node(key) {
      if message.phase == .held || message.isReady && message.round.kind != .first {
        let isAsked = message.isReady && message.round.kind == .asked
        release(id, Round(kind: isAsked ? .asked : .sign, limit: settings.maxAttempts))
      }
      if message.item.tries == 0 { live[id]?.round.limit = settings.maxAttempts }
    }
  }

  // MARK: Signs of life

  /// A sign of life brings the next round forward. If the rounds that it began were fruitless, they become rarer.
  public mutating func heard(_ key: PublicKey, _ sign: SignOfLife, now: MonotonicTime) -> [DeliveryAction] {
    if sign == .certain, peers[key] != nil || absences[key] != nil { learn(key) { $0.heardAt = now } }
    guard isUp, var absence = absences[key] else { return [] }
    if sign == .certain {
      if absence.sign.map({ now - $0 >= DeliverySettings.longestFruitless }) ?? true { absence.fruitless = 0 }
      if absence.fruitless == 0 { absence.rounds = 0 }
      absence.sign = now
    }
    let pause = leastPause(
      sign == .certain ? DeliverySettings.leastPause : DeliverySettings.leastHintPause, absence)
    // The node, or a repeater of its packet, is still sending.
    let soon = now + .milliseconds(Int64.random(in: 1000...3000, using: &random))
    let time = max(absence.tried + pause, soon)
    if time < absence.next || absence.kind == .hint && sign == .certain {
      (absence.next, absence.kind) = (min(time, absence.next), sign == .certain ? .sign : .hint)
    }
    absences[key] = absence
    return []
  }

  /// The pause between a round and one that a sign begins.
  private func leastPause(_ first: Duration, _ absence: Absence) -> Duration {
    min(first * (1 << min(absence.fruitless, 10)), DeliverySettings.longestFruitless)
  }

  /// Ends a held message: no further attempt can succeed.
  public mutating func giveUp(_ id: Int64, now: MonotonicTime) -> [DeliveryAction] {
    fail(id, .noAcknowledgement, now) + sendNext(now)
  }

  /// A plain acknowledgement was heard on the air. The radio has forgotten the code of a held message by now, or will report it, too.
  public mutating func overheard(_ code: AckCode, now: MonotonicTime) -> [DeliveryAction] {
    guard live.values.contains(where: { $0.phase == .held && $0.item.codes.contains(code) }) else { return [] }
    return acknowledged(code, tripTime: 0, now: now)
  }

  /// Tries a held message now: somebody asks for it. Of posts the oldest is tried, as no other one may go before it.
  public mutating func tryNow(_ id: Int64, now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live[id] else { return [] }
    let first = live.values.filter {
      ($0.item.id == id || message.item.isOrdered && $0.item.isBefore(message.item))
        && isPutOff($0, by: .asked) && canEverGo($0)
    }.min { $0.item.id < $1.item.id }
    guard let first else { return [] }
    release(first.item.id, Round(kind: .asked, limit: settings.maxAttempts))
    return sendNext(now)
  }

  /// Rounds that may be in vain begin only with the air time that background work may use. One that has begun goes on: other messages to that recipient
  /// wait for its end.
  func priority(of message: Live) -> DeliveryPriority {
    if message.isOpen { return message.item.priority }
    switch message.round.kind {
    // It leaves air time to new messages.
    case .first where message.isRepeat: break
    case .first, .ahead, .asked: return message.item.priority
    case .slow, .hint: break
    case .sign:
      guard case .node(let key) = message.item.destination, absences[key]?.fruitless ?? 0 > 0 else {
        return message.item.priority
      }
    }
    // One that is too long for it is still tried.
    return budget.canFit(cost(message), .bulk) ? .bulk : message.item.priority
  }
}
