// SPDX-License-Identifier: MIT

import COpenSSL
import UntrustedText

/// The stored form of passwords: `$scrypt$ln=14,r=8,p=5$SALT$HASH` (the PHC string format; scrypt is RFC 7914), SALT
/// and HASH in base64 without `=`.
public enum PasswordHash {
  /// The work that one guess takes.
  public struct Cost: Sendable, Equatable {
    /// Memory cost: 2^ln × r × 128 bytes.
    public let ln: Int
    public let r: Int
    public let p: Int

    /// 16 MiB, because gateways are small. The work equals that of the settings with more memory in OWASP's password storage cheat sheet.
    public static let usual = Cost(ln: 14, r: 8, p: 5)

    /// The greatest cost of a stored hash: a forged hash must not use up memory or time.
    var isAllowed: Bool { (10...17).contains(ln) && (1...16).contains(r) && (1...16).contains(p) && work <= 1 << 30 }
    var bytes: Int { (1 << ln) * r * 128 }
    private var work: Int { bytes * p }
  }

  private static let saltBytes = 16
  private static let hashBytes = 32

  /// A hash with a random salt. `nil`: there is not enough memory.
  public static func make(_ password: String, cost: Cost = .usual) -> String? {
    let salt = (0..<saltBytes).map { _ in UInt8.random(in: 0...255) }
    guard let key = derive(Array(password.utf8), salt, cost, count: hashBytes) else { return nil }
    return "$scrypt$ln=\(cost.ln),r=\(cost.r),p=\(cost.p)$\(Base64.encode(salt))$\(Base64.encode(key))"
  }

  /// Whether the text is a hash in the form of `make`, with an allowed cost.
  public static func isOne(_ hash: String) -> Bool { parts(hash) != nil }

  /// Whether the password fits the hash. False: also for a text that is no hash.
  public static func isRight(_ password: String, _ hash: String) -> Bool {
    guard let (cost, salt, key) = parts(hash), let other = derive(Array(password.utf8), salt, cost, count: key.count)
    else { return false }
    // HMAC fills a short key up with zeros: with some behind it, the password would be the same.
    guard !password.utf8.contains(0) else { return false }
    return CRYPTO_memcmp(key, other, key.count) == 0
  }

  static func derive(_ password: [UInt8], _ salt: [UInt8], _ cost: Cost, count: Int) -> [UInt8]? {
    var key = [UInt8](repeating: 0, count: count)
    let memory = UInt64(cost.bytes) + 4 << 20
    let done = password.withUnsafeBytes { password in
      EVP_PBE_scrypt(
        password.baseAddress?.assumingMemoryBound(to: CChar.self), password.count, salt, salt.count,
        1 << UInt64(cost.ln),
        UInt64(cost.r), UInt64(cost.p), memory, &key, count)
    }
    return done == 1 ? key : nil
  }

  private static func parts(_ hash: String) -> (Cost, salt: [UInt8], key: [UInt8])? {
    let parts = hash.utf8.split(separator: UInt8(ascii: "$"), omittingEmptySubsequences: false).map { String($0) ?? "" }
    guard parts.count == 5, parts[0].utf8.isEmpty, parts[1].isExactly("scrypt") else { return nil }
    var numbers: [Int] = []
    for (name, part) in zip(["ln", "r", "p"], parts[2].pieces(at: ",")) {
      guard part.begins(with: "\(name)="), let number = Int(String(part.utf8.dropFirst(name.utf8.count + 1)) ?? "")
      else {
        return nil
      }
      numbers.append(number)
    }
    guard numbers.count == 3, let salt = Base64.decode(parts[3]), let key = Base64.decode(parts[4]),
      (8...64).contains(salt.count), (16...64).contains(key.count)
    else { return nil }
    let cost = Cost(ln: numbers[0], r: numbers[1], p: numbers[2])
    return cost.isAllowed ? (cost, salt, key) : nil
  }
}
