// SPDX-License-Identifier: MIT

/// Hexadecimal digits, in lower case as is usual for keys.
public enum Hex {
  private static let digits = Array("0123456789abcdef".utf8)

  public static func string(_ bytes: some Sequence<UInt8>) -> String {
    var text: [UInt8] = []
    for byte in bytes {
      text.append(digits[Int(byte >> 4)])
      text.append(digits[Int(byte & 15)])
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// The bytes of an even number of hex digits in either case; `nil` for any other text.
  public static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    var result: [UInt8] = []
    var high: UInt8?
    for character in text.utf8 {
      guard let digit = value(character) else { return nil }
      if let upper = high {
        result.append(upper << 4 | digit)
        high = nil
      } else {
        high = digit
      }
    }
    return high == nil ? result : nil
  }

  private static func value(_ character: UInt8) -> UInt8? {
    switch character {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): character - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): character - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}
