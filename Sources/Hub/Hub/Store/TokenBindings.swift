// SPDX-License-Identifier: MIT

import SQLite

/// A token for any gateway and the gateway that used it first: the token then belongs to that gateway.
struct TokenBinding: Equatable, Sendable {
  /// The token's digest, in hex.
  var token: String
  var gateway: String
}

extension HubStore {
  /// Stands for the token of gateways without a binding from an older hub: any free token may bind them.
  private static let anyToken = ""
  /// The lock under which hubs that share the database bind tokens.
  static let tokensLock = "meshpost tokens"

  func tokenBindings() throws(HubDatabaseError) -> [TokenBinding] {
    // A token without a gateway has ended.
    let bound = "token <> ?1 AND gateway <> ''"
    return try database.rows("SELECT token, gateway FROM token_gateways WHERE \(bound)", [Self.anyToken]) {
      TokenBinding(token: $0.text(0), gateway: $0.text(1))
    }
  }

  /// Whether a token belongs to this gateway.
  func isBound(_ gateway: String) throws(HubDatabaseError) -> Bool {
    let query = "SELECT count(*) FROM token_gateways WHERE gateway = ?1 AND token <> ?2"
    return try database.number(query, gateway, Self.anyToken) > 0
  }

  /// Whether a gateway may use a token for any gateway.
  enum TokenEligibility: Equatable, Sendable {
    case bound, free
    case refused(String)
  }

  /// `hasOwn`: another token is for that gateway alone. `tokens`: all tokens for any gateway.
  func eligibility(
    of wanted: TokenBinding, hasOwn: Bool, tokens: Set<String>
  ) throws(HubDatabaseError) -> TokenEligibility {
    let gateway = wanted.gateway
    let holders = Set(
      try database.rows("SELECT token FROM token_gateways WHERE gateway = ?1", [gateway]) { $0.text(0) })
    if holders.contains(wanted.token) { return .bound }
    if hasOwn || !holders.isDisjoint(with: tokens) { return .refused("\(gateway) has another token") }
    if holders.contains(Self.anyToken) { return .free }
    if try database.number("SELECT 1 FROM token_gateways WHERE token = ?1", wanted.token) == 1 {
      return .refused("it belongs to another gateway: \(gateway) needs a token of its own")
    }
    // Its events came through a broker, or it has lost its own token: no other token may act for it.
    if holders.isEmpty, try database.number("SELECT 1 FROM gateways WHERE id = ?1", gateway) == 1 {
      return .refused("\(gateway) is known here, and needs a token of its own")
    }
    return .free
  }

  /// Binds a free token to a gateway, for good.
  func bind(
    _ wanted: TokenBinding, hasOwn: Bool, tokens: Set<String>, at now: Int64
  ) throws(HubDatabaseError) -> TokenEligibility {
    try transaction { () throws(HubDatabaseError) -> TokenEligibility in
      try database.lock(Self.tokensLock)
      let eligibility = try eligibility(of: wanted, hasOwn: hasOwn, tokens: tokens)
      guard eligibility == .free else { return eligibility }
      // The gateway's earlier tokens are invalid.
      try database.run("DELETE FROM token_gateways WHERE gateway = ?1", [wanted.gateway])
      try database.insert(into: "token_gateways", ["token": wanted.token, "gateway": wanted.gateway, "bound_at": now])
      return .bound
    }
  }
}
