// SPDX-License-Identifier: MIT

/// Escapes text from outside for formats with their own syntax: a table, a page, a script.
///
/// Works on scalars or bytes. A `<` after U+0600, or a `"` before U+0301, is not a separate `Character` in Swift, so that a
/// search does not find it; but browsers and spreadsheets do.
public enum Escaping {
  /// A field of a CSV row (RFC 4180), always between quotes.
  public static func csv(_ text: String) -> String {
    var field = "\"".unicodeScalars
    for scalar in text.unicodeScalars {
      if scalar == "\"" { field.append(scalar) }
      field.append(scalar)
    }
    field.append("\"")
    return String(field)
  }

  /// A text that a spreadsheet would take for a formula gets a leading apostrophe, which spreadsheets do not show.
  ///
  /// Spreadsheets skip spaces and invisible characters first, and some accept full-width forms of the signs.
  public static func cell(_ text: String) -> String {
    if let first = text.unicodeScalars.first, first == "\t" || first == "\r" { return csv("'" + text) }
    let first = text.unicodeScalars.first { scalar in
      !scalar.properties.isWhitespace && !scalar.properties.isDefaultIgnorableCodePoint && scalar.value >= 0x20
        && scalar.properties.generalCategory != .format && scalar.properties.generalCategory != .control
    }
    let formulas: [Unicode.Scalar] = ["=", "+", "-", "@", "\u{FF1D}", "\u{FF0B}", "\u{FF0D}", "\u{FF20}"]
    return csv(first.map { formulas.contains($0) } ?? false ? "'" + text : text)
  }

  /// One argument of a command line that is shown for copying into a shell (POSIX § 2.2.2): in single quotes if it has
  /// signs other than letters, digits and `._/:@%+-`; after `--` if it would be taken for an option.
  public static func argument(_ text: String) -> String {
    let isPlain = text.utf8.allSatisfy { byte in
      (UInt8(ascii: "0")...UInt8(ascii: ":")).contains(byte) || (UInt8(ascii: "@")...UInt8(ascii: "Z")).contains(byte)
        || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte) || "._/%+-".utf8.contains(byte)
    }
    var quoted = text
    if !isPlain || text.utf8.isEmpty {
      var inside = "".unicodeScalars
      for scalar in text.unicodeScalars {
        inside.append(contentsOf: scalar == "'" ? "'\\''".unicodeScalars : String(scalar).unicodeScalars)
      }
      quoted = "'\(String(inside))'"
    }
    return text.utf8.first == UInt8(ascii: "-") ? "-- \(quoted)" : quoted
  }

  /// Text or an attribute's value in XML 1.0, and in HTML. What XML does not allow becomes U+FFFD.
  public static func xml(_ text: String) -> String {
    var escaped = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "&": escaped += "&amp;"
      case "<": escaped += "&lt;"
      case ">": escaped += "&gt;"
      case "\"": escaped += "&quot;"
      case "'": escaped += "&#39;"
      case "\t", "\n", "\r": escaped += "&#\(scalar.value);"
      case _ where !isAllowedInXML(scalar): escaped.unicodeScalars.append("\u{FFFD}")
      default: escaped.unicodeScalars.append(scalar)
      }
    }
    return escaped
  }

  /// `Char` of XML 1.0, without the control characters that it discourages.
  private static func isAllowedInXML(_ scalar: Unicode.Scalar) -> Bool {
    scalar.value >= 0x20 && !(0x7F...0x9F).contains(scalar.value) && !scalar.properties.isNoncharacterCodePoint
  }

  /// JSON for a `<script>` element: contains no HTML syntax, and only ASCII.
  public static func script(json: some Collection<UInt8>) -> String {
    var result: [UInt8] = []
    for unit in String(decoding: json, as: UTF8.self).utf16 {
      switch unit {
      case 0x20...0x7E where !Self.marks.contains(UInt8(unit)): result.append(UInt8(unit))
      case 0x09, 0x0A, 0x0D: result.append(0x20)
      default: result += Array(Visible.escaped(unit).utf8)
      }
    }
    return String(decoding: result, as: UTF8.self)
  }

  private static let marks = Array("<>&'".utf8)
}
