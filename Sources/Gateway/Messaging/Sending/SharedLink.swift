// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import UntrustedText

/// Links and cards that people share (docs/protocol/app-conventions.md § 7).
public enum SharedLink: Equatable, Sendable {
  /// A signed advert packet, as a radio exports it.
  case card([UInt8], Advert)
  /// Unsigned: a key with a name.
  case contact(PublicKey, name: Text, type: NodeType)
  /// `region`: for messages to the channel, if the link names one.
  case channel(name: Text, ChannelSecret, region: Region?)

  private static let scheme = "meshcore://"

  public init(parsing text: String) throws(Refusal) {
    let scheme = Self.scheme.utf8.count
    guard text.cut(toBytes: scheme).lowercased().isExactly(Self.scheme) else {
      throw .invalid("a link begins with \(Self.scheme)")
    }
    let rest = String(decoding: text.utf8.dropFirst(scheme), as: UTF8.self)
    let parts = rest.pieces(at: "?", most: 2)
    let query = Self.query(parts.count > 1 ? parts[1] : "")
    switch parts[0] {
    case "contact/add": self = try Self.contact(query)
    case "channel/add": self = try Self.channel(query)
    default: self = try Self.card(rest)
    }
  }

  private static func contact(_ query: [String: [UInt8]]) throws(Refusal) -> SharedLink {
    guard let hex = query["public_key"], let key = PublicKey(hex: String(decoding: hex, as: UTF8.self)), !key.isZero
    else { throw .invalid("the link has no public_key of 64 hex digits") }
    let name = try Self.name(query)
    let type = query["type"].flatMap { UInt8(String(decoding: $0, as: UTF8.self)) } ?? 1
    guard (1...4).contains(type) else { throw .invalid("the link's type must be 1 to 4") }
    return .contact(key, name: name, type: NodeType(rawValue: type))
  }

  private static func channel(_ query: [String: [UInt8]]) throws(Refusal) -> SharedLink {
    let name = try Self.name(query)
    let region = try query["region_scope"].flatMap { bytes throws(Refusal) -> Region? in
      if bytes.first == UInt8(ascii: "$") {
        throw .invalid("a region that begins with $ has its own key, which a link does not contain: omit region_scope")
      }
      return bytes.isEmpty ? nil : try Self.region(String(decoding: bytes, as: UTF8.self))
    }
    guard let hex = query["secret"] else {
      guard name.bytes.first == UInt8(ascii: "#") else { throw .invalid("the link has no secret") }
      return .channel(name: name, .hashtag(name.string), region: region)
    }
    return .channel(name: name, try secret(String(decoding: hex, as: UTF8.self)), region: region)
  }

  private static func name(_ query: [String: [UInt8]]) throws(Refusal) -> Text {
    let name = Text(bytes: query["name"] ?? [])
    if let fault = GivenName.fault(name.bytes, "the link's name") { throw .invalid(fault) }
    return name
  }

  private static let regionForm = "a region is 1 to 30 bytes of letters, digits, - and _, or none (or *)"

  /// Why this is no region that can be chosen. `ends`: what else may be given.
  public static func regionFault(_ text: String, or ends: String = "") -> String {
    guard text.utf8.first == UInt8(ascii: "$") else { return regionForm + ends }
    return "a region that begins with $ needs its own key, which only the radio's default region has: "
      + "meshpost radio set 'flood-scope=$NAME' flood-scope-key=HEX"
  }

  /// A region as people write it.
  public static func region(_ text: String) throws(Refusal) -> Region {
    // As for a message or a node: a region of this name has a `#` before it.
    guard text != "none" else { return .unscoped }
    guard let region = Region(text) else { throw .invalid(regionFault(text)) }
    return region
  }

  /// A channel's secret: 32 hex digits, not all zero.
  public static func secret(_ hex: String) throws(Refusal) -> ChannelSecret {
    guard let secret = Hex.bytes(hex).flatMap({ ChannelSecret(bytes: $0) }), !secret.isZero else {
      throw .invalid("a channel's secret is 32 hex digits, not all zero")
    }
    return secret
  }

  /// Checks the signature: an altered card is refused.
  private static func card(_ hex: String) throws(Refusal) -> SharedLink {
    guard let bytes = Hex.bytes(hex), let packet = try? Packet(decoding: bytes),
      case .advert(let advert)? = try? packet.content(), !advert.key.isZero
    else { throw .invalid("this is not a node's card") }  // `try?`: one answer fits all reasons
    guard advert.isSignatureValid else { throw .invalid("the card's signature is invalid: the card was altered") }
    return .card(bytes, advert)
  }

  /// `+` is a blank only inside a name; `%20` always is.
  private static func query(_ text: String) -> [String: [UInt8]] {
    var fields: [String: [UInt8]] = [:]
    for pair in text.pieces(at: "&") {
      let parts = pair.pieces(at: "=", most: 2)
      guard parts.count == 2 else { continue }
      let raw = Array(parts[1].utf8)
      let plus = UInt8(ascii: "+")
      let isBlank = raw.first != plus && raw.last != plus
      fields[parts[0]] = decode(raw.map { $0 == plus && isBlank ? 0x20 : $0 })
    }
    return fields
  }

  private static func decode(_ bytes: [UInt8]) -> [UInt8] {
    var result: [UInt8] = []
    var rest = bytes[...]
    while let byte = rest.popFirst() {
      let digits = rest.prefix(2)
      if byte == UInt8(ascii: "%"), digits.count == 2,
        let decoded = Hex.bytes(String(decoding: digits, as: UTF8.self))
      {
        result += decoded
        rest = rest.dropFirst(2)
      } else {
        result.append(byte)
      }
    }
    return result
  }
}
