// SPDX-License-Identifier: MIT

/// The type of a node in adverts and contacts.
public struct NodeType: Hashable, Sendable, RawRepresentable {
  public let rawValue: UInt8
  public init(rawValue: UInt8) { self.rawValue = rawValue }

  public static let none = NodeType(rawValue: 0)
  public static let chat = NodeType(rawValue: 1)
  public static let repeater = NodeType(rawValue: 2)
  public static let room = NodeType(rawValue: 3)
  public static let sensor = NodeType(rawValue: 4)

  /// The type's usual name; a number if it is unknown.
  public var name: String { Int(rawValue) < Self.names.count ? Self.names[Int(rawValue)] : "type-\(rawValue)" }

  private static let names = ["none", "chat", "repeater", "room", "sensor"]
}

/// A contact of the radio's table: CONTACT (3), NEW_ADVERT (0x8A), ADD_UPDATE_CONTACT (9).
///
///     0     1      33    34     35            36           100     132          136   140   144
///     code  key32  type  flags  out_path_len  out_path 64  name 32 last_advert  lat   lon   lastmod
///
/// Source: docs/protocol/companion.md § 4.2; firmware `MyMesh.cpp`, `writeContactRespFrame`.
public struct Contact: Equatable, Sendable {
  public var key: PublicKey
  public var type: NodeType
  /// Bit 0: favourite; bits 1–3: telemetry permissions; bit 4: may run commands; other bits are kept unchanged.
  public var flags: UInt8
  /// The known path to the contact, empty for a direct neighbour; `nil`: no path is known, messages are flooded. (A
  /// path length in the reserved mode counts as no path, so that the contact is not lost.)
  public var outPath: Path?
  public var name: Text
  /// The contact's **own** clock at its last advert; it may be wrong by years.
  public var lastAdvert: UInt32
  /// Degrees × 10⁶; both 0 = unknown. `nil` only in short ADD_UPDATE_CONTACT frames.
  public var latitude: Int32?
  public var longitude: Int32?
  /// The radio's clock at the record's last change. `nil` only in short ADD_UPDATE_CONTACT frames.
  public var lastModified: UInt32?

  public init(
    key: PublicKey, type: NodeType = .chat, flags: UInt8 = 0, outPath: Path? = nil, name: Text,
    lastAdvert: UInt32 = 0, latitude: Int32? = 0, longitude: Int32? = 0, lastModified: UInt32? = 0
  ) {
    self.key = key
    self.type = type
    self.flags = flags
    self.outPath = outPath
    self.name = name
    self.lastAdvert = lastAdvert
    self.latitude = latitude
    self.longitude = longitude
    self.lastModified = lastModified
  }

  public var isFavourite: Bool {
    get { flags & 1 != 0 }
    set { flags = flags & ~1 | (newValue ? 1 : 0) }
  }

  /// From firmware 1.18 on the node may run any command on this radio, by texts of type 3. Older firmware ignores the bit.
  public var mayCommand: Bool {
    get { flags & Self.commandFlag != 0 }
    set { flags = flags & ~Self.commandFlag | (newValue ? Self.commandFlag : 0) }
  }

  public static let commandFlag: UInt8 = 0x10

  /// Decodes the record after the code. `whole`: all 148 bytes are mandatory; otherwise shorter records are accepted,
  /// as by the radio.
  init(reading reader: inout FrameReader, whole: Bool) throws(FrameError) {
    key = try reader.key()
    type = NodeType(rawValue: try reader.u8("type"))
    flags = try reader.u8("flags")
    let length = PathLength(raw: try reader.u8("out_path_len"))
    let path = try reader.bytes(64, "out_path")
    outPath = length.isValid ? Path(bytes: Array(path.prefix(length.byteCount)), bytesPerHop: length.bytesPerHop) : nil
    name = try reader.fixedText(32, "name")
    lastAdvert = try reader.u32("last_advert")
    // Without a position there is no lastmod either: four bytes would be half a position.
    guard whole || reader.remaining >= 8 else { return }
    latitude = try reader.i32("lat")
    longitude = try reader.i32("lon")
    if whole || reader.remaining >= 4 { lastModified = try reader.u32("lastmod") }
  }

  func write(to writer: inout FrameWriter) {
    writer.key(key)
    writer.u8(type.rawValue)
    writer.u8(flags)
    writer.u8(outPath?.length.raw ?? 0xFF)
    writer.fixed(outPath?.bytes ?? [], 64)
    writer.fixedText(name, 32)
    writer.u32(lastAdvert)
    guard let latitude, let longitude else { return }
    writer.i32(latitude)
    writer.i32(longitude)
    if let lastModified { writer.u32(lastModified) }
  }
}
