// SPDX-License-Identifier: MIT

/// Parses TOML 1.0. Left out on purpose: dates and times, which no setting needs (the error names them), nesting deeper
/// than `deepest`, and integers beyond 64 bits, which TOML leaves open.
///
/// It is our own because the daemon reports the line of every mistake and must stay small: docs/decisions/0002. It
/// works on bytes: a Character can hide a quote or a line break behind a combining mark.
public struct TOMLParser {
  /// Deeper nesting of tables and lists is refused: the parser is recursive.
  static let deepest = 32

  var scanner: TOMLScanner

  public static func parse(_ bytes: [UInt8]) throws(TOMLError) -> TOMLTable {
    try refuseBrokenText(bytes)
    var parser = TOMLParser(scanner: TOMLScanner(bytes))
    return try parser.document()
  }

  /// Invalid UTF-8 is rejected with its line.
  private static func refuseBrokenText(_ bytes: [UInt8]) throws(TOMLError) {
    guard String(validating: bytes, as: UTF8.self) == nil else { return }
    // The byte order marks of UTF-16, which some editors write.
    if bytes.starts(with: [0xFF, 0xFE]) || bytes.starts(with: [0xFE, 0xFF]) {
      throw TOMLError(line: 1, reason: "the text is UTF-16: save it as UTF-8")
    }
    let lines = bytes.split(separator: 0x0A, omittingEmptySubsequences: false)
    let first = lines.firstIndex { String(validating: $0, as: UTF8.self) == nil } ?? 0
    throw TOMLError(line: first + 1, reason: "not valid UTF-8")
  }

  // MARK: Structure

  private mutating func document() throws(TOMLError) -> TOMLTable {
    var root = TOMLTable(line: 1, origin: .header)
    var section: [String] = []
    scanner.skipByteOrderMark()
    try scanner.skipLines()
    while !scanner.isAtEnd {
      let line = scanner.line
      if scanner.accept("[[") {
        section = try header(closing: "]]")
        try root.openElement(section[...], line)
      } else if scanner.accept("[") {
        section = try header(closing: "]")
        try root.openTable(section[...], line)
      } else {
        let (keys, value) = try pair(depth: 0)
        try root.reach(section[...], line) { (table) throws(TOMLError) in try table.set(keys[...], value) }
      }
      try scanner.endOfLine()
      try scanner.skipLines()
    }
    return root
  }

  private mutating func header(closing: String) throws(TOMLError) -> [String] {
    let keys = try key()
    guard scanner.accept(closing) else { throw scanner.error("`\(closing)` is missing") }
    return keys
  }

  private mutating func pair(depth: Int) throws(TOMLError) -> ([String], TOMLValue) {
    let keys = try key()
    guard scanner.accept("=") else { throw scanner.error("`=` is missing after `\(keys.joined(separator: "."))`") }
    scanner.skipSpace()
    return (keys, try value(depth: depth))
  }

  private mutating func key() throws(TOMLError) -> [String] {
    var keys: [String] = []
    repeat {
      scanner.skipSpace()
      keys.append(try scanner.simpleKey())
      scanner.skipSpace()
    } while scanner.accept(".")
    guard keys.count <= Self.deepest else { throw scanner.error("a key has more than \(Self.deepest) parts") }
    return keys
  }

  // MARK: Values

  private mutating func value(depth: Int) throws(TOMLError) -> TOMLValue {
    guard depth < Self.deepest else { throw scanner.error("nested deeper than \(Self.deepest)") }
    let start = scanner.line
    let kind: TOMLValue.Kind
    switch scanner.current {
    case UInt8(ascii: "\""), UInt8(ascii: "'"): kind = .string(try scanner.string())
    case UInt8(ascii: "["): kind = .array(try list(depth: depth))
    case UInt8(ascii: "{"): kind = .table(try inlineTable(depth: depth))
    default: kind = try scanner.scalar()
    }
    return TOMLValue(kind: kind, line: start)
  }

  private mutating func list(depth: Int) throws(TOMLError) -> [TOMLValue] {
    _ = scanner.accept("[")
    var values: [TOMLValue] = []
    while true {
      try scanner.skipLines()
      if scanner.accept("]") { return values }
      values.append(try value(depth: depth + 1))
      try scanner.skipLines()
      if scanner.accept("]") { return values }
      guard scanner.accept(",") else { throw scanner.error("`,` or `]` is missing") }
    }
  }

  /// TOML 1.0: on one line, without a trailing comma.
  private mutating func inlineTable(depth: Int) throws(TOMLError) -> TOMLTable {
    _ = scanner.accept("{")
    var table = TOMLTable(line: scanner.line, origin: .inline)
    scanner.skipSpace()
    if scanner.accept("}") { return table }
    while true {
      let (keys, value) = try pair(depth: depth + 1)
      try table.set(keys[...], value)
      scanner.skipSpace()
      if scanner.accept("}") {
        table.close()
        return table
      }
      guard scanner.accept(",") else { throw scanner.error("`,` or `}` is missing") }
    }
  }
}
