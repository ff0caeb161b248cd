// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import MeshCrypto
import RadioSession
import Store
import Sync
import Timing
import UntrustedText

private struct NotHandedOver: Error {
  let answer: DeliveryAnswer
}

/// One message after the other goes out, and up to eight wait for their acknowledgements.
extension Messenger {
  /// Delivers one message, from its first attempt to its end.
  private func deliver(_ id: Int64, _ attempts: Mailbox<Attempt>) async throws(CancellationError) {
    while let attempt = try await attempts.next() {
      do throws(NotHandedOver) {
        try await checkThatItIsNews(id)
        guard await hasPlace(id), isRoomSure(id) else { throw NotHandedOver(answer: .notTried) }
        let (message, number) = try await keep(attempt, of: id)
        try await hand(message, number, attempt.route)
      } catch {
        guard !Task.isCancelled else { return }
        decide { $0.answered(id, error.answer, now: $1) }
      }
      // The machine decides when another attempt is due, and when the message has ended.
    }
  }

  private func begin(_ id: Int64, _ attempts: Mailbox<Attempt>) -> LoopTask {
    // `try?`: another radio is attached, or the daemon ends: the message's row stays as it is.
    loop.begin { try? await self.deliver(id, attempts) }
  }

  /// Ends the attempts of a message that has ended, or that waits for its turn again.
  private func endIfOver(_ id: Int64) {
    if !session.isUnderWay(id) { underWay.end(id) }
    if !session.isLive(id) { forgetPlace(of: id) }
  }

  // MARK: Between the machine and the tasks

  /// Reports an event to the machine, and carries out its decisions.
  func decide(_ event: (inout DeliverySession, MonotonicTime) -> [DeliveryAction]) {
    takeAnswer()
    session.floodsInRegion = synchronizer.ways.defaultRegion != nil
    for action in event(&session, loop.now) { carryOut(action) }
    arm()
  }

  /// Gives the machine the radio's answer before any later push, even of the same read: the task that waits for the answer runs later.
  func takeAnswer() {
    guard let (id, answer) = underWay.takeAnswer() else { return }
    let message = row(id)
    let recipient = message?.recipient
    if case .failed(.refused(.notFound)) = answer.outcome, let recipient { synchronizer.radioDidNotKnow(recipient) }
    var meaning = Self.meaning(of: answer.outcome, toChannel: recipient == nil)
    // A late SENT of another message: the acknowledgement of that one must not deliver this one. Programs that act as
    // radios may have codes of their own.
    if case .sent(let code, _, _) = meaning, session.isOfAnother(code, than: id) {
      meaning = .unanswered
    }
    // What was not written to the link is certainly not on the air.
    if recipient == nil, meaning == .linkLost, !answer.wasSent { meaning = .notTried }
    // An acknowledgement may have come before.
    let isUnknown = answer.wasSent && (meaning == .linkLost || meaning == .unanswered)
    if isUnknown, recipient != nil, message?.hasEnded == false {
      change(id) { ($0.state, $0.attempts.accepted) = (.sent, $0.attempts.accepted + 1) }
    }
    meaning = puttingBack(recipient, of: id, meaning)
    for action in session.answered(id, meaning, now: loop.now) { carryOut(action) }
    arm()
  }

  func carryOut(_ action: DeliveryAction) {
    switch action {
    case .transmit(let id, let number, let route, let airtime):
      underWay.add(Attempt(number: number, route: route, airtime: airtime), of: id) { begin(id, $0) }
    case .sent(let id, let code, let tries, let floods):
      change(id) { message in
        message.state = .sent
        (message.attempts.accepted, message.attempts.floods) = (tries, floods)
        if let code { message.attempts.expect(code) }
        if message.kind == .channel { self.end(&message) }
      }
      endIfOver(id)
    case .delivered(let id, let tripTime):
      counts.delivered += 1
      change(id) { message in
        message.state = .delivered
        (message.reason, message.roundTrip) = (nil, tripTime == 0 ? nil : tripTime)
        self.end(&message)
      }
      endIfOver(id)
    case .failed(let id, let failure, let unspent):
      counts.failed += 1
      change(id, unspent: unspent) { message in
        message.state = .failed
        message.reason = failure.rawValue
        if failure == .noAcknowledgement, message.kind == .room, let room = message.recipient, self.isReadOnly(room) {
          message.reason = Self.readOnly
        }
        self.end(&message)
      }
      endIfOver(id)
    case .held(let id, let isFirst):
      if let row = row(id), row.kind == .room, let room = row.recipient {
        if isReadOnly(room) { return decide { $0.giveUp(id, now: $1) } }
        postWasUnanswered(room)
      }
      change(id, isWhole: isFirst) { $0.state = .heldForRecipient }
      endIfOver(id)
    case .waiting(let id, let unspent):
      waits(id, unspent)
      endIfOver(id)
    case .heard(let id, let count): change(id) { $0.heard += count }
    case .discoverPath(let key): nodes?.discoverPath(key)
    case .restorePath(let key): putPathBack(to: key)
    }
  }

