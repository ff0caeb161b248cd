// SPDX-License-Identifier: MIT

/// A broker's bytes → events. Total: whatever comes, it gives events or an error, and holds a bounded amount.
struct MQTTDecoder {
  /// Larger packets are not kept: commands are small. A broker that speaks 5 is told so; of another a larger message is
  /// skipped, and told without its payload, so that it can be acknowledged: else it would come again for ever.
  static let mostBytes = 64 * 1024
  private static let longestTopic = 1024

  var version: MQTTVersion
  private var buffer: [UInt8] = []
  private var skipping = 0

  init(_ version: MQTTVersion) { self.version = version }

  mutating func append(_ bytes: [UInt8]) {
    let skipped = min(skipping, bytes.count)
    skipping -= skipped
    buffer += bytes.dropFirst(skipped)
  }

  /// The next whole packet; `nil`: more bytes are needed.
  mutating func next() throws(MQTTError) -> MQTTEvent? {
    var (length, shift, place) = (0, 0, 1)
    while true {
      guard place < buffer.count else { return nil }
      let byte = buffer[place]
      length |= Int(byte & 0x7F) << shift
      place += 1
      if byte & 0x80 == 0 { break }
      shift += 7
      guard shift <= 21 else { throw MQTTError(description: "a packet's length has no end") }
    }
    guard let first = buffer.first else { return nil }
    guard length <= Self.mostBytes else { return try skip(first, from: place, length) }
    guard buffer.count >= place + length else { return nil }
    var body = Body(bytes: buffer[place..<place + length])
    buffer.removeFirst(place + length)
    return try event(first, &body)
  }

  private mutating func skip(_ first: UInt8, from place: Int, _ length: Int) throws(MQTTError) -> MQTTEvent? {
    guard first >> 4 == 3 else { throw MQTTError(description: "a packet of \(length) bytes") }
    guard buffer.count >= place + 2 + Self.longestTopic + 2 else { return nil }
    var head = Body(bytes: buffer[place...])
    let topic = try head.string()
    guard topic.utf8.count <= Self.longestTopic else { throw MQTTError(description: "a topic without end") }
    let id = first >> 1 & 3 == 1 ? try head.word() : nil
    let kept = max(0, buffer.count - place - length)
    skipping = max(0, place + length - buffer.count)
    buffer = Array(buffer.suffix(kept))
    return .message(MQTTMessage(topic: topic, payload: [], retain: first & 1 != 0), id: id)
  }

  private func event(_ first: UInt8, _ body: inout Body) throws(MQTTError) -> MQTTEvent {
    switch first >> 4 {
    case 2: return try connected(&body)
    case 3: return try message(first, &body)
    case 4:
      let id = try body.word()
      return .acknowledged(id: id, code: body.isAtEnd ? 0 : try body.byte())
    case 9:
      let id = try body.word()
      if version == .v5 { _ = try body.properties() }
      return .subscribed(id: id, code: try body.byte())
    case 13: return .pong
    case 14: return .disconnected(code: body.isAtEnd ? 0 : try body.byte())
    default: throw MQTTError(description: "a packet of type \(first >> 4)")
    }
  }

  private func connected(_ body: inout Body) throws(MQTTError) -> MQTTEvent {
    let flags = try body.byte()
    let code = try body.byte()
    var (receiveMaximum, keepAlive, mostBytes): (UInt16, UInt16?, Int?) = (65535, nil, nil)
    if version == .v5, !body.isAtEnd {
      var properties = try body.properties()
      while let property = try properties.property() {
        switch property {
        case .word(0x21, let value): receiveMaximum = max(1, value)
        case .word(0x13, let value): keepAlive = value
        case .long(0x27, let value): mostBytes = Int(value)
        default: break
        }
      }
    }
    return .connected(
      code: code, hasSession: flags & 1 != 0, receiveMaximum: receiveMaximum, keepAlive: keepAlive, mostBytes: mostBytes
    )
  }

  private func message(_ first: UInt8, _ body: inout Body) throws(MQTTError) -> MQTTEvent {
    let qos = first >> 1 & 3
    guard qos < 2 else { throw MQTTError(description: "a message with QoS \(qos), which nobody asked for") }
    var message = MQTTMessage(topic: try body.string(), payload: [], retain: first & 1 != 0)
    let id = qos == 1 ? try body.word() : nil
    if version == .v5 {
      var properties = try body.properties()
      while let property = try properties.property() {
        switch property {
        case .binary(0x08, let topic): message.responseTopic = String(decoding: topic, as: UTF8.self)
        case .binary(0x09, let data): message.correlation = data
        default: break
        }
      }
    }
    message.payload = body.rest()
    return .message(message, id: id)
  }
}

/// One packet's bytes, read from the front.
private struct Body {
  enum Property: Equatable {
    case byte(UInt8, UInt8)
    case word(UInt8, UInt16)
    case long(UInt8, UInt32)
    case binary(UInt8, [UInt8])
    case pair
  }

  var bytes: ArraySlice<UInt8>
  var isAtEnd: Bool { bytes.isEmpty }

  mutating func byte() throws(MQTTError) -> UInt8 {
    guard let byte = bytes.popFirst() else { throw MQTTError(description: "a packet is too short") }
    return byte
  }

  mutating func word() throws(MQTTError) -> UInt16 { UInt16(try byte()) << 8 | UInt16(try byte()) }
  mutating func long() throws(MQTTError) -> UInt32 { UInt32(try word()) << 16 | UInt32(try word()) }

  mutating func binary() throws(MQTTError) -> [UInt8] {
    let count = Int(try word())
    guard bytes.count >= count else { throw MQTTError(description: "a packet is too short") }
    defer { bytes = bytes.dropFirst(count) }
    return Array(bytes.prefix(count))
  }

  mutating func string() throws(MQTTError) -> String { String(decoding: try binary(), as: UTF8.self) }

  mutating func rest() -> [UInt8] {
    defer { bytes = [] }
    return Array(bytes)
  }

  private mutating func variable() throws(MQTTError) -> Int {
    var (value, shift) = (0, 0)
    while true {
      let next = try byte()
      value |= Int(next & 0x7F) << shift
      if next & 0x80 == 0 { return value }
      shift += 7
      guard shift <= 21 else { throw MQTTError(description: "a number has no end") }
    }
  }

  mutating func properties() throws(MQTTError) -> Body {
    let count = try variable()
    guard bytes.count >= count else { throw MQTTError(description: "a packet is too short") }
    defer { bytes = bytes.dropFirst(count) }
    return Body(bytes: bytes.prefix(count))
  }

  /// The next property; `nil` at the end. Source: MQTT 5.0 § 2.2.2.2.
  mutating func property() throws(MQTTError) -> Property? {
    guard !isAtEnd else { return nil }
    let id = try byte()
    switch id {
    case 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A: return .byte(id, try byte())
    case 0x13, 0x21, 0x22, 0x23: return .word(id, try word())
    case 0x02, 0x11, 0x18, 0x27: return .long(id, try long())
    case 0x0B:
      _ = try variable()
      return .pair
    case 0x26:
      _ = try binary()
      _ = try binary()
      return .pair
    case 0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F: return .binary(id, try binary())
    default: throw MQTTError(description: "a property \(id)")
    }
  }
}
