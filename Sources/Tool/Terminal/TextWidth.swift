// SPDX-License-Identifier: MIT

import UntrustedText

/// The number of columns of a text on a terminal: two for East Asian wide characters and emoji, none for combining marks.
enum TextWidth {
  static func of(_ text: some StringProtocol) -> Int { text.reduce(0) { $0 + of($1) } }

  static func of(_ character: Character) -> Int {
    var width = 0
    for scalar in character.unicodeScalars {
      // A variation selector turns a sign into an emoji.
      if scalar.value == 0xFE0F { return 2 }
      width += of(scalar)
    }
    // Joined emoji are one symbol, and so are the two letters of a flag.
    return min(width, 2)
  }

  /// The columns of a scalar, by Unicode's tables, with the same result as `wcwidth`.
  static func of(_ scalar: Unicode.Scalar) -> Int {
    if scalar.value < 0x300 { return 1 }
    if isIn(WidthTable.none, scalar.value) { return 0 }
    return isIn(WidthTable.two, scalar.value) ? 2 : 1
  }

  /// Whether one of the ranges contains the scalar. Each range is a pair of ends.
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

  /// The text in at most this many columns. A cut text ends with `…`.
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

  /// The text in exactly this many columns: cut, or padded with spaces.
  static func fit(_ text: some StringProtocol, to columns: Int) -> String {
    let short = cut(text, to: columns)
    return short + String(repeating: " ", count: max(0, columns - of(short)))
  }

  /// The text in lines of at most this many columns, broken between words if possible.
  static func wrap(_ text: String, to columns: Int, indent: Int = 0) -> [String] {
    guard columns > indent + 4 else { return [cut(text, to: columns)] }
    var lines: [String] = []
    var line = "", used = 0
    // Characters that output replaces have another width: so it replaces them first.
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

extension WidthTable {
  /// The ends of ranges from the packed distances between them.
  static func ends(_ packed: String) -> [UInt32] {
    var (ends, distance, shift): ([UInt32], UInt32, UInt32) = ([], 0, 0)
    for byte in Base64.decodeFromURL(packed) ?? [] {
      distance |= UInt32(byte & 0x7F) << shift
      shift += 7
      guard byte < 0x80 else { continue }
      ends.append((ends.last ?? 0) + distance)
      (distance, shift) = (0, 0)
    }
    return ends
  }
}
