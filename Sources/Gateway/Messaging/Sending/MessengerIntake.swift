// SPDX-License-Identifier: MIT

import Companion
import Delivery
import MeshCrypto
import Store
import Sync
import Timing
import UntrustedText

/// Accepts messages: finds the recipient, checks limits, and answers once the message is on disk.
extension Messenger {
  /// Accepts a message, and returns once it is on disk. For a known key it adds nothing, and returns the existing message.
  public func send(_ request: SendRequest) async throws(Refusal) -> [OutgoingMessage] {
    let known = try known(request)
    let intake = known.isEmpty ? try admit(request) : Intake([])
    // A known message may be from this turn, and not on disk yet.
    guard known.isEmpty || arriving > 0 else { return known }
    let failure = await store.write { store throws(SQLiteError) in try insert(intake) }.failure()
    settle(intake, failure)
    if let failure { throw .store(failure) }
    return known + intake.kept
  }

  /// Accepts a message for which nobody waits: it is refused at once, or goes into this turn's transaction.
  public func post(_ request: SendRequest) throws(Refusal) {
    // A known message needs no check, whatever has become of its recipient.
    if let key = request.key, try !known(key).isEmpty { return }
    let intake = try admit(request)
    let commit = store.write { store throws(SQLiteError) in try self.insert(intake) }
    tasks.begin { self.settle(intake, await commit.failure()) }
  }

  /// Messages between their admission and the end of the commit.
  private final class Intake {
    let messages: [OutgoingMessage]
    /// The messages as stored, and the new ones among them.
    var kept: [OutgoingMessage] = []
    var fresh: [OutgoingMessage] = []

    init(_ messages: [OutgoingMessage]) { self.messages = messages }
  }

  /// Composes the messages, and reserves room: messages that wait for their commit count towards the queue's bound.
  private func admit(_ request: SendRequest) throws(Refusal) -> Intake {
    let messages = try compose(request)
    if let recipient = messages.first?.recipient { try checkShare(of: recipient, messages.count) }
    try reserve(messages.count, for: request.priority)
    return Intake(messages)
  }

  /// A recipient that does not acknowledge gets a quarter of the queue, so that others can be written to.
  private func checkShare(of recipient: PublicKey, _ count: Int) throws(Refusal) {
    let waiting = session.waiting(for: recipient)
    let most = max(Self.leastShare, settings.maxWaiting / 4)
    guard waiting > 0, waiting + count > most else { return }
    throw .full(
      "\(waiting) messages already wait for this recipient, who does not acknowledge them (meshpost sent). Cancel some, or try again later"
    )
  }

  private static let leastShare = 8

  private func insert(_ intake: Intake) throws(SQLiteError) {
    for message in intake.messages {
      if let stored = try store.insertOutgoing(message) {
        intake.fresh.append(stored)
        intake.kept.append(stored)
        try noteReaction(stored)
      } else if let known = try store.readOutgoing(key: message.key) {
        intake.kept.append(known)
      }
    }
  }

  /// The commit has ended: messages that are on disk are sent.
  private func settle(_ intake: Intake, _ failure: StoreError?) {
    arriving -= intake.messages.count
    guard failure == nil else { return }
    for message in intake.fresh where message.radio == store.radio { enqueue(message) }
  }

  /// The message, if it was accepted before. Refuses another text, recipient or region under its id: whoever asks would take it for sent.
  private func known(_ request: SendRequest) throws(Refusal) -> [OutgoingMessage] {
    guard let key = request.key else { return [] }
    let known = try known(key)
    guard let first = known.first else { return [] }
    // A request that names no region leaves it to the message.
    if let region = request.region?.text, first.region?.isExactly(region) != true { throw .otherMessage(key) }
    let again: [OutgoingMessage]
    do throws(Refusal) { again = try compose(request) } catch {
      // Its recipient may be gone since. A text in parts cannot be compared then.
      guard known.count > 1 || first.text == request.text else { throw .otherMessage(key) }
      guard mayName(request.to, recipientOf: first) else { throw error }
      return known
    }
    let isSame =
      again.map(\.text) == known.map(\.text) && again.first?.recipient == first.recipient
      && again.first?.channel == first.channel
    guard isSame else { throw .otherMessage(key) }
    return known
  }

