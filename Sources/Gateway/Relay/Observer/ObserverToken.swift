// SPDX-License-Identifier: MIT

import Companion
import JSON

/// The password of an observer at public analyzers: a token like a JWT, but with its signature in hex. The radio itself signs it. Source:
/// docs/mqtt.md, "Observer feed".
struct ObserverToken: Equatable {
  /// Seconds for which a token is valid, and seconds before its end when it is renewed.
  static let lifetime: Int64 = 3600
  static let margin: Int64 = 300

  let user: String
  let password: String
  /// Seconds since 1970.
  let expires: Int64

  /// The text that the radio signs.
  static func unsigned(_ claims: UpstreamSettings.MQTTSettings.RadioToken, key: String, now: Int64) -> String {
    let header = #"{"alg":"Ed25519","typ":"JWT"}"#
    let body = JSONWriter.object { json in
      json.field("publicKey", key.uppercased())
      json.field("iat", now)
      json.field("exp", now + lifetime)
      json.field("aud", claims.audience)
      json.field("owner", claims.owner)
      json.field("email", claims.email)
    }
    return base64(Array(header.utf8)) + "." + base64(body)
  }

  init(unsigned: String, signature: [UInt8], key: String, now: Int64) {
    user = "v1_\(key.uppercased())"
    password = "\(unsigned).\(Hex.string(signature).uppercased())"
    expires = now + Self.lifetime
  }

  /// Base64 for URLs: `-` and `_`, without padding. Source: RFC 4648 § 5.
  static func base64(_ bytes: [UInt8]) -> String {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: 3) {
      let group = Array(bytes[start..<min(start + 3, bytes.count)])
      let value = group.enumerated().reduce(UInt32(0)) { $0 | UInt32($1.element) << UInt32(16 - 8 * $1.offset) }
      for place in 0...group.count { text.append(alphabet[Int(value >> UInt32(18 - 6 * place) & 63)]) }
    }
    return String(decoding: text, as: UTF8.self)
  }
}
