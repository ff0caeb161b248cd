// SPDX-License-Identifier: MIT

import Companion
import Delivery
import HTTP
import JSON
import MeshCrypto
import Messaging
import Store

/// `/v1/send`, `/v1/react`, `/v1/outgoing…`: what an operator says, and what has become of it.
final class MessagingAPI {
  static let paths = [
    "/v1/resolve", "/v1/send", "/v1/react", "/v1/outgoing", "/v1/outgoing/retry", "/v1/outgoing/cancel",
    "/v1/outgoing/adopt",
  ]

  private let parts: ControlAPI.Parts
  private let stream: (HTTPResponder, Bool, @escaping RowStream.Producer) -> Void

  init(_ parts: ControlAPI.Parts, stream: @escaping (HTTPResponder, Bool, @escaping RowStream.Producer) -> Void) {
    self.parts = parts
    self.stream = stream
  }

  private var messenger: Messenger { parts.messaging.messenger }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    do throws(Refusal) {
      switch (request.method, request.path) {
      case ("GET", "/v1/resolve"): try resolve(request.query["name"] ?? "", responder)
      case ("POST", "/v1/send"): try send(RequestBody(request), responder)
      case ("POST", "/v1/react"): try react(RequestBody(request), responder)
      case ("GET", "/v1/outgoing"): try outgoing(request, responder)
      case ("POST", "/v1/outgoing/retry"): messenger.retry(key: request.query["id"] ?? "", one(responder))
      case ("POST", "/v1/outgoing/cancel") where request.query["held"] == "1":
        try eachHeld(responder) { [messenger] in messenger.cancel(key: $0, $1) }
      case ("POST", "/v1/outgoing/cancel"): messenger.cancel(key: request.query["id"] ?? "", one(responder))
      case ("POST", "/v1/outgoing/adopt") where request.query["held"] == "1":
        try eachHeld(responder) { [messenger] in messenger.adopt(key: $0, $1) }
      case ("POST", "/v1/outgoing/adopt"): messenger.adopt(key: request.query["id"] ?? "", one(responder))
      default: return false
      }
    } catch {
      Answering.refuse(responder, error)
    }
    return true
  }

  /// Who is meant by a name, as `send` would take it.
  private func resolve(_ name: String, _ responder: HTTPResponder) throws(Refusal) {
    let addressee = try Addressing(parts.store).find(name)
    Answering.answer(responder) { json in
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

  private func send(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    var request = SendRequest(to: try body.string("to"), text: Text(try body.string("text")))
    request.key = try body.optional("id")
    request.splits = body.flag("split")
    if let seconds = try body.integer("expires_s", in: 1...2_592_000) { request.lifetime = .seconds(seconds) }
    if let name = try body.optional("priority") {
      guard let priority = DeliveryPriority(name: name) else {
        throw .invalid("\"\(name)\" is no priority: interactive, relayed, bulk")
      }
      request.priority = priority
    }
    if let origin = try body.optional("origin"), (1...64).contains(origin.utf8.count) { request.origin = origin }
    accept(request, responder)
  }

  private func accept(_ request: SendRequest, _ responder: HTTPResponder) {
    messenger.send(request) { [parts] result in
      switch result {
      case .failure(let refusal): Answering.refuse(responder, refusal)
      case .success(let messages):
        Answering.answer(responder, status: 202) { json in
          json.arrayField("messages") { json in
            for message in messages { json.object { parts.store.write(message, to: &$0) } }
          }
        }
      }
    }
  }

  /// A reaction to a message that came (`message`) or to one of ours (`outgoing`, or a number below zero).
  private func react(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let emoji = try body.string("emoji")
    guard ReactionText.isEmoji(emoji) else { throw .invalid("a reaction is one emoji") }
    var number = try body.integer("message", in: -Int64.max...Int64.max)
    let key: String
    if let given = number, given < 0 {
      number = nil
      do throws(StoreError) {
        key = try parts.store.outgoing(id: -given)?.key ?? ""
      } catch {
        throw .store(error)
      }
    } else {
      key = number == nil ? try body.string("outgoing") : ""
    }
    var request: SendRequest
    do throws(StoreError) {
      if let number {
        request = try reaction(emoji, toMessage: number)
      } else {
        request = try reaction(emoji, toOutgoing: key)
      }
    } catch {
      throw .store(error)
    }
    guard !request.to.isEmpty else { throw .notFound("that message") }
    request.key = try body.optional("id")
    accept(request, responder)
  }

  private func reaction(_ emoji: String, toMessage number: Int64) throws(StoreError) -> SendRequest {
    var request = SendRequest(to: "", text: "")
    try parts.store.eachMessage(after: number - 1, before: number + 1, limit: 1) { message in
      guard let time = message.senderTime else { return false }
      let hash = TextDigest.reactionHash(message.text, senderTime: time)
      let sender = message.kind == .channel ? message.senderName?.string ?? "" : nil
      request.text = ReactionText(emoji: emoji, targetSender: sender, hash: hash).text
      if let prefix = message.sender { request.to = prefix.hex }
      if message.kind == .channel { request.to = self.channelName(message.channel) }
      return false
    }
    return request
  }

  private func reaction(_ emoji: String, toOutgoing key: String) throws(StoreError) -> SendRequest {
    var request = SendRequest(to: "", text: "")
    guard let message = try parts.store.outgoing(key: key), let time = message.senderTime else { return request }
    let hash = TextDigest.reactionHash(message.text, senderTime: time)
    let own = message.kind == .channel ? parts.connection.identity?.info.name.string ?? "" : nil
    request.text = ReactionText(emoji: emoji, targetSender: own, hash: hash).text
    request.to = message.recipient?.hex ?? channelName(message.channel)
    return request
  }

  private func channelName(_ digest: String?) -> String {
    var name = ""
    // `try?`: a store that cannot be read finds no channel, and the request is refused.
    try? parts.store.eachChannel { if $0.secret.digest == digest { name = $0.name.string } }
    return name
  }

  private func one(_ responder: HTTPResponder) -> (Result<OutgoingMessage, Refusal>) -> Void {
    { [store = parts.store] result in
      switch result {
      case .failure(let refusal): Answering.refuse(responder, refusal)
      case .success(let message): Answering.answer(responder) { store.write(message, to: &$0) }
      }
    }
  }

  /// All that waits for another radio; what cannot be done says why.
  private func eachHeld(
    _ responder: HTTPResponder,
    _ act: (String, @escaping (Result<OutgoingMessage, Refusal>) -> Void) -> Void
  ) throws(Refusal) {
    let keys: [String]
    do throws(StoreError) {
      keys = try messenger.heldKeys()
    } catch {
      throw .store(error)
    }
    var (done, refused): ([OutgoingMessage], [(String, Refusal)]) = ([], [])
    let end = { [store = parts.store] in
      guard done.count + refused.count == keys.count else { return }
      Answering.answer(responder) { json in
        json.arrayField("messages") { json in for message in done { json.object { store.write(message, to: &$0) } } }
        json.arrayField("refused") { json in
          for (key, refusal) in refused {
            json.object { json in
              json.field("id", key)
              json.field("error", refusal.description)
            }
          }
        }
      }
    }
    if keys.isEmpty { end() }
    for key in keys {
      act(key) { result in
        switch result {
        case .success(let message): done.append(message)
        case .failure(let refusal): refused.append((key, refusal))
        }
        end()
      }
    }
  }

  /// Rows: messages of ours; with `id` one of them, and with `follow=1` its states until it has ended.
  private func outgoing(_ request: HTTPRequest, _ responder: HTTPResponder) throws(Refusal) {
    if let key = request.query["id"] { return try follow(key, request.query["follow"] == "1", responder) }
    let limit = min(max(request.query["limit"].flatMap { Int($0) } ?? 100, 1), 10_000)
    let store = parts.store
    let radio = try RadiosAPI.wanted(request, store)
    var after: Int64?
    stream(responder, false) {
      var lines: [UInt8] = []
      var count = 0
      try store.eachOutgoing(after: after ?? 0, ofRadio: radio, limit: after == nil ? limit : .max) { message in
        lines += ControlAPI.line { json in
          store.write(message, to: &json)
          ReactionList.write(to: .outgoing(message.id), store, &json)
        }
        after = message.id
        count += 1
        return count < 100
      }
      return (lines, count < 100)
    }
  }

  private func follow(_ key: String, _ follows: Bool, _ responder: HTTPResponder) throws(Refusal) {
    let store = parts.store
    do {
      guard try store.outgoing(key: key) != nil else { throw Refusal.notFound(key) }
    } catch let error as StoreError {
      throw .store(error)
    } catch {
      throw .notFound(key)
    }
    var last: OutgoingMessage?
    stream(responder, follows) {
      guard let message = try store.outgoing(key: key) else { return ([], true) }
      guard message != last else { return ([], true) }
      last = message
      let line = JSONWriter.object { store.write(message, to: &$0) } + [10]
      if follows, message.hasEnded { throw RowStream.Ended(lines: line) }
      return (line, true)
    }
  }
}
