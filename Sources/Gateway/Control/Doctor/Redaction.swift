// SPDX-License-Identifier: MIT

import UntrustedText

/// Removes secrets and keys from texts that strangers may see: logs, errors, the status.
///
/// The parts of such texts are unknown, so anything that looks like a secret is cut. The configuration, whose keys are
/// known, has a list of harmless keys instead (`ShownConfiguration`).
enum Redaction {
  private typealias Scalars = Substring.UnicodeScalarView

  /// Any text in one line: text that looks like a key, a token or a hash is cut, and URLs are cut after their host.
  static func line(_ text: String) -> String { tokens(hosts(Visible.line(text))) }

  // MARK: Tokens

  /// A longer hexadecimal number is a key or a hash: its first 8 digits remain, to tell it from others.
  private static let longestNumber = 15
  /// A longer sequence of letters and digits may be a token.
  private static let longestWord = 23

  private static func tokens(_ text: String) -> String {
    var result = "".unicodeScalars
    var rest = text[...].unicodeScalars
    while let first = rest.first {
      guard isOfToken(first) else {
        result.append(first)
        rest = rest.dropFirst()
        continue
      }
      let word = rest.prefix(while: isOfToken)
      result.append(contentsOf: isSecret(word) ? word.prefix(8) : word)
      if isSecret(word) { result.append("…") }
      rest = rest[word.endIndex...]
    }
    return String(result)
  }

  private static func isSecret(_ word: Scalars) -> Bool {
    if word.count > longestWord, word.contains(where: isDigit), word.contains(where: { !isDigit($0) }) { return true }
    // A number in a word: `key=8b33…`.
    var run = 0
    for scalar in word {
      run = isDigit(scalar) || "abcdefABCDEF".unicodeScalars.contains(scalar) ? run + 1 : 0
      if run > longestNumber { return true }
    }
    return false
  }

  private static func isDigit(_ scalar: Unicode.Scalar) -> Bool { (0x30...0x39).contains(scalar.value) }

  private static func isOfToken(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar {
    case "0"..."9", "a"..."z", "A"..."Z", "_", "-", "+", "~", "%": true
    default: false
    }
  }

  // MARK: Addresses

  /// `scheme://user:password@host:1/path?token=x` becomes `scheme://host:1/…`. A URL ends only at a blank or a
  /// quotation mark: any other character may be part of it.
  private static func hosts(_ text: String) -> String {
    var result = "".unicodeScalars
    var rest = text[...].unicodeScalars
    while let place = mark(in: rest) {
      result.append(contentsOf: rest[..<place])
      result.append(contentsOf: "://".unicodeScalars)
      rest = rest[rest.index(place, offsetBy: 3)...]
      let address = rest.prefix { !$0.properties.isWhitespace && $0 != "\"" }
      rest = rest[address.endIndex...]
      let (host, isWhole) = host(address)
      result.append(contentsOf: host)
      if !isWhole { result.append(contentsOf: "/…".unicodeScalars) }
    }
    result.append(contentsOf: rest)
    return String(result)
  }

  private static func mark(in text: Scalars) -> Scalars.Index? {
    text.indices.first { text[$0...].starts(with: "://".unicodeScalars) }
  }

  private static func host(_ address: Scalars) -> (Scalars, isWhole: Bool) {
    var host = address.prefix { !"/?#".unicodeScalars.contains($0) }
    let isWhole = host.endIndex == address.endIndex
    // A password may contain a slash: then the text before the slash is not a host.
    if address[host.endIndex...].contains("@") { return (address.prefix(0), false) }
    if let at = host.lastIndex(of: "@") { host = host[host.index(after: at)...] }
    let plain = host.prefix { isOfToken($0) || ".:[]".unicodeScalars.contains($0) }
    return (plain, isWhole && plain.endIndex == host.endIndex)
  }
}
