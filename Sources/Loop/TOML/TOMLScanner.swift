// SPDX-License-Identifier: MIT

import UntrustedText

/// The tokens of a TOML document: white space and comments, keys, strings, and unquoted values.
struct TOMLScanner {
  private let bytes: [UInt8]
  private var position = 0
  private(set) var line = 1

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  func error(_ reason: String) -> TOMLError { TOMLError(line: line, reason: reason) }
  var current: UInt8? { position < bytes.count ? bytes[position] : nil }
  var isAtEnd: Bool { position >= bytes.count }

  private func isAt(_ text: String) -> Bool { bytes[position...].starts(with: text.utf8) }

  mutating func accept(_ text: String) -> Bool {
    guard isAt(text) else { return false }
    position += text.utf8.count
    return true
  }

  /// The byte order mark that some editors write.
  mutating func skipByteOrderMark() { _ = accept("\u{FEFF}") }

  // MARK: Blanks, comments, lines

  mutating func skipSpace() {
    while let byte = current, byte == 0x20 || byte == 0x09 { position += 1 }
  }

  private mutating func skipComment() throws(TOMLError) {
    guard accept("#") else { return }
    while let byte = current, byte != 0x0A, !isAt("\r\n") {
      try refuseControl(byte, in: "a comment")
      position += 1
    }
  }

  /// LF, or CR LF.
  private mutating func acceptLineEnd() -> Bool {
    guard accept("\n") || accept("\r\n") else { return false }
    line += 1
    return true
  }

  mutating func skipLines() throws(TOMLError) {
    repeat {
      skipSpace()
      try skipComment()
    } while acceptLineEnd()
  }

  /// Expects the end of the line without consuming it, so that errors have the right line.
  mutating func endOfLine() throws(TOMLError) {
    skipSpace()
    try skipComment()
    guard isAtEnd || isAt("\n") || isAt("\r\n") else {
      if let byte = current, Self.isControl(byte) { try refuseControl(byte, in: "a line") }
      throw error("unexpected text after the value")
    }
  }

  /// Control characters other than tab are not allowed: TOML has escapes for them.
  private static func isControl(_ byte: UInt8) -> Bool { byte < 0x20 && byte != 0x09 || byte == 0x7F }

  private func refuseControl(_ byte: UInt8, in place: String) throws(TOMLError) {
    guard Self.isControl(byte) else { return }
    let digits = String(byte, radix: 16, uppercase: true)
    throw error("the control character U+00\(digits.utf8.count == 1 ? "0" : "")\(digits) is not allowed in \(place)")
  }

  // MARK: Keys

  mutating func simpleKey() throws(TOMLError) -> String {
    if current == UInt8(ascii: "\"") || current == UInt8(ascii: "'") {
      guard !isAt("\"\"\""), !isAt("'''") else { throw error("a key cannot be a multi-line string") }
      return try string()
    }
    let word = takeWhile(Self.isBare)
    guard !word.isEmpty else { throw error("a key is missing") }
    return word
  }

  private static func isBare(_ byte: UInt8) -> Bool { byte.isLetterOrDigit || "-_".utf8.contains(byte) }

  private mutating func takeWhile(_ belongs: (UInt8) -> Bool) -> String {
    let start = position
    while let byte = current, belongs(byte) { position += 1 }
    return String(decoding: bytes[start..<position], as: UTF8.self)
  }

  // MARK: Without quotes

  mutating func scalar() throws(TOMLError) -> TOMLValue.Kind {
    let word = takeWhile { Self.isBare($0) || "+.:".utf8.contains($0) }
    switch word {
    case "": throw error("a value is missing (quote strings)")
    case "true": return .bool(true)
    case "false": return .bool(false)
    default: break
    }
    if let number = TOMLNumber.read(word) { return number }
    if TOMLNumber.isLikeTime(word) { throw error("`\(word)` is a date or time, which is not supported") }
    if TOMLNumber.isLikeNumber(word) { throw error("`\(word)` is not a valid number") }
    throw error("`\(word)` is not a value (quote strings)")
  }