  /// Whether the name may be that of the message's recipient. A recipient that is gone has no name any more.
  private func mayName(_ name: String, recipientOf message: OutgoingMessage) -> Bool {
    let addressing = Addressing(store)
    // `try?`: the recipient is gone, or the store cannot be read: there is nothing to compare.
    guard let recipient = try? addressing.find(message.recipient?.hex ?? message.channel ?? "") else { return true }
    // `try?`: a name that nobody has, or several have, is not known to be its name.
    return (try? addressing.find(name)) == recipient
  }

  /// The message with this key, or its parts.
  private func known(_ key: String) throws(Refusal) -> [OutgoingMessage] {
    try Refusal.translating { () throws(StoreError) in
      if let whole = try store.outgoing(key: key) { return [whole] }
      var parts: [OutgoingMessage] = []
      while let part = try store.outgoing(key: "\(key)/\(parts.count + 1)") { parts.append(part) }
      return parts
    }
  }

  /// Reserves room in the queue for messages that wait for their commit (`arriving`). Relayed messages get half of the queue: the rest is for people
  /// who send here.
  func reserve(_ count: Int, for priority: DeliveryPriority = .interactive) throws(Refusal) {
    let waiting = session.pending + arriving
    guard waiting + count <= (priority == .relayed ? settings.maxWaiting / 2 : settings.maxWaiting) else {
      let held = session.held
      let why = held > 0 ? ", \(held) of them for recipients who do not acknowledge (meshpost sent)" : ""
      throw .full("\(waiting) messages are already waiting (messaging.queue)\(why); cancel some, or try again later")
    }
    arriving += count
  }

  private func compose(_ request: SendRequest) throws(Refusal) -> [OutgoingMessage] {
    let text = request.text.beforeNul
    guard text == request.text else { throw .invalid("the text contains a NUL, where the mesh would truncate it") }
    guard !Visible.isBlank(text.string) else { throw .invalid("the text is empty, or nothing of it is visible") }
    let addressee = try Addressing(store).find(request.to)
    let limit = try limit(for: addressee)
    guard limit > 0 else { throw .invalid("the radio's name leaves no room for a text") }
    let over = text.bytes.count - limit
    guard over <= 0 || request.splits else { throw .tooLong(over: over, limit: limit) }
    guard let parts = TextLimit.split(text, limit: limit) else {
      throw .invalid("the text needs more than \(TextLimit.maxParts) parts")
    }
    let key = request.key ?? Self.randomKey()
    guard Visible.isLine(key, bytes: 1...64) else {
      throw .invalid("an id must have 1 to 64 bytes, not only blanks, and no control characters")
    }
    return parts.enumerated().map { index, part in
      message(request, addressee, part, key: parts.count == 1 ? key : "\(key)/\(index + 1)")
    }
  }

  private static func randomKey() -> String { Hex.string((0..<8).map { _ in UInt8.random(in: .min ... .max) }) }

  private func limit(for addressee: Addressee) throws(Refusal) -> Int {
    switch addressee {
    case .channel(let channel):
      guard !channel.isEmpty, !channel.secret.isZero else { throw .invalid("the channel has no key") }
      return channelLimit
    case .contact(let stored):
      let contact = stored.contact
      if let refusal = try refusal(of: stored) { throw refusal }
      guard !contact.key.prefix.isZero else { throw .invalid("a key must not be all zeros") }
      switch contact.type {
      case .room:
        guard !isReadOnly(contact.key) else { throw .readOnly(contact.name.string) }
        return TextLimit.room
      case .repeater:
        throw .invalid("\(contact.name.string) is a repeater and does not receive messages; see `meshpost node`")
      default: return TextLimit.direct
      }
    }
  }

