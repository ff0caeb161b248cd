// SPDX-License-Identifier: MIT

import Companion
import Delivery
import MeshCrypto
import RadioSession
import Store
import Sync
import Timing

extension Messenger {
  // MARK: Taking messages in

  /// Takes a message in; `done` hears of it when it is on disk. With a key that is known already nothing is added, and
  /// the message there is told.
  public func send(_ request: SendRequest, _ done: @escaping (Result<[OutgoingMessage], Refusal>) -> Void) {
    do throws(Refusal) {
      let messages = try compose(request)
      try checkRoom(for: messages.count)
      keep(messages, done)
    } catch {
      done(.failure(error))
    }
  }

  private func checkRoom(for count: Int) throws(Refusal) {
    guard session.pending + count <= settings.mostWaiting else {
      throw .full("\(session.pending) messages wait already (messaging.queue); try again later")
    }
  }

  private func compose(_ request: SendRequest) throws(Refusal) -> [OutgoingMessage] {
    let text = request.text.beforeNul
    guard !text.isEmpty else { throw .invalid("the text is empty") }
    guard text == request.text else { throw .invalid("the text contains a NUL, at which the mesh would cut it") }
    let addressee = try Addressing(store).find(request.to)
    let limit = try limit(for: addressee)
    guard limit > 0 else { throw .invalid("the radio's name leaves no room for a text") }
    let over = text.bytes.count - limit
    guard over <= 0 || request.splits else { throw .tooLong(over: over, limit: limit) }
    guard let parts = TextLimit.split(text, limit: limit) else {
      throw .invalid("the text needs more than \(TextLimit.mostParts) parts")
    }
    let key = request.key ?? Self.randomKey()
    guard (1...64).contains(key.utf8.count) else { throw .invalid("an id has 1 to 64 bytes") }
    return parts.enumerated().map { index, part in
      message(request, addressee, part, key: parts.count == 1 ? key : "\(key)/\(index + 1)")
    }
  }

  private static func randomKey() -> String { Hex.string((0..<8).map { _ in UInt8.random(in: .min ... .max) }) }

  private func limit(for addressee: Addressee) throws(Refusal) -> Int {
    switch addressee {
    case .channel(let channel):
      guard !channel.isEmpty, !channel.secret.isZero else { throw .invalid("the channel has no key") }
      return TextLimit.channel(ownName: synchronizer.connection.identity?.info.name)
    case .contact(let stored):
      let contact = stored.contact
      guard stored.onRadio else { throw .notOnRadio(contact.name.string) }
      guard !contact.key.prefix.isZero else { throw .invalid("a key of zeros is nobody") }
      switch contact.type {
      case .room: return TextLimit.room
      case .repeater: throw .invalid("\(contact.name.string) is a repeater and takes no messages; see `meshpost node`")
      default: return TextLimit.direct
      }
    }
  }

  private func message(
    _ request: SendRequest, _ addressee: Addressee, _ text: Text, key: String
  ) -> OutgoingMessage {
    let lifetime = min(max(request.lifetime, .seconds(1)), SendRequest.longestLifetime)
    var message = OutgoingMessage(
      key: key, origin: request.origin, priority: request.priority.rawValue, kind: .direct, text: text,
      created: synchronizer.now, lifetime: lifetime.wholeNanoseconds / 1_000_000)
    switch addressee {
    case .contact(let stored):
      message.recipient = stored.contact.key
      if stored.contact.type == .room { message.kind = .room }
    case .channel(let channel):
      message.kind = .channel
      message.channel = channel.secret.digest
    }
    return message
  }

  private func keep(_ messages: [OutgoingMessage], _ done: @escaping (Result<[OutgoingMessage], Refusal>) -> Void) {
    var kept: [OutgoingMessage] = []
    var fresh: [OutgoingMessage] = []
    store.write({ store throws(SQLiteError) in
      for message in messages {
        if let stored = try store.insertOutgoing(message) {
          fresh.append(stored)
          kept.append(stored)
          try noteReaction(stored)
        } else if let known = try store.readOutgoing(key: message.key) {
          kept.append(known)
        }
      }
    }) { [weak self] failure in
      guard let self else { return }
      if let failure { return done(.failure(.store(failure))) }
      done(.success(kept))
      for message in fresh { self.enqueue(message) }
    }
  }

  /// A reaction that we send is one like those that come.
  private func noteReaction(_ message: OutgoingMessage) throws(SQLiteError) {
    let isChannel = message.kind == .channel
    guard let reaction = ReactionText(reading: message.text, inChannel: isChannel) else { return }
    let conversation = message.channel ?? message.recipient?.prefix.hex ?? ""
    try store.keepOwnReaction(reaction, conversation: conversation, outgoing: message.id, at: message.created)
  }

