// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto

/// Signatures of bodies, as well-known webhooks use them.
enum BodySignature {
  /// `sha256=` and HMAC-SHA-256 of the body in lower-case hex.
  static func value(_ body: [UInt8], secret: [UInt8]) -> String {
    "sha256=" + Hex.string(Digest.hmacSHA256(key: secret, body))
  }
}
