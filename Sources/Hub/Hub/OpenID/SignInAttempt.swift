// SPDX-License-Identifier: MIT

import JSON
import MeshCrypto
import PageServer
import UntrustedText

/// The state of a sign-in by OpenID Connect. The browser keeps it, because the provider may redirect the browser to any hub.
///
/// It is in a cookie that scripts cannot read, signed with a key of the database: the hub ends a sign-in that did not begin at a hub of this
/// database, without a request to the provider. A stolen cookie is useless without the code that the provider gives to the person.
struct SignInAttempt: Equatable, Sendable {
  static let cookie = "meshpost_oidc"
  /// Most seconds between the beginning and the end of a sign-in.
  static let longest: Int64 = 600
  private static let mostBytes = 2048
  private static let mostBackBytes = 512

  /// Three random values: `state` returns in the address, `nonce` in the token, and `verifier` proves to the provider that the same client began the
  /// sign-in.
  let state: String
  let nonce: String
  let verifier: String
  /// The path to return to, on this host.
  let back: String
  /// Milliseconds since 1970.
  let begunAt: Int64

  init(back: String?, at now: Int64) {
    (state, nonce, verifier) = (WebSessions.token(), WebSessions.token(), WebSessions.token())
    self.back = Self.own(back) ?? "/"
    begunAt = now
  }

  /// `nil`: the cookie is invalid, has another key's signature, or is too old.
  init?(_ cookie: String, key: [UInt8], at now: Int64) {
    let parts = cookie.pieces(at: ".")
    // `try?`: invalid JSON is no journey.
    guard cookie.utf8.count <= Self.mostBytes, parts.count == 2,
      WebSessions.isSame(String(parts[1]), Self.signature(String(parts[0]), key)),
      let bytes = Base64.decodeFromURL(String(parts[0])), let json = try? JSONValue(parsing: bytes),
      let state = json["state"]?.string, state.utf8.count == 64,
      let nonce = json["nonce"]?.string, nonce.utf8.count == 64, let verifier = json["verifier"]?.string,
      verifier.utf8.count == 64, let back = Self.own(json["back"]?.string), let begunAt = json["at"]?.count,
      begunAt <= now, now - begunAt <= Self.longest * 1000
    else { return nil }
    (self.state, self.nonce, self.verifier, self.back, self.begunAt) = (state, nonce, verifier, back, begunAt)
  }

  func cookie(key: [UInt8]) -> String {
    let words = Base64.encodeForURL(
      JSONWriter.object(["state": state, "nonce": nonce, "verifier": verifier, "back": back, "at": begunAt]))
    return "\(words).\(Self.signature(words, key))"
  }

  private static func signature(_ words: String, _ key: [UInt8]) -> String {
    Base64.encodeForURL(Digest.hmacSHA256(key: key, Array(words.utf8)))
  }

  /// RFC 7636 § 4.2.
  var challenge: String { Base64.encodeForURL(Digest.sha256(Array(verifier.utf8))) }

  /// A path of this host: browsers take `//evil.example` and `/\evil.example` for other hosts.
  static func own(_ path: String?) -> String? {
    guard let path, path.utf8.count <= mostBackBytes, path.begins(with: "/"), !path.begins(with: "//"),
      path.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") })
    else { return nil }
    return path
  }
}
