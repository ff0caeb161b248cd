// SPDX-License-Identifier: MIT

/// A JSON value (RFC 8259). Objects keep their order; of repeated names the last one counts.
///
/// Texts and names are equal if their bytes are, not if Unicode considers them equivalent.
public enum JSONValue: Equatable, Sendable {
  case null
  case bool(Bool)
  /// A number without fraction or exponent; when parsed, within `JSONValue.wholeNumbers`.
  case integer(Int64)
  case number(Double)
  case string(String)
  case array([JSONValue])
  case object([(String, JSONValue)])

  public static func == (left: JSONValue, right: JSONValue) -> Bool {
    switch (left, right) {
    case (.null, .null): true
    case (.bool(let a), .bool(let b)): a == b
    case (.integer(let a), .integer(let b)): a == b
    case (.number(let a), .number(let b)): a == b
    case (.string(let a), .string(let b)): a.utf8.elementsEqual(b.utf8)
    case (.array(let a), .array(let b)): a == b
    case (.object(let a), .object(let b)):
      a.count == b.count && zip(a, b).allSatisfy { $0.0.utf8.elementsEqual($1.0.utf8) && $0.1 == $1.1 }
    default: false
    }
  }

  public subscript(name: String) -> JSONValue? {
    guard case .object(let fields) = self else { return nil }
    // Most names differ in length, which is quick to compare.
    let count = name.utf8.count
    return fields.last { $0.0.utf8.count == count && $0.0.utf8.elementsEqual(name.utf8) }?.1
  }

  /// Whole numbers that every program reads exactly (RFC 8259 § 6): −2⁵³ to 2⁵³. Integers from outside are within this range, so
  /// that a sum, a difference or a conversion between seconds and milliseconds cannot overflow; larger ones are read as
  /// `number`.
  public static let wholeNumbers: ClosedRange<Int64> = -(1 << 53)...(1 << 53)

  public var string: String? { if case .string(let value) = self { value } else { nil } }
  public var integer: Int64? { if case .integer(let value) = self { value } else { nil } }
  /// The value as a number of things, a position or a time: 0 to 2⁵³. `nil` for anything else.
  public var count: Int64? { integer.flatMap { $0 >= 0 && Self.wholeNumbers.contains($0) ? $0 : nil } }
  public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
  public var array: [JSONValue]? { if case .array(let values) = self { values } else { nil } }
  public var fields: [(String, JSONValue)]? { if case .object(let fields) = self { fields } else { nil } }

  /// A name that an object in this value has more than once; `nil`: there is none. A request with one is refused: whoever checked it on the way may
  /// have read another of the values.
  public var repeatedName: String? {
    switch self {
    case .array(let values):
      for value in values {
        if let inner = value.repeatedName { return inner }
      }
    case .object(let fields):
      var seen: Set<[UInt8]> = []
      for (name, value) in fields {
        guard seen.insert(Array(name.utf8)).inserted else { return name }
        if let inner = value.repeatedName { return inner }
      }
    default: break
    }
    return nil
  }

  public var number: Double? {
    switch self {
    case .integer(let value): Double(value)
    case .number(let value): value
    default: nil
    }
  }
}

/// Why text is not JSON.
public struct JSONError: Error, Equatable, Sendable, CustomStringConvertible {
  /// Bytes from the start of the text.
  public let offset: Int
  public let reason: String

  public var description: String { "byte \(offset): \(reason)" }
}

extension JSONValue {
  /// Deeper nesting is refused: the parser is recursive.
  public static let deepest = 64

  /// Reads one value and nothing after it. Total: refuses, never traps.
  public init(parsing bytes: [UInt8]) throws(JSONError) {
    var parser = JSONParser(bytes)
    self = try parser.document()
  }

  public init(parsing text: String) throws(JSONError) { try self.init(parsing: Array(text.utf8)) }
}

private struct JSONParser {
  private let bytes: [UInt8]
  private var position = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  mutating func document() throws(JSONError) -> JSONValue {
    let value = try value(depth: 0)
    skipSpace()
    guard position == bytes.count else { throw error("unexpected data after the value") }
    return value
  }

  private func error(_ reason: String) -> JSONError { JSONError(offset: position, reason: reason) }
  private var current: UInt8? { position < bytes.count ? bytes[position] : nil }

  private mutating func skipSpace() {
    while let byte = current, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 { position += 1 }
  }

  private mutating func accept(_ character: Unicode.Scalar) -> Bool {
    guard let byte = current, byte == UInt8(ascii: character) else { return false }
    position += 1
    return true
  }

  private mutating func value(depth: Int) throws(JSONError) -> JSONValue {
    guard depth < JSONValue.deepest else { throw error("nested deeper than \(JSONValue.deepest)") }
    skipSpace()
    switch current {
    case UInt8(ascii: "{"): return try object(depth: depth)
    case UInt8(ascii: "["): return try array(depth: depth)
    case UInt8(ascii: "\""): return .string(try string())
    case UInt8(ascii: "t"): return try word("true", .bool(true))
    case UInt8(ascii: "f"): return try word("false", .bool(false))
    case UInt8(ascii: "n"): return try word("null", .null)
    case .some: return try number()
    case nil: throw error("a value is missing")
    }
  }

