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

  private struct Current {
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
  private var queue: [Waiting] = []
  private var current: Current?
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
    let waiting = Waiting(question: question, contact: contact, priority: priority, done: done)
    let place = queue.firstIndex { $0.priority > priority } ?? queue.count
    queue.insert(waiting, at: place)
    next()
  }

  /// The link is gone: nothing of what waits can be answered.
  public func linkLost() {
    let lost = queue
    queue = []
    finish(.failure(.linkDown))
    for waiting in lost { waiting.done(.failure(.linkDown)) }
  }

  public func received(_ push: Push) {
    guard let current, let tag = current.tag else { return }
    let contact = current.waiting.contact
    if case .loginFail(contact.key.prefix) = push, case .login = current.waiting.question {
      return finish(.failure(.radio("\(contact.name.string) refuses the password")))
    }
    guard let answer = current.waiting.question.answer(in: push, from: contact, tag: tag) else { return }
    finish(.success(answer))
  }

  /// A reply of a remote CLI is an ordinary message.
  public func received(_ message: QueuedMessage) {
    guard let current, case .cli = current.waiting.question, case .contact(let reply) = message,
      reply.textType == .cliData, reply.sender == current.waiting.contact.key.prefix
    else { return }
    finish(.success(.cli(reply.text)))
  }

  private func next() {
    guard current == nil, !queue.isEmpty else { return }
    let waiting = queue.removeFirst()
    current = Current(waiting: waiting)
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
    guard let waiting = current?.waiting else { return }
    switch outcome {
    case .replied(.sent(let sent)): wait(for: waiting, sent)
    case .failed(.refused(.notFound)): finish(.failure(.notOnRadio(waiting.contact.name.string)))
    case .failed(.linkLost): finish(.failure(.linkDown))
    case .failed(.refused(let error)):
      finish(.failure(.radio("the radio refuses: \(error.map(\.description) ?? "no reason given")")))
    default: finish(.failure(.radio("the radio did not take the request")))
    }
  }

  private func wait(for waiting: Waiting, _ sent: Sent) {
    current?.tag = sent.ackOrTag
    guard waiting.question != .keepAlive else { return finish(.success(.sent)) }
    var limit = max(Self.shortest, .milliseconds(Int64(Double(sent.suggestedTimeout) * Self.patience)))
    if case .cli = waiting.question { limit += Self.cliExtra }
    current?.timer = messenger.loop.schedule(after: min(limit, Self.longest)) { [weak self] in
      self?.finish(.failure(.silence(Self.words(waiting))))
    }
  }

  private static func words(_ waiting: Waiting) -> String {
    let name = waiting.contact.name.string
    return switch waiting.question {
    case .login: "\(name) does not answer: a wrong password, out of range, or a stale path"
    case .cli: "\(name) does not answer: not logged in as admin, out of range, or a command without a reply"
    default: "\(name) does not answer: out of range, a stale path, or it does not know us (meshpost node login)"
    }
  }

  private func finish(_ result: Result<NodeAnswer, Refusal>) {
    guard let ended = current else { return }
    ended.timer?.cancel()
    current = nil
    ended.waiting.done(result)
    next()
  }
}
