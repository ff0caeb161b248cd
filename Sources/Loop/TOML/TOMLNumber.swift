// SPDX-License-Identifier: MIT

enum TOMLNumber {
  /// `nil`: not a number, or an integer beyond 64 bits.
  static func read(_ word: String) -> TOMLValue.Kind? {
    let bytes = Array(word.utf8)
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] where bytes.starts(with: prefix.utf8) {
      // A sign is not allowed here; Swift's own parser would accept `0x-ff`.
      guard let digits = digits(bytes.dropFirst(2), isHexDigit) else { return nil }
      return Int64(digits, radix: radix).map { .integer($0) }
    }
    let isNegative = bytes.first == UInt8(ascii: "-")
    let unsigned = isNegative || bytes.first == UInt8(ascii: "+") ? bytes.dropFirst() : bytes[...]
    let sign = isNegative ? "-" : ""
    switch String(decoding: unsigned, as: UTF8.self) {
    case "inf": return .number(isNegative ? -.infinity : .infinity)
    case "nan": return .number(.nan)
    default: return decimal(unsigned, sign)
    }
  }

  private static func decimal(_ bytes: ArraySlice<UInt8>, _ sign: String) -> TOMLValue.Kind? {
    let whole = bytes.prefix { isDigit($0) || $0 == UInt8(ascii: "_") }
    guard let digits = digits(whole, isDigit), digits == "0" || digits.utf8.first != UInt8(ascii: "0") else {
      return nil
    }
    var rest = bytes.dropFirst(whole.count)
    guard !rest.isEmpty else { return Int64(sign + digits).map { .integer($0) } }
    var text = sign + digits
    if rest.first == UInt8(ascii: ".") {
      let fraction = rest.dropFirst().prefix { isDigit($0) || $0 == UInt8(ascii: "_") }
      guard let digits = self.digits(fraction, isDigit) else { return nil }
      text += "." + digits
      rest = rest.dropFirst(fraction.count + 1)
    }
    if let mark = rest.first, mark | 0x20 == UInt8(ascii: "e") {
      rest = rest.dropFirst()
      text += "e"
      if let sign = rest.first, sign == UInt8(ascii: "-") || sign == UInt8(ascii: "+") {
        text += sign == UInt8(ascii: "-") ? "-" : ""
        rest = rest.dropFirst()
      }
      guard let exponent = self.digits(rest, isDigit) else { return nil }
      text += exponent
      rest = []
    }
    guard rest.isEmpty else { return nil }
    return Double(text).map { .number($0) }
  }

  /// Removes underscores, each of which must be between two digits.
  private static func digits(_ bytes: ArraySlice<UInt8>, _ isDigit: (UInt8) -> Bool) -> String? {
    var text: [UInt8] = []
    var wasDigit = false
    for byte in bytes {
      if isDigit(byte) { text.append(byte) } else if byte != UInt8(ascii: "_") || !wasDigit { return nil }
      wasDigit = isDigit(byte)
    }
    return wasDigit ? String(decoding: text, as: UTF8.self) : nil
  }

  static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
  static func isHexDigit(_ byte: UInt8) -> Bool {
    isDigit(byte) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte | 0x20)
  }

  /// Used only to choose the error's words.
  static func isLikeTime(_ word: String) -> Bool {
    let bytes = Array(word.utf8)
    guard let first = bytes.first, isDigit(first) else { return false }
    return bytes.contains(UInt8(ascii: ":")) || bytes.filter { $0 == UInt8(ascii: "-") }.count >= 2
  }

  static func isLikeNumber(_ word: String) -> Bool {
    guard let first = word.utf8.first(where: { !"+-".utf8.contains($0) }) else { return false }
    return isDigit(first) || first == UInt8(ascii: ".")
  }
}
