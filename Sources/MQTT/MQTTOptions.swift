// SPDX-License-Identifier: MIT

/// What a broker is told at the beginning.
public struct MQTTOptions: Equatable, Sendable {
  /// Messages from the broker that may wait for our acknowledgement.
  static let receiveMaximum: UInt16 = 16

  public var clientID: String
  public var user: String?
  public var password: [UInt8]?
  /// Seconds; 0: no pings.
  public var keepAlive: UInt16
  /// Seconds that the broker keeps what comes for us while we are away (MQTT 5).
  public var sessionExpiry: UInt32
  public var will: MQTTMessage?

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