  /// The reason of a failed post that the room ignores.
  static let readOnly = "read_only"

  func end(_ message: inout OutgoingMessage) {
    message.endedAt = synchronizer.now.milliseconds
    if message.kind == .channel, message.state == .sent { counts.channel += 1 }
  }

  /// `unspent`: air time that was booked for the attempt, but not used. `isWhole`: the event has the whole message.
  private func change(
    _ id: Int64, unspent: Int64 = 0, isWhole: Bool = false, _ make: @escaping (inout OutgoingMessage) -> Void
  ) {
    change(StateChange(id: id, unspent: unspent, isWhole: isWhole, make: make))
  }

  /// Between two attempts a message stays `sent`. One that was never sent is pending again, and so is a channel message, which the radio may have
  /// lost.
  private func waits(_ id: Int64, _ unspent: Int64) {
    let mayBeOnAir = unspent == 0 && session.mayBeOnAir(id)
    change(
      StateChange(
        id: id, unspent: unspent, isWanted: { $0.state == .sending || $0.state == .sent && $0.kind == .channel },
        make: { message in
          message.state = message.attempts.accepted == 0 || message.kind == .channel ? .pending : .sent
          guard message.kind == .channel else { return }
          message.endedAt = nil
          // On disk: a restart, or the end of its time while another radio is attached, must not take it for unsent.
          if mayBeOnAir { message.attempts.accepted = max(1, message.attempts.accepted) }
        }))
  }

  // MARK: An attempt

  /// Writes the attempt to disk before the radio gets it.
  private func keep(_ attempt: Attempt, of id: Int64) async throws(NotHandedOver) -> (OutgoingMessage, number: UInt8) {
    // An acknowledgement of an earlier attempt can come at any time.
    guard session.isLive(id), var message = row(id), isOfThisRadio(message), !waitsForChannel(message),
      let own = synchronizer.connection.identity?.info
    else { throw NotHandedOver(answer: .notTried) }
    if isTooOld(message.senderTime, message) {
      // With a new time, everybody in the room would read it twice if it has arrived.
      guard message.attempts.accepted == 0 || wasIgnored(message) else { throw NotHandedOver(answer: .tooOld) }
      message.senderTime = nil
    }
    // If it goes out again, then as the same packet, whatever the channel's region is by then.
    if message.kind == .channel, message.region == nil, let choice = store.ifReadable({ try region(of: message) }),
      choice != .radioDefault
    {
      message.region = choice.text
    }
    let number = prepare(&message, attempt.number, own)
    message.airtime += attempt.airtime
    guard await save(message, airtime: attempt.airtime).failure() == nil, !Task.isCancelled else {
      throw NotHandedOver(answer: .notTried)
    }
    for code in message.attempts.codes { session.expect(code, for: id) }
    return (message, number)
  }

  /// Sets everything that is needed after a crash: the attempt's number, the message's time, the expected acknowledgement.
  private func prepare(_ message: inout OutgoingMessage, _ attempt: UInt8, _ own: SelfInfo) -> UInt8 {
    // A channel message may have ended as sent before the radio restarted.
    (message.state, message.endedAt) = (.sending, nil)
    let form = AttemptForm(attempt: attempt, bytes: message.text.bytes.count, hasTime: message.senderTime != nil)
    let known = form.needsTime ? nil : message.senderTime
    let time = known ?? newTime(for: message, own.key)
    message.senderTime = time
    guard message.kind != .channel else { return form.number }
    message.attempts.next = attempt &+ 1
    message.attempts.expect(.expected(time: time, attempt: form.number, text: message.text, sender: own.key))
    return form.number
  }

