// SPDX-License-Identifier: MIT

/// Base64 (RFC 4648) without `=`.
public enum Base64 {
  private static let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
  private static let digitsForURL: [UInt8] = digits.dropLast(2) + Array("-_".utf8)

  public static func encode(_ bytes: [UInt8]) -> String { encode(bytes, digits) }

  /// With `=` at the end.
  public static func padded(_ bytes: [UInt8]) -> String {
    encode(bytes) + String(repeating: "=", count: (3 - bytes.count % 3) % 3)
  }

  /// `nil`: invalid.
  public static func decode(_ text: some StringProtocol) -> [UInt8]? { decode(text, digits) }

  /// The alphabet for URLs, § 5.
  public static func encodeForURL(_ bytes: [UInt8]) -> String { encode(bytes, digitsForURL) }

  /// `nil`: invalid.
  public static func decodeFromURL(_ text: some StringProtocol) -> [UInt8]? { decode(text, digitsForURL) }

  private static func encode(_ bytes: [UInt8], _ digits: [UInt8]) -> String {
    var text: [UInt8] = []
    var (buffer, bits) = (0, 0)
    for byte in bytes {
      (buffer, bits) = (buffer << 8 | Int(byte), bits + 8)
      while bits >= 6 {
        bits -= 6
        text.append(digits[buffer >> bits & 63])
      }
      buffer &= (1 << bits) - 1
    }
    if bits > 0 { text.append(digits[buffer << (6 - bits) & 63]) }
    return String(decoding: text, as: UTF8.self)
  }

  private static func decode(_ text: some StringProtocol, _ digits: [UInt8]) -> [UInt8]? {
    var bytes: [UInt8] = []
    var (buffer, bits) = (0, 0)
    for digit in text.utf8 {
      guard let value = digits.firstIndex(of: digit) else { return nil }
      (buffer, bits) = (buffer << 6 | value, bits + 6)
      guard bits >= 8 else { continue }
      bits -= 8
      bytes.append(UInt8(truncatingIfNeeded: buffer >> bits))
      buffer &= (1 << bits) - 1
    }
    return buffer == 0 && bits < 6 ? bytes : nil
  }
}
