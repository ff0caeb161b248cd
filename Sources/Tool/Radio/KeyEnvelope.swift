// SPDX-License-Identifier: MIT

import COpenSSL
import Companion
import Glibc
import JSON

/// A secret encrypted with a passphrase: scrypt (N 32768, r 8, p 1), AES-256-GCM with a nonce of 12 bytes; the tag follows the
/// text. The parameters are stored with it, so that other programs can open it.
enum KeyEnvelope {
  enum Failure: Error, CustomStringConvertible {
    case wrongPassphrase
    case unknownForm
    case openSSL

    var description: String {
      switch self {
      case .wrongPassphrase: "the passphrase is wrong, or the file was changed"
      case .unknownForm: "the key is in a format that this version does not know"
      case .openSSL: "OpenSSL failed"
      }
    }
  }

  private static let (cost, block, parallel): (UInt64, UInt64, UInt64) = (32768, 8, 1)
  private static let tagSize = 16

  static func seal(_ secret: [UInt8], passphrase: String) throws -> [(String, JSONValue)] {
    let salt = random(16), nonce = random(12)
    let sealed = try crypt(secret, try key(passphrase, salt), nonce)
    return [
      ("kdf", .string("scrypt")), ("n", .integer(Int64(cost))), ("r", .integer(Int64(block))),
      ("p", .integer(Int64(parallel))), ("salt", .string(Hex.string(salt))), ("cipher", .string("aes-256-gcm")),
      ("nonce", .string(Hex.string(nonce))), ("text", .string(Hex.string(sealed.text + sealed.tag))),
    ]
  }

  static func open(_ envelope: JSONValue, passphrase: String) throws -> [UInt8] {
    guard envelope["kdf"]?.string == "scrypt", envelope["n"]?.integer == Int64(cost),
      envelope["r"]?.integer == Int64(block), envelope["p"]?.integer == Int64(parallel),
      envelope["cipher"]?.string == "aes-256-gcm", let salt = envelope["salt"]?.string.flatMap({ Hex.bytes($0) }),
      let nonce = envelope["nonce"]?.string.flatMap({ Hex.bytes($0) }), nonce.count == 12,
      let text = envelope["text"]?.string.flatMap({ Hex.bytes($0) }), text.count > tagSize
    else { throw Failure.unknownForm }
    return try crypt(
      Array(text.dropLast(tagSize)), try key(passphrase, salt), nonce, tag: Array(text.suffix(tagSize))
    ).text
  }

  private static func random(_ count: Int) -> [UInt8] { (0..<count).map { _ in UInt8.random(in: .min ... .max) } }

  private static func key(_ passphrase: String, _ salt: [UInt8]) throws -> [UInt8] {
    var key = [UInt8](repeating: 0, count: 32)
    let done = EVP_PBE_scrypt(
      passphrase, passphrase.utf8.count, salt, salt.count, cost, block, parallel, 64 << 20, &key, key.count)
    guard done == 1 else { throw Failure.openSSL }
    return key
  }

  /// Encrypts a text, or with its `tag` decrypts it. Returns the other text, and the tag.
  private static func crypt(
    _ text: [UInt8], _ key: [UInt8], _ nonce: [UInt8], tag given: [UInt8]? = nil
  ) throws -> (text: [UInt8], tag: [UInt8]) {
    let context = EVP_CIPHER_CTX_new()
    defer { EVP_CIPHER_CTX_free(context) }
    var result = [UInt8](repeating: 0, count: text.count), tag = given ?? [UInt8](repeating: 0, count: tagSize)
    var (count, rest, end): (Int32, Int32, [UInt8]) = (0, 0, [UInt8](repeating: 0, count: 16))
    guard EVP_CipherInit_ex(context, EVP_aes_256_gcm(), nil, key, nonce, given == nil ? 1 : 0) == 1,
      EVP_CipherUpdate(context, &result, &count, text, Int32(text.count)) == 1,
      given == nil || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, Int32(tagSize), &tag) == 1
    else { throw Failure.openSSL }
    guard EVP_CipherFinal_ex(context, &end, &rest) == 1 else {
      throw given == nil ? Failure.openSSL : Failure.wrongPassphrase
    }
    guard given != nil || EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, Int32(tagSize), &tag) == 1 else {
      throw Failure.openSSL
    }
    return (result, tag)
  }
}
