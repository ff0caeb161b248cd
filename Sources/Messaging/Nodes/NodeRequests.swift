// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import RadioSession
import Store
import Sync
import Timing

/// Questions to other nodes, one at a time: the radio forgets the first when it gets a second (companion.md § 9.8).
///
/// Silence is the only error that servers know. Bound: 32 wait; further ones are refused.
public final class NodeRequests {
  public typealias Done = (Result<NodeAnswer, Refusal>) -> Void

  private struct Waiting {
    let question: NodeQuestion
    let contact: Contact
    let priority: DeliveryPriority
    let done: Done
  }

  /// Whose turn it is to ask.
  private enum Turn {
    case ours(Waiting)
    /// A program that shares the radio asks; it says when it has its answer.
    case foreign((_ release: @escaping () -> Void) -> Void)

    var priority: DeliveryPriority {
      switch self {
      case .ours(let waiting): waiting.priority
      case .foreign: .interactive
      }
    }
  }

  private enum Current {
    case ours(Asked)
    /// The number tells a late release from the present one.
    case foreign(UInt64)
  }

  private struct Asked {
    let waiting: Waiting
    /// What the answer carries; known when the radio has taken the question.
    var tag: AckCode?
    var timer: LoopTimer?
  }

  static let bound = 32
  /// The suggested time-out is for an idle mesh.
  private static let patience = 1.25
  private static let shortest: Duration = .seconds(4)
  private static let longest: Duration = .seconds(60)
  /// A reply of the CLI leaves up to a second after the command arrived (telemetry.md § 7).
  private static let cliExtra: Duration = .seconds(2)

  private let messenger: Messenger
  private var queue: [Turn] = []
  private var current: Current?
  private var lastForeign: UInt64 = 0
  /// A server takes a command with the time of the last one for its repetition.
  private var lastTime: UInt32 = 0

  public init(_ messenger: Messenger) { self.messenger = messenger }

  private var connection: RadioConnection { messenger.synchronizer.connection }

  /// `done` hears exactly once.
  public func ask(
    _ question: NodeQuestion, of contact: Contact, _ priority: DeliveryPriority, _ done: @escaping Done
  ) {
    guard connection.state == .up else { return done(.failure(.linkDown)) }
    guard queue.count < Self.bound else {
      return done(.failure(.full("\(queue.count) requests to other nodes wait already")))
    }
    enqueue(.ours(Waiting(question: question, contact: contact, priority: priority, done: done)))
  }

  /// A program that shares the radio wants to ask another node something. `begin` is called when it may, and calls
  /// `release` when the answer has come or will not come. False: too many wait already.
  public func share(_ begin: @escaping (_ release: @escaping () -> Void) -> Void) -> Bool {
    guard connection.state == .up, queue.count < Self.bound else { return false }
    enqueue(.foreign(begin))
    return true
  }

  private func enqueue(_ turn: Turn) {
    let place = queue.firstIndex { $0.priority > turn.priority } ?? queue.count
    queue.insert(turn, at: place)
    next()
  }

  /// The link is gone: nothing of what waits can be answered.
  public func linkLost() {
    let lost = queue
    queue = []
    if case .foreign = current { current = nil }
    finish(.failure(.linkDown))
    for turn in lost {
      switch turn {
      case .ours(let waiting): waiting.done(.failure(.linkDown))
      // It asks, and hears from the radio's link that it is down.
      case .foreign(let begin): begin {}
      }
    }
  }

  public func received(_ push: Push) {
    guard case .ours(let asked) = current, let tag = asked.tag else { return }
    let contact = asked.waiting.contact
    if case .loginFail(contact.key.prefix) = push, case .login = asked.waiting.question {
      return finish(.failure(.radio("\(contact.name.string) refuses the password")))
    }
    guard let answer = asked.waiting.question.answer(in: push, from: contact, tag: tag) else { return }
    finish(.success(answer))
  }

