// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Messaging
import RadioSession
import Sync
import Timing

/// Operations of one client at a time: the radio has one flood scope, one signing buffer, and one open request.
extension ClientSession {
  /// The radio has one scope for all floods: a client's scope is set before each of its commands, and reset after it. If the radio refuses a scope,
  /// nothing of the client is flooded until it sets another: it would go out in the one before.
  func setScope(_ scope: FloodScopeOverride, _ frame: [UInt8]) async throws -> ClientAnswer {
    let own = RadioSession.Submission(.setFloodScopeKey(scope), frame: frame)
    let answer = try await ask([own, RadioSession.Submission(.setFloodScopeKey(.useDefault))], own: 0)
    let isSet = if case .replied(.ok) = answer.outcome { true } else { false }
    // A scope that is the radio's default anyway cannot be missed, whatever it answers.
    let isDefault = gateway.connection.setting(for: scope) == .asIs
    isScopeRefused = !isSet && !isDefault
    if isSet || isDefault { self.scope = isDefault ? nil : own }
    return self.answer(answer)
  }

  /// The radio has one signing buffer, which the gateway uses, too.
  func sign(_ command: Command) async -> ClientAnswer {
    switch command {
    case .signStart:
      toSign = []
      return .reply(.signStart(limit: UInt32(Self.maxToSign)))
    case .signData(let data):
      guard toSign.count + data.count <= Self.maxToSign else { return .reply(.error(.tableFull)) }
      toSign += data
      return .reply(.ok)
    default:
      guard !toSign.isEmpty else { return .reply(.error(.badState)) }
      let message = toSign
      toSign = []
      return .reply(await gateway.sign(message).map { .signature($0) } ?? .error(.badState))
    }
  }

  private static let maxToSign = 8192

  // MARK: Questions to other nodes

  /// The answer is a push, possibly in the same read as the reply. The turn ends with it, or with a time-out.
  func askNode(_ command: Command, _ frame: [UInt8], _ answer: RemoteAnswer) async throws -> ClientAnswer {
    guard gateway.connection.state == .up else { return .reply(.error(.badState)) }
    guard let reserved = reserve(for: command) else { return .reply(.error(.tableFull)) }
    let question: OpenQuestion
    do throws(Refusal) {
      question = OpenQuestion(answer, try await gateway.requests.share(with: gateway.contact(of: command)))
    } catch {
      gateway.messenger.giveBackShared(reserved)
      return .reply(.error(error == .linkDown ? .badState : .tableFull))
    }
    guard !isOver, !Task.isCancelled else {
      gateway.messenger.giveBackShared(reserved)
      throw CancellationError()
    }
    turns.begin(question)
    let said = try await ask(command, frame, reserved: reserved) { [gateway] answer in
      question.said(answer.outcome)
      guard let node = gateway.keepsTime(of: command), let time = gateway.synchronizer.radioTime else { return }
      if answer.mayBeOnAir {
        let isLogin = if case .sendLogin = command { true } else { false }
        gateway.messenger.sharedMayHave(node, at: time, isLogin: isLogin)
      }
      question.wasAnswered = { gateway.messenger.sharedWasAnswered(by: node, at: time) }
    }
    if !question.isTaken || !turns.keep(question) { question.leave() }
    return self.answer(said)
  }

}

/// A client's requests to other nodes: one at a time.
struct ClientTurns {
  private var last: OpenQuestion?
  /// Requests that wait for their answers.
  private let waiting = Mailbox<OpenQuestion>(bound: 2)

  /// Ends the client's previous request: this one has the turn.
  mutating func begin(_ question: OpenQuestion) {
    last?.leave()
    last = question
  }

  /// Keeps the turn until the answer. Returns false if too many requests wait.
  func keep(_ question: OpenQuestion) -> Bool { waiting.put(question) }

  func heard(_ push: Push) { last?.heard(push) }

  /// The client has disconnected.
  func end() { last?.leave() }

  /// Keeps the turn of each request until it is answered, or has timed out.
  func keep(on loop: EventLoop) async throws {
    while let question = try await waiting.next() {
      _ = try await question.over.value(within: question.patience, on: loop)
      question.leave()
    }
  }
}

/// A client's request to another node: no other client may send one until it is over, or has timed out.
final class OpenQuestion {
  private let answer: RemoteAnswer
  private let turn: NodeRequests.SharedTurn
  /// The tag of the answer; set when the radio has accepted the request.
  private var tag: AckCode?
  private(set) var patience: Duration = .zero
  /// Called once, with the answer.
  var wasAnswered: () -> Void = {}
  /// Kept when the request is answered, or needs no answer.
  let over = Promise<Void>()

  init(_ answer: RemoteAnswer, _ turn: NodeRequests.SharedTurn) {
    self.answer = answer
    self.turn = turn
  }

  /// The radio has accepted the request, which may be answered.
  var isTaken: Bool { tag != nil }

  /// The radio's reply to the request.
  func said(_ outcome: RadioSession.Outcome) {
    guard case .replied(.sent(let sent)) = outcome else { return }
    tag = sent.ackOrTag
    patience = NodeRequests.patience(sent)
  }

  func heard(_ push: Push) {
    guard let tag, answer.isAnswered(by: push, tag: tag) else { return }
    let isRefusal = if case .loginFail = push { true } else { false }
    if !isRefusal { wasAnswered() }
    leave()
  }

  func leave() {
    wasAnswered = {}
    over.keep(())
    turn.leave()
  }
}
