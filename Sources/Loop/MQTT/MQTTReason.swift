// SPDX-License-Identifier: MIT

import UntrustedText

/// Reason codes of CONNACK (3.1.1 and 5), PUBACK, SUBACK and DISCONNECT as text, and the reaction to them.
enum MQTTReason {
  /// The reason as text, with the broker's own words and the server that it refers to.
  static func words(_ code: UInt8, _ reason: String? = nil, server: String? = nil) -> String {
    var words = name(code)
    if let reason, !reason.isEmpty { words += ": \(Visible.excerpt(reason))" }
    if let server, !server.isEmpty { words += "; it names \(Visible.excerpt(server))" }
    return words
  }

  private static func name(_ code: UInt8) -> String {
    switch code {
    case 1, 0x84: "unsupported MQTT version"
    case 2, 0x85: "the client id is not allowed"
    case 3, 0x88: "the server is unavailable"
    case 4, 0x86: "user or password is wrong"
    case 5, 0x87: "not authorised"
    case 0x81: "malformed packet"
    case 0x82: "protocol error"
    case 0x83: "implementation-specific error"
    case 0x89: "it is busy"
    case 0x8A: "banned"
    case 0x8B: "it is shutting down"
    case 0x8C: "unsupported authentication method"
    case 0x8D: "no ping came in time"
    case 0x8E: "another client took over this client id"
    case 0x8F, 0x90: "the topic is not allowed"
    case 0x93: "more was in flight than it allows"
    case 0x95: "the packet is too large"
    case 0x96: "messages came too fast"
    case 0x97: "a quota is exceeded"
    case 0x98: "an operator ended it"
    case 0x99: "invalid payload format"
    case 0x9A: "it does not support retained messages"
    case 0x9B: "it supports only QoS 0, which has no acknowledgements"
    case 0x9C: "another server is to be used for now"
    case 0x9D: "another server is to be used from now on"
    case 0x9F: "too many connections"
    case 0xA0: "maximum connection time exceeded"
    default: "code \(code)"
    }
  }

  /// A refusal of CONNECT that only people can resolve: configuration, or permissions at the broker.
  static func stopsGreeting(_ code: UInt8) -> Bool {
    [1, 2, 4, 5, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x90, 0x95, 0x99, 0x9A, 0x9B, 0x9D].contains(code)
  }

  /// The same for DISCONNECT of an established connection.
  static func stopsConnection(_ code: UInt8) -> Bool { [0x87, 0x8A, 0x9D].contains(code) }
}
