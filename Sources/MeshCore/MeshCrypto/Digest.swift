// SPDX-License-Identifier: MIT

import COpenSSL

/// The hashes and ciphers of the mesh, on libcrypto. Source: docs/protocol/companion.md § 13.2.
public enum Digest {
  /// Fetched once: otherwise libcrypto searches by name for each digest. `nonisolated(unsafe)`: it never changes.
  private nonisolated(unsafe) static let sha256Method = EVP_MD_fetch(nil, "SHA256", nil)

  /// SHA-256: 32 bytes.
  public static func sha256(_ data: [UInt8]) -> [UInt8] {
    var result = [UInt8](repeating: 0, count: 32)
    var count: UInt32 = 0
    let done = EVP_Digest(data, data.count, &result, &count, sha256Method, nil)
    precondition(done == 1, "libcrypto refused SHA-256: the installation is broken")
    return result
  }

  /// HMAC-SHA-256: 32 bytes.
  public static func hmacSHA256(key: [UInt8], _ data: [UInt8]) -> [UInt8] {
    var result = [UInt8](repeating: 0, count: 32)
    var count: UInt32 = 0
    let done = HMAC(EVP_sha256(), key, Int32(truncatingIfNeeded: key.count), data, data.count, &result, &count)
    precondition(done != nil, "libcrypto refused HMAC-SHA-256: the installation is broken")
    return result
  }
}

/// AES-128 in ECB mode over whole blocks of 16 bytes, as the mesh uses it.
enum BlockCipher {
  /// `nil` if the data is not a whole number of blocks, or the key not 16 bytes long.
  static func run(key: [UInt8], _ data: [UInt8], encrypt: Bool) -> [UInt8]? {
    guard key.count == 16, data.count % 16 == 0, data.count <= 4096 else { return nil }
    guard let context = EVP_CIPHER_CTX_new() else { return nil }
    defer { EVP_CIPHER_CTX_free(context) }
    guard EVP_CipherInit_ex(context, EVP_aes_128_ecb(), nil, key, nil, encrypt ? 1 : 0) == 1 else { return nil }
    EVP_CIPHER_CTX_set_padding(context, 0)
    var output = [UInt8](repeating: 0, count: data.count + 16)
    var written: Int32 = 0
    guard EVP_CipherUpdate(context, &output, &written, data, Int32(data.count)) == 1 else { return nil }
    return Array(output.prefix(Int(written)))
  }
}

/// The mesh's encrypt-then-MAC: AES-128-ECB with the first 16 bytes of a secret, and the first 2 bytes of HMAC-SHA-256
/// with all of it.
public enum SealedBox {
  /// The plain text is zero-padded to blocks. `nil` if the secret is shorter than 16 bytes.
  public static func seal(_ plain: [UInt8], secret: [UInt8]) -> (mac: [UInt8], cipher: [UInt8])? {
    let padding = (16 - plain.count % 16) % 16
    let padded = plain + [UInt8](repeating: 0, count: padding)
    guard let cipher = BlockCipher.run(key: Array(secret.prefix(16)), padded, encrypt: true) else { return nil }
    return (Array(Digest.hmacSHA256(key: secret, cipher).prefix(2)), cipher)
  }

  /// `nil` if the MAC does not match. The result ends with 0 to 15 zero bytes of padding.
  public static func open(mac: [UInt8], cipher: [UInt8], secret: [UInt8]) -> [UInt8]? {
    guard !cipher.isEmpty, Array(Digest.hmacSHA256(key: secret, cipher).prefix(2)) == mac else { return nil }
    return BlockCipher.run(key: Array(secret.prefix(16)), cipher, encrypt: false)
  }
}
