// SPDX-License-Identifier: MIT

import JSON
import PageServer
import UntrustedText

extension JSONValue {
  /// A claim by its name, or by names with dots between them; a name may contain dots itself.
  func claim(_ path: String) -> JSONValue? {
    if let own = self[path] { return own }
    var found: JSONValue? = self
    for name in path.pieces(at: ".") { found = found?[name] }
    return found
  }
}

/// Why a sign-in by OpenID Connect failed.
enum OpenIDFailure: Error, Equatable, CustomStringConvertible {
  /// The provider cannot be reached, or its answer is unusable.
  case unavailable(String)
  /// The provider or the person refused.
  case refused(String)
  /// The answer fails a check.
  case untrusted(String)
  /// The sign-in began too long ago, or in another browser.
  case late
  case noRole
  case busy

  var description: String {
    switch self {
    case .unavailable(let words): "the provider is not available: \(words)"
    case .refused(let words): "the provider refuses: \(words)"
    case .untrusted(let words): "the provider's answer is not to be trusted: \(words)"
    case .late: "it was begun too long ago, or in another browser"
    case .noRole: "no claim gives a role"
    case .busy: "too many sign in at the same time"
    }
  }

  /// The word for the page, in its address.
  var word: String {
    switch self {
    case .unavailable, .busy: "unavailable"
    case .refused, .untrusted: "refused"
    case .late: "late"
    case .noRole: "no-role"
    }
  }
}

/// The provider's statement about a person (OpenID Connect Core 1.0, § 2). Pure: keys and time are arguments.
enum IDToken {
  static let mostBytes = 64 * 1024
  /// Allowed difference of the clocks, in seconds.
  private static let leeway: Int64 = 60
  /// Greatest age of an ID token in seconds.
  private static let oldest: Int64 = 600

  /// The required contents (§ 3.1.3.7).
  struct Expected: Sendable {
    let issuer: String
    let clientID: String
    let nonce: String
    /// Seconds since 1970.
    let now: Int64
  }

  static func keyID(_ token: String) -> String? {
    let header = token.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false).first
    return header.flatMap { object(String(decoding: $0, as: UTF8.self)) }?["kid"]?.string
  }

  /// The claims of a token, after its signature and required contents have been checked.
  static func claims(
    _ token: String, _ keys: [WebKey], _ expected: Expected
  ) throws(OpenIDFailure) -> JSONValue {
    let parts = token.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
      .map { String(decoding: $0, as: UTF8.self) }
    guard token.utf8.count <= mostBytes, parts.count == 3, let header = object(parts[0]),
      let signature = Base64.decodeFromURL(parts[2])
    else { throw .untrusted("the ID token is no JWT") }
    guard let name = header["alg"]?.string, let algorithm = WebKey.Algorithm(rawValue: name), header["crit"] == nil
    else { throw .untrusted("the ID token is signed by \(header["alg"]?.string?.cut(toBytes: 32) ?? "nothing")") }
    let id = header["kid"]?.string
    let fitting = keys.filter { key in
      guard let id, let own = key.id else { return true }
      return own.isExactly(id)
    }
    let signed = Array("\(parts[0]).\(parts[1])".utf8)
    guard fitting.contains(where: { $0.hasSigned(signed, signature, algorithm) }) else {
      throw .untrusted("the ID token is signed by no key of the provider")
    }
    guard let claims = object(parts[1]) else { throw .untrusted("the ID token has no claims") }
    try check(claims, expected)
    return claims
  }

  static func check(_ claims: JSONValue, _ expected: Expected) throws(OpenIDFailure) {
    guard claims["iss"]?.string?.isExactly(expected.issuer) == true else {
      throw .untrusted("the ID token is of another issuer")
    }
    let audience = claims["aud"]?.array?.map(\.string) ?? [claims["aud"]?.string]
    guard audience.contains(where: { $0?.isExactly(expected.clientID) == true }) else {
      throw .untrusted("the ID token is for another client")
    }
    let party = claims["azp"]
    guard party == nil && audience.count == 1 || party?.string?.isExactly(expected.clientID) == true else {
      throw .untrusted("the ID token was given to another client")
    }
    guard let end = seconds(claims["exp"]), end + leeway > expected.now else { throw .untrusted("the ID token is old") }
    guard let made = seconds(claims["iat"]), made <= expected.now + leeway, made >= expected.now - oldest,
      claims["nbf"].map({ seconds($0).map { $0 <= expected.now + leeway } ?? false }) ?? true
    else { throw .untrusted("the ID token was made at another time: compare the clocks") }
    guard let nonce = claims["nonce"]?.string, WebSessions.isSame(nonce, expected.nonce) else {
      throw .untrusted("the ID token is of another sign-in")
    }
    guard let subject = claims["sub"]?.string, (1...255).contains(subject.utf8.count) else {
      throw .untrusted("the ID token names nobody")
    }
  }

  /// Some providers write fractions of a second.
  private static func seconds(_ value: JSONValue?) -> Int64? {
    value?.number.flatMap { (0...1e12).contains($0) ? Int64($0) : nil }
  }

  private static func object(_ part: String) -> JSONValue? {
    // `try?`: a part that is not JSON is invalid.
    guard let bytes = Base64.decodeFromURL(part), let value = try? JSONValue(parsing: bytes), value.fields != nil
    else { return nil }
    return value
  }
}
