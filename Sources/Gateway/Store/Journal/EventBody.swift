// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import JSON
import MeshCrypto
import RadioSession

/// The JSON of journal events; docs/hub-protocol.md documents the shapes. It never contains secrets.
public enum EventBody {
  /// Replies of remote command lines can contain passwords (docs/protocol/companion.md § 12.1): the event does not
  /// contain their text.
  public static func message(_ message: StoredMessage, channelName: Text?, radio: String? = nil) -> [UInt8] {
    JSONWriter.object {
      write(message, channelName: channelName, radio: radio, showsText: message.kind != .cli, to: &$0)
    }
  }

  /// The names of all fields of a message's event.
  public static let messageFields = messageTexts.union([
    "id", "command", "sender_time", "data_type", "mentions", "snr", "hops", "direct", "waited", "waited_s", "age_s",
  ])
  /// Those of them that are texts, in other events, too.
  public static let messageTexts: Set<String> = [
    "kind", "sender", "sender_name", "author", "author_name", "channel", "channel_name", "data", "text", "text_hex",
    "radio",
  ]

  /// The fields of a message, also used by the control socket. `radio`: the name in rows of the radio that received it.
  public static func write(
    _ message: StoredMessage, channelName: Text?, radio: String? = nil, showsText: Bool = true,
    to json: inout JSONWriter
  ) {
    let row = Shape.Message()
    json.field(row.id, message.id)
    json.field(row.kind, message.kind.rawValue)
    if message.textType == .cliCommand { json.field(row.command, true) }
    json.field(row.sender, message.sender?.hex)
    json.field(row.senderName, message.senderName?.string)
    json.field(row.author, message.author.map { Hex.string($0) })
    json.field(row.authorName, message.authorName?.string)
    json.field(row.channel, message.channel)
    json.field(row.channelName, channelName?.string)
    json.field(row.senderTime, message.senderTime)
    if message.kind == .datagram {
      json.field(row.dataType, message.dataType)
      json.field(row.data, Hex.string(message.text.bytes))
    } else if showsText {
      json.field(row.text, message.text.string)
      // Also the bytes if they are not UTF-8, because the text above then has replacement characters.
      if String(validating: message.text.bytes, as: UTF8.self) == nil {
        json.field(row.textHex, Hex.string(message.text.bytes))
      }
    }
    let isSaid = message.kind != .datagram && message.kind != .cli
    json.field(row.mentions, isSaid ? Mention.names(in: message.text) : [])
    json.field(row.snr, message.snr?.decibels)
    json.field(row.hops, message.path.hops)
    json.field(row.direct, message.path.isDirect)
    switch message.wait {
    case .none: break
    case .atMost(let seconds):
      json.field(row.waited, true)
      json.field(row.waitedS, seconds)
    case .unknown: json.field(row.waited, true)
    }
    json.field(row.ageS, message.age)
    json.field(row.radio, radio)
  }

  public static func contact(_ stored: StoredContact) -> [UInt8] {
    JSONWriter.object { write(stored, to: &$0) }
  }

  public static func write(_ stored: StoredContact, to json: inout JSONWriter) {
    let row = Shape.Contact()
    let contact = stored.contact
    json.field(row.key, contact.key.hex)
    json.field(row.name, contact.name.string)
    json.field(row.type, contact.type.name)
    json.field(row.favourite, contact.isFavourite)
    json.field(row.flags, contact.flags)
    if contact.mayCommand, stored.onRadio { json.field(row.mayCommand, true) }
    json.field(row.hops, contact.outPath?.hops)
    json.field(row.path, contact.outPath?.description)
    if let latitude = contact.latitude, let longitude = contact.longitude, latitude != 0 || longitude != 0 {
      json.field(row.lat, Double(latitude) / 1e6)
      json.field(row.lon, Double(longitude) / 1e6)
    }
    json.field(row.lastAdvert, contact.lastAdvert)
    json.field(row.lastModified, contact.lastModified)
    json.field(row.onRadio, stored.onRadio)
    json.field(row.firstSeen, stored.firstSeen)
    json.field(row.lastHeard, stored.lastHeard)
    json.field(row.region, stored.region)
    if let carried = stored.carried { json.field(row.carries, carried.isEmpty ? [] : carried.pieces(at: ",")) }
    json.field(row.carriesAt, stored.carriedAt)
  }

