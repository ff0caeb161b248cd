// SPDX-License-Identifier: MIT

/// Decodes a broker's bytes. Total: any input gives events or an error, with bounded memory. A packet that a broker must not send
/// is an error. Source: OASIS MQTT 5.0, and 3.1.1.
struct MQTTDecoder {
  /// Maximum packet size unless the owner sets another: commands are small. CONNECT of version 5 states it. A larger message of version
  /// 3.1.1 is reported without its payload, so that the owner acknowledges it: otherwise the broker would send it again for ever.
  static let maxBytes = 64 * 1024
  private static let longestTopic = 1024

  var version: MQTTVersion
  private let maxBytes: Int
  private var buffer: [UInt8] = []
  /// Consumed bytes of `buffer`.
  private var start = 0
  private var skipping = 0

  init(_ version: MQTTVersion, maxBytes: Int = Self.maxBytes) { (self.version, self.maxBytes) = (version, maxBytes) }

  mutating func append(_ bytes: [UInt8]) {
    if start > 0 { buffer.removeFirst(start) }
    start = 0
    let skipped = min(skipping, bytes.count)
    skipping -= skipped
    buffer += bytes.dropFirst(skipped)
  }

  /// The next whole packet; `nil`: more bytes are needed.
  mutating func next() throws(MQTTError) -> MQTTEvent? {
    guard start < buffer.count else { return nil }
    var body = MQTTBody(bytes: buffer[(start + 1)...])
    // The length has at most four bytes, and the last one is less than 0x80.
    guard body.bytes.count >= 4 || body.bytes.contains(where: { $0 < 0x80 }) else { return nil }
    let length = try body.variable()
    let (first, place) = (buffer[start], body.bytes.startIndex)
    guard length <= maxBytes else { return try skip(first, from: place, length) }
    guard buffer.count >= place + length else { return nil }
    body.bytes = buffer[place..<place + length]
    start = place + length
    return try event(first, &body)
  }

  private mutating func skip(_ first: UInt8, from place: Int, _ length: Int) throws(MQTTError) -> MQTTEvent? {
    guard first >> 4 == 3, version == .v3 else {
      throw MQTTError(code: 0x95, description: "a packet of \(length) bytes")
    }
    guard buffer.count >= place + 2 + Self.longestTopic + 2 else { return nil }
    var head = MQTTBody(bytes: buffer[place...])
    let qos = try Self.quality(first)
    let topic = try head.topic()
    guard topic.utf8.count <= Self.longestTopic else { throw .malformed("a topic without end") }
    let id = qos == 1 ? try head.identifier() : nil
    let kept = max(0, buffer.count - place - length)
    skipping = max(0, place + length - buffer.count)
    start = buffer.count - kept
    return .message(
      MQTTMessage(topic: topic, payload: [], retain: first & 1 != 0), id: id, isRepeated: first & 8 != 0)
  }

  private func event(_ first: UInt8, _ body: inout MQTTBody) throws(MQTTError) -> MQTTEvent {
    let type = first >> 4
    guard type == 3 || first & 0x0F == 0 else { throw .malformed("a packet of type \(type) with reserved flags") }
    switch type {
    case 2: return try connected(&body)
    case 3: return try message(first, &body)
    case 4:
      let id = try body.identifier()
      let (code, reason) = try verdict(&body)
      return .acknowledged(id: id, code: code, reason: reason)
    case 9: return try subscribed(&body)
    case 11: return try unsubscribed(&body)
    case 13:
      try body.end()
      return .pong
    case 14:
      guard version == .v5 else { throw .protocolError("a DISCONNECT, which a 3.1.1 broker does not send") }
      return try disconnected(&body)
    default: throw .protocolError("a packet of type \(type), which a broker does not send, or which was not requested")
    }
  }

