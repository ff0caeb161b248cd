// SPDX-License-Identifier: MIT

import Companion
import Delivery
import Store
import Sync
import Timing

/// Taking messages in: who is meant, what is allowed, on disk before anybody is told.
extension Messenger {
  /// Takes a message in; `done` hears of it when it is on disk. With a key that is known already nothing is added, and
  /// the message there is told.
  public func send(_ request: SendRequest, _ done: @escaping (Result<[OutgoingMessage], Refusal>) -> Void) {
    do throws(Refusal) {
      // Known already: whatever has become of the recipient since.
      let known = try known(request.key)
      guard known.isEmpty else { return done(.success(known)) }
      let messages = try compose(request)
      try checkRoom(for: messages.count)
      keep(messages, done)
    } catch {
      guard case .notOnRadio = error else { return done(.failure(error)) }
      restore(request, error, done)
    }
  }

  /// Who had to give way in the radio's table comes back when somebody writes to them.
  private func restore(
    _ request: SendRequest, _ refusal: Refusal, _ done: @escaping (Result<[OutgoingMessage], Refusal>) -> Void
  ) {
    // `try?`: nobody of that name is what was said already.
    guard let keeper, let stored = try? Addressing(store).contact(request.to), !stored.onRadio else {
      return done(.failure(refusal))
    }
    loop.begin { [weak self] in
      guard await keeper.restore(stored), let self else { return done(.failure(refusal)) }
      self.send(request, done)
    }
  }

  /// The message with this key, or its parts.
  private func known(_ key: String?) throws(Refusal) -> [OutgoingMessage] {
    guard let key else { return [] }
    do throws(StoreError) {
      if let whole = try store.outgoing(key: key) { return [whole] }
      var parts: [OutgoingMessage] = []
      while let part = try store.outgoing(key: "\(key)/\(parts.count + 1)") { parts.append(part) }
      return parts
    } catch {
      throw .store(error)
    }
  }

  func checkRoom(for count: Int) throws(Refusal) {
    // Those of this turn, too, which are not on disk yet.
    let waiting = session.pending + arriving
    guard waiting + count <= settings.maxWaiting else {
      throw .full("\(waiting) messages wait already (messaging.queue); try again later")
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
      throw .invalid("the text needs more than \(TextLimit.maxParts) parts")
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
      case .room:
        guard !isReadOnly(contact.key) else { throw .readOnly(contact.name.string) }
        return TextLimit.room
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
      created: synchronizer.now, lifetime: lifetime.wholeNanoseconds / 1_000_000, radio: store.radio)
    message.createdElapsed = store.elapsed(at: message.created)
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
    arriving += messages.count
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
      self.arriving -= messages.count
      if let failure { return done(.failure(.store(failure))) }
      done(.success(kept))
      for message in fresh where message.radio == self.store.radio { self.enqueue(message) }
    }
  }

  /// A reaction that we send is one like those that come.
  func noteReaction(_ message: OutgoingMessage) throws(SQLiteError) {
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

  /// A clock that is set in between makes no message old.
  func expiry(of message: OutgoingMessage) -> MonotonicTime {
    let passed = max(0, store.elapsed(at: synchronizer.now) - max(0, message.createdElapsed))
    return loop.now + .milliseconds(max(0, message.lifetime - min(passed, message.lifetime)))
  }

  /// Another round for a message that failed.
  public func retry(key: String, _ done: @escaping (Result<OutgoingMessage, Refusal>) -> Void) {
    guard var message = find(key, done) else { return }
    guard message.radio == store.radio else { return done(.failure(.invalid(held(message)))) }
    guard message.state == .failed, !session.isLive(message.id) else {
      return done(.failure(.invalid("\(key) is \(message.state.rawValue); only failed messages can be retried")))
    }
    message.state = .retrying
    (message.reason, message.endedAt, message.tries, message.floods) = (nil, nil, 0, 0)
    message.created = synchronizer.now
    message.createdElapsed = store.elapsed(at: message.created)
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
    if isHeld(message) { return end(held: message, .cancelled, done) }
    guard session.isLive(message.id) else {
      return done(.failure(.invalid("\(key) has ended: \(message.state.rawValue)")))
    }
    perform(session.cancel(message.id, now: loop.now))
    done(.success(row(message.id) ?? message))
  }

  func find(
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
}
