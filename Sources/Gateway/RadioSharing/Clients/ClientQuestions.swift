// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Messaging
import RadioSession
import Store
import Sync

/// Commands that the radio answers.
extension ClientSession {
  func pass(_ command: Command, _ frame: [UInt8]) async throws -> ClientAnswer {
    guard gateway.connection.state == .up else { return .reply(.error(.badState)) }
    guard let reserved = reserve(for: command) else { return .reply(.error(.tableFull)) }
    if case .setChannel(let channel) = command {
      await gateway.synchronizer.willPut(channel, within: Self.longestRead)
    }
    guard let message = SharedMessage(command) else {
      return answer(try await ask(command, frame, reserved: reserved))
    }
    // The message is on disk before the radio gets it.
    let kept: OutgoingMessage?
    do throws(StoreError) {
      kept = try await gateway.messenger.keepShared(message, from: name)
    } catch {
      gateway.messenger.giveBackShared(reserved)
      gateway.tell("client \(name) cannot send now: \(error)")
      return .reply(.error(.tableFull))
    }
    return answer(
      try await ask(command, frame, reserved: reserved) { [gateway] answer in
        guard let kept else { return }
        let outcome = answer.wasSent ? answer.outcome : .failed(.notSent(isRefused: false))
        gateway.messenger.settleShared(kept, outcome)
      })
  }

  /// Less than a client waits for the answer to its command.
  private static let longestRead: Duration = .seconds(3)

  /// Refuses slots that the radio has not reported over this link, or that are empty (a key of zeros), texts that the radio would cut, and an advert that
  /// was flooded just now, and limits the clients' air time. Returns what air time is reserved for; `nil`: the command is refused.
  func reserve(for command: Command) -> SharedPacket? {
    if let slot = command.slotOnAir, !isUsed(slot) { return nil }
    // The store would have the whole text, and take the cut one for another message when a hub brings it back.
    if case .sendChannelText(_, _, _, let text) = command,
      text.beforeNul.bytes.count > gateway.messenger.channelLimit
    {
      return nil
    }
    if case .sendSelfAdvert(flood: true?) = command, let refusal = gateway.messenger.advertRefusal {
      gateway.tell("client \(name) cannot send an advert: \(refusal)")
      return nil
    }
    let packet = SharedPacket(bytes: bytesOnAir(of: command), channel: command.slotOnAir.flatMap(digest(of:)))
    guard packet.bytes > 0, !gateway.messenger.spendShared(packet) else { return packet }
    gateway.tell("client \(name) cannot send now: the air time of this hour is used up, the clients' or the channel's")
    return nil
  }

  /// With the codes of the region in which a flood goes.
  private func bytesOnAir(of command: Command) -> Int {
    let bytes = command.bytesOnAir
    guard bytes > 0, command.goesInScope, gateway.floods(command) else { return bytes }
    guard case .setFloodScopeKey(let region)? = scope?.command else { return bytes + gateway.messenger.regionBytes() }
    return bytes + gateway.messenger.regionBytes(in: region)
  }

  /// If the store cannot be read, it counts for no channel.
  private func digest(of slot: UInt8) -> String? {
    gateway.store.ifReadable { try gateway.store.channel(slot: slot) }?.secret.digest
  }

  private func isUsed(_ slot: UInt8) -> Bool {
    guard gateway.synchronizer.isReported(slot) else { return false }
    let isUsed: Bool? = gateway.store.ifReadable {
      guard let channel = try gateway.store.channel(slot: slot) else { return false }
      return !channel.isEmpty
    }
    // If the store cannot be read, sending is not refused.
    return isUsed ?? true
  }

  /// Sends a command to the radio, with the client's flood scope where it applies. `frame` replaces the command's own. `dispatched`
  /// receives the answer before later pushes. `reserved`: whose air time is given back if the radio does not send them.
  func ask(
    _ command: Command, _ frame: [UInt8]? = nil, reserved: SharedPacket = .none,
    dispatched: @escaping (RadioAnswer) -> Void = { _ in }
  ) async throws(CancellationError) -> RadioAnswer {
    // If the scope cannot be set, the command is not sent.
    if isScopeRefused, command.goesInScope {
      gateway.note(command, .scopeRefused, from: name, reserved: reserved)
      dispatched(.scopeRefused)
      return .scopeRefused
    }
    let own = RadioSession.Submission(command, frame: frame, needsSuccess: true)
    guard let scope, command.goesInScope else {
      return try await ask([own], own: 0, reserved: reserved, dispatched: dispatched)
    }
    let back = RadioSession.Submission(.setFloodScopeKey(.useDefault))
    return try await ask([scope, own, back], own: 1, reserved: reserved, dispatched: dispatched)
  }

