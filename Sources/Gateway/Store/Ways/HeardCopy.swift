// SPDX-License-Identifier: MIT

import Companion

/// One copy of a message, as the radio heard it. Repeaters pass a message on, so it comes by several ways.
///
/// It is kept in at most 64 bytes:
///
///     length of the rest u8 | at u48 BE | SNR × 4 i8 | RSSI i8 | flags u8: route 0–1, guess 2, told 3
///     | path length u8 | routes with codes: code u16 LE, length of the region's name u8, name
///     | path, cut to whole hashes
public struct HeardCopy: Equatable, Sendable {
  /// Copies kept of one message, and the bytes of each.
  public static let most = 8
  static let mostBytes = 64

  /// Milliseconds since 1970.
  public var at: Int64
  public var snr: SNR
  public var rssi: Int8
  public var route: Packet.Route
  /// With the number of hops, even if the path is cut.
  public var length: PathLength
  /// Flooded: the repeaters that passed it on. Routed: those that it still had to pass.
  public var path: [UInt8]
  /// The transport code of a region, and the region's name if it is known.
  public var code: UInt16?
  public var region: String?
  /// Nobody without the keys can say which message the packet has: its ends and its time fit this one.
  public var isGuess = false
  /// An event has told it.
  var isTold = false

  public init(_ packet: Packet, snr: SNR, rssi: Int8, at: Int64, region: String? = nil) {
    (self.at, self.snr, self.rssi, self.region) = (at, snr, rssi, region.map(Self.cut))
    (route, length, path, code) = (packet.route, packet.pathLength, packet.path, packet.transportCodes?.first)
  }

  /// The hash of each hop: the first bytes of a key, which several nodes can share.
  public var hashes: [[UInt8]] {
    stride(from: 0, to: path.count, by: length.bytesPerHop).map {
      Array(path[$0..<min($0 + length.bytesPerHop, path.count)])
    }
  }

  /// The name of the region in which the message was flooded, first by copies that are surely of it; `nil`: it is
  /// unknown, or there is none.
  public static func region(of copies: [HeardCopy]) -> String? {
    let known = copies.lazy.filter { $0.region != nil }
    return (known.first { !$0.isGuess } ?? known.first)?.region
  }

  /// A region's code as it is displayed.
  public static func hex(_ code: UInt16) -> String { Hex.string([UInt8(code >> 8), UInt8(code & 0xFF)]) }

  /// Copies are written one behind the other: bytes of each alone would cost as much time as the statement that keeps
  /// them.
  func encode(to writer: inout FrameWriter) {
    let name = route.hasTransportCodes ? Array((region ?? "").utf8) : []
    let fixed = route.hasTransportCodes ? Self.plainBytes + Self.codeBytes + name.count : Self.plainBytes
    let room = (Self.mostBytes - 1 - fixed) / length.bytesPerHop * length.bytesPerHop
    writer.u8(UInt8(fixed + min(path.count, room)))
    writer.big(UInt64(clamping: at), 6)
    writer.i8(snr.quarters)
    writer.i8(rssi)
    writer.u8(route.rawValue | (isGuess ? 4 : 0) | (isTold ? 8 : 0))
    writer.u8(length.raw)
    if route.hasTransportCodes {
      writer.u16(code ?? 0)
      writer.u8(UInt8(name.count))
      writer.raw(name)
    }
    writer.raw(path.count <= room ? path : Array(path.prefix(room)))
  }

  /// Bytes behind the first one: those that all copies have before the path, and a code with the length of the name.
  private static let plainBytes = 10
  private static let codeBytes = 3

  /// The longest name that radios keep.
  private static let longestRegion = 30

  /// Whole characters: a part of one would be read as another, and the event would count as damaged.
  private static func cut(_ region: String) -> String {
    var cut = region[...]
    while cut.utf8.count > longestRegion { cut.removeLast() }
    return String(cut)
  }

  /// Reads copies up to the first that is damaged.
  static func decode(_ reader: inout FrameReader) -> [HeardCopy] {
    var copies: [HeardCopy] = []
    // `try?`: only a damaged row ends within a copy.
    while !reader.isAtEnd, copies.count < most, let count = try? reader.u8("length"),
      let one = try? reader.bytes(Int(count), "copy"), let copy = try? HeardCopy(decoding: one)
    {
      copies.append(copy)
    }
    return copies
  }

  private init(decoding bytes: [UInt8]) throws(FrameError) {
    var reader = FrameReader(bytes)
    at = Int64(clamping: try reader.big(6, "at"))
    snr = try reader.snr()
    rssi = try reader.i8("rssi")
    let flags = try reader.u8("flags")
    guard let route = Packet.Route(rawValue: flags & 3) else { throw .invalid(field: "flags", reason: "route") }
    (self.route, isGuess, isTold) = (route, flags & 4 != 0, flags & 8 != 0)
    length = PathLength(raw: try reader.u8("path_len"))
    guard length.isValid else { throw .invalid(field: "path_len", reason: "reserved, or over 64 bytes") }
    if route.hasTransportCodes {
      code = try reader.u16("code")
      let name = try reader.bytes(Int(try reader.u8("length of the region")), "region")
      // Of damaged bytes each may become a character of three.
      region = name.isEmpty ? nil : Self.cut(String(decoding: name, as: UTF8.self))
    }
    path = Array(reader.rest().prefix(length.byteCount))
  }
}
