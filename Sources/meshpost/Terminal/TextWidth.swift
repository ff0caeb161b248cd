// SPDX-License-Identifier: MIT

import Escaping

/// How many columns a terminal gives to text: two for East Asian and emoji, none for marks that join what is before them.
enum TextWidth {
  static func of(_ text: some StringProtocol) -> Int { text.reduce(0) { $0 + of($1) } }

  static func of(_ character: Character) -> Int {
    guard let first = character.unicodeScalars.first else { return 0 }
    // A selector asks for the picture of what is otherwise a sign.
    if character.unicodeScalars.contains(where: { $0.value == 0xFE0F }) { return 2 }
    return width(of: first)
  }

  private static func width(of scalar: Unicode.Scalar) -> Int {
    switch scalar.properties.generalCategory {
    case .nonspacingMark, .enclosingMark, .format: return 0
    default: break
    }
    if scalar.properties.isEmojiPresentation { return 2 }
    return wide.contains { $0.contains(scalar.value) } ? 2 : 1
  }

  /// Unicode's East Asian Width W and F, in blocks.
  private static let wide: [ClosedRange<UInt32>] = [
    0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x33FF, 0x3400...0x4DBF, 0x4E00...0x9FFF, 0xA000...0xA4CF,
    0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1F64F,
    0x1F900...0x1F9FF, 0x20000...0x3FFFD,
  ]

  /// Cut to so many columns, with a mark that something is missing.
  static func cut(_ text: some StringProtocol, to columns: Int) -> String {
    guard of(text) > columns else { return String(text) }
    var result = ""
    var used = 0
    for character in text {
      let width = of(character)
      guard used + width < columns else { break }
      result.append(character)
      used += width
    }
    return columns > 0 ? result + "…" : ""
  }

  /// Exactly so many columns: cut, or filled with blanks.
  static func fit(_ text: some StringProtocol, to columns: Int) -> String {
    let short = cut(text, to: columns)
    return short + String(repeating: " ", count: max(0, columns - of(short)))
  }

  /// Lines of at most so many columns, broken between words where there are any.
  static func wrap(_ text: String, to columns: Int, indent: Int = 0) -> [String] {
    guard columns > indent + 4 else { return [cut(text, to: columns)] }
    var lines: [String] = []
    var line = "", used = 0
    // What is replaced when it is written has another width then.
    for word in Visible.line(text).split(separator: " ", omittingEmptySubsequences: false) {
      var rest = word
      let width = of(rest)
      if used > 0, used + 1 + width > columns {
        lines.append(line)
        (line, used) = (String(repeating: " ", count: indent), indent)
      } else if used > 0 {
        line += " "
        used += 1
      }
      while of(rest) > columns - used {
        var taken = 0
        let piece = rest.prefix { character in
          taken += of(character)
          return taken <= columns - used
        }
        guard !piece.isEmpty else { break }
        lines.append(line + piece)
        rest = rest.dropFirst(piece.count)
        (line, used) = (String(repeating: " ", count: indent), indent)
      }
      line += rest
      used += of(rest)
    }
    return lines + [line]
  }
}
