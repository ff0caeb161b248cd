// SPDX-License-Identifier: MIT

/// What a broker is told at the beginning.
public struct MQTTOptions: Equatable, Sendable {
  public var clientID: String
  public var user: String?
  public var password: [UInt8]?
  /// Seconds; 0: no pings.
  public var keepAlive: UInt16
  /// Seconds that the broker keeps what comes for us while we are away (MQTT 5).
  public var sessionExpiry: UInt32
  public var will: MQTTMessage?
  /// Messages from the broker that may wait for our acknowledgement.
  public var receiveMaximum: UInt16 = 16
  /// More of them than this end the connection; `nil`: than the receive maximum, or 1024 of a broker of version 3.1.1, which is not told one.
  /// After a restart mosquitto 2.0.11 has more under way than it was told.
  public var tolerated: Int?
  /// The largest packet that we take. A broker of version 5 is told so, and leaves out what is larger; of one of version 3.1.1 a larger
  /// message is skipped, and told without its payload.
  public var maxBytes = UInt32(MQTTDecoder.maxBytes)

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

/// Why there is no connection, or none any more.
public enum MQTTFailure: Error, Equatable, Sendable, CustomStringConvertible {
  /// No network, time-out, a broker that is going down: worth trying again.
  case unreachable(String)
  /// The broker does not take us: user, password, rights.
  case refused(String)

  public var description: String {
    switch self {
    case .unreachable(let words), .refused(let words): words
    }
  }
}

/// What a broker says to a publication.
public struct MQTTAnswer: Equatable, Sendable {
  /// Below 0x80: it has the message.
  public var code: UInt8
  /// The broker's own words.
  public var reason: String?

  public init(_ code: UInt8, _ reason: String? = nil) {
    self.code = code
    self.reason = reason
  }

  public var isTaken: Bool { code < 0x80 }
  public var words: String { MQTTReason.words(code, reason) }
}
