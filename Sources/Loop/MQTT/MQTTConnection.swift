// SPDX-License-Identifier: MIT

import Timing

/// An open connection: which publications, subscriptions and messages wait for their acknowledgement. Pure.
struct MQTTConnection {
  /// The state of a publication.
  enum Publication: Equatable {
    case waits(id: UInt16)
    case settled(MQTTAnswer)
  }

  /// The next step of the client.
  enum Action: Equatable {
    case settle(id: UInt16, MQTTAnswer)
    /// `id`: for the acknowledgement; `nil`: it needs none.
    case deliver(MQTTMessage, id: UInt16?)
    /// `goodbye`: the code of the DISCONNECT that goes out first.
    case end(MQTTFailure, goodbye: UInt8? = nil)
  }

  private static let maxQueued = 256
  /// Maximum number of publications in flight; a broker of version 3.1.1 does not state its limit.
  private static let maxWindow = (v5: 256, v3: 64)

  let greeting: MQTTGreeting
  private let window: Int
  private let needsQuality1: Bool
  private var decoder: MQTTDecoder
  private var aliases: TopicAliases
  private(set) var pings: PingSchedule
  private(set) var lastID: UInt16
  private var unacknowledged: Set<UInt16> = []
  /// Encoded publications beyond the window. Not empty only while the window is full.
  private var queue: [(id: UInt16, bytes: [UInt8])] = []
  /// Of SUBSCRIBE and UNSUBSCRIBE.
  private var subscriptions: Set<UInt16> = []
  /// Received messages that the owner has not acknowledged.
  private var incoming: Set<UInt16> = []
  /// The number of acknowledgements that came.
  private(set) var answers: UInt64 = 0
  /// Packets that are not sent yet.
  private(set) var output: [UInt8] = []

  init(
    _ greeting: MQTTGreeting, _ options: MQTTOptions, _ decoder: MQTTDecoder, _ pings: PingSchedule, lastID: UInt16
  ) {
    self.greeting = greeting
    needsQuality1 = options.needsQuality1
    self.decoder = decoder
    self.pings = pings
    self.lastID = lastID
    window = min(max(1, greeting.receiveMaximum), decoder.version == .v5 ? Self.maxWindow.v5 : Self.maxWindow.v3)
    aliases = TopicAliases(most: greeting.topicAliases)
  }

  /// Whether the broker accepts one more publication.
  var hasRoom: Bool { unacknowledged.count < window }

  /// The answer that the broker owes, as the beginning of a sentence; `nil`: none.
  var owed: String? {
    if !unacknowledged.isEmpty { return "no acknowledgement" }
    if !subscriptions.isEmpty { return "no answer to the subscription" }
    return pings.isPending ? "no answer to a ping" : nil
  }

  /// The broker has owed an answer for too long; `nil`: it owes none.
  mutating func overdue(now: MonotonicTime) -> MQTTFailure? {
    owed.map { .unreachable("\($0) in time\(pings.unanswered(now: now))") }
  }

  // MARK: To the broker

  mutating func publish(_ message: MQTTMessage, now: MonotonicTime) -> Publication {
    // More than the broker's receive maximum would end the connection: the rest waits.
    guard hasRoom || queue.count < Self.maxQueued else { return .settled(MQTTAnswer(0x97)) }
    let id = freshID()
    var message = message
    if !greeting.retains { message.retain = false }
    let alias = message.recurs ? aliases.alias(of: message.topic) : nil
    let bytes = MQTTCommand.publish(message, id: id, decoder.version, alias: alias).encode()
    // The broker would end the connection because of it, again and again.
    if let maxBytes = greeting.maxBytes, bytes.count > maxBytes { return .settled(MQTTAnswer(0x95)) }
    if let alias { aliases.sent(alias, of: message.topic) }
    if hasRoom { send(id, bytes, now) } else { queue.append((id, bytes)) }
    return .waits(id: id)
  }

  private mutating func send(_ id: UInt16, _ bytes: [UInt8], _ now: MonotonicTime) {
    unacknowledged.insert(id)
    send(bytes, now)
  }

