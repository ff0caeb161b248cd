// SPDX-License-Identifier: MIT

/// The protocol level in CONNECT. Source: OASIS MQTT 5.0, and 3.1.1.
public enum MQTTVersion: UInt8, Sendable {
  case v3 = 4
  case v5 = 5
}

/// An application message.
public struct MQTTMessage: Equatable, Sendable {
  public var topic: String
  public var payload: [UInt8]
  public var retain: Bool
  /// The topic for the answer to a request (MQTT 5).
  public var responseTopic: String?
  /// Data that the answer repeats (MQTT 5).
  public var correlation: [UInt8]?
  /// More messages follow on this topic: it gets an alias if the broker supports that.
  public var recurs = false

  public init(
    topic: String, payload: [UInt8], retain: Bool = false, responseTopic: String? = nil, correlation: [UInt8]? = nil
  ) {
    self.topic = topic
    self.payload = payload
    self.retain = retain
    self.responseTopic = responseTopic
    self.correlation = correlation
  }
}

/// A packet of a client.
enum MQTTCommand: Equatable {
  case connect(MQTTOptions, MQTTVersion)
  /// QoS 1, with an identifier from 1 to 65535.
  case publish(MQTTMessage, id: UInt16, MQTTVersion, alias: TopicAliases.Alias? = nil)
  case acknowledge(id: UInt16)
  /// `isOthers`: messages that this client publishes do not come back (version 5).
  case subscribe(topic: String, id: UInt16, MQTTVersion, isOthers: Bool = false)
  case unsubscribe(topic: String, id: UInt16, MQTTVersion)
  case ping
  /// 0: a normal end. Other codes exist in version 5 only.
  case disconnect(code: UInt8)

  func encode() -> [UInt8] {
    switch self {
    case .connect(let options, let version): return Self.packet(0x10, Self.connect(options, version))
    case .publish(let message, let id, let version, let alias):
      let flags: UInt8 = message.retain ? 0x33 : 0x32
      var body = Self.string(alias?.isKnown == true ? "" : message.topic) + Self.word(id)
      if version == .v5 { body += Self.properties(Self.properties(of: message, alias)) }
      return Self.packet(flags, body + message.payload)
    case .acknowledge(let id): return Self.packet(0x40, Self.word(id))
    case .subscribe(let topic, let id, let version, let isOthers):
      let options: UInt8 = isOthers && version == .v5 ? 0x05 : 1
      let body = Self.word(id) + (version == .v5 ? [0] : []) + Self.string(topic) + [options]
      return Self.packet(0x82, body)
    case .unsubscribe(let topic, let id, let version):
      return Self.packet(0xA2, Self.word(id) + (version == .v5 ? [0] : []) + Self.string(topic))
    case .ping: return [0xC0, 0]
    case .disconnect(let code): return code == 0 ? [0xE0, 0] : [0xE0, 1, code]
    }
  }

  private static func connect(_ options: MQTTOptions, _ version: MQTTVersion) -> [UInt8] {
    var flags: UInt8 = options.startsClean ? 0x02 : 0
    var payload = string(options.clientID)
    if let will = options.will {
      flags |= 0x04 | 0x08 | (will.retain ? 0x20 : 0)
      if version == .v5 { payload += properties([]) }
      payload += string(will.topic) + binary(will.payload)
    }
    // Version 3.1.1 forbids a password without a user, who may be empty (§ 3.1.2.9).
    if let user = options.user ?? (version == .v3 && options.password != nil ? "" : nil) {
      flags |= 0x80
      payload += string(user)
    }
    if let password = options.password {
      flags |= 0x40
      payload += binary(password)
    }
    let body = string("MQTT") + [version.rawValue, flags] + word(options.keepAlive)
    guard version == .v5 else { return body + payload }
    // Session expiry, receive maximum, maximum packet size.
    var fields: [UInt8] = [0x11]
    fields += long(options.sessionExpiry)
    fields += [0x21]
    fields += word(options.receiveMaximum)
    fields += [0x27]
    fields += long(options.maxBytes)
    return body + properties(fields) + payload
  }

  private static func properties(of message: MQTTMessage, _ alias: TopicAliases.Alias?) -> [UInt8] {
    var bytes: [UInt8] = []
    if let alias { bytes += [0x23] + word(alias.number) }
    if let topic = message.responseTopic { bytes += [0x08] + string(topic) }
    if let correlation = message.correlation { bytes += [0x09] + binary(correlation) }
    return bytes
  }

  // MARK: Fields

  private static func packet(_ first: UInt8, _ body: [UInt8]) -> [UInt8] { [first] + length(body.count) + body }

  /// A variable byte integer: 7 bits a byte, the last without the top bit; up to 268,435,455.
  static func length(_ count: Int) -> [UInt8] {
    var bytes: [UInt8] = []
    var rest = min(max(0, count), 268_435_455)
    repeat {
      let low = UInt8(rest & 0x7F)
      rest >>= 7
      bytes.append(rest > 0 ? low | 0x80 : low)
    } while rest > 0
    return bytes
  }

  private static func properties(_ bytes: [UInt8]) -> [UInt8] { length(bytes.count) + bytes }
  private static func word(_ value: UInt16) -> [UInt8] { [UInt8(value >> 8), UInt8(value & 0xFF)] }
  private static func long(_ value: UInt32) -> [UInt8] {
    [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: value >> $0) }
  }
  private static func binary(_ bytes: [UInt8]) -> [UInt8] {
    let cut = Array(bytes.prefix(65535))
    return word(UInt16(cut.count)) + cut
  }
  private static func string(_ text: String) -> [UInt8] { binary(Array(text.utf8)) }
}

/// The content of CONNACK. The defaults are those of the standard.
struct MQTTGreeting: Equatable {
  /// 0: accepted.
  var code: UInt8
  var hasSession = false
  /// Maximum number of publications without an acknowledgement.
  var receiveMaximum = 65535
  var topicAliases = 0
  /// Seconds that replace those of CONNECT.
  var keepAlive: Int?
  /// Maximum packet size.
  var maxBytes: Int?
  var takesQuality1 = true
  var retains = true
  /// Whether the broker supports `$share/GROUP/…`; `nil`: unknown, as with version 3.1.1.
  var sharesSubscriptions: Bool?
  /// The client id that the broker assigned, because CONNECT had none.
  var clientID: String?
  /// A reason for people.
  var reason: String?
  /// Another server to use.
  var server: String?
}

/// A packet of a broker.
enum MQTTEvent: Equatable {
  case connected(MQTTGreeting)
  /// Below 0x80: accepted.
  case acknowledged(id: UInt16, code: UInt8, reason: String?)
  /// `isRepeated`: the broker has sent it before, on this connection or an earlier one.
  case message(MQTTMessage, id: UInt16?, isRepeated: Bool)
  case subscribed(id: UInt16, code: UInt8, reason: String?)
  case unsubscribed(id: UInt16)
  case pong
  case disconnected(code: UInt8, reason: String?, server: String?)
}

/// A broker breaks the protocol.
struct MQTTError: Error, Equatable, CustomStringConvertible {
  /// The reason code for DISCONNECT of version 5.
  let code: UInt8
  let description: String
  /// The cause may be another client's subscription in this session.
  var isForeign = false

  static func malformed(_ words: String) -> MQTTError { MQTTError(code: 0x81, description: words) }
  static func protocolError(_ words: String) -> MQTTError { MQTTError(code: 0x82, description: words) }
}