  /// A reply of a remote CLI is an ordinary message.
  public func received(_ message: QueuedMessage) {
    guard case .ours(let asked) = current, case .cli = asked.waiting.question, case .contact(let reply) = message,
      reply.textType == .cliData, reply.sender == asked.waiting.contact.key.prefix
    else { return }
    finish(.success(.cli(reply.text)))
  }

  private func next() {
    guard current == nil, !queue.isEmpty else { return }
    switch queue.removeFirst() {
    case .ours(let waiting): ask(waiting)
    case .foreign(let begin):
      lastForeign &+= 1
      let number = lastForeign
      current = .foreign(number)
      begin { [weak self] in
        guard let self, case .foreign(number) = self.current else { return }
        self.current = nil
        self.next()
      }
    }
  }

  private func ask(_ waiting: Waiting) {
    current = .ours(Asked(waiting: waiting))
    let path = waiting.contact.outPath?.bytes.count
    let radio = connection.identity?.info.radio
    let airtime = radio.map { Airtime.milliseconds(bytes: waiting.question.length(path: path ?? 0), $0) } ?? 0
    guard messenger.spend(Int64(airtime.rounded(.up)), waiting.priority) else {
      return finish(.failure(.full("the hour's air time for \(waiting.priority.name) traffic is used up; try later")))
    }
    lastTime = max(messenger.synchronizer.radioTime ?? 0, lastTime &+ 1)
    let command = waiting.question.command(to: waiting.contact.key, time: lastTime)
    let id = connection.submit(command, .interactive) { [weak self] outcome in self?.taken(outcome) }
    if id == nil { finish(.failure(.linkDown)) }
  }

  private func taken(_ outcome: RadioSession.Outcome) {
    guard case .ours(let asked) = current else { return }
    switch outcome {
    case .replied(.sent(let sent)): wait(asked, sent)
    case .failed(.refused(.notFound)): finish(.failure(.notOnRadio(asked.waiting.contact.name.string)))
    case .failed(.linkLost): finish(.failure(.linkDown))
    case .failed(.refused(let error)):
      finish(.failure(.radio("the radio refuses: \(error.map(\.description) ?? "no reason given")")))
    default: finish(.failure(.radio("the radio did not take the request")))
    }
  }

  private func wait(_ asked: Asked, _ sent: Sent) {
    var asked = asked
    asked.tag = sent.ackOrTag
    guard asked.waiting.question != .keepAlive else { return finish(.success(.sent)) }
    var limit = Self.patience(sent)
    if case .cli = asked.waiting.question { limit += Self.cliExtra }
    let words = Self.words(asked.waiting)
    asked.timer = messenger.loop.schedule(after: limit) { [weak self] in self?.finish(.failure(.silence(words))) }
    current = .ours(asked)
  }

  /// How long an answer may take: what the radio suggests, and a little.
  public static func patience(_ sent: Sent) -> Duration {
    min(max(shortest, .milliseconds(Int64(Double(sent.suggestedTimeout) * patience))), longest)
  }

  private static func words(_ waiting: Waiting) -> String {
    let name = waiting.contact.name.string
    let stranger = "or it does not know this radio (meshpost radio advert --flood)"
    return switch (waiting.question, waiting.contact.type) {
    case (.path, .chat), (.telemetry, .chat):
      "\(name) does not answer: a companion answers this only if its owner lets others read its telemetry, which is denied unless they "
        + "change it; or it is out of range, \(stranger)"
    case (.login, _): "\(name) does not answer: a wrong password, out of range, or a stale path"
    case (.cli, _): "\(name) does not answer: not logged in as admin, out of range, or a command without a reply"
    case (.trace, _):
      "no trace came back: a hop is out of range of the next, or does not pass packets on (repeaters do, unless switched off)"
    case (_, .chat): "\(name) does not answer: a companion answers no such question; or it is out of range, \(stranger)"
    default:
      "\(name) does not answer: out of range, a stale path (meshpost contact path NAME --reset), or it does not know us (meshpost node login)"
    }
  }

  private func finish(_ result: Result<NodeAnswer, Refusal>) {
    guard case .ours(let ended) = current else { return }
    ended.timer?.cancel()
    current = nil
    ended.waiting.done(result)
    next()
  }
}
