// SPDX-License-Identifier: MIT

import COpenSSL
import JSON
import MeshCrypto
import UntrustedText

/// A pair of keys on the curve P-256: the hub's own, by which push services know it (RFC 8292), or one for a single push (RFC 8291).
struct PushKey: Sendable {
  static let pointBytes = 65
  /// Bytes of a SubjectPublicKeyInfo before the point (RFC 5480).
  private static let beforePoint: [UInt8] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE,
    0x3D, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
  ]

  /// The private key: an ECPrivateKey (RFC 5915 § 3).
  let der: [UInt8]
  /// The public key: an uncompressed point.
  let point: [UInt8]

  /// A new pair; `nil`: libcrypto has no memory or no random numbers.
  static func make() -> PushKey? {
    defer { ERR_clear_error() }
    guard let context = EVP_PKEY_CTX_new_from_name(nil, "EC", nil) else { return nil }
    defer { EVP_PKEY_CTX_free(context) }
    var made: OpaquePointer?
    guard EVP_PKEY_keygen_init(context) == 1, EVP_PKEY_CTX_set_group_name(context, "P-256") == 1,
      EVP_PKEY_generate(context, &made) == 1
    else { return nil }
    defer { EVP_PKEY_free(made) }
    return encoded { i2d_PrivateKey(made, $0) }.flatMap { PushKey(der: $0) }
  }

  /// `nil`: it is no such key.
  init?(der: [UInt8]) {
    defer { ERR_clear_error() }
    guard let key = Self.read(der) else { return nil }
    defer { EVP_PKEY_free(key) }
    guard let info = Self.encoded({ i2d_PUBKEY(key, $0) }), info.starts(with: Self.beforePoint),
      info.count == Self.beforePoint.count + Self.pointBytes
    else { return nil }
    self.der = der
    point = Array(info.suffix(Self.pointBytes))
  }

  /// The secret that this key has in common with the owner of the other one (ECDH). `nil`: the point is not on the curve.
  func sharedSecret(with other: [UInt8]) -> [UInt8]? {
    defer { ERR_clear_error() }
    guard other.count == Self.pointBytes, other[0] == 4, let own = Self.read(der) else { return nil }
    defer { EVP_PKEY_free(own) }
    let theirs = (Self.beforePoint + other).withUnsafeBufferPointer { buffer -> OpaquePointer? in
      var place = buffer.baseAddress
      return d2i_PUBKEY(nil, &place, buffer.count)
    }
    guard let theirs else { return nil }
    defer { EVP_PKEY_free(theirs) }
    guard let context = EVP_PKEY_CTX_new(own, nil) else { return nil }
    defer { EVP_PKEY_CTX_free(context) }
    var secret = [UInt8](repeating: 0, count: 32)
    var count = secret.count
    guard EVP_PKEY_derive_init(context) == 1, EVP_PKEY_derive_set_peer(context, theirs) == 1,
      EVP_PKEY_derive(context, &secret, &count) == 1, count == secret.count
    else { return nil }
    return secret
  }

  /// A signature by ES256 (RFC 7518 § 3.4): two numbers of 32 bytes.
  func sign(_ bytes: [UInt8]) -> [UInt8]? {
    defer { ERR_clear_error() }
    guard let key = Self.read(der) else { return nil }
    defer { EVP_PKEY_free(key) }
    guard let context = EVP_MD_CTX_new() else { return nil }
    defer { EVP_MD_CTX_free(context) }
    var signature = [UInt8](repeating: 0, count: 128)
    var count = signature.count
    guard EVP_DigestSignInit(context, nil, EVP_sha256(), nil, key) == 1,
      EVP_DigestSign(context, &signature, &count, bytes, bytes.count) == 1
    else { return nil }
    return Self.numbers(of: Array(signature.prefix(count)))
  }

  /// The two numbers of a signature in DER, each shorter than 128 bytes.
  private static func numbers(of der: [UInt8]) -> [UInt8]? {
    var (rest, numbers) = (Array(der.dropFirst(2)), [UInt8]())
    for _ in 0..<2 {
      guard rest.count >= 2, rest[0] == 0x02, rest.count >= 2 + Int(rest[1]) else { return nil }
      let number = Array(rest[2..<2 + Int(rest[1])].drop { $0 == 0 })
      guard number.count <= 32 else { return nil }
      numbers += [UInt8](repeating: 0, count: 32 - number.count) + number
      rest = Array(rest.dropFirst(2 + Int(rest[1])))
    }
    return numbers
  }

  private static func read(_ der: [UInt8]) -> OpaquePointer? {
    guard !der.isEmpty else { return nil }
    return der.withUnsafeBufferPointer { buffer -> OpaquePointer? in
      var place = buffer.baseAddress
      return d2i_AutoPrivateKey(nil, &place, buffer.count)
    }
  }

  /// What libcrypto writes: it tells the size if there is no place for it.
  private static func encoded(
    _ write: (UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>?) -> Int32
  ) -> [UInt8]? {
    let size = Int(write(nil))
    guard size > 0 else { return nil }
    var bytes = [UInt8](repeating: 0, count: size)
    let written = bytes.withUnsafeMutableBufferPointer { buffer -> Int32 in
      var place = buffer.baseAddress
      return write(&place)
    }
    return Int(written) == size ? bytes : nil
  }
}