  private func message(
    _ request: SendRequest, _ addressee: Addressee, _ text: Text, key: String
  ) -> OutgoingMessage {
    let longest = Duration.seconds(SendRequest.lifetimes.upperBound)
    let lifetime = min(max(request.lifetime ?? settings.lifetime, .seconds(1)), longest)
    var message = OutgoingMessage(
      key: key, origin: request.origin, priority: request.priority.rawValue, kind: .direct, text: text,
      created: synchronizer.now, lifetime: lifetime.wholeNanoseconds / 1_000_000, radio: store.radio)
    message.createdElapsed = store.elapsed(at: message.created)
    message.region = request.region?.text
    switch addressee {
    case .contact(let stored):
      message.recipient = stored.contact.key
      if stored.contact.type == .room { message.kind = .room }
    case .channel(let channel):
      message.kind = .channel
      message.channel = channel.secret.digest
    }
    if let question = request.answers { message.region = regionOfAnswer(message, to: question) }
    return message
  }

  /// The region of an answer. One that the radio cannot send in is not used, since nobody has asked for it.
  private func regionOfAnswer(_ message: OutgoingMessage, to question: Int64) -> String? {
    // If the store cannot be read, the message is not kept either.
    guard message.region == nil, store.ifReadable({ try self.region(of: message) }) == .radioDefault,
      let copies = store.ifReadable({ try store.copies(of: .received(question)).kept }),
      let text = HeardCopy.region(of: copies), let choice = RegionChoice(named: text),
      synchronizer.connection.setting(for: choice.scopeOverride) != .impossible
    else { return message.region }
    return choice.text
  }

  /// Stores a reaction that we send like a received one.
  func noteReaction(_ message: OutgoingMessage) throws(SQLiteError) {
    let isChannel = message.kind == .channel
    guard let reaction = ReactionText(reading: message.text, inChannel: isChannel) else { return }
    let conversation = message.channel ?? message.recipient?.prefix.hex ?? ""
    try store.keepOwnReaction(reaction, conversation: conversation, outgoing: message.id, at: message.created)
  }

  /// Hands a message that is on disk to the session.
  func enqueue(_ message: OutgoingMessage, isFromEarlierRun: Bool = false) {
    let destination: Destination
    var path: Int?
    if let key = message.recipient {
      destination = .node(key)
      // If the path cannot be read, the message counts as flooded; the radio knows the path.
      path = (store.ifReadable { try store.contact(key) })?.contact.outPath?.bytes.count
    } else {
      destination = .channel(message.channel ?? "")
    }
    let nameBytes = message.kind == .channel ? TextLimit.channelWithName - TextLimit.channel(ownName: ownName) : 0
    let isInterrupted = message.state == .sending || message.state == .sent
    let item = DeliveryItem(
      id: message.id, destination: destination, priority: DeliveryPriority(rawValue: message.priority) ?? .bulk,
      origin: message.origin, bytes: message.text.bytes.count + nameBytes, expires: lastTime(for: message),
      notBefore: start(of: message, isFromEarlierRun),
      attempt: message.attempts.next, tries: message.attempts.accepted, floods: message.attempts.floods,
      codes: message.attempts.codes,
      progress: message.state == .heldForRecipient ? .held : isInterrupted ? .interrupted : .pending,
      isOrdered: message.kind == .room, isInRegion: isInRegion(message))
    decide { $0.add(item, path: path, now: $1) }
  }

  /// `nil`: as the radio's default says. If the store cannot be read, the message is not sent, either.
  private func isInRegion(_ message: OutgoingMessage) -> Bool? {
    switch store.ifReadable({ try region(of: message) }) {
    case .region(let region)?: region.key != nil
    case .radioDefault?, nil: nil
    }
  }

