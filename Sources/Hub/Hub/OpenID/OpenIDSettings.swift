// SPDX-License-Identifier: MIT

import HTTP
import JSON
import TOML
import UntrustedText

/// `[web.oidc]` of hub.toml: people whom an OpenID Connect provider knows.
public struct OpenIDSettings: Sendable, Equatable {
  /// The issuer exactly as the provider writes it.
  public var issuer: String
  public var clientID: String
  /// With the client's secret in the first line; `nil`: the client has none, and PKCE alone shows that it is the one that began.
  public var secretFile: String?
  /// What the button says.
  public var name: String
  public var scopes: [String]
  /// The claim that a new person is called by.
  public var nameClaim: String
  /// The claim with words of `roles`: its name, or names with dots between where claims lie in one another.
  public var roleClaim: String?
  public var roles: [String: HubPerson.Role]
  /// Role of people without any of the names in `roles`; `nil`: they are refused.
  public var defaultRole: HubPerson.Role?
  /// PEM with authorities to trust instead of the system's.
  public var authorities: String?
  /// A session ends after so many hours, used or not: until then nobody asks the provider about somebody's role.
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

  /// https, or this machine: what goes there must come to the provider alone.
  static func isAllowed(_ url: String) -> Bool {
    guard let (endpoint, _) = HTTPEndpoint.parse(url, allowsQuery: true), case .tcp(let host, _, let tls) = endpoint
    else { return false }
    return tls || HTTPEndpoint.isThisMachine(host)
  }

  private static func isScope(_ word: String) -> Bool {
    !word.isEmpty && word.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }
  }

  /// Read each time: it can be exchanged while the hub runs.
  var secret: String? {
    guard let secretFile else { return nil }
    let line = HubConfiguration.contents(of: secretFile).split(whereSeparator: \.isNewline).first.map(String.init)
    return line?.isEmpty == false ? line : nil
  }

  /// The highest role that these claims give; `nil`: none.
  func role(of claims: JSONValue) -> HubPerson.Role? {
    let found = roleClaim.map { words(claims.claim($0)) } ?? []
    let given = found.compactMap { word in roles.first { $0.key.isExactly(word) }?.value }
    return HubPerson.Role.allCases.last { given.contains($0) } ?? defaultRole
  }

  /// A claim may be one word or a list of them.
  private func words(_ claim: JSONValue?) -> [String] {
    if let one = claim?.string { return [one] }
    return claim?.array?.compactMap(\.string) ?? []
  }

  /// What somebody new is called: the claim, with what names may not have replaced, else what the provider knows them by.
  func personName(of claims: JSONValue) -> String {
    for wanted in [claims[nameClaim]?.string, claims["email"]?.string, claims["sub"]?.string] {
      let bytes = (wanted ?? "").utf8.map { byte in
        Name.isAllowed(String(decoding: [byte], as: UTF8.self)) ? byte : UInt8(ascii: "-")
      }
      // Not of signs alone.
      let name = String(decoding: bytes.prefix(64), as: UTF8.self)
      if name.utf8.contains(where: { ($0 | 0x20) >= 0x61 && ($0 | 0x20) <= 0x7A || (0x30...0x39).contains($0) }) {
        return name
      }
    }
    return "somebody"
  }
}
