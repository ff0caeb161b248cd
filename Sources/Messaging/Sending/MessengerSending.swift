// SPDX-License-Identifier: MIT

import Companion
import Delivery
import MeshCrypto
import RadioSession
import Store
import Sync
import Timing

/// Carrying out what the session decides.
extension Messenger {
  func carryOut(_ action: DeliveryAction) {
    switch action {
    case .transmit(let id, let attempt, let route, let airtime): transmit(id, attempt, route, airtime)
    case .sent(let id, let code, let tries, let floods):
      change(id) { message in
        message.state = .sent
        (message.tries, message.floods) = (tries, floods)
        if let code, !message.codes.contains(code) { message.codes.append(code) }
        if message.kind == .channel { self.end(&message) }
      }
    case .delivered(let id, let tripTime):
      counts.delivered += 1
      change(id) { message in
        message.state = .delivered
        (message.reason, message.roundTrip) = (nil, tripTime == 0 ? nil : tripTime)
        self.end(&message)
      }
    case .failed(let id, let failure):
      counts.failed += 1
      change(id) { message in
        message.state = .failed
        message.reason = failure.rawValue
        if failure == .noAcknowledgement, message.kind == .room, let room = message.recipient, self.isReadOnly(room) {
          message.reason = Self.readOnly
        }
        self.end(&message)
      }
    case .waiting(let id): waits(id)
    case .heard(let id, let count): change(id) { $0.heard += count }
    case .discoverPath(let key): nodes?.discoverPath(key)
    }
  }

  /// Why a post failed that a room ignores.
  static let readOnly = "read_only"

  func end(_ message: inout OutgoingMessage) {
    message.endedAt = synchronizer.now.milliseconds
    if message.kind == .channel, message.state == .sent { counts.channel += 1 }
  }

  private func change(_ id: Int64, _ change: (inout OutgoingMessage) -> Void) {
    guard var message = row(id) else { return }
    change(&message)
    save(message)
  }

  /// Between two attempts it stays `sent`; what was never sent is pending again.
  private func waits(_ id: Int64) {
    guard var message = row(id), message.state == .sending else { return }
    message.state = message.tries == 0 || message.kind == .channel ? .pending : .sent
    save(message)
  }

  // MARK: An attempt

  private func transmit(_ id: Int64, _ attempt: UInt8, _ route: DeliveryRoute, _ airtime: Int64) {
    guard var message = row(id), isOfThisRadio(message), let own = synchronizer.connection.identity?.info else {
      return answer(id, .notTried)
    }
    let number = prepare(&message, attempt, own)
    message.airtime += airtime
    save(message, airtime: airtime) { [weak self] isSaved in
      guard let self else { return }
      guard isSaved, self.isOfThisRadio(message) else { return self.answer(id, .notTried) }
      for code in message.codes { self.session.expect(code, for: id) }
      self.hand(message, number, route)
    }
  }

  /// What the attempt needs to know after a crash: its number, the message's time, the acknowledgement it will have.
  private func prepare(_ message: inout OutgoingMessage, _ attempt: UInt8, _ own: SelfInfo) -> UInt8 {
    message.state = .sending
    var number = attempt
    // From attempt 4 on a byte more goes into the text; one that is too long for it becomes another message.
    if number > 3, message.text.bytes.count > 158 { message.senderTime = nil }
    let time = message.senderTime ?? newTime(inRoom: message.kind == .room)
    if message.senderTime == nil, number > 3 { number = number & 3 }
    message.senderTime = time
    guard message.kind != .channel else { return number }
    message.attempt = attempt &+ 1
    let code = AckCode.expected(time: time, attempt: number, text: message.text, sender: own.key)
    if !message.codes.contains(code) { message.codes.append(code) }
    return number
  }

  private func newTime(inRoom: Bool) -> UInt32 {
    let (now, radio) = (synchronizer.now, synchronizer.radioTime)
    return inRoom ? senderClock.nextInRoom(now, radio: radio) : senderClock.next(now, radio: radio)
  }

