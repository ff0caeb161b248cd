// SPDX-License-Identifier: MIT

import Escaping

/// How many columns a terminal gives to text: two for East Asian and emoji, none for marks that join what is before them.
enum TextWidth {
  static func of(_ text: some StringProtocol) -> Int { text.reduce(0) { $0 + of($1) } }

  static func of(_ character: Character) -> Int {
    var width = 0
    for scalar in character.unicodeScalars {
      // A selector asks for the picture of what is otherwise a sign.
      if scalar.value == 0xFE0F { return 2 }
      width += of(scalar)
    }
    // Joined emoji are one picture; so are the two letters of a flag.
    return min(width, 2)
  }

  /// As `wcwidth` has it, from a table of Unicode's data.
  static func of(_ scalar: Unicode.Scalar) -> Int {
    if scalar.value < 0x300 { return 1 }
    if isIn(WidthTable.none, scalar.value) { return 0 }
    return isIn(WidthTable.two, scalar.value) ? 2 : 1
  }

  /// Whether one of the ranges, whose ends stand one after the other, has it.
  private static func isIn(_ ends: [UInt32], _ value: UInt32) -> Bool {
    var (low, high) = (0, ends.count / 2)
    while low < high {
      let middle = (low + high) / 2
      if value < ends[2 * middle] {
        high = middle
      } else if value > ends[2 * middle + 1] {
        low = middle + 1
      } else {
        return true
      }
    }
    return false
  }

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
