// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import MeshCrypto
import Messaging
import Store
import UntrustedText

/// `/v1/radio`, `/v1/radio/set`, `…/advert`, `…/backup`, `…/private-key`, and the restoration of a backup.
struct RadioConfigurationAPI {
  /// The version of a backup's lines.
  static let backupVersion = 1

  private let dependencies: ControlAPI.Dependencies
  private let configurator: RadioConfigurator

  init(_ dependencies: ControlAPI.Dependencies) {
    self.dependencies = dependencies
    configurator = RadioConfigurator(dependencies.synchronizer)
  }

  func show() async throws(Refusal) -> Answer {
    let facts = try await configurator.read()
    return .json { facts.write(to: &$0) }
  }

  func presets() -> Answer {
    .json { json in
      json.objects(Shape.Presets().settings, RadioSetting.known) { setting, json in
        json.field(Shape.Setting().name, setting.name)
        json.field(Shape.Setting().allowed, setting.allowed)
      }
      json.objects(Shape.Presets().presets, RadioPreset.all) { preset, json in
        let row = Shape.Preset()
        json.field(row.name, preset.name)
        json.field(row.frequency, Double(preset.parameters.frequency) / 1000)
        json.field(row.bandwidth, Double(preset.parameters.bandwidth) / 1000)
        json.field(row.sf, preset.parameters.spreadingFactor)
        json.field(row.cr, preset.parameters.codingRate)
        json.field(row.pathHashBytes, preset.pathHashBytes)
      }
    }
  }

  func set(_ body: RequestBody) async throws(Refusal) -> Answer {
    guard let present = dependencies.connection.identity?.info, dependencies.connection.state == .up else {
      throw .linkDown
    }
    let facts = try await configurator.apply(try RadioSetting.read(body.whole, present: present))
    return .json { facts.write(to: &$0) }
  }

  /// Sends an advert. `{"flood":true}`: through the whole mesh; `{}`: to direct neighbours.
  func advert(_ body: RequestBody) async throws(Refusal) -> Answer {
    let isFlood = try body.flag("flood")
    try await dependencies.messaging.routine.advert.send(isFlood: isFlood)
    return .json { json in
      json.field(Shape.Advertised().ok, true)
      json.field(Shape.Advertised().flood, isFlood)
    }
  }

  // MARK: Backup

  /// Rows: the radio with its settings, its channels with their secrets, its contacts.
  func backup(_ reply: Reply) async throws -> Answer {
    guard dependencies.synchronizer.knowsAllContacts else {
      throw dependencies.connection.state == .up
        ? Refusal.full("a sync is in progress; try again in a moment") : .linkDown
    }
    let facts = try await configurator.readSettings()
    let (store, at) = (dependencies.store, dependencies.synchronizer.now.milliseconds)
    var isBegun = false
    var after: [UInt8] = []
    return try await reply.rows {
      guard isBegun else {
        isBegun = true
        return (try Self.head(facts, at: at) + Self.channels(store), false)
      }
      var (lines, count): ([UInt8], Int) = ([], 0)
      try store.eachContact(after: after, onRadioOnly: true) { stored in
        lines += ControlAPI.line { Self.write(stored.contact, to: &$0) }
        after = stored.contact.key.bytes
        count += 1
        return count < ControlAPI.pageRows
      }
      return (lines, count < ControlAPI.pageRows)
    }
  }

  private static func head(_ facts: RadioConfigurator.Facts, at: Int64) -> [UInt8] {
    ControlAPI.line { json in
      json.field("kind", "radio")
      json.field("version", backupVersion)
      json.field("at", at)
      json.field("key", facts.identity.info.key.hex)
      json.field("model", facts.identity.device?.details?.model.string)
      json.field("firmware", facts.identity.device?.details?.version.string)
      json.objectField("settings") { facts.writeSettings(to: &$0, withKeys: true) }
    }
  }

  private static func channels(_ store: Store) throws(StoreError) -> [UInt8] {
    var lines: [UInt8] = []
    for channel in try store.channels() {
      let region = try store.region(ofChannel: channel.secret.digest)
      lines += ControlAPI.line { write(channel, region, to: &$0) }
    }
    return lines
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
      throw .invalid("\"name_hex\" must be at most 31 bytes in hexadecimal")
    }
    return Text(bytes: bytes)
  }

  func putContact(_ body: RequestBody) async throws(Refusal) -> Answer {
    guard let key = PublicKey(hex: try body.string("key")), !key.isZero else {
      throw .invalid("\"key\" must be 64 hex digits")
    }
    let size = Int(try body.integer("path_hash_bytes", in: 1...3) ?? 1)
    var path: Path?
    if let hex = try body.optional("path") {
      guard let bytes = Hex.bytes(hex), let found = Path(bytes: bytes, bytesPerHop: size) else {
        throw .invalid("\"path\" is not a valid path")
      }
      path = found
    }
    let contact = Contact(
      key: key, type: NodeType(rawValue: UInt8(clamping: try body.integer("type", in: 0...255) ?? 1)),
      flags: UInt8(clamping: try body.integer("flags", in: 0...255) ?? 0), outPath: path, name: try Self.name(body),
      lastAdvert: UInt32(clamping: try body.integer("last_advert", in: 0...Int64(UInt32.max)) ?? 0),
      latitude: Int32(clamping: try body.integer("latitude", in: -90_000_000...90_000_000) ?? 0),
      longitude: Int32(clamping: try body.integer("longitude", in: -180_000_000...180_000_000) ?? 0))
    try await dependencies.messaging.table.add(contact)
    return .done
  }

  func putChannel(_ body: RequestBody) async throws(Refusal) -> Answer {
    guard let slot = try body.integer("slot", in: 0...255) else { throw .invalid("\"slot\" is missing") }
    let secret = try SharedLink.secret(try body.string("secret"))
    let channel = Channel(slot: UInt8(clamping: slot), name: try Self.name(body), secret: secret)
    if let fault = GivenName.channelFault(channel.name.bytes) { throw .invalid(fault) }
    let region = try body.optional("region").map { text throws(Refusal) in try SharedLink.region(text) }
    try await dependencies.messaging.table.put(channel, in: region)
    return .done
  }

  /// `{"export":true}`, or `{"import":HEX}`, which turns the radio into the node with that key.
  func privateKey(_ body: RequestBody) async throws(Refusal) -> Answer {
    if try body.flag("export") {
      dependencies.log.warning("an operator requested an export of the radio's private key")
      let key = Hex.string(try await configurator.exportPrivateKey())
      return .json { $0.field("private_key", key) }
    }
    guard let key = Hex.bytes(try body.string("import")), key.count == 64 else {
      throw .invalid("\"import\" must be 128 hex digits")
    }
    dependencies.log.warning("an operator is replacing the radio's private key")
    try await configurator.importPrivateKey(key)
    return .done
  }
}
