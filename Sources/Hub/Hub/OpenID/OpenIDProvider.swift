// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import HTTP
import JSON
import Synchronization
import UntrustedText

/// A provider that identifies people (OpenID Connect Core 1.0 § 3.1: the authorization code flow, with PKCE, RFC 7636).
actor OpenIDProvider {
  /// The lifetime of the cached description and keys.
  private static let memory: Duration = .seconds(3600)
  /// Shortest pause between two requests for keys, also for tokens with unknown keys.
  private static let keyPause: Duration = .seconds(60)
  /// Bytes of a provider's answer in the log.
  fileprivate static let shownBytes = 200

  /// The provider's description of itself (OpenID Connect Discovery 1.0 § 3).
  struct Metadata: Sendable {
    let authorization: String
    let token: String
    let keys: String
    let userInfo: String?
    /// Whether the client's secret goes into the body, because the provider does not accept it in a header.
    let postsSecret: Bool
  }

  nonisolated let settings: OpenIDSettings
  /// The address to which the provider sends browsers back.
  nonisolated let callback: String
  private nonisolated let turns = OpenIDProvider.turns()
  private var metadata: (metadata: Metadata, at: ContinuousClock.Instant)?
  private var keys: (keys: [WebKey], at: ContinuousClock.Instant)?

  init(_ settings: OpenIDSettings, callback: String) { (self.settings, self.callback) = (settings, callback) }

  /// The claims about the person who signed in. The error is the reason why there are none, or why they are not trusted.
  nonisolated func claims(
    code: String, _ attempt: SignInAttempt, from address: String
  ) async throws(OpenIDFailure) -> JSONValue {
    try await limited(address) { () async throws(OpenIDFailure) in try await self.exchange(code, attempt) }
  }

  /// The address where a browser signs in.
  nonisolated func address(_ attempt: SignInAttempt, from address: String) async throws(OpenIDFailure) -> String {
    let metadata = try await limited(address) { () async throws(OpenIDFailure) in try await self.fetchMetadata() }
    let query = ProviderRequest.encode([
      ("response_type", "code"), ("client_id", settings.clientID), ("redirect_uri", callback),
      ("scope", settings.scopes.joined(separator: " ")), ("state", attempt.state), ("nonce", attempt.nonce),
      ("code_challenge", attempt.challenge), ("code_challenge_method", "S256"),
    ])
    return metadata.authorization + (metadata.authorization.has("?") ? "&" : "?") + query
  }

  /// Simultaneous requests to the provider: a few in total, fewer from one address; the others wait. Many requests delay other people on the same
  /// address, which may be an office or a whole carrier, but do not cause refusals later.
  static func turns() -> FairPool<Void> {
    FairPool([Void](repeating: (), count: 8), mostOfOne: 2, mostWaitingOfOne: 32, mostWaiting: 256)
  }

  private nonisolated func limited<Value: Sendable>(
    _ address: String, _ work: @Sendable () async throws(OpenIDFailure) -> Value
  ) async throws(OpenIDFailure) -> Value {
    do {
      try await turns.take(for: address)
    } catch {
      throw .busy
    }
    defer { turns.giveBack((), of: address) }
    return try await work()
  }

  // MARK: The description

  private func fetchMetadata() async throws(OpenIDFailure) -> Metadata {
    if let metadata, .now - metadata.at < Self.memory { return metadata.metadata }
    var issuer = settings.issuer.utf8[...]
    while issuer.last == UInt8(ascii: "/") { issuer.removeLast() }
    let json = try await object(String(decoding: issuer, as: UTF8.self) + "/.well-known/openid-configuration")
    let found = try Metadata(json, issuer: settings.issuer)
    metadata = (found, .now)
    return found
  }

  /// The provider's keys. It fetches them again if the named key is missing: providers replace their keys.
  private func keys(_ metadata: Metadata, naming id: String?) async throws(OpenIDFailure) -> [WebKey] {
    if let keys, .now - keys.at < Self.memory {
      let hasIt = id.map { id in keys.keys.contains { $0.id?.isExactly(id) ?? true } } ?? true
      if hasIt || .now - keys.at < Self.keyPause { return keys.keys }
    }
    let found = WebKey.keys(try await object(metadata.keys))
    guard !found.isEmpty else { throw .unavailable("it has no keys that are known here: RSA, P-256, Ed25519") }
    keys = (found, .now)
    return found
  }

  // MARK: A code

  private func exchange(_ code: String, _ attempt: SignInAttempt) async throws(OpenIDFailure) -> JSONValue {
    let metadata = try await fetchMetadata()
    var form = [
      ("grant_type", "authorization_code"), ("code", code), ("redirect_uri", callback),
      ("code_verifier", attempt.verifier),
    ]
    var authorization: String?
    if let secret = settings.secret, !metadata.postsSecret {
      // Both are encoded first (RFC 6749 § 2.3.1).
      let words = "\(PercentCoding.encode(settings.clientID)):\(PercentCoding.encode(secret))"
      authorization = "Basic \(Data(words.utf8).base64EncodedString())"
    } else {
      form.append(("client_id", settings.clientID))
      if let secret = settings.secret { form.append(("client_secret", secret)) }
    }
    let answer = try await ProviderRequest(
      url: metadata.token, form: form, authorization: authorization, authorities: settings.authorities
    ).send()
    // `try?`: an answer that is not JSON has no token.
    let json = try? JSONValue(parsing: answer.body)
    guard answer.status == 200, let token = json?["id_token"]?.string else {
      let words = json?["error"]?.string?.cut(toBytes: Self.shownBytes) ?? "status \(answer.status) without an ID token"
      if answer.status >= 500 { throw .unavailable(words) }
      throw .refused(words)
    }
    let keys = try await keys(metadata, naming: IDToken.keyID(token))
    let claims = try IDToken.claims(
      token, keys,
      IDToken.Expected(
        issuer: settings.issuer, clientID: settings.clientID, nonce: attempt.nonce, now: HubClock.now / 1000))
    return try await addUserInfo(claims, metadata, json?["access_token"]?.string)
  }

  /// Adds claims of the user info endpoint: some providers give names and groups only there (§ 5.3).
  private func addUserInfo(
    _ claims: JSONValue, _ metadata: Metadata, _ access: String?
  ) async throws(OpenIDFailure) -> JSONValue {
    let wanted = [settings.nameClaim] + (settings.roleClaim.map { [$0] } ?? [])
    guard wanted.contains(where: { claims.claim($0) == nil }), let url = metadata.userInfo, let access,
      access.utf8.count <= IDToken.mostBytes, access.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
    else { return claims }
    let more = try await object(url, authorization: "Bearer \(access)")
    guard let subject = more["sub"]?.string, claims["sub"]?.string?.isExactly(subject) == true else {
      throw .untrusted("it tells of somebody else")
    }
    // Of two fields with the same name the later one counts: the signed claim.
    return .object((more.fields ?? []) + (claims.fields ?? []))
  }

  private func object(_ url: String, authorization: String? = nil) async throws(OpenIDFailure) -> JSONValue {
    let answer = try await ProviderRequest(
      url: url, authorization: authorization, authorities: settings.authorities
    ).send()
    // `try?`: the error says that it is not JSON.
    guard answer.status == 200, let value = try? JSONValue(parsing: answer.body), value.fields != nil else {
      throw .unavailable("\(url) answers \(answer.status), or no JSON object")
    }
    return value
  }
}

