// SPDX-License-Identifier: MIT

import COpenSSL
import Companion

/// Verifies Ed25519 signatures of nodes.
public enum Signature {
  /// Whether `signature` (64 bytes) over `message` was made with the private key of `key`. False for malformed keys and
  /// signatures.
  public static func verify(_ signature: [UInt8], of message: [UInt8], by key: PublicKey) -> Bool {
    guard signature.count == 64 else { return false }
    guard let publicKey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nil, key.bytes, 32) else { return false }
    defer { EVP_PKEY_free(publicKey) }
    guard let context = EVP_MD_CTX_new() else { return false }
    defer { EVP_MD_CTX_free(context) }
    guard EVP_DigestVerifyInit(context, nil, nil, nil, publicKey) == 1 else { return false }
    return EVP_DigestVerify(context, signature, 64, message, message.count) == 1
  }
}

extension Advert {
  /// Whether the owner of the key has signed the advert. Check this before showing it as genuine.
  public var isSignatureValid: Bool { Signature.verify(signature, of: signedBytes, by: key) }
}
