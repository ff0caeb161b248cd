// SPDX-License-Identifier: MIT

import COpenSSL

/// Signatures of bodies, as well-known webhooks use them.
public enum BodySignature {
  /// `sha256=` and HMAC-SHA-256 of the body in lower-case hex.
  public static func value(_ body: [UInt8], secret: [UInt8]) -> String {
    var digest = [UInt8](repeating: 0, count: 32)
    var count: UInt32 = 0
    let done = HMAC(EVP_sha256(), secret, Int32(truncatingIfNeeded: secret.count), body, body.count, &digest, &count)
    precondition(done != nil, "libcrypto refused HMAC-SHA-256: the installation is broken")
    let digits = Array("0123456789abcdef".utf8)
    return "sha256="
      + String(decoding: digest.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
  }
}
