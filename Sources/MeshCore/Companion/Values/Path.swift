// SPDX-License-Identifier: MIT

// Routes over the air. Source: docs/protocol/companion.md § 4.1; firmware `Packet.h`, `getPathHashSize`.

/// The path length byte: bits 0–5 hops, bits 6–7 bytes per hop less one; 3 is reserved.
public struct PathLength: Hashable, Sendable {
  public let raw: UInt8
  public init(raw: UInt8) { self.raw = raw }

  public var hops: Int { Int(raw & 0x3F) }
  public var bytesPerHop: Int { Int(raw >> 6) + 1 }
  public var byteCount: Int { hops * bytesPerHop }
  /// False for the reserved mode and for paths over 64 bytes.
  public var isValid: Bool { raw >> 6 != 3 && byteCount <= Path.maxBytes }
}

/// A route: the first 1, 2 or 3 bytes of each repeater's key, in order.
public struct Path: Hashable, Sendable, CustomStringConvertible {
  /// The firmware's `MAX_PATH_SIZE`.
  public static let maxBytes = 64

  public let length: PathLength
  public let bytes: [UInt8]

  /// A path without hops; one byte per hop.
  public static let direct = Path(length: PathLength(raw: 0), bytes: [])

  /// The same hops in the opposite order.
  public var reversed: Path {
    let size = length.bytesPerHop
    let hops = stride(from: 0, to: bytes.count, by: size).map { Array(bytes[$0..<$0 + size]) }
    return Path(length: length, bytes: hops.reversed().flatMap { $0 })
  }

  private init(length: PathLength, bytes: [UInt8]) {
    self.length = length
    self.bytes = bytes
  }

  /// `nil` unless the bytes are a whole number of hops, not too many, and `bytesPerHop` is 1, 2 or 3.
  public init?(bytes: [UInt8], bytesPerHop: Int = 1) {
    guard (1...3).contains(bytesPerHop), bytes.count <= Self.maxBytes, bytes.count % bytesPerHop == 0 else {
      return nil
    }
    let hops = bytes.count / bytesPerHop
    guard hops <= 63 else { return nil }
    self.init(length: PathLength(raw: UInt8((bytesPerHop - 1) << 6 | hops)), bytes: bytes)
  }

  public init(reading reader: inout FrameReader, length: PathLength, field: String = "path") throws(FrameError) {
    guard length.isValid else {
      throw .invalid(field: field, reason: "path length 0x\(Hex.string([length.raw])) is reserved or over 64 bytes")
    }
    self.init(length: length, bytes: try reader.bytes(length.byteCount, field))
  }

  public var hops: Int { length.hops }
  public var description: String { Hex.string(bytes) }
}

/// The route of a received message. Here 0xFF means "direct"; in a contact it means "no path known".
public struct ReceivedPath: Hashable, Sendable {
  public let raw: UInt8
  public init(raw: UInt8) { self.raw = raw }

  /// Whether the message came routed or zero-hop, not flooded.
  public var isDirect: Bool { raw == 0xFF }
  /// Hops of a flooded packet; 0: heard from the sender itself. `nil`: it came direct.
  public var hops: Int? { isDirect ? nil : PathLength(raw: raw).hops }
}
