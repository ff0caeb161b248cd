// SPDX-License-Identifier: MIT

/// Reads TOML 1.0, except dates and times, which no configuration here has: they are refused by name.
///
/// Written here because the daemon must say the line of every mistake and stay small: the C++ library weighs 3 MiB and
/// does not tell lines through its Swift face.
public struct TOMLParser {
  /// Tables and lists nested deeper than this are refused: the parser calls itself.
  static let deepest = 32

  private let bytes: [UInt8]
  private var position = 0
  private var line = 1

  private init(_ bytes: [UInt8]) { self.bytes = bytes }

  public static func parse(_ bytes: [UInt8]) throws(TOMLError) -> TOMLTable {
    guard String(validating: bytes, as: UTF8.self) != nil else {
      throw TOMLError(line: 1, reason: "the file is no UTF-8")
    }
    var parser = TOMLParser(bytes)
    return try parser.document()
  }

  private func error(_ reason: String) -> TOMLError { TOMLError(line: line, reason: reason) }
  private var current: UInt8? { position < bytes.count ? bytes[position] : nil }

  private func isAt(_ text: String) -> Bool { bytes[position...].starts(with: text.utf8) }

  private mutating func accept(_ character: Character) -> Bool {
    guard let byte = current, byte == character.asciiValue else { return false }
    position += 1
    return true
  }

  private mutating func skipSpace() {
    while let byte = current, byte == 0x20 || byte == 0x09 { position += 1 }
  }

  private mutating func skipComment() {
    guard current == UInt8(ascii: "#") else { return }
    while let byte = current, byte != 0x0A {
      _ = byte
      position += 1
    }
  }

  private mutating func skipLines() {
    while true {
      skipSpace()
      skipComment()
      if current == 0x0D, position + 1 < bytes.count, bytes[position + 1] == 0x0A { position += 1 }
      guard current == 0x0A else { return }
      position += 1
      line += 1
    }
  }

  private mutating func endOfLine() throws(TOMLError) {
    skipSpace()
    skipComment()
    if current == 0x0D { position += 1 }
    guard current == nil || current == 0x0A else { throw error("something follows the value on its line") }
  }

  // MARK: Structure

  private mutating func document() throws(TOMLError) -> TOMLTable {
    var root = TOMLTable(line: 1)
    var path: [String] = []
    skipLines()
    while current != nil {
      if isAt("[[") {
        path = try header(closing: "]]")
        try Self.openElement(&root, path[...], line)
      } else if isAt("[") {
        path = try header(closing: "]")
        try Self.openTable(&root, path[...], line)
      } else {
        let (keys, value) = try pair(depth: 0)
        try Self.set(&root, (path + keys)[...], value, headerDepth: path.count)
      }
      try endOfLine()
      skipLines()
    }
    return root
  }

  private mutating func header(closing: String) throws(TOMLError) -> [String] {
    position += closing.utf8.count
    let keys = try key()
    guard isAt(closing) else { throw error("`\(closing)` is missing") }
    position += closing.utf8.count
    return keys
  }

  private mutating func pair(depth: Int) throws(TOMLError) -> ([String], TOMLValue) {
    let keys = try key()
    guard accept("=") else { throw error("`=` is missing after `\(keys.joined(separator: "."))`") }
    skipSpace()
    return (keys, try value(depth: depth))
  }

  private mutating func key() throws(TOMLError) -> [String] {
    var keys: [String] = []
    repeat {
      skipSpace()
      keys.append(try simpleKey())
      skipSpace()
    } while accept(".")
    guard keys.count <= Self.deepest else { throw error("a key has more than \(Self.deepest) parts") }
    return keys
  }

  private mutating func simpleKey() throws(TOMLError) -> String {
    if current == UInt8(ascii: "\"") || current == UInt8(ascii: "'") { return try string() }
    let start = position
    while let byte = current, Self.isBare(byte) { position += 1 }
    guard position > start else { throw error("a key is missing") }
    return String(decoding: bytes[start..<position], as: UTF8.self)
  }

