// SPDX-License-Identifier: MIT

/// Makes text from outside safe for a terminal, a log or a page: it cannot control, hide or reorder what is shown.
///
/// Unsafe characters are replaced by U+FFFD, so that they remain noticeable: control characters (C0, DEL, C1), line and paragraph
/// separators, bidirectional controls, and invisible characters. Characters that emoji, Arabic and Indic scripts need are kept:
/// joiners, variation selectors, the tags of a flag.
///
/// Works on scalars. Swift's characters are clusters of them, which the author of the text chooses.
public enum Visible {
  /// The text in one line: breaks and tabs become blanks.
  public static func line(_ text: String) -> String { clean(text) { isBreak($0) ? " " : nil } }

  /// The beginning of a server's words, in one line: they may have any length, and go into logs and to disk.
  public static func excerpt(_ text: String) -> String {
    line(String(String.UnicodeScalarView(text.unicodeScalars.prefix(200))))
  }

  /// Whether the text is already one safe line of so many bytes, of which something is seen: people and programs hand it
  /// on as an id.
  public static func isLine(_ text: String, bytes: ClosedRange<Int>) -> Bool {
    bytes.contains(text.utf8.count) && line(text).isExactly(text) && !isBlank(text)
  }

  /// Whether nothing of the text is seen: it is empty, or has only blanks and invisible characters.
  public static func isBlank(_ text: String) -> Bool { text.unicodeScalars.allSatisfy(isUnseen) }

  /// A form that is equal for names that look alike at a glance: without blanks and invisible characters, in lower
  /// case. Empty: nothing of the name is visible.
  public static func gist(_ name: String) -> String {
    String(String.UnicodeScalarView(name.unicodeScalars.filter { !isUnseen($0) && $0 != "\u{FFFD}" })).lowercased()
  }

  static func isUnseen(_ scalar: Unicode.Scalar) -> Bool {
    let properties = scalar.properties
    return properties.isWhitespace || properties.isDefaultIgnorableCodePoint
      || properties.generalCategory == .format || properties.generalCategory == .control || scalar == "\u{2800}"
  }

  /// The text in lines, each ended by a line feed alone; tabs stay.
  public static func page(_ text: String) -> String {
    guard !isPlain(text.utf8) else { return text }
    var lines: [String] = []
    for line in text.utf8.split(separator: 10, omittingEmptySubsequences: false) {
      let bare = line.last == 13 ? line.dropLast() : line
      lines.append(clean(String(Substring(bare))) { $0 == "\t" ? $0 : nil })
    }
    return lines.joined(separator: "\n")
  }

  /// JSON in one line, with the same meaning: unsafe characters are escaped, such as `\u202e`.
  public static func json(_ text: String) -> String {
    guard !isPlain(text.utf8) else { return text }
    var (result, sieve) = ("", Sieve())
    for scalar in text.unicodeScalars {
      if sieve.passes(scalar) {
        result.unicodeScalars.append(scalar)
      } else if scalar.value < 0x20 {
        // Only between values: strings in JSON contain no line breaks.
        result += " "
      } else {
        for unit in String(scalar).utf16 { result += escaped(unit) }
      }
    }
    return result
  }

  /// `\u` and four digits, as in JSON.
  static func escaped(_ unit: UInt16) -> String {
    let digits = String(unit, radix: 16)
    return "\\u" + String(repeating: "0", count: 4 - digits.utf8.count) + digits
  }

  private static func isPlain(_ bytes: String.UTF8View) -> Bool { bytes.allSatisfy { $0 >= 0x20 && $0 < 0x7F } }

  private static func isBreak(_ scalar: Unicode.Scalar) -> Bool {
    (0x09...0x0D).contains(scalar.value) || scalar.value == 0x85 || scalar.value == 0x2028 || scalar.value == 0x2029
  }

  private static func clean(_ text: String, _ special: (Unicode.Scalar) -> Unicode.Scalar?) -> String {
    guard !isPlain(text.utf8) else { return text }
    var (result, sieve) = (String.UnicodeScalarView(), Sieve())
    for scalar in text.unicodeScalars {
      if let other = special(scalar) {
        sieve = Sieve()
        result.append(other)
      } else {
        result.append(sieve.passes(scalar) ? scalar : "\u{FFFD}")
      }
    }
    return String(result)
  }
}

/// Passes visible characters, and those that combine with the previous ones.
private struct Sieve {
  /// No writing system has more marks on one letter; more would cover the lines above.
  private static let maxMarks = 8
  /// Letters of a region and the end: 🏴󠁧󠁢󠁳󠁣󠁴󠁿.
  private static let maxTags = 7
  /// Visible characters that Unicode classifies as formatting (Arabic, Syriac, Kaithi).
  private static let seen: [ClosedRange<UInt32>] = [
    0x0600...0x0605, 0x06DD...0x06DD, 0x070F...0x070F, 0x0890...0x0891, 0x08E2...0x08E2, 0x110BD...0x110BD,
    0x110CD...0x110CD,
  ]

  private var last: UInt32 = 0
  private var marks = 0
  private var tags = 0

  mutating func passes(_ scalar: Unicode.Scalar) -> Bool {
    let value = scalar.value
    if value != 0xE007F, !(0xE0020...0xE007E).contains(value) { tags = value == 0x1F3F4 ? Self.maxTags : 0 }
    // A letter begins: its marks are counted from here.
    if value < 0x7F { marks = 0 }
    let isGood = value < 0x7F ? value >= 0x20 : isSeen(scalar)
    last = isGood ? value : 0
    return isGood
  }

  private mutating func isSeen(_ scalar: Unicode.Scalar) -> Bool {
    let value = scalar.value
    switch value {
    // Joiners are allowed only after characters that can be joined.
    case 0x200C, 0x200D: return last >= 0x600 && last != 0x200C && last != 0x200D
    case 0xFE00...0xFE0F: return last > 0x20 && !(0xFE00...0xFE0F).contains(last)
    case 0xE0100...0xE01EF: return last >= 0x2E80 && last < 0xE0000
    case 0x180B...0x180D, 0x180F: return (0x1820...0x18AA).contains(last)
    case 0xE0020...0xE007F:
      guard tags > 0 else { return false }
      tags -= 1
      return true
    default: return isPlainlySeen(scalar)
    }
  }

  private mutating func isPlainlySeen(_ scalar: Unicode.Scalar) -> Bool {
    let properties = scalar.properties
    switch properties.generalCategory {
    case .control, .lineSeparator, .paragraphSeparator, .surrogate: return false
    case .format: return Self.seen.contains { $0.contains(scalar.value) }
    case .nonspacingMark, .enclosingMark:
      marks += 1
      return marks <= Self.maxMarks && !properties.isDefaultIgnorableCodePoint
    default:
      marks = 0
      return !properties.isDefaultIgnorableCodePoint && !properties.isNoncharacterCodePoint
    }
  }
}
