// SPDX-License-Identifier: MIT

import HTTP
import JSON
import TOML
import UntrustedText

/// `[web.oidc]` of hub.toml: signing in with an OpenID Connect provider.
public struct OpenIDSettings: Sendable, Equatable {
  /// The issuer exactly as the provider writes it.
  public var issuer: String
  public var clientID: String
  /// A file with the client's secret in its first line; `nil`: the client has none, and only PKCE protects the code.
  public var secretFile: String?
  /// The provider's name on the button.
  public var name: String
  public var scopes: [String]
  /// The claim with a new person's name.
  public var nameClaim: String
  /// The claim with keys of `roles`: its name, or names with dots between them for nested claims.
  public var roleClaim: String?
  public var roles: [String: HubPerson.Role]
  /// The role of people without any of the names in `roles`; `nil`: they are refused.
  public var defaultRole: HubPerson.Role?
  /// A PEM file with the authorities to trust instead of the system's.
  public var authorities: String?
  /// Hours after which a session ends even if it is used: until then the provider is not asked about the person's role.
  public var sessionHours: Int64

  private static let none = "none"

  init(_ table: inout TOMLReader) {
    issuer = table.string("issuer") ?? ""
    clientID = table.string("client_id") ?? ""
    secretFile = table.string("client_secret_file")
    name = table.string("name") ?? "OpenID Connect"
    scopes = table.optionalStrings("scopes") ?? ["openid", "profile"]
    nameClaim = table.string("name_claim") ?? "preferred_username"
    roleClaim = table.string("role_claim")
    authorities = table.string("ca_file")
    sessionHours = table.integer("session_hours", in: 1...720, default: 12)
    let allowed = HubPerson.Role.allCases.map(\.rawValue)
    defaultRole = HubPerson.Role(
      rawValue: table.choice("default_role", of: [Self.none] + allowed, default: Self.none))
    roles = [:]
    var words = table.table("roles")
    for word in words.keys {
      roles[word] = HubPerson.Role(rawValue: words.choice(word, of: allowed, default: allowed[0]))
    }
    words.finish()
    table.note(from: words)
    if !Self.isAllowed(issuer) {
      table.note("issuer", "\"\(issuer)\" is not allowed: expected the provider's address, with https://")
    }
    if clientID.isEmpty { table.note("client_id", "client_id is missing") }
    if !scopes.contains("openid") || !scopes.allSatisfy(Self.isScope) {
      table.note("scopes", "expected words, \"openid\" among them")
    }
    if !(1...64).contains(name.utf8.count) { table.note("name", "1 to 64 bytes") }
    if roles.isEmpty != (roleClaim == nil) { table.note("roles", "role_claim and roles go together") }
    if roles.isEmpty, defaultRole == nil {
      table.note("default_role", "nobody could come in: set default_role, or role_claim and roles")
    }
    table.finish()
  }

  /// https, or an address of this machine: secrets must reach the provider alone.
  static func isAllowed(_ url: String) -> Bool {
    guard let (endpoint, _) = HTTPEndpoint.parse(url, allowsQuery: true), case .tcp(let host, _, let tls) = endpoint
    else { return false }
    return tls || HTTPEndpoint.isThisMachine(host)
  }

  private static func isScope(_ word: String) -> Bool {
    !word.isEmpty && word.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }
  }

  /// Read at each use, so that it can be replaced while the hub runs.
  var secret: String? { secretFile.flatMap { HubConfiguration.firstLine(of: $0) } }

  /// The highest role that these claims give, or the default role; `nil`: none.
  func role(of claims: JSONValue) -> HubPerson.Role? {
    let found = roleClaim.map { words(claims.claim($0)) } ?? []
    let given = found.compactMap { word in roles.first { $0.key.isExactly(word) }?.value }
    return HubPerson.Role.allCases.last { given.contains($0) } ?? defaultRole
  }

  /// A claim may be one word or a list of words.
  private func words(_ claim: JSONValue?) -> [String] {
    if let one = claim?.string { return [one] }
    return claim?.array?.compactMap(\.string) ?? []
  }

  /// A new person's name: the claim, with forbidden characters replaced; without it the address or the subject.
  func personName(of claims: JSONValue) -> String {
    for wanted in [claims[nameClaim]?.string, claims["email"]?.string, claims["sub"]?.string] {
      let bytes: [UInt8] = (wanted ?? "").utf8.prefix(64).map { byte in
        byte.isLetterOrDigit || "._-".utf8.contains(byte) ? byte : UInt8(ascii: "-")
      }
      // A name needs a letter or a digit, and none begins with `-`.
      if bytes.contains(where: \.isLetterOrDigit) {
        return String(decoding: bytes.drop { $0 == UInt8(ascii: "-") }, as: UTF8.self)
      }
    }
    return "somebody"
  }
}
