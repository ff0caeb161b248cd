// SPDX-License-Identifier: MIT

import CSodium
import Companion
import MeshCrypto

/// A node's private key in the form that radios store and export: 64 bytes, a clamped scalar and a nonce prefix.
///
/// It is **not** seed ‖ public key, the usual meaning of 64 bytes in libraries, so signing is built here from
/// libsodium's scalar and curve operations. The gateway does not link this: only radios have private keys. Source:
/// docs/protocol/companion.md § 9.12; orlp/ed25519 as the firmware uses it.
public struct PrivateIdentity: Sendable {
  /// 64 bytes. **Secret.**
  public let expanded: [UInt8]
  public let publicKey: PublicKey

  /// `nil` unless there are 64 bytes whose public key radios accept (it must not begin with 0x00 or 0xFF).
  public init?(expanded: [UInt8]) {
    guard sodium_init() >= 0, expanded.count == 64 else { return nil }
    var point = [UInt8](repeating: 0, count: 32)
    guard crypto_scalarmult_ed25519_base_noclamp(&point, Array(expanded.prefix(32))) == 0,
      let key = PublicKey(bytes: point), key.nodeHash != 0, key.nodeHash != 0xFF
    else { return nil }
    self.expanded = expanded
    publicKey = key
  }

  /// The identity of a 32-byte seed. If its key is not acceptable, the next seed with an acceptable key is used.
  public init(seed: [UInt8]) {
    var seed = Array(seed.prefix(32)) + [UInt8](repeating: 0, count: max(0, 32 - seed.count))
    while true {
      var hash = Self.sha512([seed])
      hash[0] &= 248
      hash[31] = hash[31] & 63 | 64
      if let identity = PrivateIdentity(expanded: hash) {
        self = identity
        return
      }
      seed = Digest.sha256(seed)
    }
  }

  /// The Ed25519 signature of the message: 64 bytes.
  public func sign(_ message: [UInt8]) -> [UInt8] {
    let nonce = Self.reduce(Self.sha512([Array(expanded.suffix(32)), message]))
    var point = [UInt8](repeating: 0, count: 32)
    let made = crypto_scalarmult_ed25519_base_noclamp(&point, nonce)
    precondition(made == 0, "the nonce of a signature was zero, which SHA-512 does not give")
    let challenge = Self.reduce(Self.sha512([point, publicKey.bytes, message]))
    let scalar = Self.reduce(Array(expanded.prefix(32)) + [UInt8](repeating: 0, count: 32))
    var product = [UInt8](repeating: 0, count: 32)
    crypto_core_ed25519_scalar_mul(&product, challenge, scalar)
    var sum = [UInt8](repeating: 0, count: 32)
    crypto_core_ed25519_scalar_add(&sum, product, nonce)
    return point + sum
  }

  /// The shared secret with another node: X25519 of both keys, converted to Curve25519. `nil` for an invalid key.
  public func sharedSecret(with other: PublicKey) -> [UInt8]? {
    var montgomery = [UInt8](repeating: 0, count: 32)
    guard crypto_sign_ed25519_pk_to_curve25519(&montgomery, other.bytes) == 0 else { return nil }
    var secret = [UInt8](repeating: 0, count: 32)
    guard crypto_scalarmult_curve25519(&secret, Array(expanded.prefix(32)), montgomery) == 0 else { return nil }
    return secret
  }

  private static func sha512(_ parts: [[UInt8]]) -> [UInt8] {
    var hash = [UInt8](repeating: 0, count: 64)
    let message = parts.flatMap { $0 }
    crypto_hash_sha512(&hash, message, UInt64(message.count))
    return hash
  }

  private static func reduce(_ wide: [UInt8]) -> [UInt8] {
    var scalar = [UInt8](repeating: 0, count: 32)
    crypto_core_ed25519_scalar_reduce(&scalar, wide)
    return scalar
  }
}
