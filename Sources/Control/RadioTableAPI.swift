// SPDX-License-Identifier: MIT

import Companion
import Escaping
import HTTP
import JSON
import MeshCrypto
import Messaging
import Store

/// `/v1/contacts/…` and `/v1/channels/…`: changes to the radio's own tables.
final class RadioTableAPI {
  static let paths = [
    "/v1/contacts/add", "/v1/contacts/remove", "/v1/contacts/export", "/v1/contacts/import", "/v1/contacts/share",
    "/v1/contacts/path", "/v1/channels/add", "/v1/channels/remove", "/v1/channels/region",
  ]

  private let parts: ControlAPI.Parts

  init(_ parts: ControlAPI.Parts) { self.parts = parts }

  private var table: RadioTable { parts.messaging.table }
  private var addressing: Addressing { Addressing(parts.store) }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    do throws(Refusal) {
      switch (request.method, request.path) {
      case ("POST", "/v1/contacts/add"): try addContact(RequestBody(request), responder)
      case ("POST", "/v1/contacts/remove"):
        table.remove(try contact(request).contact.key, done(responder))
      case ("GET", "/v1/contacts/export"): try export(request, responder)
      case ("POST", "/v1/contacts/import"): try importLink(RequestBody(request), responder)
      case ("POST", "/v1/contacts/share"): table.share(try contact(request).contact.key, done(responder))
      case ("POST", "/v1/contacts/path"): try path(RequestBody(request), responder)
      case ("POST", "/v1/channels/add"): try addChannel(RequestBody(request), responder)
      case ("POST", "/v1/channels/remove"):
        let channel = try addressing.channel(request.query["channel"] ?? "")
        table.remove(channel) { self.tell($0, nil, responder) }
      case ("POST", "/v1/channels/region"): try setRegion(RequestBody(request), responder)
      default: return false
      }
    } catch {
      Answering.refuse(responder, error)
    }
    return true
  }

  private func contact(_ request: HTTPRequest) throws(Refusal) -> StoredContact {
    try addressing.contact(request.query["contact"] ?? "")
  }

  private func done(_ responder: HTTPResponder) -> RadioTable.Done {
    { refusal in
      if let refusal { return Answering.refuse(responder, refusal) }
      Answering.answer(responder) { $0.field("ok", true) }
    }
  }

  /// `contact`: a node that is known but not on the radio; or `key`, `name` and `type`.
  private func addContact(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    if let hex = try body.optional("key") {
      guard let key = PublicKey(hex: hex) else { throw .invalid("a key has 64 hex digits") }
      let name = Text(try body.string("name"))
      guard (1...31).contains(name.bytes.count) else { throw .invalid("a name has 1 to 31 bytes") }
      let types: [String: NodeType] = [
        "chat": .chat, "repeater": .repeater, "room": .room, "sensor": .sensor,
      ]
      let word = try body.optional("type") ?? "chat"
      guard let type = types[word] else { throw .invalid("\"\(word)\" is no type: chat, repeater, room, sensor") }
      return table.add(Contact(key: key, type: type, name: name), done(responder))
    }
    let stored = try addressing.contact(try body.string("contact"))
    guard !stored.onRadio else { throw .invalid("the radio has \(stored.contact.name.string) already") }
    table.add(stored.contact, done(responder))
  }

  private func export(_ request: HTTPRequest, _ responder: HTTPResponder) throws(Refusal) {
    let key = request.query["contact"] == nil ? nil : try contact(request).contact.key
    table.export(key) { result in
      switch result {
      case .failure(let refusal): Answering.refuse(responder, refusal)
      case .success(let link): Answering.answer(responder) { $0.field("link", link) }
      }
    }
  }

  private func importLink(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    table.importLink(try MeshLink(parsing: try body.string("link"))) { result in
      switch result {
      case .failure(let refusal): Answering.refuse(responder, refusal)
      case .success(let key): Answering.answer(responder) { $0.field("key", key.hex) }
      }
    }
  }

  /// `reset`: the next message floods. `discover`: asks the node. `path`: hex, `hash_bytes` 1 to 3 for each hop.
  private func path(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let stored = try addressing.contact(try body.string("contact"))
    if body.flag("reset") { return table.resetPath(stored.contact.key, done(responder)) }
    if body.flag("discover") {
      return parts.messaging.nodes.ask(.path, of: stored) { NodeAPI.tell($0, responder) }
    }
    guard let hex = try body.optional("path") else {
      return Answering.answer(responder) { json in
        json.field("path", stored.contact.outPath?.description)
        json.field("hops", stored.contact.outPath?.hops)
      }
    }
    let size = Int(try body.integer("hash_bytes", in: 1...3) ?? 1)
    guard let bytes = Hex.bytes(hex), let path = Path(bytes: bytes, bytesPerHop: size) else {
      throw .invalid("a path is hex, \(size) bytes a hop, at most 64 bytes")
    }
    guard stored.onRadio else { throw .notOnRadio(stored.contact.name.string) }
    var changed = stored.contact
    changed.outPath = path
    table.add(changed, done(responder))
  }

  private func addChannel(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let text = try body.string("channel")
    let secret = try body.optional("secret")
    let name: Text
    let key: ChannelSecret
    var region = try region(body)
    if text.lowercased().hasPrefix("meshcore://") {
      guard case .channel(let linked, let its, let place) = try MeshLink(parsing: text) else {
        throw .invalid("that is a node's link: meshpost contact import takes it")
      }
      (name, key) = (linked, its)
      region = region ?? place
    } else if let secret {
      (name, key) = (Text(text), try MeshLink.secret(secret))
    } else if text.begins(with: "#") {
      (name, key) = (Text(text), .hashtag(text))
    } else if text == "Public" {
      (name, key) = (Text(text), .publicChannel)
    } else {
      throw .invalid("a private channel needs its secret; a new one is made by --new")
    }
    table.add(name: name, secret: key) { result in
      guard case .success(let channel) = result, let region else { return self.tell(result, nil, responder) }
      self.set(region, of: channel, responder)
    }
  }

  private func region(_ body: RequestBody) throws(Refusal) -> Region? {
    guard let text = try body.optional("region") else { return nil }
    return try MeshLink.region(text)
  }

  /// Without `region`: as the radio's default says.
  private func setRegion(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    set(try region(body), of: try addressing.channel(try body.string("channel")), responder)
  }

  private func set(_ region: Region?, of channel: Channel, _ responder: HTTPResponder) {
    table.setRegion(region, of: channel) { refusal in
      self.tell(refusal.map { .failure($0) } ?? .success(channel), region, responder)
    }
  }

  /// A channel that had a region before keeps it when it is joined again; what is told is what was set now.
  private func tell(_ result: Result<Channel, Refusal>, _ region: Region?, _ responder: HTTPResponder) {
    switch result {
    case .failure(let refusal): Answering.refuse(responder, refusal)
    case .success(let channel):
      Answering.answer(responder) { json in
        json.field("slot", channel.slot)
        json.field("name", channel.name.string)
        json.field("channel", channel.isEmpty ? nil : channel.secret.digest)
        json.field("region", region?.text)
      }
    }
  }
}
