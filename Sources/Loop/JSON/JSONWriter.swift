// SPDX-License-Identifier: MIT

/// Writes JSON straight into bytes: no tree, no reflection, no Foundation.
///
///     var writer = JSONWriter()
///     writer.object { $0.field("seq", 7); $0.field("text", "hi") }
public struct JSONWriter {
  public private(set) var bytes: [UInt8] = []
  private var needsComma = false

  public init(reserving capacity: Int = 0) { bytes.reserveCapacity(capacity) }

  public var string: String { String(decoding: bytes, as: UTF8.self) }

  /// The bytes of an object whose fields `body` writes.
  public static func object<Failure>(
    _ body: (inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) -> [UInt8] {
    var writer = JSONWriter(reserving: 256)
    try writer.object(body)
    return writer.bytes
  }

  public mutating func object<Failure>(
    _ body: (inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) {
    try nested(UInt8(ascii: "{"), UInt8(ascii: "}"), body)
  }

  public mutating func array<Failure>(
    _ body: (inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) {
    try nested(UInt8(ascii: "["), UInt8(ascii: "]"), body)
  }

  public mutating func objectField<Failure>(
    _ name: String, _ body: (inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) {
    key(name)
    try object(body)
  }

  public mutating func arrayField<Failure>(
    _ name: String, _ body: (inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) {
    key(name)
    try array(body)
  }

  /// Writes an array of objects; `write` fills each one.
  public mutating func objects<Row, Failure>(
    _ name: String, _ rows: some Sequence<Row>, _ write: (Row, inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) {
    key(name)
    try array { (json) throws(Failure) in
      for row in rows { try json.object { (json) throws(Failure) in try write(row, &json) } }
    }
  }

  /// Writes a field; leaves it out if the value is `nil`.
  public mutating func field(_ name: String, _ value: String?) {
    guard let value else { return }
    key(name)
    self.value(value)
  }

  @inlinable
  public mutating func field(_ name: String, _ value: (some BinaryInteger)?) {
    guard let value else { return }
    key(name)
    self.value(value)
  }

  public mutating func field(_ name: String, _ value: Double?) {
    guard let value else { return }
    key(name)
    self.value(value)
  }

  public mutating func field(_ name: String, _ value: Bool?) {
    guard let value else { return }
    key(name)
    self.value(value)
  }

  /// Writes a field whose value is JSON already.
  public mutating func field(_ name: String, json: [UInt8]) {
    key(name)
    raw(json)
  }

  public mutating func field(_ name: String, _ value: JSONValue) {
    key(name)
    self.value(value)
  }

  public mutating func value(_ value: String) {
    separate()
    quote(value)
  }

  /// Inlined: unspecialised code for each integer type takes several times as long.
  @inlinable
  public mutating func value(_ value: some BinaryInteger) {
    guard let small = Int64(exactly: value) else { return text(String(value)) }
    number(small)
  }

  @usableFromInline
  mutating func text(_ digits: String) {
    separate()
    bytes.append(contentsOf: digits.utf8)
  }

  @usableFromInline
  mutating func number(_ value: Int64) {
    separate()
    var rest = value.magnitude
    if value < 0 { bytes.append(UInt8(ascii: "-")) }
    var place: UInt64 = 1
    while rest / place >= 10 { place *= 10 }
    while place > 0 {
      bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest / place))
      rest %= place
      place /= 10
    }
  }

  /// Infinities and NaN, which JSON does not have, become null.
  public mutating func value(_ value: Double) {
    separate()
    bytes.append(contentsOf: (value.isFinite ? "\(value)" : "null").utf8)
  }

  public mutating func value(_ value: Bool) {
    separate()
    bytes.append(contentsOf: (value ? "true" : "false").utf8)
  }

  public mutating func value(_ value: JSONValue) {
    switch value {
    case .null: raw(Array("null".utf8))
    case .bool(let bool): self.value(bool)
    case .integer(let integer): self.value(integer)
    case .number(let number): self.value(number)
    case .string(let string): self.value(string)
    case .array(let values): array { writer in for value in values { writer.value(value) } }
    case .object(let fields): object { writer in for (name, value) in fields { writer.field(name, value) } }
    }
  }

  /// Writes a value that is JSON already.
  public mutating func raw(_ json: [UInt8]) {
    separate()
    bytes.append(contentsOf: json)
  }

  private mutating func nested<Failure>(
    _ open: UInt8, _ close: UInt8, _ body: (inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) {
    separate()
    bytes.append(open)
    needsComma = false
    try body(&self)
    bytes.append(close)
    needsComma = true
  }

  private mutating func separate() {
    if needsComma { bytes.append(UInt8(ascii: ",")) }
    needsComma = true
  }

  /// Begins a field; its value is written next.
  public mutating func key(_ name: String) {
    separate()
    quote(name)
    bytes.append(UInt8(ascii: ":"))
    needsComma = false
  }

  /// Begins a field; its value is written next. `name` has no character that needs an escape.
  public mutating func key(_ name: StaticString) {
    separate()
    bytes.append(UInt8(ascii: "\""))
    bytes.append(contentsOf: UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    bytes.append(UInt8(ascii: "\""))
    bytes.append(UInt8(ascii: ":"))
    needsComma = false
  }

  private mutating func quote(_ text: String) {
    bytes.append(UInt8(ascii: "\""))
    var text = text
    text.withUTF8 { escape($0) }
    bytes.append(UInt8(ascii: "\""))
  }

  private mutating func escape(_ text: UnsafeBufferPointer<UInt8>) {
    // Most texts need no escapes.
    guard text.contains(where: Self.isEscaped) else { return bytes.append(contentsOf: text) }
    for byte in text {
      switch byte {
      case UInt8(ascii: "\""): bytes.append(contentsOf: [0x5C, 0x22])
      case UInt8(ascii: "\\"): bytes.append(contentsOf: [0x5C, 0x5C])
      case 0x0A: bytes.append(contentsOf: [0x5C, 0x6E])
      case _ where Self.isEscaped(byte):
        bytes.append(contentsOf: "\\u00".utf8)
        bytes.append(Self.digit(byte >> 4))
        bytes.append(Self.digit(byte & 15))
      default: bytes.append(byte)
      }
    }
  }

  private static func isEscaped(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == 0x7F || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
  }

  private static func digit(_ value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
  }
}

extension JSONValue {
  /// The JSON written so far, in one line.
  public var text: String { String(decoding: bytes, as: UTF8.self) }

  public var bytes: [UInt8] {
    var writer = JSONWriter()
    writer.value(self)
    return writer.bytes
  }
}
