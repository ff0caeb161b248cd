// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Sync

/// Commands that the radio answers.
extension ClientSession {
  func pass(_ command: Command, _ frame: [UInt8]) async throws -> ClientAnswer {
    guard mayGoOnAir(command) else { return .reply(.error(.tableFull)) }
    return answer(try await ask(command, frame))
  }

  /// The empty slots of a radio are a channel under a key of zeros; and the hour's air time is everybody's.
  func mayGoOnAir(_ command: Command) -> Bool {
    // A store that cannot be read forbids nothing.
    if let slot = command.slotOnAir, let channel = gateway.store.ifReadable({ try gateway.store.channel(slot: slot) }),
      channel.isEmpty
    {
      return false
    }
    let bytes = command.bytesOnAir
    guard bytes > 0, !gateway.messenger.spendShared(bytes: bytes) else { return true }
    log.info("client \(name) cannot send now: the hour's air time is used up")
    return false
  }

  /// Asks the radio, in the client's flood scope where that counts. Without a `frame`: the command's own. `dispatched` is called
  /// with what the radio says before anything that it says after that.
  func ask(
    _ command: Command, _ frame: [UInt8]? = nil, dispatched: @escaping (RadioAnswer) -> Void = { _ in }
  ) async throws(CancellationError) -> RadioAnswer {
    let own = RadioSession.Submission(command, frame: frame)
    guard let scopeFrame, command.mayFlood else { return try await ask([own], own: 0, dispatched: dispatched) }
    let scope = RadioSession.Submission(.setFloodScopeKey(.useDefault), frame: scopeFrame)
    let back = RadioSession.Submission(.setFloodScopeKey(.useDefault))
    return try await ask([scope, own, back], own: 1, dispatched: dispatched)
  }

  /// Commands that go out one directly after the other; what the radio says to the client's `own` of them. What it has changed is
  /// noted even if the client has gone meanwhile.
  func ask(
    _ group: [RadioSession.Submission], own: Int, part: (([UInt8]) -> Void)? = nil,
    dispatched: @escaping (RadioAnswer) -> Void = { _ in }
  ) async throws(CancellationError) -> RadioAnswer {
    let answered = Promise<RadioAnswer>()
    let isTaken = gateway.connection.pass(group, part: part) { [gateway, name, outlet] place, answer in
      guard place == own else { return }
      gateway.note(group[own].command, answer.outcome, from: name)
      dispatched(answer)
      outlet.expectAnswer()
      answered.keep(answer)
    }
    return isTaken ? try await answered.value() : .linkLost
  }

  func answer(_ answer: RadioAnswer) -> ClientAnswer {
    switch answer.outcome {
    case .replied, .pushed: return .frame(answer.frame)
    case .failed(.refused), .failed(.disabled):
      refusals &+= 1
      return .frame(answer.frame)
    case .unanswered: return .none
    case .failed, .contacts: return .reply(.error(.badState))
    }
  }

  // MARK: Who the radio is

  func start(_ client: Text, _ command: Command, _ frame: [UInt8]) async throws -> ClientAnswer {
    program = client.beforeNul
    let answer = try await ask(command, frame)
    if case .failed = answer.outcome, let identity = gateway.connection.identity {
      // The link is down: what the radio was when it was last here.
      return .reply(.selfInfo(identity.info))
    }
    return self.answer(answer)
  }

  /// The radio is told our version: it would tell the gateway less for the sake of an old client.
  func query(_ version: UInt8) async throws -> ClientAnswer {
    self.version = version
    let answer = try await ask(.deviceQuery(clientVersion: RadioSession.clientVersion))
    switch answer.outcome {
    case .replied(.deviceInfo): return .frame(withoutPIN(answer.frame))
    case .failed(.linkLost):
      guard let device = gateway.connection.identity?.device else { return .reply(.error(.badState)) }
      return .frame(withoutPIN(Reply.deviceInfo(device).encode()))
    default: return self.answer(answer)
    }
  }

  /// DEVICE_INFO with a PIN of 0, unless the client may know it: bytes 4 to 7.
  private func withoutPIN(_ frame: [UInt8]) -> [UInt8] {
    guard !settings.allows.contains(.pin), frame.count >= 8 else { return frame }
    return Array(frame[..<4]) + [0, 0, 0, 0] + Array(frame[8...])
  }
}

extension CompanionProxy.Gateway {
  /// What a client has sent, or changed on the radio, the gateway notes.
  func note(_ command: Command, _ outcome: RadioSession.Outcome, from client: String) {
    noteSent(command, outcome, from: client)
    guard case .replied(.ok) = outcome else { return }
    switch command {
    case .addUpdateContact(let contact): synchronizer.refresh(contact.key)
    case .resetPath(let key): synchronizer.refresh(key)
    case .removeContact(let key): synchronizer.forget(key)
    case .setChannel(let channel):
      // `try?`: what the disk refuses, the synchronizer says and mends.
      loop.begin { [synchronizer] in try? await synchronizer.changed(channel) }
    case .sendSelfAdvert(let flood): messenger.noteAdvert(isFlood: flood ?? false)
    default: if command.changesIdentity { loop.begin { [synchronizer] in await synchronizer.refreshIdentity() } }
    }
  }
}
