// SPDX-License-Identifier: MIT

import Companion
import JSON
import UntrustedText

/// The password of an observer at public analyzers: a token like a JWT, but with its signature in hex. The radio itself signs it. Source:
/// docs/mqtt.md, "Observer feed".
struct ObserverToken: Equatable {
  /// Seconds for which a token is valid, and seconds before its end when it is renewed.
  static let lifetime: Int64 = 3600
  static let margin: Int64 = 300

  /// The radio that signed it: its key, 64 lower-case hex digits.
  let key: String
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
    return Base64.encodeForURL(Array(header.utf8)) + "." + Base64.encodeForURL(body)
  }

  init(unsigned: String, signature: [UInt8], key: String, now: Int64) {
    self.key = key
    user = "v1_\(key.uppercased())"
    password = "\(unsigned).\(Hex.string(signature).uppercased())"
    expires = now + Self.lifetime
  }
}
