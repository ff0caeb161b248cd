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

  /// The object that `body` fills, as bytes.
  public static func object<Failure>(
    _ body: (inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) -> [UInt8] {
    var writer = JSONWriter()
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

  /// A field; left out when the value is `nil`.
  public mutating func field(_ name: String, _ value: String?) {
    guard let value else { return }
    key(name)
    self.value(value)
  }

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

  /// A field whose value is JSON already.
  public mutating func field(_ name: String, json: [UInt8]) {
    key(name)
    raw(json)
  }

  public mutating func field(_ name: String, _ value: JSONValue) {
    key(name)
    self.value(value)
  }

  public mutating func null(_ name: String) {
    key(name)
    raw(Array("null".utf8))
  }

  public mutating func value(_ value: String) {
    separate()
    quote(value)
  }

  public mutating func value(_ value: some BinaryInteger) {
    separate()
    bytes.append(contentsOf: String(value).utf8)
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

  /// A value that is JSON already.
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

  private mutating func key(_ name: String) {
    separate()
    quote(name)
    bytes.append(UInt8(ascii: ":"))
    needsComma = false
  }

  private mutating func quote(_ text: String) {
    let digits = Array("0123456789abcdef".utf8)
    bytes.append(UInt8(ascii: "\""))
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\""): bytes.append(contentsOf: [0x5C, 0x22])
      case UInt8(ascii: "\\"): bytes.append(contentsOf: [0x5C, 0x5C])
      case 0x0A: bytes.append(contentsOf: [0x5C, 0x6E])
      case 0..<0x20, 0x7F:
        bytes.append(contentsOf: Array("\\u00".utf8) + [digits[Int(byte >> 4)], digits[Int(byte & 15)]])
      default: bytes.append(byte)
      }
    }
    bytes.append(UInt8(ascii: "\""))
  }
}

extension JSONValue {
  /// As it is written, in one line.
  public var text: String { String(decoding: bytes, as: UTF8.self) }

  public var bytes: [UInt8] {
    var writer = JSONWriter()
    writer.value(self)
    return writer.bytes
  }
}
