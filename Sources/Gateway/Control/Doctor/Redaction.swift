// SPDX-License-Identifier: MIT

import UntrustedText

/// Takes secrets and keys out of what is shown to strangers: logs, errors, the status.
///
/// What words are made of cannot be known. So whatever may be a secret by its looks is cut; the configuration, whose keys are
/// known, has a list of what is shown instead (`ShownConfiguration`).
enum Redaction {
  private typealias Scalars = Substring.UnicodeScalarView

  /// Any text, in one line: what looks like a key, a token or a hash is cut, addresses lose what follows their host.
  static func line(_ text: String) -> String { tokens(hosts(Visible.line(text))) }

  // MARK: Tokens

  /// From so many hexadecimal digits on it is a key or a hash: the first 8 stay, so that one can be told from another.
  private static let longestNumber = 15
  /// From so many letters and digits together on it may be a token.
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

  /// `scheme://user:password@host:1/path?token=x` becomes `scheme://host:1/…`. It ends at a blank or a quotation mark alone:
  /// anything else may be part of it.
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
    // A password may hold a slash: then what stands before that is no host.
    if address[host.endIndex...].contains("@") { return (address.prefix(0), false) }
    if let at = host.lastIndex(of: "@") { host = host[host.index(after: at)...] }
    let plain = host.prefix { isOfToken($0) || ".:[]".unicodeScalars.contains($0) }
    return (plain, isWhole && plain.endIndex == host.endIndex)
  }
}
