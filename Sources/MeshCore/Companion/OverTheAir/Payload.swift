// SPDX-License-Identifier: MIT

/// An encrypted payload between two nodes: one byte of each key, MAC, cipher text.
public struct Envelope: Equatable, Sendable {
  public var destination: UInt8
  public var source: UInt8
  public var mac: [UInt8]
  public var cipher: [UInt8]

  public init(destination: UInt8, source: UInt8, mac: [UInt8], cipher: [UInt8]) {
    self.destination = destination
    self.source = source
    self.mac = mac
    self.cipher = cipher
  }

  public func encode() -> [UInt8] { [destination, source] + mac + cipher }
}

/// An encrypted payload on a channel.
public struct GroupEnvelope: Equatable, Sendable {
  /// The first byte of SHA-256 of the channel's secret; collisions are common.
  public var channelHash: UInt8
  public var mac: [UInt8]
  public var cipher: [UInt8]

  public init(channelHash: UInt8, mac: [UInt8], cipher: [UInt8]) {
    self.channelHash = channelHash
    self.mac = mac
    self.cipher = cipher
  }

  public func encode() -> [UInt8] { [channelHash] + mac + cipher }
}

/// ADVERT: a node's key, time, name and optional position, signed.
///
///     key 32 | time u32 | signature 64 | app data ≤ 32: flags, position, 2 × u16 reserved, name
public struct Advert: Equatable, Sendable {
  /// Longer app data is cut before the signature is verified.
  public static let maxAppData = 32

  public var key: PublicKey
  /// By the node's own clock; seconds since 1970.
  public var time: UInt32
  public var signature: [UInt8]
  /// Cut to 32 bytes.
  public var appData: [UInt8]

  public init(key: PublicKey, time: UInt32, signature: [UInt8], appData: [UInt8]) {
    self.key = key
    self.time = time
    self.signature = signature
    self.appData = appData
  }

  public init(decoding payload: [UInt8]) throws(FrameError) {
    var reader = FrameReader(payload)
    key = try reader.key()
    time = try reader.u32("time")
    signature = try reader.bytes(64, "signature")
    appData = Array(reader.rest().prefix(Self.maxAppData))
  }

  /// The bytes that the signature covers: key, time, app data.
  public var signedBytes: [UInt8] {
    var writer = FrameWriter()
    writer.key(key)
    writer.u32(time)
    writer.raw(appData)
    return writer.bytes
  }

  public func encode() -> [UInt8] {
    var writer = FrameWriter()
    writer.key(key)
    writer.u32(time)
    writer.raw(signature)
    writer.raw(appData)
    return writer.bytes
  }

  /// The decoded app data; throws if a flag announces more bytes than there are.
  public func content() throws(FrameError) -> AdvertContent { try AdvertContent(decoding: appData) }
}

/// The app data of an advert.
public struct AdvertContent: Equatable, Sendable {
  /// Low 4 bits the node type; 0x10 position, 0x20 and 0x40 a u16 each, 0x80 name.
  public var flags: UInt8
  /// Degrees × 10⁶.
  public var position: (latitude: Int32, longitude: Int32)?
  public var name: Text?

  public var type: NodeType { NodeType(rawValue: flags & 15) }

  public init(type: NodeType, position: (latitude: Int32, longitude: Int32)?, name: Text?) {
    flags = type.rawValue & 15 | (position == nil ? 0 : 0x10) | (name == nil ? 0 : 0x80)
    self.position = position
    self.name = name
  }

  public init(decoding appData: [UInt8]) throws(FrameError) {
    var reader = FrameReader(appData)
    flags = reader.isAtEnd ? 0 : try reader.u8("flags")
    if flags & 0x10 != 0 { position = (try reader.i32("lat"), try reader.i32("lon")) }
    if flags & 0x20 != 0 { _ = try reader.u16("feature 1") }
    if flags & 0x40 != 0 { _ = try reader.u16("feature 2") }
    if flags & 0x80 != 0 { name = reader.text().beforeNul }
  }

  public func encode() -> [UInt8] {
    var writer = FrameWriter()
    writer.u8(flags & ~0x60)
    if let position {
      writer.i32(position.latitude)
      writer.i32(position.longitude)
    }
    if let name { writer.raw(Array(name.bytes.prefix(Advert.maxAppData - writer.bytes.count))) }
    return writer.bytes
  }

  public static func == (left: Self, right: Self) -> Bool {
    left.flags == right.flags && left.name == right.name && left.position?.latitude == right.position?.latitude
      && left.position?.longitude == right.position?.longitude
  }
}

/// A decoded payload, as far as it is not encrypted.
public enum Payload: Equatable, Sendable {
  case request(Envelope), response(Envelope), text(Envelope), path(Envelope)
  /// The ack, and the bytes that firmware with repeated acks appends.
  case ack(AckCode, extra: [UInt8])
  case advert(Advert)
  case groupText(GroupEnvelope), groupData(GroupEnvelope)
  /// A login or a request to a stranger: it contains the sender's whole key.
  case anonymousRequest(destination: UInt8, sender: PublicKey, mac: [UInt8], cipher: [UInt8])
  case trace(tag: UInt32, auth: UInt32, flags: UInt8, hashes: [UInt8])
  case multipart(remaining: UInt8, type: PayloadType, content: [UInt8])
  case control(ControlPayload)
  case rawCustom([UInt8])
  case unknown(PayloadType, [UInt8])
}

extension Packet {
  /// The payload as a value; throws if it is shorter than its type's layout.
  public func content() throws(FrameError) -> Payload {
    var reader = FrameReader(payload)
    switch type {
    case .request: return .request(try envelope(&reader))
    case .response: return .response(try envelope(&reader))
    case .text: return .text(try envelope(&reader))
    case .path: return .path(try envelope(&reader))
    case .ack: return .ack(AckCode(value: UInt32(try reader.big(4, "ack"))), extra: reader.rest())
    case .advert: return .advert(try Advert(decoding: payload))
    case .groupText: return .groupText(try groupEnvelope(&reader))
    case .groupData: return .groupData(try groupEnvelope(&reader))
    case .anonymousRequest:
      return .anonymousRequest(
        destination: try reader.u8("dest"), sender: try reader.key("sender_key"), mac: try reader.bytes(2, "mac"),
        cipher: reader.rest())
    case .trace:
      return .trace(
        tag: try reader.u32("tag"), auth: try reader.u32("auth"), flags: try reader.u8("flags"), hashes: reader.rest())
    case .multipart:
      let first = try reader.u8("part")
      return .multipart(remaining: first >> 4, type: PayloadType(rawValue: first & 15), content: reader.rest())
    case .control: return .control(try ControlPayload(decoding: payload))
    case .rawCustom: return .rawCustom(payload)
    default: return .unknown(type, payload)
    }
  }

  private func envelope(_ reader: inout FrameReader) throws(FrameError) -> Envelope {
    Envelope(
      destination: try reader.u8("dest"), source: try reader.u8("source"), mac: try reader.bytes(2, "mac"),
      cipher: reader.rest())
  }

  private func groupEnvelope(_ reader: inout FrameReader) throws(FrameError) -> GroupEnvelope {
    GroupEnvelope(
      channelHash: try reader.u8("channel_hash"), mac: try reader.bytes(2, "mac"), cipher: reader.rest())
  }
}
