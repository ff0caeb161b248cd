// SPDX-License-Identifier: MIT

/// Bytes that are no UTF-8, where a text is sent or kept. U+FFFD in their place would be what nobody has written.
public struct BrokenText: Error, CustomStringConvertible {
  /// The name of the place with the bytes, for people.
  public let place: String
  /// The index of the first byte that is not UTF-8.
  public let byte: Int

  /// `nil`: the bytes are UTF-8.
  public init?(_ bytes: [UInt8], from place: String) {
    let read = Array(String(decoding: bytes, as: UTF8.self).utf8)
    guard read != bytes else { return nil }
    var byte = zip(read, bytes).prefix { $0.0 == $0.1 }.count
    // U+FFFD stands where the broken bytes begin, and may share its own first bytes with them.
    while byte > 0, byte < read.count, read[byte] & 0xC0 == 0x80 { byte -= 1 }
    (self.place, self.byte) = (place, byte)
  }

  public var description: String { "\(place): not UTF-8 at byte \(byte + 1)" }
}
