// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import HTTP
import JSON
import MeshCrypto
import Messaging
import Store
import UntrustedText

/// `/v1/contacts/…` and `/v1/channels/…`: changes to the radio's own tables.
struct RadioTableAPI {
  private let store: Store
  private let messaging: MessagingParts

  init(_ dependencies: ControlAPI.Dependencies) {
    (store, messaging) = (dependencies.store, dependencies.messaging)
  }

  private var table: RadioTable { messaging.table }
  private var addressing: Addressing { Addressing(store) }

  private func contact(_ request: HTTPRequest) throws(Refusal) -> StoredContact {
    try addressing.contact(request.query["contact"] ?? "")
  }

  func removeContact(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    let key = try contact(request).contact.key
    try await table.remove(key)
    try await messaging.nodes.wasRemoved(key)
    return .done
  }

  func shareContact(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    try await table.share(contact(request).contact.key)
    return .done
  }

  /// Sets or clears the mark that protects a node's place in the radio's table. A node that was evicted is restored.
  func setFavourite(_ body: RequestBody) async throws(Refusal) -> Answer {
    let stored = try addressing.contact(try body.string("contact"))
    let isFavourite = try body.flag("favourite")
    guard stored.onRadio || isFavourite else { throw .notOnRadio(stored.contact.name.string) }
    try await messaging.keeper.restore(stored)
    try await table.setFavourite(isFavourite, of: stored.contact.key)
    return .done
  }

  /// Lets a node run any command on the radio, or not. Pages may not ask for it.
  func setMayCommand(_ body: RequestBody) async throws(Refusal) -> Answer {
    let stored = try addressing.contact(try body.string("contact"))
    guard stored.onRadio else { throw .notOnRadio(stored.contact.name.string) }
    guard stored.contact.type == .chat else {
      throw .invalid("\(stored.contact.name.string) is no companion: only people's radios send commands")
    }
    try await table.setMayCommand(try body.flag("may_command"), of: stored.contact.key)
    return .done
  }

  /// Adds a contact. `contact`: a known node that is not on the radio; or `key`, `name` and `type`.
  func addContact(_ body: RequestBody) async throws(Refusal) -> Answer {
    try await table.putBack(contactToAdd(body))
    return .done
  }

  private func contactToAdd(_ body: RequestBody) throws(Refusal) -> Contact {
    if let hex = try body.optional("key") {
      guard let key = PublicKey(hex: hex) else { throw .invalid("a key must have 64 hex digits") }
      let name = Text(try body.string("name"))
      if let fault = GivenName.fault(name.bytes, "the name") { throw .invalid(fault) }
      return Contact(key: key, type: try RadioSurvey.nodeType(named: body.optional("type") ?? "chat"), name: name)
    }
    let stored = try addressing.contact(try body.string("contact"))
    guard !stored.onRadio else { throw .invalid("\(stored.contact.name.string) is already in the radio's contacts") }
    return stored.contact
  }

  func exportContact(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    let key = request.query["contact"] == nil ? nil : try contact(request).contact.key
    let link = try await table.export(key)
    return .json { $0.field(Shape.Link().link, link) }
  }

  func importContact(_ body: RequestBody) async throws(Refusal) -> Answer {
    let link = try SharedLink(parsing: try body.string("link"))
    let key = try await table.importLink(link).hex
    return .json { $0.field(Shape.Key().key, key) }
  }

