// SPDX-License-Identifier: MIT

import JSON
import MeshCrypto
import PageServer
import UntrustedText

/// What a browser takes along to a provider and back: it comes back to whichever hub, so none has to keep it.
///
/// It is in a cookie that scripts cannot read, with a signature by a key of the database: what nobody began here ends here, and costs the
/// provider nothing. Whoever has the cookie has what they began themselves: without the code that the provider gives to who signs in there,
/// nothing comes of it.
struct OpenIDJourney: Equatable, Sendable {
  static let cookie = "meshpost_oidc"
  /// Signing in at a provider may take so long.
  static let longest: Int64 = 600
  private static let mostBytes = 2048
  private static let mostBackBytes = 512

  /// Three times chance: comes back in the address; comes back in the token; shows the provider that it is the one who began.
  let state: String
  let nonce: String
  let verifier: String
  /// A path of our own.
  let back: String
  /// Milliseconds since 1970.
  let begunAt: Int64

  init(back: String?, at now: Int64) {
    (state, nonce, verifier) = (WebSessions.token(), WebSessions.token(), WebSessions.token())
    self.back = Self.own(back) ?? "/"
    begunAt = now
  }

  /// `nil`: it is none, was not signed with this key, or was begun too long ago.
  init?(_ cookie: String, key: [UInt8], at now: Int64) {
    let parts = cookie.pieces(at: ".")
    // `try?`: what is no JSON is no journey.
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
      JSONWriter.object { json in
        json.field("state", state)
        json.field("nonce", nonce)
        json.field("verifier", verifier)
        json.field("back", back)
        json.field("at", begunAt)
      })
    return "\(words).\(Self.signature(words, key))"
  }

  private static func signature(_ words: String, _ key: [UInt8]) -> String {
    Base64.encodeForURL(Digest.hmacSHA256(key: key, Array(words.utf8)))
  }

  /// RFC 7636 § 4.2.
  var challenge: String { Base64.encodeForURL(Digest.sha256(Array(verifier.utf8))) }

  /// A path of this host: `//evil.example` and `/\evil.example` are others to browsers.
  static func own(_ path: String?) -> String? {
    guard let path, path.utf8.count <= mostBackBytes, path.begins(with: "/"), !path.begins(with: "//"),
      path.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") })
    else { return nil }
    return path
  }
}
