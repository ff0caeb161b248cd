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
    let given = try await ask(command, frame)
    // The message is on disk before the client learns that it was sent. `try?`: it was transmitted in any case, and the
    // store logs its failure.
    if command.isMessage { _ = try? await gateway.store.save { _ in } }
    return answer(given)
  }

  /// Refuses slots that are empty (a key of zeros) or in doubt, and limits the clients' air time.
  func mayGoOnAir(_ command: Command) -> Bool {
    // If the store cannot be read, sending is not refused.
    if let slot = command.slotOnAir, let channel = gateway.store.ifReadable({ try gateway.store.channel(slot: slot) }),
      channel.isEmpty || gateway.synchronizer.doubts(slot)
    {
      return false
    }
    let bytes = command.bytesOnAir
    guard bytes > 0, !gateway.messenger.spendShared(bytes: bytes) else { return true }
    gateway.tell("client \(name) cannot send now: the clients' air time of this hour is used up")
    return false
  }

  /// Sends a command to the radio, with the client's flood scope where it applies. `frame` replaces the command's own. `dispatched`
  /// receives the answer before later pushes.
  func ask(
    _ command: Command, _ frame: [UInt8]? = nil, dispatched: @escaping (RadioAnswer) -> Void = { _ in }
  ) async throws(CancellationError) -> RadioAnswer {
    // If the scope cannot be set, the command is not sent.
    if isScopeRefused, command.goesInScope {
      gateway.note(command, RadioAnswer.scopeRefused.outcome, from: name)
      return .scopeRefused
    }
    let own = RadioSession.Submission(command, frame: frame, needsSuccess: true)
    guard let scope, command.goesInScope else { return try await ask([own], own: 0, dispatched: dispatched) }
    let back = RadioSession.Submission(.setFloodScopeKey(.useDefault))
    return try await ask([scope, own, back], own: 1, dispatched: dispatched)
  }

  /// Sends commands back to back; returns the radio's answer to the client's `own` one. Their effects are recorded
  /// even if the client disconnects meanwhile.
  func ask(
    _ group: [RadioSession.Submission], own: Int, part: (([UInt8]) -> Void)? = nil,
    dispatched: @escaping (RadioAnswer) -> Void = { _ in }
  ) async throws(CancellationError) -> RadioAnswer {
    let answered = Promise<RadioAnswer>()
    let asked = gateway.connection.submit(group: group, .client, part: part) { [gateway, name, outlet] place, answer in
      guard place == own else { return }
      gateway.note(group[own].command, answer.outcome, from: name)
      dispatched(answer)
      outlet.expectAnswer()
      answered.keep(answer)
    }
    return asked == nil ? .linkLost : try await answered.value()
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

  // MARK: The radio's identity

  func start(_ client: Text, _ command: Command, _ frame: [UInt8]) async throws -> ClientAnswer {
    program = client.beforeNul
    let answer = try await ask(command, frame)
    if case .failed = answer.outcome, let identity = gateway.connection.identity {
      // The link is down: answers with the radio's last known identity.
      return .reply(.selfInfo(identity.info))
    }
    return self.answer(answer)
  }

  /// The radio is told the gateway's version: with an old client's version it would report less to the gateway.
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

  /// Replaces the PIN (bytes 4 to 7 of DEVICE_INFO) by 0, unless the client may read it.
  private func withoutPIN(_ frame: [UInt8]) -> [UInt8] {
    guard !settings.allows.contains(.pin), frame.count >= 8 else { return frame }
    return Array(frame[..<4]) + [0, 0, 0, 0] + Array(frame[8...])
  }
}

extension CompanionProxy.Gateway {
  /// Records messages of a client, and its changes to the radio.
  func note(_ command: Command, _ outcome: RadioSession.Outcome, from client: String) {
    noteSent(command, outcome, from: client)
    switch outcome {
    case .failed(.refused), .failed(.notSent): messenger.giveBackShared(bytes: command.bytesOnAir)
    default: break
    }
    guard case .replied(.ok) = outcome else { return }
    switch command {
    case .addUpdateContact(let contact): synchronizer.refresh(contact.key)
    case .resetPath(let key): synchronizer.refresh(key)
    case .removeContact(let key): synchronizer.forget(key)
    case .setChannel(let channel):
      // `try?`: the synchronizer logs and repairs a failed write.
      tasks.begin { [synchronizer] in try? await synchronizer.changed(channel) }
    case .sendSelfAdvert(let flood): messenger.noteAdvert(isFlood: flood ?? false)
    default: if command.changesIdentity { tasks.begin { [synchronizer] in await synchronizer.refreshIdentity() } }
    }
  }
}
