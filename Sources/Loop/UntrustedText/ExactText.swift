// SPDX-License-Identifier: MIT

/// Compares and cuts text from outside by its bytes.
///
/// `==`, `hasPrefix`, `split` and dictionaries compare `Character`s, and take texts for the same that Unicode counts as
/// equivalent: é and é are one name to them and two to the radio; "⇄ " is not found where an accent follows it.
extension StringProtocol {
  /// The same bytes.
  public func isExactly(_ other: some StringProtocol) -> Bool { utf8.elementsEqual(other.utf8) }

  /// Begins with these bytes.
  public func begins(with other: some StringProtocol) -> Bool { utf8.starts(with: other.utf8) }

  /// Ends with these bytes.
  public func ends(with other: some StringProtocol) -> Bool { utf8.reversed().starts(with: other.utf8.reversed()) }

  /// Has this sign of ASCII in it.
  public func has(_ sign: Unicode.Scalar) -> Bool { unicodeScalars.contains(sign) }

  /// The pieces between ASCII `sign`s, including empty ones; at most `most`, the last with the rest.
  public func pieces(at sign: Unicode.Scalar, most: Int = .max) -> [String] {
    unicodeScalars.split(separator: sign, maxSplits: most - 1, omittingEmptySubsequences: false).map { piece in
      var text = String.UnicodeScalarView()
      text.append(contentsOf: piece)
      return String(text)
    }
  }

  /// Lines, without what ends them: a line feed, with or without a carriage return, which Swift takes for one `Character`
  /// that is neither.
  public var lines: [String] {
    pieces(at: "\n").map { $0.utf8.last == 13 ? String(decoding: $0.utf8.dropLast(), as: UTF8.self) : $0 }
  }

  /// At most so many bytes of it, never part of a scalar.
  public func cut(toBytes most: Int) -> String {
    let bytes = Array(utf8)
    guard bytes.count > most else { return String(self) }
    var end = Swift.max(0, most)
    while end > 0, bytes[end] & 0xC0 == 0x80 { end -= 1 }
    return String(decoding: bytes[..<end], as: UTF8.self)
  }
}