/// The content of a push, encrypted for one browser, and the hub's proof for the push service.
enum PushEncryption {
  /// Bytes of a record (RFC 8188); a push is one. Push services have to take 4096 bytes (RFC 8030 § 7.2).
  private static let record = 4096
  private static let header = 16 + 4 + 1 + PushKey.pointBytes
  /// Most bytes of content: beside it a record has a delimiter and a tag.
  static let mostBytes = record - header - 17
  static let authBytes = 16
  /// Seconds; at most a day (RFC 8292 § 2).
  private static let proofLasts: Int64 = 12 * 3600

  /// RFC 8291 § 3.4. `point`, `auth`: the browser's. `key`: made for this push.
  static func encrypt(
    _ plain: [UInt8], for point: [UInt8], auth: [UInt8], key: PushKey, salt: [UInt8]
  ) -> [UInt8]? {
    guard plain.count <= mostBytes, let secret = key.sharedSecret(with: point) else { return nil }
    var info = Array("WebPush: info\0".utf8)
    info += point
    info += key.point
    info.append(1)
    let material = Digest.hmacSHA256(key: Digest.hmacSHA256(key: auth, secret), info)
    return encode(plain, keyedBy: material, salt: salt, keyID: key.point)
  }

  /// One record of `aes128gcm` (RFC 8188 § 2). `nil`: it is too long.
  static func encode(_ plain: [UInt8], keyedBy material: [UInt8], salt: [UInt8], keyID: [UInt8]) -> [UInt8]? {
    guard plain.count + 17 <= record, let count = UInt8(exactly: keyID.count) else { return nil }
    let base = Digest.hmacSHA256(key: salt, material)
    func derived(_ name: String, _ count: Int) -> [UInt8] {
      Array(Digest.hmacSHA256(key: base, Array("Content-Encoding: \(name)\0\u{1}".utf8)).prefix(count))
    }
    // 2: the last record.
    let (key, nonce) = (derived("aes128gcm", 16), derived("nonce", 12))
    guard let cipher = seal(plain + [2 as UInt8], key: key, nonce: nonce) else { return nil }
    var bytes = salt
    bytes += [0, 0, UInt8(record >> 8), UInt8(record & 0xFF), count] as [UInt8]
    bytes += keyID
    bytes += cipher
    return bytes
  }

  /// AES-128-GCM, with its tag behind it.
  private static func seal(_ plain: [UInt8], key: [UInt8], nonce: [UInt8]) -> [UInt8]? {
    defer { ERR_clear_error() }
    guard let context = EVP_CIPHER_CTX_new() else { return nil }
    defer { EVP_CIPHER_CTX_free(context) }
    var cipher = [UInt8](repeating: 0, count: plain.count)
    var tag = [UInt8](repeating: 0, count: 16)
    var (written, more): (Int32, Int32) = (0, 0)
    guard EVP_EncryptInit_ex(context, EVP_aes_128_gcm(), nil, key, nonce) == 1,
      EVP_EncryptUpdate(context, &cipher, &written, plain, Int32(plain.count)) == 1,
      EVP_EncryptFinal_ex(context, &tag, &more) == 1,
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, &tag) == 1
    else { return nil }
    return cipher + tag
  }

  /// `Authorization` of a push (RFC 8292 § 3). `audience`: the push service's origin. `contact`: an address at which its operators learn whose pushes
  /// these are. `now`: milliseconds since 1970.
  static func proof(_ key: PushKey, audience: String, contact: String, at now: Int64) -> String? {
    let head = Array(#"{"typ":"JWT","alg":"ES256"}"#.utf8)
    let claims = JSONWriter.object(["aud": audience, "exp": now / 1000 + proofLasts, "sub": contact])
    let signed = "\(Base64.encodeForURL(head)).\(Base64.encodeForURL(claims))"
    guard let signature = key.sign(Array(signed.utf8)) else { return nil }
    return "vapid t=\(signed).\(Base64.encodeForURL(signature)), k=\(Base64.encodeForURL(key.point))"
  }
}
