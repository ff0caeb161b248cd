// SPDX-License-Identifier: MIT

/// Parameters of CONNECT.
public struct MQTTOptions: Equatable, Sendable {
  public var clientID: String
  public var user: String?
  public var password: [UInt8]?
  /// Seconds; 0: no pings.
  public var keepAlive: UInt16
  /// Seconds that the broker keeps the session while the client is away (MQTT 5).
  public var sessionExpiry: UInt32
  public var will: MQTTMessage?
  /// Maximum number of messages that wait for our acknowledgement.
  public var receiveMaximum: UInt16 = 16
  /// While the owner has messages of so many bytes in hand, nothing is read. The receive maximum alone does not bound that: version 3.1.1 does
  /// not have it, and mosquitto 2.0.11 exceeds it.
  public var maxHeldBytes = 1 << 20
  /// Maximum packet size. CONNECT of version 5 states it, and the broker leaves out larger messages; the decoder skips larger messages of
  /// version 3.1.1 and reports them without their payload.
  public var maxBytes = UInt32(MQTTDecoder.maxBytes)
  /// A subscription with less than QoS 1 ends the connection.
  public var needsQuality1 = false
  /// The broker deletes the session of earlier connections.
  var startsClean = false

  public init(
    clientID: String, user: String? = nil, password: [UInt8]? = nil, keepAlive: UInt16 = 300,
    sessionExpiry: UInt32 = 86400, will: MQTTMessage? = nil
  ) {
    self.clientID = clientID
    self.user = user
    self.password = password
    self.keepAlive = keepAlive
    self.sessionExpiry = sessionExpiry
    self.will = will
  }
}

/// Why there is no connection.
public enum MQTTFailure: Error, Equatable, Sendable, CustomStringConvertible {
  /// No network, a time-out, a broker that shuts down: retry.
  case unreachable(String)
  /// The broker refuses the client: user, password, permissions.
  case refused(String)
  /// The session has a subscription that this client has not requested, and cannot read: a new session ends that.
  case foreign(String)

  public var description: String {
    switch self {
    case .unreachable(let message), .refused(let message), .foreign(let message): message
    }
  }

  /// The connection was lost before the broker accepted the client.
  static func early(_ words: String) -> MQTTFailure {
    .unreachable(words + " before it accepted this client: does it require TLS, or a client certificate?")
  }

  static func nonsense(_ error: MQTTError) -> MQTTFailure {
    error.isForeign
      ? .foreign("the broker sends \(error)") : .unreachable("the broker sends data that is not MQTT: \(error)")
  }

  /// The broker has sent DISCONNECT.
  static func ended(_ code: UInt8, _ reason: String?, _ server: String?) -> MQTTFailure {
    let words = "the broker ends the connection: \(MQTTReason.words(code, reason, server: server))"
    return MQTTReason.stopsConnection(code) ? .refused(words) : .unreachable(words)
  }
}

/// The broker's answer to a publication.
public struct MQTTAnswer: Equatable, Sendable {
  /// Below 0x80: accepted.
  public var code: UInt8
  /// The broker's reason string.
  public var reason: String?

  public init(_ code: UInt8, _ reason: String? = nil) {
    self.code = code
    self.reason = reason
  }

  public var isTaken: Bool { code < 0x80 }
  public var message: String { MQTTReason.words(code, reason) }
}
