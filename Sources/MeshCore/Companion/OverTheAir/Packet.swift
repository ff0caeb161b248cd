// SPDX-License-Identifier: MIT

// Packets on the air, as in LOG_RX_DATA. Source: docs/protocol/companion.md § 13; firmware `Packet.cpp`, `readFrom`.

/// A packet: header, route, payload.
///
///     header u8 | transport codes 2 × u16 (routes 0 and 3) | path length u8 | path | payload 1…184
public struct Packet: Equatable, Sendable {
  public enum Route: UInt8, Sendable {
    case transportFlood = 0, flood, direct, transportDirect

    public var isFlood: Bool { self == .flood || self == .transportFlood }
    public var hasTransportCodes: Bool { self == .transportFlood || self == .transportDirect }
  }

  public struct TransportCodes: Equatable, Sendable {
    public var first: UInt16
    public var second: UInt16

    public init(first: UInt16, second: UInt16) {
      self.first = first
      self.second = second
    }
  }

  /// The most bytes that may follow the path.
  public static let maxPayload = 184

  public var route: Route
  public var type: PayloadType
  public var transportCodes: TransportCodes?
  /// The raw length byte; for TRACE a plain count of SNRs.
  public var pathLength: PathLength
  /// The path so far (flood) or the remaining path (direct); for TRACE, an SNR × 4 for each hop passed.
  public var path: [UInt8]
  public var payload: [UInt8]

  public init(
    route: Route, type: PayloadType, transportCodes: TransportCodes? = nil, pathLength: PathLength = .init(raw: 0),
    path: [UInt8] = [], payload: [UInt8]
  ) {
    self.route = route
    self.type = type
    self.transportCodes = transportCodes
    self.pathLength = pathLength
    self.path = path
    self.payload = payload
  }

  /// Refuses packets that the firmware drops: versions other than 0, path mode 3, paths over 64 bytes or beyond the
  /// packet, an empty or too long payload.
  public init(decoding bytes: [UInt8]) throws(FrameError) {
    var reader = FrameReader(bytes)
    let header = try reader.u8("header")
    guard header >> 6 == 0 else { throw .invalid(field: "header", reason: "payload version \(header >> 6)") }
    guard let route = Route(rawValue: header & 3) else { throw .invalid(field: "header", reason: "route") }
    self.route = route
    type = PayloadType(rawValue: header >> 2 & 15)
    if route.hasTransportCodes {
      transportCodes = TransportCodes(first: try reader.u16("transport code"), second: try reader.u16("second code"))
    }
    pathLength = PathLength(raw: try reader.u8("path_len"))
    guard pathLength.isValid else {
      throw .invalid(field: "path_len", reason: "0x\(Hex.string([pathLength.raw])) is reserved or over 64 bytes")
    }
    path = try reader.bytes(pathLength.byteCount, "path")
    payload = try reader.rest("payload", least: 1)
    guard payload.count <= Self.maxPayload else {
      throw .invalid(field: "payload", reason: "\(payload.count) bytes, over \(Self.maxPayload)")
    }
  }

  public func encode() -> [UInt8] {
    var writer = FrameWriter()
    writer.u8(route.rawValue | (type.rawValue & 15) << 2)
    if route.hasTransportCodes {
      writer.u16(transportCodes?.first ?? 0)
      writer.u16(transportCodes?.second ?? 0)
    }
    writer.u8(pathLength.raw)
    writer.raw(path)
    writer.raw(payload)
    return writer.bytes
  }
}

/// The type of a packet's payload: header bits 2–5.
public struct PayloadType: Hashable, Sendable, RawRepresentable {
  public let rawValue: UInt8
  public init(rawValue: UInt8) { self.rawValue = rawValue }

  public static let request = PayloadType(rawValue: 0)
  public static let response = PayloadType(rawValue: 1)
  public static let text = PayloadType(rawValue: 2)
  public static let ack = PayloadType(rawValue: 3)
  public static let advert = PayloadType(rawValue: 4)
  public static let groupText = PayloadType(rawValue: 5)
  public static let groupData = PayloadType(rawValue: 6)
  public static let anonymousRequest = PayloadType(rawValue: 7)
  public static let path = PayloadType(rawValue: 8)
  public static let trace = PayloadType(rawValue: 9)
  public static let multipart = PayloadType(rawValue: 10)
  public static let control = PayloadType(rawValue: 11)
  public static let rawCustom = PayloadType(rawValue: 15)

  /// The name in the firmware's documents; a number for reserved types.
  public var name: String {
    let names = [
      "REQ", "RESPONSE", "TXT_MSG", "ACK", "ADVERT", "GRP_TXT", "GRP_DATA", "ANON_REQ", "PATH", "TRACE", "MULTIPART",
      "CONTROL",
    ]
    if rawValue == 15 { return "RAW_CUSTOM" }
    return Int(rawValue) < names.count ? names[Int(rawValue)] : "TYPE_\(rawValue)"
  }
}
