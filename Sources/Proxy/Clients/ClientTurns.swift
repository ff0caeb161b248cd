// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Messaging
import RadioSession
import Store
import Streams
import Sync
import Timing

/// What only one client at a time may do: the radio has one flood scope, one buffer for what it is to sign, and one open question.
extension ClientSession {
  /// The radio keeps one scope for all floods: a client's is set for each of its commands and taken back.
  func setScope(_ scope: FloodScopeOverride, _ frame: [UInt8]) {
    let probe = [
      RadioSession.Submission(.setFloodScopeKey(scope), frame: frame),
      RadioSession.Submission(.setFloodScopeKey(.useDefault)),
    ]
    let isTaken = parts.connection.pass(probe) { [weak self] index, answer in
      guard let self, index == 0 else { return }
      if case .replied(.ok) = answer.outcome { self.scopeFrame = scope == .useDefault ? nil : frame }
      self.ended(.setFloodScopeKey(scope), answer)
    }
    if !isTaken { reply(.error(.badState)) }
  }

  /// The radio has one buffer for what it is to sign, which the gateway uses, too.
  func sign(_ command: Command) {
    switch command {
    case .signStart:
      toSign = []
      reply(.signStart(limit: UInt32(Self.maxToSign)))
    case .signData(let data):
      guard toSign.count + data.count <= Self.maxToSign else { return reply(.error(.tableFull)) }
      toSign += data
      reply(.ok)
    default:
      guard !toSign.isEmpty else { return reply(.error(.badState)) }
      let message = toSign
      toSign = []
      parts.loop.begin { [weak self, parts] in
        let signature = await parts.sign(message)
        self?.reply(signature.map { .signature($0) } ?? .error(.badState))
      }
    }
  }

  static let maxToSign = 8192

  func ask(_ command: Command, _ frame: [UInt8], _ answer: RemoteAnswer) {
    guard mayGoOnAir(command) else { return reply(.error(.tableFull)) }
    parts.loop.begin { [weak self, requests = parts.requests] in
      do throws(Refusal) {
        let turn = try await requests.share()
        self?.ask(command, frame, answer, turn)
      } catch {
        self?.reply(.error(error == .linkDown ? .badState : .tableFull))
      }
    }
  }

  func ask(_ command: Command, _ frame: [UInt8], _ answer: RemoteAnswer, _ turn: NodeRequests.SharedTurn) {
    guard !isOver else { return turn.leave() }
    submit(command, frame) { [weak self] said in
      guard let self, !self.isOver, case .replied(.sent(let sent)) = said.outcome else {
        turn.leave()
        self?.ended(command, said)
        return
      }
      let question = OpenQuestion(answer, sent.ackOrTag) { turn.leave() }
      self.question = question
      self.parts.loop.schedule(after: NodeRequests.patience(sent)) { question.release() }
      self.ended(command, said)
    }
  }
}
