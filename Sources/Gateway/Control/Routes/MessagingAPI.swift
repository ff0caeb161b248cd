// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Delivery
import HTTP
import JSON
import MeshCrypto
import Messaging
import Store

/// `/v1/send`, `/v1/react`, `/v1/outgoing…`: sending messages, and their states; `/v1/channels/data`.
struct MessagingAPI {
  let dependencies: ControlAPI.Dependencies

  private var messenger: Messenger { dependencies.messaging.messenger }
  private var store: Store { dependencies.store }

  /// The recipient that `send` would choose for a name.
  func resolve(_ request: HTTPRequest) throws(Refusal) -> Answer {
    let addressee = try Addressing(dependencies.store).find(request.query["name"] ?? "")
    return .json { json in
      switch addressee {
      case .contact(let stored):
        json.field("kind", "contact")
        EventBody.write(stored, to: &json)
      case .channel(let channel):
        json.field("kind", "channel")
        json.field("slot", channel.slot)
        json.field("name", channel.name.string)
        json.field("channel", channel.secret.digest)
      }
    }
  }

  func send(_ body: RequestBody) async throws(Refusal) -> Answer {
    var request = SendRequest(to: try body.string("to"), saying: Text(try body.string("text")))
    request.key = try body.optional("id")
    request.splits = try body.flag("split")
    if let seconds = try body.integer("expires_s", in: SendRequest.lifetimes) { request.lifetime = .seconds(seconds) }
    if let name = try body.optional("priority") {
      guard let priority = DeliveryPriority(name: name) else {
        throw .invalid("\"\(name)\" is not a priority: expected interactive, relayed or bulk")
      }
      request.priority = priority
    }
    try request.readRegion(body)
    try request.readOrigin(body)
    return try await accept(request)
  }

  func sendData(_ body: RequestBody) async throws(Refusal) -> Answer {
    let channel = try Addressing(store).channel(try body.string("channel"))
    guard let type = try body.integer("data_type", in: 1...Int64(UInt16.max)) else {
      throw .invalid("\"data_type\" is missing: 1 to \(UInt16.max)")
    }
    guard let data = Hex.bytes(try body.string("data")) else { throw .invalid("\"data\" is not hexadecimal") }
    let sent = try await messenger.send(
      data, type: UInt16(clamping: type), to: channel, in: try RegionChoice.read(body))
    return .json { json in
      let row = Shape.SentDatagram()
      json.field(row.channel, channel.secret.digest)
      json.field(row.channelName, channel.name.string)
      json.field(row.dataType, type)
      json.field(row.bytes, data.count)
      json.field(row.region, sent.region.text)
      json.field(row.airtimeMs, sent.airtime)
    }
  }

  private func accept(_ request: SendRequest) async throws(Refusal) -> Answer {
    let messages = try await messenger.send(request)
    return .json(status: 202) { json in
      json.objects(Shape.Accepted().messages, messages) { store.write($0, to: &$1) }
    }
  }

  /// A reaction to a received message (`message`) or a sent one (`outgoing`, or a negative number).
  func react(_ body: RequestBody) async throws -> Answer {
    let emoji = try body.string("emoji")
    guard ReactionText.isEmoji(emoji) else { throw Refusal.invalid("a reaction must be a single emoji") }
    var number = try body.integer("message", in: -Int64.max...Int64.max)
    let key: String
    let wanted = number
    if let given = number, given < 0 {
      number = nil
      key = try store.outgoing(id: -given)?.key ?? ""
    } else {
      key = number == nil ? try body.string("outgoing") : ""
    }
    var request = try number.map { try reaction(emoji, toMessage: $0) } ?? reaction(emoji, toOutgoing: key)
    guard !request.to.isEmpty else { throw Refusal.notFound(wanted.map { .message($0) } ?? .outgoing(key)) }
    request.key = try body.optional("id")
    try request.readOrigin(body)
    return try await accept(request)
  }

  private func reaction(_ emoji: String, toMessage number: Int64) throws(StoreError) -> SendRequest {
    var request = SendRequest(to: "", saying: "")
    guard let message = try store.message(id: number), let time = message.senderTime else { return request }
    let hash = TextDigest.reactionHash(message.text, senderTime: time)
    let sender = message.kind == .channel ? message.senderName?.string ?? "" : nil
    request.text = ReactionText(emoji: emoji, targetSender: sender, hash: hash).text
    request.to = message.kind == .channel ? channelName(message.channel) : message.sender?.hex ?? ""
    return request
  }

  private func reaction(_ emoji: String, toOutgoing key: String) throws(StoreError) -> SendRequest {
    var request = SendRequest(to: "", saying: "")
    guard let message = try store.outgoing(key: key), let time = message.senderTime else { return request }
    let hash = TextDigest.reactionHash(message.text, senderTime: time)
    let own = message.kind == .channel ? dependencies.connection.identity?.info.name.string ?? "" : nil
    request.text = ReactionText(emoji: emoji, targetSender: own, hash: hash).text
    request.to = message.recipient?.hex ?? channelName(message.channel)
    return request
  }

  private func channelName(_ digest: String?) -> String {
    // If the store cannot be read, no channel is found and the request is refused.
    store.ifReadable { try store.channels().last { $0.secret.digest == digest }?.name.string } ?? ""
  }

  // MARK: States

  private func answer(_ message: OutgoingMessage) -> Answer { .json { write(message, to: &$0) } }