  /// A time that gives no attempt the acknowledgement code of another message. Posts have a clock of their own, and the code does not name the recipient:
  /// the same text to a room and to a node could have the same one.
  private func newTime(for message: OutgoingMessage, _ own: PublicKey) -> UInt32 {
    guard message.kind != .channel else { return newTime(inRoom: false) }
    var (time, times) = (nextTime(for: message), 1)
    while times < Self.mostTimes, isOfAnother(time, message, own) {
      time = nextTime(for: message)
      times += 1
    }
    return time
  }

  private func nextTime(for message: OutgoingMessage) -> UInt32 {
    let time = newTime(inRoom: message.kind == .room)
    return isTooOld(time, message) ? message.recipient.flatMap { timePast($0) } ?? time : time
  }

  private func isOfAnother(_ time: UInt32, _ message: OutgoingMessage, _ own: PublicKey) -> Bool {
    // Later attempts have two bits of their number in the code.
    for attempt in UInt8(0)...3 {
      let code = AckCode.expected(time: time, attempt: attempt, text: message.text, sender: own)
      if session.isOfAnother(code, than: message.id) { return true }
    }
    return false
  }

  private static let mostTimes = 64

  private func newTime(inRoom: Bool) -> UInt32 {
    let (now, radio) = (synchronizer.now, synchronizer.radioTime)
    return inRoom ? senderClock.nextInRoom(now, radio: radio) : senderClock.next(now, radio: radio)
  }

  /// Gives the message to the radio, and returns when the machine has the radio's answer.
  private func hand(_ message: OutgoingMessage, _ number: UInt8, _ route: DeliveryRoute) async throws(NotHandedOver) {
    if message.kind == .channel { return try await handToChannel(message) }
    guard let key = message.recipient, let time = message.senderTime else { throw NotHandedOver(answer: .refused) }
    let scope = try scope(of: message)
    if route == .resetAndFlood {
      guard let reset = synchronizer.connection.submit(.resetPath(key), .interactive) else {
        throw NotHandedOver(answer: .notTried)
      }
      // The result does not matter: if the path stays, the message goes along it once more.
      _ = await reset.outcome()
    }
    if message.kind == .room { nodes?.requests.gave(time, to: key) }
    let text = OutgoingText(attempt: number, time: time, recipient: key.prefix, text: message.text)
    synchronizer.ways.sends(message.id, to: key, bytes: message.text.bytes.count)
    try await hand(.sendText(text), in: scope, message)
  }

  /// What it takes to send the message in its region: its own, else that of its recipient or channel, else the radio's
  /// default. The radio has to know that region, or nothing is sent: the message would reach people outside of it.
  private func scope(of message: OutgoingMessage) throws(NotHandedOver) -> FloodScopeOverride? {
    let choice: RegionChoice
    do {
      choice = try region(of: message)
    } catch {
      throw NotHandedOver(answer: .notTried)
    }
    do throws(Refusal) {
      return try scope(for: choice)
    } catch {
      log.warning("\(error)")
      throw NotHandedOver(answer: .regionUnknown)
    }
  }

  /// The region that the message is sent in now.
  public func region(of message: OutgoingMessage) throws(StoreError) -> RegionChoice {
    if let own = message.region { return RegionChoice(own) ?? .radioDefault }
    if let channel = message.channel, let text = try store.region(ofChannel: channel), let region = Region(text) {
      return .region(region)
    }
    let text = try message.recipient.flatMap { key throws(StoreError) in try store.contact(key)?.region }
    return text.flatMap { RegionChoice($0) } ?? .radioDefault
  }

  /// Puts back the path that a flood has taken out of the radio: the store still has it, unless the radio was asked meanwhile. If it is not put back, the
  /// next attempt is a flood, whose answer brings a path.
  private func putPathBack(to key: PublicKey) {
    guard synchronizer.knowsAllContacts, let stored = store.ifReadable({ try store.contact(key) }), stored.onRadio,
      stored.contact.outPath != nil
    else { return }
    _ = synchronizer.connection.submit(.addUpdateContact(stored.contact), .interactive)
  }

  /// Whether the message waits because the radio has not confirmed over this link that its slot still is this channel.
  public func waitsForChannel(_ message: OutgoingMessage) -> Bool {
    guard message.kind == .channel, !message.hasEnded, isOfThisRadio(message) else { return false }
    // An unreadable store fails the next step, too.
    let found = store.ifReadable { try self.channels(message.channel) } ?? []
    return !found.isEmpty && found.allSatisfy { synchronizer.doubts($0.slot) }
  }

