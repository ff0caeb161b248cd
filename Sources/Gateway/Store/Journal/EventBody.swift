// SPDX-License-Identifier: MIT

import Companion
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

  /// The fields of a message, also used by the control socket. `radio`: the name in rows of the radio that received it.
  public static func write(
    _ message: StoredMessage, channelName: Text?, radio: String? = nil, showsText: Bool = true,
    to json: inout JSONWriter
  ) {
    json.field("id", message.id)
    json.field("kind", message.kind.rawValue)
    json.field("sender", message.sender?.hex)
    json.field("sender_name", message.senderName?.string)
    json.field("author", message.author.map { Hex.string($0) })
    json.field("author_name", message.authorName?.string)
    json.field("channel", message.channel)
    json.field("channel_name", channelName?.string)
    json.field("sender_time", message.senderTime)
    if message.kind == .datagram {
      json.field("data_type", message.dataType)
      json.field("data", Hex.string(message.text.bytes))
    } else if showsText {
      json.field("text", message.text.string)
      // Also the bytes if they are not UTF-8, because the text above then has replacement characters.
      if String(validating: message.text.bytes, as: UTF8.self) == nil {
        json.field("text_hex", Hex.string(message.text.bytes))
      }
    }
    let mentions = message.kind == .datagram ? [] : Mention.names(in: message.text)
    if !mentions.isEmpty { json.arrayField("mentions") { json in for name in mentions { json.value(name) } } }
    json.field("snr", message.snr?.decibels)
    json.field("hops", message.path.hops)
    json.field("direct", message.path.isDirect)
    switch message.wait {
    case .none: break
    case .atMost(let seconds):
      json.field("waited", true)
      json.field("waited_s", seconds)
    case .unknown: json.field("waited", true)
    }
    json.field("age_s", message.age)
    json.field("radio", radio)
  }

  public static func contact(_ stored: StoredContact) -> [UInt8] {
    JSONWriter.object { write(stored, to: &$0) }
  }

  public static func write(_ stored: StoredContact, to json: inout JSONWriter) {
    let contact = stored.contact
    json.field("key", contact.key.hex)
    json.field("name", contact.name.string)
    json.field("type", contact.type.name)
    json.field("favourite", contact.isFavourite)
    json.field("flags", contact.flags)
    json.field("hops", contact.outPath?.hops)
    json.field("path", contact.outPath?.description)
    if let latitude = contact.latitude, let longitude = contact.longitude, latitude != 0 || longitude != 0 {
      json.field("lat", Double(latitude) / 1e6)
      json.field("lon", Double(longitude) / 1e6)
    }
    json.field("last_advert", contact.lastAdvert)
    json.field("last_modified", contact.lastModified)
    json.field("on_radio", stored.onRadio)
    json.field("first_seen", stored.firstSeen)
    json.field("last_heard", stored.lastHeard)
  }

  public static func radioGap(
    waited: Int, lost: Int?, atMost: Int?, restarted: Bool, radio: String?
  ) -> [UInt8] {
    JSONWriter.object { json in
      json.field("waited", waited)
      json.field("lost", lost)
      json.field("at_most", atMost)
      json.field("restarted", restarted ? true : nil)
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
    JSONWriter.object {
      $0.field("slot", channel.slot)
      $0.field("name", channel.name.string)
      $0.field("channel", channel.isEmpty ? nil : channel.secret.digest)
      $0.field("region", region)
    }
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
