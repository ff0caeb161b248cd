// SPDX-License-Identifier: MIT

import Companion
import HTTP
import JSON
import MeshCrypto
import Messaging
import Store

/// `/v1/radio`, `/v1/radio/set`, `…/advert`, `…/backup`, `…/private-key`, and what a backup is put back with.
final class RadioConfigurationAPI {
  static let paths = [
    "/v1/radio", "/v1/radio/set", "/v1/radio/advert", "/v1/radio/presets", "/v1/radio/backup", "/v1/radio/private-key",
    "/v1/contacts/put",
    "/v1/channels/put",
  ]
  /// Of the lines of a backup.
  static let backupVersion = 1

  private let parts: ControlAPI.Parts
  private let care: RadioConfigurator
  private let stream: MessagesAPI.Stream

  init(_ parts: ControlAPI.Parts, _ stream: @escaping MessagesAPI.Stream) {
    self.parts = parts
    self.stream = stream
    care = RadioConfigurator(parts.synchronizer)
  }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    do throws(Refusal) {
      switch (request.method, request.path) {
      case ("GET", "/v1/radio"): show(responder)
      case ("GET", "/v1/radio/presets"): presets(responder)
      case ("POST", "/v1/radio/set"): try set(RequestBody(request), responder)
      case ("POST", "/v1/radio/advert"): try advert(RequestBody(request), responder)
      case ("GET", "/v1/radio/backup"): backup(responder)
      case ("POST", "/v1/radio/private-key"): try privateKey(RequestBody(request), responder)
      case ("POST", "/v1/contacts/put"): try putContact(RequestBody(request), responder)
      case ("POST", "/v1/channels/put"): try putChannel(RequestBody(request), responder)
      default: return false
      }
    } catch {
      Answering.refuse(responder, error)
    }
    return true
  }

  private func show(_ responder: HTTPResponder) {
    Answering.answer(responder, on: parts.loop) { [care] () throws(Refusal) in
      let facts = try await care.read()
      return { facts.write(to: &$0) }
    }
  }

  private func presets(_ responder: HTTPResponder) {
    Answering.answer(responder) { json in
      json.arrayField("settings") { json in
        for setting in RadioSetting.known {
          json.object { json in
            json.field("name", setting.name)
            json.field("allowed", setting.allowed)
          }
        }
      }
      json.arrayField("presets") { json in
        for preset in RadioPreset.all {
          json.object { json in
            json.field("name", preset.name)
            json.field("frequency", Double(preset.parameters.frequency) / 1000)
            json.field("bandwidth", Double(preset.parameters.bandwidth) / 1000)
            json.field("sf", preset.parameters.spreadingFactor)
            json.field("cr", preset.parameters.codingRate)
            json.field("path_hash_bytes", preset.pathHashBytes)
          }
        }
      }
    }
  }

  private func set(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    guard let present = parts.connection.identity?.info, parts.connection.state == .up else { throw .linkDown }
    let settings = try RadioSetting.read(body.whole, present: present)
    Answering.answer(responder, on: parts.loop) { [care] () throws(Refusal) in
      let facts = try await care.apply(settings)
      return { facts.write(to: &$0) }
    }
  }

  /// `{"flood":true}`: through the whole mesh; `{}`: to direct neighbours.
  private func advert(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    let isFlood = body.flag("flood")
    parts.messaging.routine.advert.send(isFlood: isFlood) { refusal in
      if let refusal { return Answering.refuse(responder, refusal) }
      Answering.answer(responder) { json in
        json.field("ok", true)
        json.field("flood", isFlood)
      }
    }
  }

  // MARK: Backup

  /// Rows: the radio with its settings, its channels with their secrets, its contacts.
  private func backup(_ responder: HTTPResponder) {
    guard parts.synchronizer.knowsAllContacts else {
      return Answering.refuse(
        responder, parts.connection.state == .up ? .full("the sync is under way; try again in a moment") : .linkDown)
    }
    parts.loop.begin { [weak self, care] in
      do throws(Refusal) {
        let facts = try await care.read()
        self?.write(facts, responder)
      } catch {
        Answering.refuse(responder, error)
      }
    }
  }

  private func write(_ facts: RadioConfigurator.Facts, _ responder: HTTPResponder) {
    let store = parts.store
    let at = parts.synchronizer.now.milliseconds
    var head: [UInt8]? = ControlAPI.line { json in
      json.field("kind", "radio")
      json.field("version", Self.backupVersion)
      json.field("at", at)
      json.field("key", facts.identity.info.key.hex)
      json.field("model", facts.identity.device?.details?.model.string)
      json.field("firmware", facts.identity.device?.details?.version.string)
      json.objectField("settings") { facts.writeSettings(to: &$0, withKeys: true) }
    }
    var after: [UInt8] = []
    stream(responder, false) {
      if var lines = head {
        head = nil
        var channels: [Channel] = []
        try store.eachChannel { channels.append($0) }
        for channel in channels {
          let region = try store.region(ofChannel: channel.secret.digest)
          lines += ControlAPI.line { Self.write(channel, region, to: &$0) }
        }
        return (lines, false)
      }
      var (lines, count): ([UInt8], Int) = ([], 0)
      try store.eachContact(after: after, onRadioOnly: true) { stored in
        lines += ControlAPI.line { Self.write(stored.contact, to: &$0) }
        after = stored.contact.key.bytes
        count += 1
        return count < 100
      }
      return (lines, count < 100)
    }
  }

  private static func write(_ channel: Channel, _ region: String?, to json: inout JSONWriter) {
    json.field("kind", "channel")
    json.field("slot", channel.slot)
    json.field("name_hex", Hex.string(channel.name.bytes))
    json.field("name", channel.name.string)
    json.field("secret", Hex.string(channel.secret.bytes))
    json.field("region", region)
  }

  private static func write(_ contact: Contact, to json: inout JSONWriter) {
    json.field("kind", "contact")
    json.field("key", contact.key.hex)
    json.field("type", contact.type.rawValue)
    json.field("flags", contact.flags)
    json.field("path", contact.outPath.map { Hex.string($0.bytes) })
    json.field("path_hash_bytes", contact.outPath.map { $0.length.bytesPerHop })
    json.field("name_hex", Hex.string(contact.name.bytes))
    json.field("name", contact.name.string)
    json.field("last_advert", contact.lastAdvert)
    json.field("latitude", contact.latitude)
    json.field("longitude", contact.longitude)
    json.field("last_modified", contact.lastModified)
  }

  // MARK: Restore

  private static func name(_ body: RequestBody) throws(Refusal) -> Text {
    guard let bytes = Hex.bytes(try body.string("name_hex")), bytes.count <= 31 else {
      throw .invalid("\"name_hex\" is at most 31 bytes in hexadecimal")
    }
    return Text(bytes: bytes)
  }

  private func putContact(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    guard let key = PublicKey(hex: try body.string("key")), !key.isZero else {
      throw .invalid("\"key\" is 64 hex digits")
    }
    let size = Int(try body.integer("path_hash_bytes", in: 1...3) ?? 1)
    var path: Path?
    if let hex = try body.optional("path") {
      guard let bytes = Hex.bytes(hex), let found = Path(bytes: bytes, bytesPerHop: size) else {
        throw .invalid("\"path\" is no path")
      }
      path = found
    }
    let contact = Contact(
      key: key, type: NodeType(rawValue: UInt8(clamping: try body.integer("type", in: 0...255) ?? 1)),
      flags: UInt8(clamping: try body.integer("flags", in: 0...255) ?? 0), outPath: path, name: try Self.name(body),
      lastAdvert: UInt32(clamping: try body.integer("last_advert", in: 0...Int64(UInt32.max)) ?? 0),
      latitude: Int32(clamping: try body.integer("latitude", in: -90_000_000...90_000_000) ?? 0),
      longitude: Int32(clamping: try body.integer("longitude", in: -180_000_000...180_000_000) ?? 0))
    Answering.answer(responder, on: parts.loop) { [table = parts.messaging.table] () throws(Refusal) in
      try await table.add(contact)
      return Answering.done
    }
  }

  private func putChannel(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    guard let slot = try body.integer("slot", in: 0...255) else { throw .invalid("\"slot\" is missing") }
    let secret = try SharedLink.secret(try body.string("secret"))
    let channel = Channel(slot: UInt8(clamping: slot), name: try Self.name(body), secret: secret)
    let region = try body.optional("region").map { text throws(Refusal) in try SharedLink.region(text) }
    Answering.answer(responder, on: parts.loop) { [table = parts.messaging.table] () throws(Refusal) in
      try await table.put(channel)
      try await table.setRegion(region, of: channel)
      return Answering.done
    }
  }

  /// `{"export":true}`, or `{"import":HEX}`: with it the radio becomes that node.
  private func privateKey(_ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    if body.flag("export") {
      parts.log.warning("an operator has the radio's private key exported")
      return Answering.answer(responder, on: parts.loop) { [care] () throws(Refusal) in
        let key = Hex.string(try await care.exportPrivateKey())
        return { $0.field("private_key", key) }
      }
    }
    guard let key = Hex.bytes(try body.string("import")), key.count == 64 else {
      throw .invalid("\"import\" is 128 hex digits")
    }
    parts.log.warning("an operator gives the radio another private key")
    Answering.answer(responder, on: parts.loop) { [care] () throws(Refusal) in
      try await care.importPrivateKey(key)
      return Answering.done
    }
  }
}