  private func channels(_ digest: String?) throws(StoreError) -> [Channel] {
    try store.channels().filter { $0.secret.digest == digest }
  }

  private func handToChannel(_ message: OutgoingMessage) async throws(NotHandedOver) {
    let channel: Channel?
    do {
      channel = try channels(message.channel).first { !synchronizer.doubts($0.slot) }
    } catch {
      throw NotHandedOver(answer: .notTried)
    }
    if waitsForChannel(message) { throw NotHandedOver(answer: .notTried) }
    guard let channel, let time = message.senderTime else { throw NotHandedOver(answer: .unknown) }
    // The radio may have a longer name now: it would cut the text without notice.
    guard message.text.bytes.count <= channelLimit else {
      throw NotHandedOver(answer: synchronizer.doubtsIdentity ? .notTried : .refused)
    }
    let scope = try scope(of: message)
    if let name = ownName {
      let isSame = echoes.expect(
        message.id, text: message.text, time: time, name: name, secret: channel.secret, now: loop.now)
      // With another name of the radio, the packet is new: everybody would read the text twice.
      guard isSame || message.attempts.accepted == 0 else { throw NotHandedOver(answer: .refused) }
      if let payload = echoes.payload(of: message.id) { synchronizer.ways.sends(message.id, payload) }
    }
    let command = Command.sendChannelText(type: .plain, slot: channel.slot, time: time, text: message.text)
    try await hand(command, in: scope, message)
  }

  /// The radio may have received another gateway's message itself, and still hold it: so its queue is read first. A copy of the database that was put
  /// back may have sent it.
  private func checkThatItIsNews(_ id: Int64) async throws(NotHandedOver) {
    guard let message = row(id) else { return }
    let isRelayed = message.key.hasPrefix(RelayMark.sign)
    let identity = String(message.key.dropFirst(RelayMark.sign.count))
    do {
      guard try !store.mayHaveSent(message, isRelayed: isRelayed) else { throw NotHandedOver(answer: .beforeRestore) }
      guard isRelayed else { return }
      guard try await synchronizer.readQueue(within: Self.longestRead) else { throw NotHandedOver(answer: .notTried) }
      guard try !store.hasHeard(identity) else { throw NotHandedOver(answer: .heardByRadio) }
    } catch let error as NotHandedOver {
      throw error
    } catch {
      throw NotHandedOver(answer: .notTried)
    }
  }

  /// A lost answer takes five seconds, and other messages wait meanwhile.
  private static let longestRead: Duration = .seconds(10)

  private func hand(
    _ command: Command, in scope: FloodScopeOverride?, _ message: OutgoingMessage
  ) async throws(NotHandedOver) {
    guard mayGo(message), let asked = submit(command, in: scope) else { throw NotHandedOver(answer: .notTried) }
    let question = asked[asked.count / 2]
    underWay.gave(message.id, question)
    if scope != nil, case .failed(.refused) = await asked[0].outcome() {
      // If the region cannot be read now, the message's row has the reason.
      log.warning("\(cannotSend(to: (try? region(of: message).text) ?? "its region"))")
    }
    _ = await question.outcome()
    takeAnswer()
    await untilScopeIsBack(asked)
  }

  /// Whether the message may still be sent: its state may have changed since its turn came.
  private func mayGo(_ message: OutgoingMessage) -> Bool {
    !Task.isCancelled && session.isLive(message.id) && isOfThisRadio(message)
  }

  /// A channel's slot has been read over this link, so *not found* says that the radio has no room for a packet (docs/protocol/companion.md § 5.3).
  private static func meaning(of outcome: RadioSession.Outcome, toChannel: Bool) -> DeliveryAnswer {
    switch outcome {
    case .replied(.sent(let sent)):
      .sent(code: sent.ackOrTag, flooded: sent.flood, timeout: sent.suggestedTimeout)
    case .replied(.ok): .channelSent
    case .failed(.refused(.tableFull)): .busy
    case .failed(.refused(.notFound)): toChannel ? .busy : .unknown
    case .failed(.timedOut): .unanswered
    case .failed(.linkLost): .linkLost
    case .failed(.notSent(isRefused: true)): .regionUnknown
    case .failed(.notSent(isRefused: false)): .notTried
    default: .refused
    }
  }
}