  private func write(_ message: OutgoingMessage, to json: inout JSONWriter) {
    store.write(message, to: &json)
    let names = store.names(of: message)
    json.field(Shape.Outgoing().recipientName, names.recipient)
    json.field(Shape.Outgoing().channelName, names.channel)
    let waitsFor: String? =
      if messenger.waitsForChannel(message) {
        "channel"
      } else if messenger.waitsForPlace(message) {
        "place"
      } else {
        messenger.waitsForAirtime(message.id) ? "airtime" : nil
      }
    json.field(Shape.Outgoing().waitsFor, waitsFor)
    if let next = messenger.nextAttempt(of: message.id) { json.field(Shape.Outgoing().nextAttemptAt, next) }
    guard let (count, next) = messenger.refusals(of: message.id) else { return }
    json.field(Shape.Outgoing().refusals, count)
    json.field(Shape.Outgoing().nextAttemptAt, next)
  }

  private func key(_ request: HTTPRequest) -> String { request.query["id"] ?? "" }

  private func required(_ request: HTTPRequest) throws(Refusal) -> String {
    guard let key = request.query["id"], !key.isEmpty else { throw .invalid("id, or held=1, is missing") }
    return key
  }

  /// The attempts to send a message, oldest first.
  func attempts(_ request: HTTPRequest) throws -> Answer {
    guard let message = try store.outgoing(key: key(request)) else {
      throw Refusal.notFound(.outgoing(key(request)))
    }
    let attempts = try store.attempts(toSend: message)
    return .json { json in
      json.field(Shape.Attempts().id, message.key)
      json.objects(Shape.Attempts().attempts, attempts) { attempt, json in
        json.field(Shape.Attempt().number, attempt.number)
        json.field(Shape.Attempt().at, attempt.at)
        json.field(Shape.Attempt().flood, attempt.isFlood)
        json.field(Shape.Attempt().ack, attempt.code?.hex)
      }
      json.field(Shape.Attempts().codes, message.attempts.codes.map(\.hex))
    }
  }

  func retry(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    answer(try await messenger.retry(key: key(request)))
  }

  /// Cancels one message, or all that are held for another radio.
  func cancel(_ request: HTTPRequest) throws(Refusal) -> Answer {
    guard request.query["held"] == "1" else { return answer(try messenger.cancel(key: required(request))) }
    return answer(try messenger.cancelHeld())
  }

  func adopt(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    guard request.query["held"] == "1" else { return answer(try await messenger.adopt(key: required(request))) }
    return answer(try await messenger.adoptHeld())
  }

  /// Turns an outcome into an answer; a refusal has its reason.
  private func answer(_ outcome: Messenger.Outcome) -> Answer {
    .json { json in
      json.objects(Shape.Adopted().messages, outcome.done) { write($0, to: &$1) }
      json.objects(Shape.Adopted().refused, outcome.refused) { one, json in
        json.field(Shape.Refused().id, one.key)
        json.field(Shape.Refused().error, one.refusal.description)
      }
    }
  }

  /// Rows of outgoing messages; with `id` one of them, and with `follow=1` its states until it has ended.
  func outgoing(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    if let key = request.query["id"] { return try await follow(key, request.query["follow"] == "1", reply) }
    let limit = Int(min(max(ControlAPI.number(request, "limit") ?? 100, 1), 10_000))
    let radio = try RadiosAPI.wanted(request, store)
    let row = MessageRow(
      store: store, relay: request.query["upstreams"] == "1" ? dependencies.relay : nil,
      showsWays: request.query["ways"] == "1")
    var after: Int64?
    return try await reply.rows {
      var lines: [UInt8] = []
      var count = 0
      try store.eachOutgoing(after: after ?? 0, ofRadio: radio, limit: limit) { message in
        lines += ControlAPI.line { json in
          write(message, to: &json)
          row.writeReactions(to: .sent(message.id), &json)
          row.writeStandings(of: .sent(message, .last), to: &json)
          row.writeWays(of: .sent(message, .last), to: &json)
        }
        after = message.id
        count += 1
        return count < 100
      }
      return (lines, count < 100)
    }
  }

  private func follow(_ key: String, _ follows: Bool, _ reply: Reply) async throws -> Answer {
    guard try store.outgoing(key: key) != nil else { throw Refusal.notFound(.outgoing(key)) }
    var last: OutgoingMessage?
    return try await reply.rows(follow: follows) {
      // Another database may have taken the place of the one that had it.
      guard let message = try store.outgoing(key: key) else { throw Reply.Ended(lines: []) }
      guard message != last else { return ([], true) }
      last = message
      let line = ControlAPI.line { write(message, to: &$0) }
      if follows, message.hasEnded { throw Reply.Ended(lines: line) }
      return (line, true)
    }
  }
}

extension SendRequest {
  /// Reads `origin`. A message and a reaction of a hook's program belong to the hook: hooks get no event `outgoing` of them, and they use its air time.
  fileprivate mutating func readOrigin(_ body: RequestBody) throws(Refusal) {
    if let given = try body.optional("origin"), (1...64).contains(given.utf8.count) { origin = given }
  }

  /// Reads `region` and `answers`.
  public mutating func readRegion(_ body: RequestBody) throws(Refusal) {
    region = try RegionChoice.read(body)
    answers = try body.integer("answers", in: 1...Int64.max)
  }
}

extension RegionChoice {
  /// Reads `region`.
  static func read(_ body: RequestBody) throws(Refusal) -> RegionChoice? {
    guard let text = try body.optional("region") else { return nil }
    guard let choice = RegionChoice(text) else { throw .invalid(SharedLink.regionFault(text, or: ", or default")) }
    return choice
  }
}