  /// `reset`: the next message floods. `discover`: requests the path from the node. `advert`: the way of its last advert. `path`: hex, with `hash_bytes` (1
  /// to 3) per hop.
  func path(_ body: RequestBody) async throws(Refusal) -> Answer {
    let stored = try addressing.contact(try body.string("contact"))
    let (resets, discovers, ofAdvert) = (try body.flag("reset"), try body.flag("discover"), try body.flag("advert"))
    let given = try body.optional("path")
    guard [resets, discovers, ofAdvert, given != nil].count(where: \.self) < 2 else {
      throw .invalid("only one of reset, discover, advert and path can be done at a time")
    }
    if resets {
      try await table.resetPath(stored.contact.key)
      return .done
    }
    if discovers { return NodeAPI.answer(try await messaging.nodes.ask(.path, of: stored)) }
    if ofAdvert {
      let (time, path) = try await table.wayOfAdvert(of: stored.contact)
      return .json { json in
        json.field(Shape.Path().path, path.description)
        json.field(Shape.Path().hops, path.hops)
        json.field(Shape.Path().heardAt, time)
      }
    }
    guard let hex = given else {
      return .json { json in
        json.field(Shape.Path().path, stored.contact.outPath?.description)
        json.field(Shape.Path().hops, stored.contact.outPath?.hops)
      }
    }
    let size = Int(try body.integer("hash_bytes", in: 1...3) ?? 1)
    guard let bytes = Hex.bytes(hex), let path = Path(bytes: bytes, bytesPerHop: size) else {
      throw .invalid("the path must be hexadecimal, \(size) bytes per hop, at most 64 bytes")
    }
    guard stored.onRadio else { throw .notOnRadio(stored.contact.name.string) }
    var changed = stored.contact
    changed.outPath = path
    try await table.add(changed)
    return .done
  }

  func addChannel(_ body: RequestBody) async throws(Refusal) -> Answer {
    let text = try body.string("channel")
    let secret = try body.optional("secret")
    let name: Text
    let key: ChannelSecret
    var region = try region(body)
    if text.lowercased().hasPrefix("meshcore://") {
      guard case .channel(let linked, let its, let place) = try SharedLink(parsing: text) else {
        throw .invalid("this is a node's link: use meshpost contact import")
      }
      (name, key) = (linked, its)
      region = region ?? place
    } else if let secret {
      (name, key) = (Text(text), try SharedLink.secret(secret))
    } else if text.begins(with: "#") {
      guard text.utf8.count > 1, !text.contains(where: { $0.isWhitespace }) else {
        throw .invalid("expected a name without blanks after the #, found \"\(text)\"")
      }
      (name, key) = (Text(text), .hashtag(text))
    } else if text == "Public" {
      (name, key) = (Text(text), .publicChannel)
    } else {
      throw .invalid("a private channel requires its secret; --new creates a new channel")
    }
    let channel = try await table.add(name: name, secret: key, region: region)
    return Self.answer(channel, region)
  }

  func removeChannel(_ request: HTTPRequest) async throws(Refusal) -> Answer {
    let channel = try addressing.channel(request.query["channel"] ?? "")
    return Self.answer(try await table.remove(channel), nil)
  }

  private func region(_ body: RequestBody) throws(Refusal) -> Region? {
    guard let text = try body.optional("region") else { return nil }
    return try SharedLink.region(text)
  }

  /// Sets a channel's region; without `region` the radio's default applies.
  func setRegion(_ body: RequestBody) async throws(Refusal) -> Answer {
    let (region, channel) = (try region(body), try addressing.channel(try body.string("channel")))
    try await table.setRegion(region, of: channel)
    return Self.answer(channel, region)
  }

  /// Sets the region of messages to a node; without `region` the radio's default.
  func setNodeRegion(_ body: RequestBody) async throws(Refusal) -> Answer {
    let choice = try RegionChoice.read(body)
    var stored = try addressing.contact(try body.string("node"))
    // `default` is what counts without a choice.
    stored.region = choice == .radioDefault ? nil : choice?.text
    try await table.setRegion(stored.region, of: stored.contact)
    return .json { EventBody.write(stored, to: &$0) }
  }

  /// A channel that is joined again keeps its earlier region; the answer contains the present one.
  private static func answer(_ channel: Channel, _ region: Region?) -> Answer {
    .json { EventBody.write(channel, region: region?.text, to: &$0) }
  }
}
