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
        let key = try contact(request).contact.key
        carryOut(responder) { table throws(Refusal) in try await table.remove(key) }
      case ("GET", "/v1/contacts/export"): try export(request, responder)
      case ("POST", "/v1/contacts/import"): try importLink(RequestBody(request), responder)
      case ("POST", "/v1/contacts/share"):
        let key = try contact(request).contact.key
        carryOut(responder) { table throws(Refusal) in try await table.share(key) }
      case ("POST", "/v1/contacts/path"): try path(RequestBody(request), responder)
      case ("POST", "/v1/channels/add"): try addChannel(RequestBody(request), responder)
      case ("POST", "/v1/channels/remove"):
        let channel = try addressing.channel(request.query["channel"] ?? "")
        answer(responder) { table throws(Refusal) in Self.written(try await table.remove(channel), nil) }
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

  private func answer(
    _ responder: HTTPResponder, _ work: @escaping (RadioTable) async throws(Refusal) -> (inout JSONWriter) -> Void
  ) {
    Answering.answer(responder, on: parts.loop) { [table] () throws(Refusal) in try await work(table) }
  }

  private func carryOut(
    _ responder: HTTPResponder, _ work: @escaping (RadioTable) async throws(Refusal) -> Void
  ) {
    answer(responder) { table throws(Refusal) in
      try await work(table)
      return Answering.done
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
      let contact = Contact(key: key, type: type, name: name)
      return carryOut(responder) { table throws(Refusal) in try await table.add(contact) }
    }
    let stored = try addressing.contact(try body.string("contact"))
    guard !stored.onRadio else { throw .invalid("the radio has \(stored.contact.name.string) already") }
    carryOut(responder) { table throws(Refusal) in try await table.add(stored.contact) }
  }

  private func export(_ request: HTTPRequest, _ responder: HTTPResponder) throws(Refusal) {
    let key = request.query["contact"] == nil ? nil : try contact(request).contact.key
    answer(responder) { table throws(Refusal) in
      let link = try await table.export(key)
      return { $0.field("link", link) }
    }
  }

  private func importLink(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let link = try SharedLink(parsing: try body.string("link"))
    answer(responder) { table throws(Refusal) in
      let key = try await table.importLink(link).hex
      return { $0.field("key", key) }
    }
  }

  /// `reset`: the next message floods. `discover`: asks the node. `path`: hex, `hash_bytes` 1 to 3 for each hop.
  private func path(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let stored = try addressing.contact(try body.string("contact"))
    if body.flag("reset") {
      return carryOut(responder) { table throws(Refusal) in try await table.resetPath(stored.contact.key) }
    }
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
    let contact = changed
    carryOut(responder) { table throws(Refusal) in try await table.add(contact) }
  }

  private func addChannel(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let text = try body.string("channel")
    let secret = try body.optional("secret")
    let name: Text
    let key: ChannelSecret
    var region = try region(body)
    if text.lowercased().hasPrefix("meshcore://") {
      guard case .channel(let linked, let its, let place) = try SharedLink(parsing: text) else {
        throw .invalid("that is a node's link: meshpost contact import takes it")
      }
      (name, key) = (linked, its)
      region = region ?? place
    } else if let secret {
      (name, key) = (Text(text), try SharedLink.secret(secret))
    } else if text.begins(with: "#") {
      (name, key) = (Text(text), .hashtag(text))
    } else if text == "Public" {
      (name, key) = (Text(text), .publicChannel)
    } else {
      throw .invalid("a private channel needs its secret; a new one is made by --new")
    }
    let wanted = region
    answer(responder) { table throws(Refusal) in
      let channel = try await table.add(name: name, secret: key)
      if let wanted { try await table.setRegion(wanted, of: channel) }
      return Self.written(channel, wanted)
    }
  }

  private func region(_ body: RequestBody) throws(Refusal) -> Region? {
    guard let text = try body.optional("region") else { return nil }
    return try SharedLink.region(text)
  }

  /// Without `region`: as the radio's default says.
  private func setRegion(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let (region, channel) = (try region(body), try addressing.channel(try body.string("channel")))
    answer(responder) { table throws(Refusal) in
      try await table.setRegion(region, of: channel)
      return Self.written(channel, region)
    }
  }

  /// A channel that had a region before keeps it when it is joined again; what is told is what was set now.
  private static func written(_ channel: Channel, _ region: Region?) -> (inout JSONWriter) -> Void {
    { json in
      json.field("slot", channel.slot)
      json.field("name", channel.name.string)
      json.field("channel", channel.isEmpty ? nil : channel.secret.digest)
      json.field("region", region?.text)
    }
  }
}
