// SPDX-License-Identifier: MIT

import Testing
import UntrustedText

@testable import PageServer

@Suite struct PasswordHashTests {
  private func hex(_ bytes: [UInt8]?) -> String {
    (bytes ?? []).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  /// RFC 7914 § 12.
  @Test func `scrypt gives the results of its specification`() {
    let salt = Array("NaCl".utf8)
    #expect(
      hex(PasswordHash.derive(Array("password".utf8), salt, .init(ln: 10, r: 8, p: 16), count: 64))
        == "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b3731622eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"
    )
    #expect(
      hex(
        PasswordHash.derive(
          Array("pleaseletmein".utf8), Array("SodiumChloride".utf8), .init(ln: 14, r: 8, p: 1), count: 64))
        == "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    )
  }

  @Test func `a password matches only its own hash, in any script, by its bytes`() throws {
    let hash = try #require(PasswordHash.make("café 🏔", cost: .init(ln: 10, r: 8, p: 1)))
    #expect(hash.hasPrefix("$scrypt$ln=10,r=8,p=1$"))
    #expect(PasswordHash.isOne(hash))
    #expect(PasswordHash.isRight("café 🏔", hash))
    // An é of two scalars: equal in Swift, but different in a file of passwords.
    #expect(!PasswordHash.isRight("cafe\u{301} 🏔", hash))
    #expect(!PasswordHash.isRight("", hash))
    #expect(PasswordHash.make("a") != PasswordHash.make("a"))
  }

  @Test func `an invalid or too expensive hash matches no password`() {
    let salt = Base64.encode([UInt8](repeating: 1, count: 16))
    let key = Base64.encode([UInt8](repeating: 2, count: 32))
    #expect(PasswordHash.isOne("$scrypt$ln=14,r=8,p=5$\(salt)$\(key)"))
    for hash in [
      "", "x", "$scrypt$", "$scrypt$ln=14,r=8,p=5$\(salt)$", "$argon2id$ln=14,r=8,p=5$\(salt)$\(key)",
      "$scrypt$ln=31,r=8,p=1$\(salt)$\(key)", "$scrypt$ln=14,r=8,p=1000$\(salt)$\(key)",
      "$scrypt$ln=-1,r=8,p=1$\(salt)$\(key)", "$scrypt$ln=14,r=9223372036854775808,p=1$\(salt)$\(key)",
      "$scrypt$ln=17,r=16,p=16$\(salt)$\(key)", "$scrypt$ln=14,r=8$\(salt)$\(key)",
      "$scrypt$r=8,ln=14,p=1$\(salt)$\(key)",
      "$scrypt$ln=14,r=8,p=1$\(salt)=$\(key)", "$scrypt$ln=14,r=8,p=1$\(salt)$\(key)$",
    ] {
      #expect(!PasswordHash.isOne(hash), "\(hash)")
      #expect(!PasswordHash.isRight("x", hash), "\(hash)")
    }
  }

  @Test func `Base64 follows its specification`() {
    for (plain, coded) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
      #expect(Base64.encode(Array(plain.utf8)) == coded)
      #expect(Base64.decode(coded) == Array(plain.utf8))
    }
    for (plain, padded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
      #expect(Base64.padded(Array(plain.utf8)) == padded)
    }
    for bad in ["Z", "Zh", "Zm9=", "Zm9 v", "Zm9-"] { #expect(Base64.decode(bad) == nil, "\(bad)") }
  }
}