  private mutating func word(_ word: String, _ value: JSONValue) throws(JSONError) -> JSONValue {
    let end = position + word.utf8.count
    guard end <= bytes.count, bytes[position..<end].elementsEqual(word.utf8) else { throw error("invalid value") }
    position = end
    return value
  }

  private mutating func object(depth: Int) throws(JSONError) -> JSONValue {
    position += 1
    var fields: [(String, JSONValue)] = []
    skipSpace()
    if accept("}") { return .object(fields) }
    while true {
      skipSpace()
      guard current == UInt8(ascii: "\"") else { throw error("a field's name is missing") }
      let name = try string()
      skipSpace()
      guard accept(":") else { throw error("`:` is missing") }
      fields.append((name, try value(depth: depth + 1)))
      skipSpace()
      if accept("}") { return .object(fields) }
      guard accept(",") else { throw error("`,` or `}` is missing") }
    }
  }

  private mutating func array(depth: Int) throws(JSONError) -> JSONValue {
    position += 1
    var values: [JSONValue] = []
    skipSpace()
    if accept("]") { return .array(values) }
    while true {
      values.append(try value(depth: depth + 1))
      skipSpace()
      if accept("]") { return .array(values) }
      guard accept(",") else { throw error("`,` or `]` is missing") }
    }
  }

  private mutating func number() throws(JSONError) -> JSONValue {
    let start = position
    if current == UInt8(ascii: "-") { position += 1 }
    let digits = position
    try skipDigits()
    if bytes[digits] == UInt8(ascii: "0"), position - digits > 1 { throw error("a number with a leading zero") }
    var isWhole = true
    if accept(".") {
      isWhole = false
      try skipDigits()
    }
    if let byte = current, byte | 0x20 == UInt8(ascii: "e") {
      isWhole = false
      position += 1
      if let sign = current, sign == UInt8(ascii: "+") || sign == UInt8(ascii: "-") { position += 1 }
      try skipDigits()
    }
    let text = String(decoding: bytes[start..<position], as: UTF8.self)
    if isWhole, let integer = Int64(text), JSONValue.wholeNumbers.contains(integer) { return .integer(integer) }
    guard let number = Double(text), number.isFinite else { throw error("a number out of range") }
    return .number(number)
  }

  private mutating func skipDigits() throws(JSONError) {
    let start = position
    while let byte = current, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) { position += 1 }
    guard position > start else { throw error("a digit is missing") }
  }

  private mutating func string() throws(JSONError) -> String {
    position += 1
    let start = position
    while let byte = current, byte >= 0x20, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") { position += 1 }
    // Most strings have no escape.
    if accept("\"") { return try string(bytes[start..<position - 1]) }
    var text = Array(bytes[start..<position])
    while let byte = current {
      position += 1
      switch byte {
      case UInt8(ascii: "\""): return try string(text[...])
      case UInt8(ascii: "\\"): try escape(&text)
      case 0..<0x20: throw error("a control character in a string")
      default: text.append(byte)
      }
    }
    throw error("unterminated string")
  }

  private func string(_ text: ArraySlice<UInt8>) throws(JSONError) -> String {
    guard let string = String(validating: text, as: UTF8.self) else { throw error("invalid UTF-8 in a string") }
    return string
  }

  private mutating func escape(_ text: inout [UInt8]) throws(JSONError) {
    guard let byte = current else { throw error("unterminated string") }
    position += 1
    switch byte {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): text.append(byte)
    case UInt8(ascii: "b"): text.append(8)
    case UInt8(ascii: "f"): text.append(12)
    case UInt8(ascii: "n"): text.append(10)
    case UInt8(ascii: "r"): text.append(13)
    case UInt8(ascii: "t"): text.append(9)
    case UInt8(ascii: "u"): text.append(contentsOf: String(Character(try scalar())).utf8)
    default: throw error("an unknown escape")
    }
  }

  private mutating func scalar() throws(JSONError) -> Unicode.Scalar {
    let first = try hexadecimal()
    if let scalar = Unicode.Scalar(first) { return scalar }
    guard first < 0xDC00, accept("\\"), accept("u") else { throw error("half a surrogate pair") }
    let second = try hexadecimal()
    guard (0xDC00...0xDFFF).contains(second),
      let scalar = Unicode.Scalar(0x10000 + (first - 0xD800) << 10 + (second - 0xDC00))
    else { throw error("half a surrogate pair") }
    return scalar
  }

  private mutating func hexadecimal() throws(JSONError) -> UInt32 {
    var number: UInt32 = 0
    for _ in 0..<4 {
      guard let byte = current, let digit = Character(Unicode.Scalar(byte)).hexDigitValue else {
        throw error("a hex digit is missing")
      }
      number = number << 4 | UInt32(digit)
      position += 1
    }
    return number
  }
}