  /// Hands a message that is on disk to the session.
  func enqueue(_ message: OutgoingMessage) {
    let destination: Destination
    var path: Int?
    if let key = message.recipient {
      destination = .node(key)
      // `try?`: without its path the message is flooded, and the radio knows better anyhow.
      path = ((try? store.contact(key)) ?? nil)?.contact.outPath?.bytes.count
    } else {
      destination = .channel(message.channel ?? "")
    }
    let nameBytes = message.kind == .channel ? TextLimit.channelWithName - TextLimit.channel(ownName: ownName) : 0
    let isInterrupted = message.state == .sending || message.state == .sent
    let item = DeliveryItem(
      id: message.id, destination: destination, priority: DeliveryPriority(rawValue: message.priority) ?? .bulk,
      origin: message.origin, bytes: message.text.bytes.count + nameBytes, expires: expiry(of: message),
      attempt: message.attempt, tries: message.tries, floods: message.floods, codes: message.codes,
      progress: isInterrupted ? .interrupted : .pending)
    perform(session.add(item, path: path, now: loop.now))
  }

  var ownName: Text? { synchronizer.connection.identity?.info.name }

  /// By a clock that could not be trusted, then or now, nothing has passed yet.
  private func expiry(of message: OutgoingMessage) -> MonotonicTime {
    let now = synchronizer.now
    let isComparable = now.trusted == message.created.trusted
    let passed = isComparable ? max(0, now.milliseconds - message.created.milliseconds) : 0
    return loop.now + .milliseconds(max(0, message.lifetime - passed))
  }

  /// Another round for a message that failed.
  public func retry(key: String, _ done: @escaping (Result<OutgoingMessage, Refusal>) -> Void) {
    guard var message = find(key, done) else { return }
    guard message.state == .failed, !session.isLive(message.id) else {
      return done(.failure(.invalid("\(key) is \(message.state.rawValue); only failed messages can be retried")))
    }
    message.state = .retrying
    (message.reason, message.endedAt, message.tries, message.floods) = (nil, nil, 0, 0)
    message.created = synchronizer.now
    if message.kind == .room { message.senderTime = nil }
    save(message) { [weak self] isSaved in
      guard isSaved else { return done(.failure(.store(.unavailable("the state cannot be written")))) }
      done(.success(message))
      self?.enqueue(message)
    }
  }

  /// No further attempt. What is on the air already cannot be called back.
  public func cancel(key: String, _ done: @escaping (Result<OutgoingMessage, Refusal>) -> Void) {
    guard let message = find(key, done) else { return }
    guard session.isLive(message.id) else {
      return done(.failure(.invalid("\(key) has ended: \(message.state.rawValue)")))
    }
    perform(session.cancel(message.id, now: loop.now))
    done(.success(row(message.id) ?? message))
  }

  private func find(
    _ key: String, _ done: (Result<OutgoingMessage, Refusal>) -> Void
  ) -> OutgoingMessage? {
    do {
      if let message = try store.outgoing(key: key) { return row(message.id) ?? message }
      done(.failure(.notFound(key)))
    } catch {
      done(.failure(.store(error)))
    }
    return nil
  }

  // MARK: Carrying out

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
        self.end(&message)
      }
    case .waiting(let id): waits(id)
    case .heard(let id, let count): change(id) { $0.heard += count }
    case .discoverPath(let key): onPathWanted(key)
    }
  }

  private func end(_ message: inout OutgoingMessage) {
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
    guard var message = row(id), let own = synchronizer.connection.identity?.info else {
      return answer(id, .notTried)
    }
    let number = prepare(&message, attempt, own)
    message.airtime += airtime
    save(message, airtime: airtime) { [weak self] isSaved in
      guard let self else { return }
      guard isSaved else { return self.answer(id, .notTried) }
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
    let time =
      message.senderTime
      ?? senderClock.next(
        synchronizer.now, radio: synchronizer.radioTime, forRoom: message.kind == .room)
    if message.senderTime == nil, number > 3 { number = number & 3 }
    message.senderTime = time
    guard message.kind != .channel else { return number }
    message.attempt = attempt &+ 1
    let code = AckCode.expected(time: time, attempt: number, text: message.text, sender: own.key)
    if !message.codes.contains(code) { message.codes.append(code) }
    return number
  }

  private func hand(_ message: OutgoingMessage, _ attempt: UInt8, _ route: DeliveryRoute) {
    if message.kind == .channel { return handToChannel(message) }
    guard let key = message.recipient, let time = message.senderTime else { return answer(message.id, .refused) }
    let text = OutgoingText(attempt: attempt, time: time, recipient: key.prefix, text: message.text)
    guard route == .resetAndFlood else { return submit(.sendText(text), message.id) }
    // Whatever comes of it: if the path stays, the message goes along it once more.
    let id = synchronizer.connection.submit(.resetPath(key), .interactive) { [weak self] _ in
      self?.submit(.sendText(text), message.id)
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
    if let name = ownName {
      echoes.expect(
        message.id, text: message.text, time: time, name: name, secret: channel.secret, now: loop.now)
    }
    submit(.sendChannelText(type: .plain, slot: channel.slot, time: time, text: message.text), message.id)
  }

  private func submit(_ command: Command, _ id: Int64) {
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
