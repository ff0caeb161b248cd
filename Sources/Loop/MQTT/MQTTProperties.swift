// SPDX-License-Identifier: MIT

/// Reads the fields of one packet.
struct MQTTBody {
  var bytes: ArraySlice<UInt8>
  var isAtEnd: Bool { bytes.isEmpty }

  mutating func byte() throws(MQTTError) -> UInt8 {
    guard let byte = bytes.popFirst() else { throw .malformed("a packet is too short") }
    return byte
  }

  mutating func word() throws(MQTTError) -> UInt16 { UInt16(try byte()) << 8 | UInt16(try byte()) }
  mutating func long() throws(MQTTError) -> UInt32 { UInt32(try word()) << 16 | UInt32(try word()) }

  /// A packet identifier: never 0.
  mutating func identifier() throws(MQTTError) -> UInt16 {
    let id = try word()
    guard id > 0 else { throw .malformed("a packet identifier is 0") }
    return id
  }

  mutating func binary() throws(MQTTError) -> [UInt8] {
    let count = Int(try word())
    guard bytes.count >= count else { throw .malformed("a packet is too short") }
    defer { bytes = bytes.dropFirst(count) }
    return Array(bytes.prefix(count))
  }

  /// Source: MQTT 5.0 § 1.5.4.
  mutating func string() throws(MQTTError) -> String {
    let bytes = try binary()
    guard let text = String(validating: bytes, as: UTF8.self), !bytes.contains(0) else {
      throw .malformed("a string is not UTF-8, or contains NUL")
    }
    return text
  }

  mutating func topic() throws(MQTTError) -> String {
    let topic = try string()
    guard !topic.isEmpty, !topic.utf8.contains(UInt8(ascii: "+")), !topic.utf8.contains(UInt8(ascii: "#")) else {
      throw .malformed("a message's topic is empty, or has wildcards")
    }
    return topic
  }

  mutating func rest() -> [UInt8] {
    defer { bytes = [] }
    return Array(bytes)
  }

  func end() throws(MQTTError) {
    guard isAtEnd else { throw .malformed("a packet is too long") }
  }

  mutating func variable() throws(MQTTError) -> Int {
    var (value, shift) = (0, 0)
    while true {
      let next = try byte()
      value |= Int(next & 0x7F) << shift
      if next & 0x80 == 0 {
        guard next != 0 || shift == 0 else { throw .malformed("a number is not in its shortest form") }
        return value
      }
      shift += 7
      guard shift <= 21 else { throw .malformed("a number has no end") }
    }
  }
}

/// The properties of a packet of version 5. Source: MQTT 5.0 § 2.2.2.
struct MQTTProperties {
  enum Value: Equatable {
    case number(Int)
    case text(String)
    case binary([UInt8])
    case pair
  }

  /// The packets that have properties.
  enum Packet {
    case connack, publish, acknowledgement, disconnect

    /// The properties that the packet may have.
    var allowed: Set<UInt8> {
      switch self {
      case .connack:
        [0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A]
      case .publish: [0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26]
      case .acknowledgement: [0x1F, 0x26]
      case .disconnect: [0x1C, 0x1F, 0x26]
      }
    }
  }

  private var values: [UInt8: Value] = [:]

  init() {}

  init(_ body: inout MQTTBody, of packet: Packet) throws(MQTTError) {
    let count = try body.variable()
    guard body.bytes.count >= count else { throw .malformed("a packet is too short") }
    var own = MQTTBody(bytes: body.bytes.prefix(count))
    body.bytes = body.bytes.dropFirst(count)
    while !own.isAtEnd {
      let id = try own.byte()
      guard packet.allowed.contains(id) else { throw .malformed("a property \(id) where none is allowed") }
      let value = try Self.value(id, &own)
      // User properties and subscription identifiers may repeat.
      guard values[id] == nil || id == 0x26 || id == 0x0B else { throw .protocolError("a property \(id) twice") }
      values[id] = value
    }
  }

  private static func value(_ id: UInt8, _ body: inout MQTTBody) throws(MQTTError) -> Value {
    switch id {
    case 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A:
      let flag = try body.byte()
      guard flag < 2 else { throw .protocolError("a property \(id) of \(flag)") }
      return .number(Int(flag))
    case 0x13, 0x21, 0x22, 0x23:
      let word = try body.word()
      guard word > 0 || id == 0x13 || id == 0x22 else { throw .protocolError("a property \(id) of 0") }
      return .number(Int(word))
    case 0x02, 0x11, 0x18, 0x27:
      let long = try body.long()
      guard long > 0 || id != 0x27 else { throw .protocolError("a property \(id) of 0") }
      return .number(Int(long))
    case 0x0B:
      let number = try body.variable()
      guard number > 0 else { throw .protocolError("a property \(id) of 0") }
      return .number(number)
    case 0x26:
      _ = try body.string()
      _ = try body.string()
      return .pair
    case 0x09, 0x16: return .binary(try body.binary())
    case 0x08: return .text(try body.topic())
    case 0x03, 0x12, 0x15, 0x1A, 0x1C, 0x1F: return .text(try body.string())
    default: throw .malformed("a property \(id)")
    }
  }

  func number(_ id: UInt8) -> Int? { if case .number(let value)? = values[id] { value } else { nil } }
  func text(_ id: UInt8) -> String? { if case .text(let value)? = values[id] { value } else { nil } }
  func binary(_ id: UInt8) -> [UInt8]? { if case .binary(let value)? = values[id] { value } else { nil } }
}