  mutating func subscribe(_ topic: String, isOthers: Bool, now: MonotonicTime) {
    let id = freshID()
    subscriptions.insert(id)
    send(MQTTCommand.subscribe(topic: topic, id: id, decoder.version, isOthers: isOthers).encode(), now)
  }

  mutating func unsubscribe(_ topic: String, now: MonotonicTime) {
    let id = freshID()
    subscriptions.insert(id)
    send(MQTTCommand.unsubscribe(topic: topic, id: id, decoder.version).encode(), now)
  }

  /// The owner has stored a message. Only the first time counts.
  mutating func acknowledge(_ id: UInt16, now: MonotonicTime) {
    if incoming.remove(id) != nil { send(MQTTCommand.acknowledge(id: id).encode(), now) }
  }

  mutating func ping(now: MonotonicTime) {
    pings.pinged(now: now)
    send(MQTTCommand.ping.encode(), now)
  }

  private mutating func send(_ packet: [UInt8], _ now: MonotonicTime) {
    pings.sent(now: now)
    output += packet
  }

  mutating func takeOutput() -> [UInt8] {
    defer { output = [] }
    return output
  }

  /// A packet identifier that is not in use.
  private mutating func freshID() -> UInt16 {
    repeat {
      lastID = lastID == .max ? 1 : lastID + 1
    } while (unacknowledged.contains(lastID) || subscriptions.contains(lastID) || queue.contains { $0.id == lastID })
      && unacknowledged.count + subscriptions.count + queue.count < 65535
    return lastID
  }

  // MARK: From the broker

  mutating func append(_ bytes: [UInt8], now: MonotonicTime) {
    pings.heard(now: now)
    decoder.append(bytes)
  }

  /// The first action that the received bytes demand; `nil`: more are needed.
  mutating func next(now: MonotonicTime) -> Action? {
    do throws(MQTTError) {
      while let event = try decoder.next() {
        if let action = try received(event, now) { return action }
      }
      return nil
    } catch {
      // In version 3.1.1 a DISCONNECT has no code, and means that all is well.
      return .end(.nonsense(error), goodbye: decoder.version == .v5 ? error.code : nil)
    }
  }

  private mutating func received(
    _ event: MQTTEvent, _ now: MonotonicTime
  ) throws(MQTTError) -> Action? {
    switch event {
    case .connected: throw .protocolError("a second greeting")
    case .disconnected(let code, let reason, let server): return .end(.ended(code, reason, server))
    case .acknowledged(let id, let code, let reason):
      // Some brokers acknowledge twice, and a second time says nothing.
      guard unacknowledged.remove(id) != nil else { return nil }
      answers &+= 1
      if !queue.isEmpty {
        let next = queue.removeFirst()
        send(next.id, next.bytes, now)
      }
      return .settle(id: id, MQTTAnswer(code, reason))
    case .message(let message, let id, let isRepeated):
      guard let id, !incoming.insert(id).inserted else { return .deliver(message, id: id) }
      // Old brokers redeliver unacknowledged messages on the same connection; the owner has this one in hand.
      guard isRepeated else { throw .init(code: 0x91, description: "two messages with one identifier") }
      return nil
    case .pong:
      pings.answered(now: now)
      return nil
    case .subscribed(let id, let code, let reason):
      guard subscriptions.remove(id) != nil else { throw .protocolError("an answer without a subscription") }
      answers &+= 1
      return refusal(code, reason).map { .end(.refused($0)) }
    case .unsubscribed(let id):
      guard subscriptions.remove(id) != nil else { throw .protocolError("an answer without a subscription") }
      answers &+= 1
      return nil
    }
  }

  /// Why a subscription is of no use; `nil`: it is as requested.
  private func refusal(_ code: UInt8, _ reason: String?) -> String? {
    if code == 0, needsQuality1 { return "the broker grants the subscription QoS 0 only, which repeats nothing" }
    return code < 0x80 ? nil : "the broker refuses the subscription (\(MQTTReason.words(code, reason)))"
  }
}