  /// `former`: the path that it had.
  public static func route(_ contact: Contact, former: Path?) -> [UInt8] {
    JSONWriter.object { json in
      let row = Shape.Contact()
      json.field(row.key, contact.key.hex)
      json.field(row.name, contact.name.string)
      json.field(row.hops, contact.outPath?.hops)
      json.field(row.path, contact.outPath?.description)
      json.field("former_hops", former?.hops)
      json.field("former_path", former?.description)
    }
  }

  public static func radioGap(
    waited: Int, lost: Int?, atMost: Int?, restarted: Bool, taken: Bool, radio: String?
  ) -> [UInt8] {
    JSONWriter.object { json in
      json.field("waited", waited)
      json.field("lost", lost)
      json.field("at_most", atMost)
      json.field("restarted", restarted ? true : nil)
      json.field("taken", taken ? true : nil)
      json.field("radio", radio)
    }
  }

  /// Texts that the radio could not read. `senders`: the first bytes of their senders' keys.
  public static func unread(_ count: Int, senders: [UInt8], radio: String?) -> [UInt8] {
    JSONWriter.object { json in
      json.field("waited", 0)
      json.field("unread", count)
      json.arrayField("senders") { json in for sender in senders { json.value(Hex.string([sender])) } }
      json.field("radio", radio)
    }
  }

  public static func removed(_ key: PublicKey, overwritten: Bool) -> [UInt8] {
    JSONWriter.object {
      $0.field("key", key.hex)
      $0.field("overwritten", overwritten)
    }
  }

  /// `region`: the channel's own region, if it has one.
  public static func channel(_ channel: Channel, region: String? = nil) -> [UInt8] {
    JSONWriter.object { write(channel, region: region, to: &$0) }
  }

  public static func write(_ channel: Channel, region: String?, to json: inout JSONWriter) {
    let row = Shape.Channel()
    json.field(row.slot, channel.slot)
    json.field(row.name, channel.name.string)
    json.field(row.channel, channel.isEmpty ? nil : channel.secret.digest)
    json.field(row.region, region)
  }

  public static func radio(_ identity: RadioIdentity) -> [UInt8] {
    JSONWriter.object { write(identity, to: &$0) }
  }

  public static func write(_ identity: RadioIdentity, to json: inout JSONWriter) {
    let info = identity.info
    json.field("key", info.key.hex)
    json.field("name", info.name.string)
    json.field("protocol_version", identity.device?.protocolVersion)
    if let details = identity.device?.details {
      json.field("model", details.model.string)
      json.field("version", details.version.string)
      json.field("build", details.build.string)
      json.field("channel_slots", details.channelSlots)
      json.field("max_contacts", identity.device?.maxContacts)
    }
    json.field("frequency_khz", info.radio.frequency)
    json.field("bandwidth_hz", info.radio.bandwidth)
    json.field("spreading_factor", info.radio.spreadingFactor)
    json.field("coding_rate", info.radio.codingRate)
    json.field("tx_power_dbm", info.txPower)
    json.field("manual_add", info.manualAddContacts & 1 != 0)
    if info.latitude != 0 || info.longitude != 0 {
      json.field("lat", Double(info.latitude) / 1e6)
      json.field("lon", Double(info.longitude) / 1e6)
    }
  }

  public static func gap(first: Int64, last: Int64, count: Int64, reason: String, lane: Lane?) -> [UInt8] {
    JSONWriter.object {
      $0.field("lane", lane?.rawValue)
      $0.field("first", first)
      $0.field("last", last)
      $0.field("count", count)
      $0.field("reason", reason)
    }
  }
}
