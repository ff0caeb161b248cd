// SPDX-License-Identifier: MIT

import COpenSSL
import JSON
import UntrustedText

/// A public key of a provider (RFC 7517), and the check of its signatures (RFC 7518, RFC 8037).
struct WebKey: Sendable {
  /// The accepted signatures. None is symmetric: a key that checks a symmetric signature can also make one.
  enum Algorithm: String, Sendable, CaseIterable {
    case rs256 = "RS256"
    case ps256 = "PS256"
    case es256 = "ES256"
    case edDSA = "EdDSA"
  }

  static let mostKeys = 32
  /// Bytes of an RSA modulus: 2048 to 8192 bits.
  private static let modulusBytes = 256...1024
  /// Bytes of DER before the point of a key: P-256 and Ed25519 (RFC 5480, RFC 8410).
  private static let beforePoint: [UInt8] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE,
    0x3D, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
  ]
  private static let beforeEdwards: [UInt8] = [
    0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00,
  ]
  private static let rsaIdentifier: [UInt8] = [
    0x30, 0x0D, 0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01, 0x01, 0x05, 0x00,
  ]

  let id: String?
  let algorithms: [Algorithm]
  /// A SubjectPublicKeyInfo (RFC 5280 § 4.1).
  private let der: [UInt8]

  /// The usable signing keys of a set; others are left out.
  static func keys(_ set: JSONValue) -> [WebKey] {
    (set["keys"]?.array ?? []).prefix(mostKeys).compactMap { WebKey($0) }
  }

  /// `nil`: the key is not usable here.
  init?(_ key: JSONValue) {
    guard key["use"].map({ $0.string?.isExactly("sig") == true }) ?? true else { return nil }
    func bytes(_ name: String) -> [UInt8]? { key[name]?.string.flatMap { Base64.decodeFromURL($0) } }
    var fits: [Algorithm]
    switch (key["kty"]?.string, key["crv"]?.string) {
    case ("RSA", _):
      guard let modulus = bytes("n")?.drop(while: { $0 == 0 }), Self.modulusBytes.contains(modulus.count),
        let exponent = bytes("e")?.drop(while: { $0 == 0 }), (1...8).contains(exponent.count),
        exponent.last.map({ $0 & 1 }) == 1, exponent.count > 1 || exponent.first != 1
      else { return nil }
      let numbers = DER.sequence(DER.integer(Array(modulus)) + DER.integer(Array(exponent)))
      der = DER.sequence(Self.rsaIdentifier + DER.element(0x03, [0] + numbers))
      fits = [.rs256, .ps256]
    case ("EC", "P-256"):
      guard let x = bytes("x"), let y = bytes("y"), x.count == 32, y.count == 32 else { return nil }
      der = Self.beforePoint + x + y
      fits = [.es256]
    case ("OKP", "Ed25519"):
      guard let x = bytes("x"), x.count == 32 else { return nil }
      der = Self.beforeEdwards + x
      fits = [.edDSA]
    default: return nil
    }
    if let named = key["alg"]?.string { fits.removeAll { !$0.rawValue.isExactly(named) } }
    guard !fits.isEmpty else { return nil }
    algorithms = fits
    id = key["kid"]?.string
  }

  func hasSigned(_ bytes: [UInt8], _ signature: [UInt8], _ algorithm: Algorithm) -> Bool {
    guard algorithms.contains(algorithm) else { return false }
    var signature = signature
    if algorithm == .es256 {
      guard signature.count == 64 else { return false }
      signature = DER.sequence(
        DER.integer(Array(signature[..<32].drop { $0 == 0 })) + DER.integer(Array(signature[32...].drop { $0 == 0 })))
    }
    let key = der.withUnsafeBufferPointer { buffer -> OpaquePointer? in
      var place = buffer.baseAddress
      return d2i_PUBKEY(nil, &place, buffer.count)
    }
    guard let key, let context = EVP_MD_CTX_new() else {
      EVP_PKEY_free(key)
      ERR_clear_error()
      return false
    }
    defer {
      EVP_MD_CTX_free(context)
      EVP_PKEY_free(key)
      ERR_clear_error()
    }
    var inner: OpaquePointer?
    let digest = algorithm == .edDSA ? nil : EVP_sha256()
    guard EVP_DigestVerifyInit(context, &inner, digest, nil, key) == 1 else { return false }
    if algorithm == .ps256 {
      // −1: as long as the digest.
      guard EVP_PKEY_CTX_set_rsa_padding(inner, RSA_PKCS1_PSS_PADDING) == 1,
        EVP_PKEY_CTX_set_rsa_pss_saltlen(inner, -1) == 1
      else { return false }
    }
    return EVP_DigestVerify(context, signature, signature.count, bytes, bytes.count) == 1
  }
}

/// The part of DER that writes keys.
private enum DER {
  static func sequence(_ content: [UInt8]) -> [UInt8] { element(0x30, content) }

  /// The DER of an unsigned integer. `bytes` has no leading zeros.
  static func integer(_ bytes: [UInt8]) -> [UInt8] {
    let isHigh = bytes.first.map { $0 >= 0x80 } ?? true
    return element(0x02, (isHigh ? [0] : []) + bytes)
  }

  static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
    guard content.count >= 0x80 else { return [tag, UInt8(content.count)] + content }
    var length: [UInt8] = []
    var rest = content.count
    while rest > 0 {
      length.insert(UInt8(rest & 0xFF), at: 0)
      rest >>= 8
    }
    return [tag, 0x80 | UInt8(length.count)] + length + content
  }
}
