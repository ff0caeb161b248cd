// SPDX-License-Identifier: MIT

// Keys and codes of the mesh. They are stored as integers: no allocation, fast to compare, and printed as the hex that
// every other client shows.

/// A node's Ed25519 public key, 32 bytes: its identity on the mesh.
public struct PublicKey: Hashable, Sendable, CustomStringConvertible {
  private let a: UInt64, b: UInt64, c: UInt64, d: UInt64

  init(words: (UInt64, UInt64, UInt64, UInt64)) { (a, b, c, d) = words }

  /// `nil` unless there are 32 bytes.
  public init?(bytes: [UInt8]) {
    guard bytes.count == 32 else { return nil }
    var words: [UInt64] = [0, 0, 0, 0]
    for (index, byte) in bytes.enumerated() { words[index / 8] = words[index / 8] << 8 | UInt64(byte) }
    self.init(words: (words[0], words[1], words[2], words[3]))
  }

  /// `nil` unless there are 64 hex digits.
  public init?(hex: String) {
    guard let bytes = Hex.bytes(hex) else { return nil }
    self.init(bytes: bytes)
  }

  public var bytes: [UInt8] {
    withUnsafeBytes(of: (a.bigEndian, b.bigEndian, c.bigEndian, d.bigEndian)) { Array($0) }
  }

  public var prefix: KeyPrefix { KeyPrefix(value: a >> 16) }
  /// The first byte, which identifies the node in over-the-air envelopes.
  public var nodeHash: UInt8 { UInt8(truncatingIfNeeded: a >> 56) }
  /// Never a real key; from 1.17 on it matches an empty table entry and must not be sent.
  public var isZero: Bool { a | b | c | d == 0 }
  public var hex: String { Hex.string(bytes) }
  public var description: String { hex }
}

/// The first 6 bytes of a public key, by which messages identify their sender.
public struct KeyPrefix: Hashable, Sendable, CustomStringConvertible {
  /// The 6 bytes as a big-endian number.
  public let value: UInt64

  public init(value: UInt64) { self.value = value & 0xFFFF_FFFF_FFFF }

  /// `nil` unless there are 6 bytes.
  public init?(bytes: [UInt8]) {
    guard bytes.count == 6 else { return nil }
    self.init(value: bytes.reduce(0) { $0 << 8 | UInt64($1) })
  }

  public var bytes: [UInt8] { withUnsafeBytes(of: value.bigEndian) { Array($0.suffix(6)) } }

  public var isZero: Bool { value == 0 }
  public var hex: String { Hex.string(bytes) }
  public var description: String { hex }
}

/// Four bytes that identify an expected acknowledgement, or a request whose answer comes later.
public struct AckCode: Hashable, Sendable, CustomStringConvertible {
  /// The bytes in wire order as a big-endian number.
  public let value: UInt32

  public init(value: UInt32) { self.value = value }

  public init?(bytes: [UInt8]) {
    guard bytes.count == 4 else { return nil }
    value = bytes.reduce(0) { $0 << 8 | UInt32($1) }
  }

  public var bytes: [UInt8] { withUnsafeBytes(of: value.bigEndian) { Array($0) } }

  public var hex: String { Hex.string(bytes) }
  public var description: String { hex }
}

/// A channel's 16-byte secret. Its description hides it: logs must not contain secrets.
public struct ChannelSecret: Hashable, Sendable, CustomStringConvertible {
  private let high: UInt64, low: UInt64

  public init?(bytes: [UInt8]) {
    guard bytes.count == 16 else { return nil }
    high = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    low = bytes.suffix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  private init() { (high, low) = (0, 0) }

  /// The secret of an empty slot.
  public static let zero = ChannelSecret()

  public var bytes: [UInt8] { withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Array($0) } }

  public var isZero: Bool { high | low == 0 }
  public var description: String { "ChannelSecret(hidden)" }
}

/// Signal-to-noise ratio in quarters of a decibel, as every frame carries it.
public struct SNR: Hashable, Sendable {
  public let quarters: Int8
  public init(quarters: Int8) { self.quarters = quarters }
  public var decibels: Double { Double(quarters) / 4 }
}
