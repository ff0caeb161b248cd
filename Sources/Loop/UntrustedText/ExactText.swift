// SPDX-License-Identifier: MIT

/// Compares and cuts text from outside by its bytes.
///
/// `==`, `hasPrefix`, `split` and dictionaries compare `Character`s, and consider canonically equivalent texts equal: é as
/// one scalar and é as a letter with an accent are one name to Swift and two to the radio, and "⇄ " is not found before a
/// combining accent.
extension StringProtocol {
  /// Whether the bytes are the same.
  public func isExactly(_ other: some StringProtocol) -> Bool { utf8.elementsEqual(other.utf8) }

  /// Whether the text begins with these bytes.
  public func begins(with other: some StringProtocol) -> Bool { utf8.starts(with: other.utf8) }

  /// Whether the text ends with these bytes.
  public func ends(with other: some StringProtocol) -> Bool { utf8.reversed().starts(with: other.utf8.reversed()) }

  /// Whether the text contains these bytes. `part` is short: each place of the text is compared with it.
  public func mentions(_ part: some StringProtocol) -> Bool {
    var rest = utf8[...]
    repeat {
      if rest.starts(with: part.utf8) { return true }
    } while rest.popFirst() != nil
    return false
  }

  /// Whether the text contains this ASCII sign.
  public func has(_ sign: Unicode.Scalar) -> Bool { unicodeScalars.contains(sign) }

  /// The pieces between ASCII `sign`s, including empty ones; at most `most`, the last with the rest.
  public func pieces(at sign: Unicode.Scalar, most: Int = .max) -> [String] {
    // No byte of another scalar is an ASCII sign.
    utf8.split(separator: UInt8(ascii: sign), maxSplits: most - 1, omittingEmptySubsequences: false).map {
      String(decoding: $0, as: UTF8.self)
    }
  }

  /// The lines without their ends: a line feed, with or without a carriage return (which Swift combines into one
  /// `Character`).
  public var lines: [String] {
    pieces(at: "\n").map { $0.utf8.last == 13 ? String(decoding: $0.utf8.dropLast(), as: UTF8.self) : $0 }
  }

  /// The text without white space around it.
  public var trimmed: String {
    guard let first = firstIndex(where: { !$0.isWhitespace }), let last = lastIndex(where: { !$0.isWhitespace }) else {
      return ""
    }
    return String(self[first...last])
  }

  /// The start of the text, at most so many bytes and only whole scalars.
  public func cut(toBytes most: Int) -> String {
    let bytes = Array(utf8)
    guard bytes.count > most else { return String(self) }
    var end = Swift.max(0, most)
    while end > 0, bytes[end] & 0xC0 == 0x80 { end -= 1 }
    return String(decoding: bytes[..<end], as: UTF8.self)
  }
}