  /// Sends commands back to back; returns the radio's answer to the client's `own` one. Their effects are recorded
  /// even if the client disconnects meanwhile.
  func ask(
    _ group: [RadioSession.Submission], own: Int, reserved: SharedPacket = .none, part: (([UInt8]) -> Void)? = nil,
    dispatched: @escaping (RadioAnswer) -> Void = { _ in }
  ) async throws(CancellationError) -> RadioAnswer {
    let answered = Promise<RadioAnswer>()
    let asked = gateway.connection.submit(group: group, .client, part: part) { [gateway, name, outlet] place, answer in
      guard place == own else { return }
      gateway.note(group[own].command, answer, from: name, reserved: reserved)
      dispatched(answer)
      outlet.expectAnswer()
      answered.keep(answer)
    }
    guard asked == nil else { return try await answered.value() }
    gateway.note(group[own].command, .linkLost, from: name, reserved: reserved)
    dispatched(.linkLost)
    return .linkLost
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
  /// Records a client's changes to the radio. `reserved`: whose air time is given back if the radio did not send them.
  func note(_ command: Command, _ answer: RadioAnswer, from client: String, reserved: SharedPacket) {
    switch answer.outcome {
    case .failed(.refused), .failed(.notSent): messenger.giveBackShared(reserved)
    case .failed(.linkLost) where !answer.wasSent: messenger.giveBackShared(reserved)
    default: break
    }
    if answer.outcome.leavesDoubt, answer.wasSent {
      synchronizer.doubtEffect(of: command)
      refreshIdentity(after: command)
    }
    if case .failed(.refused(.notFound)) = answer.outcome, let key = contact(of: command) {
      synchronizer.radioDidNotKnowForProgram(key)
    }
    guard case .replied(.ok) = answer.outcome else { return }
    switch command {
    case .addUpdateContact(let contact): synchronizer.refresh(contact.key)
    case .resetPath(let key): synchronizer.refresh(key)
    case .removeContact(let key): synchronizer.forget(key)
    case .setChannel(let channel):
      // `try?`: the synchronizer logs and repairs a failed write.
      tasks.begin { [synchronizer] in try? await synchronizer.changed(channel) }
    case .sendSelfAdvert(let flood): messenger.noteAdvert(isFlood: flood ?? false)
    default: refreshIdentity(after: command)
    }
  }

  /// Whether the radio floods the command: it knows no path for it.
  func floods(_ command: Command) -> Bool {
    if case .sendPathDiscovery = command { return true }
    guard let key = contact(of: command) else { return true }
    return store.ifReadable { try store.contact(key) }?.contact.outPath == nil
  }

  /// The contact without which the radio answers *not found*. EXPORT_CONTACT is not among them: the radio says the same of a contact whose advert it
  /// does not have.
  func contact(of command: Command) -> PublicKey? {
    switch command {
    case .resetPath(let key), .removeContact(let key), .shareContact(let key), .getContactByKey(let key),
      .sendLogin(let key, _), .sendStatusRequest(let key), .sendBinaryRequest(let key, _), .sendPathDiscovery(let key):
      key
    case .sendTelemetryRequest(let key): key
    case .sendText(let text): store.ifReadable { try store.contact(prefix: text.recipient) }?.contact.key
    default: nil
    }
  }

  /// The node that keeps the time of this request if it answers; a login without a password leaves none.
  func keepsTime(of command: Command) -> PublicKey? {
    if case .sendLogin(_, let password) = command, password.beforeNul.bytes.isEmpty { return nil }
    return contact(of: command)
  }

  private func refreshIdentity(after command: Command) {
    if command.changesIdentity { tasks.begin { [synchronizer] in await synchronizer.refreshIdentity() } }
  }
}