  /// When the message may be sent; `nil`: at once.
  private func start(of message: OutgoingMessage, _ isFromEarlierRun: Bool) -> MonotonicTime? {
    let isRelayed = message.key.hasPrefix(RelayMark.sign)
    let hold = isRelayed ? max(.zero, settings.exchangeHold - age(of: message)) : .zero
    // One that was transmitted has its time, and is the same message for its recipients.
    let wait = isFromEarlierRun && (isRelayed || message.senderTime == nil) ? settings.untilHubsTell : .zero
    return isRelayed || wait > .zero ? loop.now + max(wait, hold) : nil
  }

  /// The radio's name; `nil`: unknown.
  public var ownName: Text? { synchronizer.connection.identity?.info.name }

  /// The bytes that a text to a channel may have: as if the radio's name were the longest, while it may be another.
  public var channelLimit: Int { TextLimit.channel(ownName: synchronizer.doubtsIdentity ? nil : ownName) }

  /// When the message expires. Setting the clock makes no message old.
  func expiry(of message: OutgoingMessage) -> MonotonicTime {
    loop.now + max(.zero, .milliseconds(message.lifetime) - age(of: message))
  }

  /// When an attempt may be made at the latest. A channel message that the radio accepted in an earlier run has the
  /// time in which nodes that have it know it.
  func lastTime(for message: OutgoingMessage) -> MonotonicTime {
    guard message.kind == .channel, message.attempts.floods > 0 else { return expiry(of: message) }
    return min(expiry(of: message), loop.now + max(.zero, DeliverySettings.duplicatesKnown - age(of: message)))
  }

  private func age(of message: OutgoingMessage) -> Duration {
    .milliseconds(max(0, store.elapsed(at: synchronizer.now) - max(0, message.createdElapsed)))
  }

  /// Begins a failed message again, or tries a held one now.
  public func retry(key: String) async throws(Refusal) -> OutgoingMessage {
    var message = try find(key)
    guard message.radio == store.radio else { throw .invalid(held(message)) }
    if message.state == .heldForRecipient, session.isLive(message.id) {
      decide { $0.tryNow(message.id, now: $1) }
      return message
    }
    guard message.state == .failed, !session.isLive(message.id) else {
      throw .invalid("\(key) is \(message.state.rawValue); only failed and held messages can be retried")
    }
    message.state = .retrying
    (message.reason, message.endedAt, message.attempts.accepted, message.attempts.floods) = (nil, nil, 0, 0)
    message.created = synchronizer.now
    message.createdElapsed = store.elapsed(at: message.created)
    if message.kind == .room { message.senderTime = nil }
    arriving += 1
    defer { arriving -= 1 }
    let previous = unsaved[message.id]
    let commit = store.write { store throws(SQLiteError) in try store.updateOutgoing(message, at: message.created) }
    // A second request in this turn must see the new state.
    unsaved[message.id] = Unsaved(message: message, commit: commit)
    if let failure = await commit.failure() {
      unsaved[message.id] = previous
      throw .store(failure)
    }
    if unsaved[message.id]?.commit === commit { unsaved[message.id] = nil }
    if message.radio == store.radio { enqueue(message) }
    return message
  }

  /// Ends the attempts of a message. A packet on the air cannot be called back.
  public func cancel(key: String) throws(Refusal) -> OutgoingMessage {
    let message = try find(key)
    if isHeld(message) { return end(held: message, .cancelled) }
    guard session.isLive(message.id) else { throw .invalid("\(key) has ended: \(message.state.rawValue)") }
    decide { $0.cancel(message.id, now: $1) }
    return row(message.id) ?? message
  }

  func find(_ key: String) throws(Refusal) -> OutgoingMessage {
    let message = try Refusal.translating { () throws(StoreError) in try store.outgoing(key: key) }
    guard let message else { throw .notFound(.outgoing(key)) }
    return row(message.id) ?? message
  }
}
