// SPDX-License-Identifier: MIT

/// Takes secrets and keys out of what is shown to strangers.
enum Redaction {
  /// Configuration keys whose values are secrets themselves. Locations of secrets are none.
  private static let secrets: Set<String> = ["pin", "password", "secret", "token", "private_key"]

  /// A configuration file: secrets gone, addresses of servers cut to their host.
  static func configuration(_ text: String) -> String {
    text.split(separator: "\n", omittingEmptySubsequences: false).map { line -> String in
      let code = line.drop { $0 == "#" || $0 == " " }
      guard let equals = code.firstIndex(of: "=") else { return String(line) }
      let key = code[..<equals].filter { !$0.isWhitespace }
      return secrets.contains(String(key)) ? "\(line[..<equals])= (hidden)" : self.line(String(line))
    }.joined(separator: "\n")
  }

  /// Any text: long hexadecimal numbers are cut, addresses lose what follows their host.
  static func line(_ text: String) -> String { hosts(hexadecimal(text)) }

  /// Keys, secrets and hashes: from 16 digits on the first 8 stay.
  private static func hexadecimal(_ text: String) -> String {
    var result = ""
    var digits = ""
    func flush() {
      result += digits.count >= 16 ? "\(digits.prefix(8))…" : digits
      digits = ""
    }
    for character in text {
      if character.isHexDigit, character.isASCII {
        digits.append(character)
      } else {
        flush()
        result.append(character)
      }
    }
    flush()
    return result
  }

  /// `scheme://user:password@host:1/path?token=x` becomes `scheme://host:1/…`.
  private static func hosts(_ text: String) -> String {
    var result = ""
    var rest = text[...]
    while let mark = rest.range(of: "://") {
      result += rest[..<mark.upperBound]
      rest = rest[mark.upperBound...]
      let end = rest.firstIndex { $0.isWhitespace || "\"'<>,)".contains($0) } ?? rest.endIndex
      var host = rest[..<end]
      let slash = host.firstIndex { $0 == "/" || $0 == "?" }
      if let slash { host = host[..<slash] }
      if let at = host.lastIndex(of: "@") { host = host[host.index(after: at)...] }
      result += "\(host)\(slash == nil ? "" : "/…")"
      rest = rest[end...]
    }
    return result + rest
  }
}

extension Substring {
  fileprivate func range(of mark: String) -> Range<Index>? {
    var start = startIndex
    while start < endIndex {
      if self[start...].hasPrefix(mark) { return start..<index(start, offsetBy: mark.count) }
      start = index(after: start)
    }
    return nil
  }
}