  private func hand(_ message: OutgoingMessage, _ attempt: UInt8, _ route: DeliveryRoute) {
    if message.kind == .channel { return handToChannel(message) }
    guard let key = message.recipient, let time = message.senderTime else { return answer(message.id, .refused) }
    let text = OutgoingText(attempt: attempt, time: time, recipient: key.prefix, text: message.text)
    guard route == .resetAndFlood else { return submit(.sendText(text), message) }
    // Whatever comes of it: if the path stays, the message goes along it once more.
    let id = synchronizer.connection.submit(.resetPath(key), .interactive) { [weak self] _ in
      self?.submit(.sendText(text), message)
    }
    if id == nil { answer(message.id, .notTried) }
  }

  private func handToChannel(_ message: OutgoingMessage) {
    var channel: Channel?
    do {
      try store.eachChannel { if $0.secret.digest == message.channel { channel = channel ?? $0 } }
    } catch {
      return answer(message.id, .notTried)
    }
    guard let channel, let time = message.senderTime else { return answer(message.id, .unknown) }
    // The radio was given a longer name since: it would cut the text, silently.
    guard message.text.bytes.count <= TextLimit.channel(ownName: ownName) else { return answer(message.id, .refused) }
    if let name = ownName {
      echoes.expect(
        message.id, text: message.text, time: time, name: name, secret: channel.secret, now: loop.now)
    }
    let command = Command.sendChannelText(type: .plain, slot: channel.slot, time: time, text: message.text)
    let region: Region?
    do {
      region = try store.region(ofChannel: channel.secret.digest).flatMap { Region($0) }
    } catch {
      return answer(message.id, .notTried)
    }
    guard let region else { return submit(command, message) }
    submit(command, in: region, message)
  }

  /// The radio has one scope for all that it floods: it is set for this one message, and taken back (companion.md § 9.7).
  private func submit(_ command: Command, in region: Region, _ message: OutgoingMessage) {
    let id = message.id
    guard isOfThisRadio(message) else { return answer(id, .notTried) }
    let group = [.setFloodScopeKey(region.scopeOverride), command, .setFloodScopeKey(.useDefault)]
      .map { RadioSession.Submission($0) }
    let isTaken = synchronizer.connection.submit(group: group, .interactive) { [weak self] place, outcome in
      switch (place, outcome) {
      case (0, .replied(.ok)), (2, .replied(.ok)), (2, .failed(.refused)): break
      case (0, .failed(.refused)): self?.sayThatRegionsAreUnknown(region)
      case (1, _): self?.answer(id, Self.meaning(of: outcome))
      case (2, .failed(.timedOut)): self?.resetScope()
      default: break
      }
    }
    if !isTaken { answer(id, .notTried) }
  }

  private func sayThatRegionsAreUnknown(_ region: Region) {
    log.warning(
      "the radio's firmware cannot send to the region \(region.text): the message goes where its default says. Regions need 1.10, * needs 1.16"
    )
  }

  /// What somebody else has set, or a group that broke off has left, no longer counts: the radio's own default does.
  func resetScope() {
    guard let version = synchronizer.connection.identity?.device?.protocolVersion, version >= Self.firstWithScopes
    else { return }
    synchronizer.connection.submit(.setFloodScopeKey(.useDefault), .interactive) { [log] outcome in
      if case .failed(.timedOut) = outcome { log.info("the radio did not say whether its flood scope is the default") }
    }
  }

  /// SET_FLOOD_SCOPE_KEY came with protocol version 8 (companion.md § 11).
  private static let firstWithScopes: UInt8 = 8

  private func submit(_ command: Command, _ message: OutgoingMessage) {
    let id = message.id
    guard isOfThisRadio(message) else { return answer(id, .notTried) }
    let submitted = synchronizer.connection.submit(command, .interactive) { [weak self] outcome in
      self?.answer(id, Self.meaning(of: outcome))
    }
    if submitted == nil { answer(id, .notTried) }
  }

  private func answer(_ id: Int64, _ answer: DeliveryAnswer) {
    perform(session.answered(id, answer, now: loop.now))
  }

  private static func meaning(of outcome: RadioSession.Outcome) -> DeliveryAnswer {
    switch outcome {
    case .replied(.sent(let sent)):
      .sent(code: sent.ackOrTag, flooded: sent.flood, timeout: sent.suggestedTimeout)
    case .replied(.ok): .channelSent
    case .failed(.refused(.tableFull)): .busy
    case .failed(.refused(.notFound)): .unknown
    case .failed(.timedOut): .unanswered
    case .failed(.linkLost): .linkLost
    default: .refused
    }
  }
}