  private static func isBare(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
      true
    default: false
    }
  }

  // MARK: Tables

  private static func openTable(_ table: inout TOMLTable, _ path: ArraySlice<String>, _ line: Int) throws(TOMLError) {
    try descend(&table, path, line) { (target) throws(TOMLError) in
      guard !target.isClosed else {
        throw TOMLError(
          line: line, reason: "[\(path.joined(separator: "."))] stands twice (first on line \(target.line))")
      }
      target.isClosed = true
      target.line = line
    }
  }

  /// Finds or makes the table at `path`; of a list of tables it is the last.
  private static func descend(
    _ table: inout TOMLTable, _ path: ArraySlice<String>, _ line: Int,
    _ body: (inout TOMLTable) throws(TOMLError) -> Void
  ) throws(TOMLError) {
    guard let key = path.first else { return try body(&table) }
    if table[key] == nil {
      table.entries.append(.init(key: key, value: TOMLValue(kind: .table(TOMLTable(line: line)), line: line)))
    }
    guard let index = table.entries.firstIndex(where: { $0.key == key }) else { return }
    switch table.entries[index].value.kind {
    case .table(var inner):
      try descend(&inner, path.dropFirst(), line, body)
      table.entries[index].value.kind = .table(inner)
    case .array(var elements):
      guard let last = elements.indices.last, case .table(var inner) = elements[last].kind else { fallthrough }
      try descend(&inner, path.dropFirst(), line, body)
      elements[last].kind = .table(inner)
      table.entries[index].value.kind = .array(elements)
    default:
      let first = table.entries[index].value
      throw TOMLError(line: line, reason: "`\(key)` is \(first.kindName) already (line \(first.line))")
    }
  }

  private static func openElement(_ table: inout TOMLTable, _ path: ArraySlice<String>, _ line: Int) throws(TOMLError) {
    guard let key = path.last else { return }
    try descend(&table, path.dropLast(), line) { (target) throws(TOMLError) in
      var element = TOMLTable(line: line)
      element.isClosed = true
      let value = TOMLValue(kind: .table(element), line: line)
      guard let index = target.entries.firstIndex(where: { $0.key == key }) else {
        target.entries.append(.init(key: key, value: TOMLValue(kind: .array([value]), line: line)))
        return
      }
      guard case .array(var elements) = target.entries[index].value.kind else {
        throw TOMLError(line: line, reason: "`\(key)` is no list of tables (line \(target.entries[index].value.line))")
      }
      elements.append(value)
      target.entries[index].value.kind = .array(elements)
    }
  }

  private static func set(
    _ table: inout TOMLTable, _ path: ArraySlice<String>, _ value: TOMLValue, headerDepth: Int
  ) throws(TOMLError) {
    guard let key = path.last else { return }
    try descend(&table, path.dropLast(), value.line) { (target) throws(TOMLError) in
      if let first = target[key] {
        throw TOMLError(line: value.line, reason: "`\(key)` stands twice (first on line \(first.line))")
      }
      target.entries.append(.init(key: key, value: value))
    }
  }

  // MARK: Values

  private mutating func value(depth: Int) throws(TOMLError) -> TOMLValue {
    guard depth < Self.deepest else { throw error("nested deeper than \(Self.deepest)") }
    let start = line
    let kind: TOMLValue.Kind
    switch current {
    case UInt8(ascii: "\""), UInt8(ascii: "'"): kind = .string(try string())
    case UInt8(ascii: "["): kind = .array(try list(depth: depth))
    case UInt8(ascii: "{"): kind = .table(try inlineTable(depth: depth))
    default: kind = try scalar()
    }
    return TOMLValue(kind: kind, line: start)
  }

  private mutating func list(depth: Int) throws(TOMLError) -> [TOMLValue] {
    position += 1
    var values: [TOMLValue] = []
    while true {
      skipLines()
      if accept("]") { return values }
      values.append(try value(depth: depth + 1))
      skipLines()
      if accept("]") { return values }
      guard accept(",") else { throw error("`,` or `]` is missing") }
    }
  }

  private mutating func inlineTable(depth: Int) throws(TOMLError) -> TOMLTable {
    position += 1
    var table = TOMLTable(line: line)
    skipSpace()
    if accept("}") { return table }
    while true {
      let (keys, value) = try pair(depth: depth + 1)
      try Self.set(&table, keys[...], value, headerDepth: 0)
      skipSpace()
      if accept("}") {
        table.isClosed = true
        return table
      }
      guard accept(",") else { throw error("`,` or `}` is missing") }
    }
  }

  private mutating func scalar() throws(TOMLError) -> TOMLValue.Kind {
    let start = position
    while let byte = current,
      Self.isBare(byte) || byte == UInt8(ascii: "+") || byte == UInt8(ascii: ".") || byte == UInt8(ascii: ":")
    {
      position += 1
    }
    let word = String(decoding: bytes[start..<position], as: UTF8.self)
    switch word {
    case "": throw error("a value is missing (strings stand in quotes)")
    case "true": return .bool(true)
    case "false": return .bool(false)
    default: break
    }
    if let number = Self.number(word) { return number }
    if word.contains(":") || word.dropFirst().filter({ $0 == "-" }).count == 2 {
      throw error("`\(word)` is a date or time, which are not used here")
    }
    throw error("`\(word)` is no value (strings stand in quotes)")
  }

  private static func number(_ word: String) -> TOMLValue.Kind? {
    guard !word.hasPrefix("_"), !word.hasSuffix("_"), !word.contains("__") else { return nil }
    let digits = word.replacing("_")
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] where digits.hasPrefix(prefix) {
      return Int64(digits.dropFirst(2), radix: radix).map { .integer($0) }
    }
    let unsigned = digits.drop { $0 == "+" || $0 == "-" }
    guard unsigned.first?.isNumber == true,
      !(unsigned.count > 1 && unsigned.first == "0" && unsigned.dropFirst().first?.isNumber == true)
    else { return nil }
    if let integer = Int64(digits) { return .integer(integer) }
    guard let number = Double(digits), number.isFinite else { return nil }
    return .number(number)
  }

  private mutating func string() throws(TOMLError) -> String {
    let isLiteral = current == UInt8(ascii: "'")
    let quote = isLiteral ? "'" : "\""
    if isAt(quote + quote + quote) { return try multiline(quote, isLiteral: isLiteral) }
    position += 1
    var text: [UInt8] = []
    while let byte = current {
      position += 1
      switch byte {
      case 0x0A: throw error("a string does not end on its line")
      case quote.utf8.first: return String(decoding: text, as: UTF8.self)
      case UInt8(ascii: "\\") where !isLiteral: try escape(&text)
      default: text.append(byte)
      }
    }
    throw error("a string does not end")
  }

  private mutating func multiline(_ quote: String, isLiteral: Bool) throws(TOMLError) -> String {
    position += 3
    if current == 0x0D { position += 1 }
    if current == 0x0A {
      position += 1
      line += 1
    }
    var text: [UInt8] = []
    while let byte = current {
      if isAt(quote + quote + quote) {
        position += 3
        return String(decoding: text, as: UTF8.self)
      }
      position += 1
      if byte == 0x0A { line += 1 }
      if byte == UInt8(ascii: "\\"), !isLiteral { try escape(&text) } else { text.append(byte) }
    }
    throw error("a string does not end")
  }

  private mutating func escape(_ text: inout [UInt8]) throws(TOMLError) {
    guard let byte = current else { throw error("a string does not end") }
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
    let digits = String(decoding: bytes[position..<min(position + count, bytes.count)], as: UTF8.self)
    guard digits.utf8.count == count, let number = UInt32(digits, radix: 16), let scalar = Unicode.Scalar(number) else {
      throw error("\\\(count == 4 ? "u" : "U") wants \(count) hex digits of a character")
    }
    position += count
    text.append(contentsOf: String(Character(scalar)).utf8)
  }
}

extension String {
  /// Without the given character.
  fileprivate func replacing(_ character: Character) -> String { String(filter { $0 != character }) }
}