  // MARK: Strings

  mutating func string() throws(TOMLError) -> String {
    let quote = isAt("'") ? "'" : "\""
    if accept(quote + quote + quote) { return try multiline(quote) }
    _ = accept(quote)
    var text: [UInt8] = []
    while let byte = current {
      if accept(quote) { return String(decoding: text, as: UTF8.self) }
      if byte == 0x0A || isAt("\r\n") { throw error("unterminated string") }
      try character(byte, quote, &text)
    }
    throw error("unterminated string")
  }

  private mutating func multiline(_ quote: String) throws(TOMLError) -> String {
    let start = line
    _ = acceptLineEnd()
    var text: [UInt8] = []
    while let byte = current {
      if let end = try multilineEnd(quote) {
        return String(decoding: text + end, as: UTF8.self)
      }
      if quote == "\"", try skipJoinedLines() { continue }
      // A line break in the text is always LF, whatever the file has.
      if acceptLineEnd() { text.append(0x0A) } else { try character(byte, quote, &text) }
    }
    throw TOMLError(line: start, reason: "unterminated string")
  }

  /// Three quotes end the string; one or two more before them belong to it, and are returned.
  private mutating func multilineEnd(_ quote: String) throws(TOMLError) -> [UInt8]? {
    guard let mark = quote.utf8.first, isAt(quote + quote + quote) else { return nil }
    let run = bytes[position...].prefix { $0 == mark }.count
    guard run <= 5 else { throw error("too many quotes at the end of a string") }
    position += run
    return [UInt8](repeating: mark, count: run - 3)
  }

  /// A backslash at the end of a line: the string continues with the next character that is not white space.
  private mutating func skipJoinedLines() throws(TOMLError) -> Bool {
    guard isAt("\\") else { return false }
    var end = position + 1
    while end < bytes.count, bytes[end] == 0x20 || bytes[end] == 0x09 { end += 1 }
    let rest = bytes[end...]
    guard rest.starts(with: "\n".utf8) || rest.starts(with: "\r\n".utf8) else { return false }
    position = end
    repeat { skipSpace() } while acceptLineEnd()
    return true
  }

  private mutating func character(_ byte: UInt8, _ quote: String, _ text: inout [UInt8]) throws(TOMLError) {
    try refuseControl(byte, in: "a string")
    position += 1
    if byte == UInt8(ascii: "\\"), quote == "\"" { try escape(&text) } else { text.append(byte) }
  }

  private mutating func escape(_ text: inout [UInt8]) throws(TOMLError) {
    guard let byte = current else { throw error("unterminated string") }
    position += 1
    switch byte {
    case UInt8(ascii: "n"): text.append(0x0A)
    case UInt8(ascii: "t"): text.append(0x09)
    case UInt8(ascii: "r"): text.append(0x0D)
    case UInt8(ascii: "b"): text.append(0x08)
    case UInt8(ascii: "f"): text.append(0x0C)
    case UInt8(ascii: "\""), UInt8(ascii: "\\"): text.append(byte)
    case UInt8(ascii: "u"): try scalarEscape(4, &text)
    case UInt8(ascii: "U"): try scalarEscape(8, &text)
    default: throw error("an unknown escape in a string")
    }
  }

  private mutating func scalarEscape(_ count: Int, _ text: inout [UInt8]) throws(TOMLError) {
    let digits = bytes[position...].prefix(count)
    guard digits.count == count, digits.allSatisfy(TOMLNumber.isHexDigit),
      let number = UInt32(String(decoding: digits, as: UTF8.self), radix: 16), let scalar = Unicode.Scalar(number)
    else { throw error("\\\(count == 4 ? "u" : "U") requires \(count) hex digits") }
    position += count
    text.append(contentsOf: String(Character(scalar)).utf8)
  }
}