extension OpenIDProvider.Metadata {
  /// `issuer`: as the settings have it.
  init(_ json: JSONValue, issuer: String) throws(OpenIDFailure) {
    guard let named = json["issuer"]?.string, named.isExactly(issuer) else {
      let named = json["issuer"]?.string?.cut(toBytes: OpenIDProvider.shownBytes) ?? "nothing"
      throw .unavailable("it calls itself \(named), and web.oidc.issuer is \(issuer)")
    }
    func address(_ name: String) throws(OpenIDFailure) -> String {
      guard let url = json[name]?.string, OpenIDSettings.isAllowed(url) else {
        throw .unavailable("it names no \(name) with https://")
      }
      return url
    }
    // A header is the default (§ 3).
    let ways = json["token_endpoint_auth_methods_supported"]?.array?.compactMap(\.string) ?? ["client_secret_basic"]
    self.init(
      authorization: try address("authorization_endpoint"), token: try address("token_endpoint"),
      keys: try address("jwks_uri"),
      userInfo: json["userinfo_endpoint"] == nil ? nil : try address("userinfo_endpoint"),
      postsSecret: !ways.contains("client_secret_basic") && ways.contains("client_secret_post"))
  }
}

/// A request to a provider.
struct ProviderRequest: Sendable {
  let url: String
  /// The fields of a POST; `nil`: it is a GET.
  var form: [(String, String)]?
  var authorization: String?
  /// A PEM file with the authorities to trust instead of the system's.
  let authorities: String?

  func send() async throws(OpenIDFailure) -> HTTPResponse {
    var headers: HTTPHeaders = ["Accept": "application/json"]
    if let authorization { headers.add("Authorization", authorization) }
    if form != nil { headers.add("Content-Type", "application/x-www-form-urlencoded") }
    let request = OutgoingRequest(
      method: form == nil ? "GET" : "POST", url: url, headers: headers,
      body: form.map { Array(Self.encode($0).utf8) } ?? [], authorities: authorities)
    do {
      return try await request.send()
    } catch {
      throw .unavailable("\(url)\(error.words)")
    }
  }

  static func encode(_ fields: [(String, String)]) -> String {
    fields.map { "\(PercentCoding.encode($0))=\(PercentCoding.encode($1))" }.joined(separator: "&")
  }
}
