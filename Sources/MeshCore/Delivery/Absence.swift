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
  /// Rounds in a row that a sign of life began and that were not acknowledged: the gateway hears the node, and the node perhaps not the gateway.
  var fruitless = 0
  /// The last sign of life.
  var sign: MonotonicTime?
}

/// A series of attempts to send one message.
struct Round: Equatable, Sendable {
  enum Kind: Equatable, Sendable {
    /// The message has come, or its recipient has acknowledged another one.
    case first
    /// The pause is over.
    case slow
    /// The recipient's radio was certainly heard.
    case sign
    /// Somebody was heard who may be the recipient: one attempt.
    case hint
    /// A newer message has come: one attempt of the oldest goes ahead of it.
    case ahead
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

  /// Whether a message to this node was transmitted and has not ended.
  public func hasTransmitted(to key: PublicKey) -> Bool {
    live.values.contains { $0.item.destination == .node(key) && $0.item.tries > 0 }
  }

  /// The number of messages that wait for this recipient, if it does not acknowledge.
  public func waiting(for key: PublicKey) -> Int {
    absences[key] == nil ? 0 : live.values.count { $0.item.destination == .node(key) }
  }

  // MARK: Rounds

  /// The round has ended without an acknowledgement. Other messages to that recipient that have had a round wait, too.
  mutating func hold(_ id: Int64, _ now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live[id], case .node(let key) = message.item.destination else { return [] }
    var absence = absences[key] ?? Absence(rounds: 0, next: now, tried: now)
    switch message.round.kind {
    // Somebody wants something of it again.
    case .first: absence.rounds = min(absence.rounds, DeliverySettings.slowPauses.count - 1)
    case .ahead: break
    case .slow: absence.rounds += 1
    case .sign, .hint: absence.fruitless += 1
    }
    (absence.tried, absence.kind) = (now, .slow)
    absence.next = now + pause(after: absence.rounds, key, now)
    absences[key] = absence
    var actions = [put(aside: id)] + putPathBack(to: key)
    for other in live.keys.sorted() {
      guard let waiting = live[other], waiting.item.destination == message.item.destination, !waiting.isOpen,
        case .ready = waiting.phase
      else { continue }
      // Somebody has asked for it meanwhile: it has its turn next.
      if waiting.round.kind == .sign { continue }
      if waiting.item.tries > 0 || waiting.item.isOrdered {
        actions.append(put(aside: other))
      } else {
        live[other]?.round.limit = 1
      }
    }
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
    let pause =
      rounds < pauses.count
      ? pauses[rounds]
      : isNear
        ? DeliverySettings.slowPauses.last ?? .zero
        : rounds < DeliverySettings.hourlyRounds ? DeliverySettings.hourlyPause : DeliverySettings.longestPause
    let milliseconds = pause.wholeNanoseconds / 1_000_000
    return .milliseconds(Int64.random(in: milliseconds * 4 / 5...milliseconds * 6 / 5, using: &random))
  }

  /// Messages that were held when the program ended.
  mutating func resume(_ item: DeliveryItem, _ key: PublicKey, _ now: MonotonicTime) {
    guard absences[key] == nil else { return }
    // The longest pauses begin anew: nobody knows how long the program did not run.
    let made = max(0, item.tries - settings.maxAttempts) / DeliverySettings.slowAttempts
    let rounds = min(made, DeliverySettings.slowPauses.count)
    let next = min(pause(after: rounds, key, now), pause(after: 1, key, now))
    absences[key] = Absence(rounds: rounds, next: now + next, tried: now)
  }

  /// Begins the rounds that are due.
  mutating func tryAbsentees(_ now: MonotonicTime) {
    guard isUp else { return }
    let due = absences.filter { $0.value.next <= now }.keys
    for key in due.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
      begin(absences[key]?.kind ?? .slow, key, now)
    }
  }

  /// Tries one held message of this recipient: the oldest, but none so often that it keeps the others back.
  mutating func begin(_ kind: Round.Kind, _ key: PublicKey, _ now: MonotonicTime) {
    guard let rounds = absences[key]?.rounds else { return }
    let next = now + pause(after: rounds, key, now)
    absences[key]?.next = next
    absences[key]?.kind = .slow
    let messages = live.values.filter { $0.item.destination == .node(key) }
    guard messages.allSatisfy({ $0.phase == .held }) else { return }
    let held = messages.filter { $0.item.attempt < DeliverySettings.lastAttempt }
    let isByAge = kind != .slow || held.contains { $0.item.isOrdered }
    func share(_ message: Live) -> UInt8 { isByAge ? 0 : message.item.attempt / DeliverySettings.attemptsInTurn }
    let chosen = held.min { (share($0), $0.item.id) < (share($1), $1.item.id) }
    guard let id = chosen?.item.id else { return }
    release(id, Round(kind: kind, limit: attempts(in: kind)))
  }

  func attempts(in kind: Round.Kind) -> Int {
    switch kind {
    case .first, .sign: settings.maxAttempts
    case .slow: min(DeliverySettings.slowAttempts, settings.maxAttempts)
    case .hint, .ahead: 1
    }
  }

  private mutating func release(_ id: Int64, _ round: Round) {
    live[id]?.phase = .ready(notBefore: nil)
    live[id]?.round = round
    live[id]?.directTries = 0
  }

  /// The recipient has acknowledged a message: all others go out, the oldest first.
  mutating func isThere(_ key: PublicKey) {
    guard absences.removeValue(forKey: key) != nil else { return }
    for (id, message) in live where message.item.destination == .node(key) {
      if message.phase == .held { release(id, Round(limit: settings.maxAttempts)) }
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
    let least = sign == .certain ? DeliverySettings.leastPause : DeliverySettings.leastHintPause
    let pause = min(least * (1 << min(absence.fruitless, 10)), DeliverySettings.longestFruitless)
    // The node, or a repeater of its packet, is still sending.
    let soon = now + .milliseconds(Int64.random(in: 1000...3000, using: &random))
    let time = max(absence.tried + pause, soon)
    if time < absence.next || absence.kind == .hint && sign == .certain {
      (absence.next, absence.kind) = (min(time, absence.next), sign == .certain ? .sign : .hint)
    }
    absences[key] = absence
    return []
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

  /// Tries a held message now: somebody asks for it.
  public mutating func tryNow(_ id: Int64, now: MonotonicTime) -> [DeliveryAction] {
    guard let message = live[id], message.phase == .held else { return [] }
    release(id, Round(kind: .sign, limit: settings.maxAttempts))
    return sendNext(now)
  }

  /// Rounds that may be in vain begin only with the air time that background work may use. One that has begun goes on: other messages to that recipient
  /// wait for its end.
  func priority(of message: Live) -> DeliveryPriority {
    if message.isOpen { return message.item.priority }
    switch message.round.kind {
    case .first, .ahead: return message.item.priority
    case .slow, .hint: return max(message.item.priority, .bulk)
    case .sign:
      guard case .node(let key) = message.item.destination, absences[key]?.fruitless ?? 0 > 0 else {
        return message.item.priority
      }
      return max(message.item.priority, .bulk)
    }
  }
}
