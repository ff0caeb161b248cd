// SPDX-License-Identifier: MIT

/// Builds a frame field by field; the counterpart of `FrameReader`.
public struct FrameWriter: Sendable {
  public private(set) var bytes: [UInt8] = []

  public init(code: UInt8) {
    bytes.reserveCapacity(176)
    bytes.append(code)
  }

  public init() {}

  /// A whole frame: the code, and the fields that `write` appends.
  static func frame(_ code: some RawRepresentable<UInt8>, _ write: (inout FrameWriter) -> Void) -> [UInt8] {
    var writer = FrameWriter(code: code.rawValue)
    write(&writer)
    return writer.bytes
  }

  public mutating func u8(_ value: UInt8) { bytes.append(value) }
  public mutating func i8(_ value: Int8) { bytes.append(UInt8(bitPattern: value)) }

  public mutating func u16(_ value: UInt16) {
    bytes.append(UInt8(truncatingIfNeeded: value))
    bytes.append(UInt8(truncatingIfNeeded: value >> 8))
  }

  public mutating func i16(_ value: Int16) { u16(UInt16(bitPattern: value)) }

  public mutating func u32(_ value: UInt32) {
    for shift: UInt32 in [0, 8, 16, 24] { bytes.append(UInt8(truncatingIfNeeded: value >> shift)) }
  }

  public mutating func i32(_ value: Int32) { u32(UInt32(bitPattern: value)) }

  /// Appends the lowest `count` bytes of an integer, big-endian.
  public mutating func big(_ value: UInt64, _ count: Int) {
    for index in 0..<count { bytes.append(UInt8(truncatingIfNeeded: value >> UInt64(8 * (count - 1 - index)))) }
  }

  public mutating func raw(_ more: [UInt8]) { bytes.append(contentsOf: more) }
  public mutating func key(_ key: PublicKey) { raw(key.bytes) }
  public mutating func prefix(_ prefix: KeyPrefix) { big(prefix.value, 6) }
  public mutating func zeros(_ count: Int) { bytes.append(contentsOf: repeatElement(0, count: max(0, count))) }

  /// As `FrameReader.quality` reads it.
  mutating func quality(_ snr: SNR) {
    i8(snr.quarters)
    u16(0)
  }

  /// Appends a text in a field of fixed size: cut, or padded with NULs.
  public mutating func fixedText(_ text: Text, _ count: Int) { fixed(text.bytes, count) }

  /// Appends bytes in a field of fixed size: cut, or padded with zeros.
  public mutating func fixed(_ more: [UInt8], _ count: Int) {
    raw(Array(more.prefix(count)))
    zeros(count - more.count)
  }
}
