// SPDX-License-Identifier: MIT

/// Reads the fields of a frame from the front; never beyond its end.
///
/// Integers are little-endian, as everywhere in the companion protocol; Cayenne LPP uses `big`.
public struct FrameReader: Sendable {
  private let bytes: [UInt8]
  private var position: Int
  private let end: Int

  public init(_ bytes: [UInt8], from start: Int = 0) {
    self.bytes = bytes
    position = min(max(start, 0), bytes.count)
    end = bytes.count
  }

  /// The number of unread bytes.
  public var remaining: Int { end - position }
  public var isAtEnd: Bool { position >= end }

  private mutating func take(_ count: Int, _ field: String) throws(FrameError) -> Int {
    guard count >= 0, count <= remaining else {
      throw .missing(field: field, wanted: count, available: remaining)
    }
    defer { position += count }
    return position
  }

  public mutating func u8(_ field: String) throws(FrameError) -> UInt8 {
    bytes[try take(1, field)]
  }

  public mutating func i8(_ field: String) throws(FrameError) -> Int8 {
    Int8(bitPattern: try u8(field))
  }

  private mutating func integer(_ count: Int, _ field: String, big: Bool) throws(FrameError) -> UInt64 {
    let start = try take(count, field)
    var value: UInt64 = 0
    for index in 0..<count {
      value = value << 8 | UInt64(bytes[start + (big ? index : count - 1 - index)])
    }
    return value
  }

  public mutating func u16(_ field: String) throws(FrameError) -> UInt16 {
    UInt16(truncatingIfNeeded: try integer(2, field, big: false))
  }

  public mutating func i16(_ field: String) throws(FrameError) -> Int16 {
    Int16(bitPattern: try u16(field))
  }

  public mutating func u32(_ field: String) throws(FrameError) -> UInt32 {
    UInt32(truncatingIfNeeded: try integer(4, field, big: false))
  }

  public mutating func i32(_ field: String) throws(FrameError) -> Int32 {
    Int32(bitPattern: try u32(field))
  }

  /// A big-endian unsigned integer of up to 8 bytes.
  public mutating func big(_ count: Int, _ field: String) throws(FrameError) -> UInt64 {
    try integer(count, field, big: true)
  }

  public mutating func bytes(_ count: Int, _ field: String) throws(FrameError) -> [UInt8] {
    let start = try take(count, field)
    return Array(bytes[start..<start + count])
  }

  /// All unread bytes, possibly none.
  public mutating func rest() -> [UInt8] {
    defer { position = end }
    return Array(bytes[position..<end])
  }

  /// All unread bytes, at least so many.
  public mutating func rest(_ field: String, least: Int) throws(FrameError) -> [UInt8] {
    guard remaining >= least else { throw .missing(field: field, wanted: least, available: remaining) }
    return rest()
  }

  public mutating func key(_ field: String = "key") throws(FrameError) -> PublicKey {
    PublicKey(words: (try word(field), try word(field), try word(field), try word(field)))
  }

  private mutating func word(_ field: String) throws(FrameError) -> UInt64 { try big(8, field) }

  public mutating func prefix(_ field: String = "prefix") throws(FrameError) -> KeyPrefix {
    KeyPrefix(value: try big(6, field))
  }

  public mutating func snr(_ field: String = "snr") throws(FrameError) -> SNR {
    SNR(quarters: try i8(field))
  }

  /// An SNR with two reserved bytes behind it.
  mutating func quality() throws(FrameError) -> SNR {
    let quality = try snr()
    _ = try u16("reserved")
    return quality
  }

  /// A field of fixed size whose text ends at the first NUL; the bytes after it are arbitrary.
  public mutating func fixedText(_ count: Int, _ field: String) throws(FrameError) -> Text {
    let start = try take(count, field)
    let slice = bytes[start..<start + count]
    return Text(bytes: Array(slice.prefix { $0 != 0 }))
  }

  /// Text up to the end of the frame.
  public mutating func text() -> Text { Text(bytes: rest()) }
}