  private func connected(_ body: inout MQTTBody) throws(MQTTError) -> MQTTEvent {
    let flags = try body.byte()
    guard flags < 2 else { throw .malformed("a CONNACK with reserved flags") }
    var greeting = MQTTGreeting(code: try body.byte(), hasSession: flags == 1)
    guard greeting.code == 0 || !greeting.hasSession else { throw .protocolError("a refusal with a session") }
    // A broker that does not know version 5 sends a CONNACK of 3.1.1.
    if version == .v5, !body.isAtEnd {
      let properties = try MQTTProperties(&body, of: .connack)
      greeting.receiveMaximum = properties.number(0x21) ?? greeting.receiveMaximum
      greeting.topicAliases = properties.number(0x22) ?? 0
      greeting.keepAlive = properties.number(0x13)
      greeting.maxBytes = properties.number(0x27)
      greeting.takesQuality1 = properties.number(0x24) != 0
      greeting.retains = properties.number(0x25) != 0
      greeting.sharesSubscriptions = properties.number(0x2A) != 0
      greeting.clientID = properties.text(0x12)
      greeting.reason = properties.text(0x1F)
      greeting.server = properties.text(0x1C)
    }
    try body.end()
    return .connected(greeting)
  }

  /// The rest of an acknowledgement. If it is absent, the code is 0.
  private func verdict(_ body: inout MQTTBody) throws(MQTTError) -> (code: UInt8, reason: String?) {
    guard version == .v5, !body.isAtEnd else {
      try body.end()
      return (0, nil)
    }
    let code = try body.byte()
    let properties = body.isAtEnd ? MQTTProperties() : try MQTTProperties(&body, of: .acknowledgement)
    try body.end()
    return (code, properties.text(0x1F))
  }

  private func subscribed(_ body: inout MQTTBody) throws(MQTTError) -> MQTTEvent {
    let id = try body.identifier()
    let properties = version == .v5 ? try MQTTProperties(&body, of: .acknowledgement) : MQTTProperties()
    // Each SUBSCRIBE has one topic, so there is one code.
    let code = try body.byte()
    guard code < 3 || code >= 0x80 else { throw .malformed("a subscription with the code \(code)") }
    try body.end()
    return .subscribed(id: id, code: code, reason: properties.text(0x1F))
  }

  private func unsubscribed(_ body: inout MQTTBody) throws(MQTTError) -> MQTTEvent {
    let id = try body.identifier()
    if version == .v5 {
      _ = try MQTTProperties(&body, of: .acknowledgement)
      // Whether there was a subscription makes no difference.
      _ = try body.byte()
    }
    try body.end()
    return .unsubscribed(id: id)
  }

  private func disconnected(_ body: inout MQTTBody) throws(MQTTError) -> MQTTEvent {
    guard !body.isAtEnd else { return .disconnected(code: 0, reason: nil, server: nil) }
    let code = try body.byte()
    let properties = body.isAtEnd ? MQTTProperties() : try MQTTProperties(&body, of: .disconnect)
    try body.end()
    return .disconnected(code: code, reason: properties.text(0x1F), server: properties.text(0x1C))
  }

  /// 0 or 1: QoS 2 is never requested.
  private static func quality(_ first: UInt8) throws(MQTTError) -> UInt8 {
    let qos = first >> 1 & 3
    guard qos < 3, qos > 0 || first & 8 == 0 else { throw .malformed("a message with invalid flags") }
    guard qos < 2 else {
      throw MQTTError(code: 0x82, description: "a message with QoS \(qos), which was not requested", isForeign: true)
    }
    return qos
  }

  private func message(_ first: UInt8, _ body: inout MQTTBody) throws(MQTTError) -> MQTTEvent {
    let qos = try Self.quality(first)
    var message = MQTTMessage(topic: try body.topic(), payload: [], retain: first & 1 != 0)
    let id = qos == 1 ? try body.identifier() : nil
    if version == .v5 {
      let properties = try MQTTProperties(&body, of: .publish)
      guard properties.number(0x23) == nil else {
        throw MQTTError(code: 0x94, description: "a topic alias, which was not requested")
      }
      message.responseTopic = properties.text(0x08)
      message.correlation = properties.binary(0x09)
    }
    message.payload = body.rest()
    return .message(message, id: id, isRepeated: first & 8 != 0)
  }
}
