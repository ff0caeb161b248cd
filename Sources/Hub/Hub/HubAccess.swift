// SPDX-License-Identifier: MIT

import MeshCrypto
import Synchronization

/// Access control. Tokens can be replaced while the hub runs: it accepts old and new ones until the old ones are removed.
final class HubAccess: Sendable {
  /// An operation on a gateway or on the hub.
  enum Operation: Sendable {
    case read
    /// Asking how much of a gateway's journal is stored.
    case greet
    /// Operations of the gateway itself: sending its journal, fetching updates.
    case write
    /// Operations of operators: commands, documents.
    case command
    /// Metrics of all gateways together.
    case measure
    /// People, tokens and the audit.
    case administer
  }

  /// The reason for which an operation is allowed. The hub checks it again while the operation lasts.
  struct Grant: Equatable, Sendable {
    enum Proof: Equatable, Sendable {
      /// The token's digest.
      case token([UInt8])
      /// The token of a session in the pages.
      case session(String)
    }

    let name: String
    let proof: Proof
    /// `nil` for operations on all gateways.
    let gateway: String?
    let operation: Operation

    /// The name under which a connection is counted.
    var holder: String { "\(name)/\(gateway ?? "")" }
  }

  enum Verdict: Equatable, Sendable {
    case allowed(Grant)
    /// Allowed after the token is bound to the gateway (`bind`).
    case unbound(Grant)
    case unknown(String)
    case forbidden(String)
  }

  struct TokenUse: Sendable {
    var token: HubConfiguration.Token
    /// Milliseconds since 1970; `nil`: not used since it was configured.
    var usedAt: Int64?
    /// The gateways to which a token for any gateway is bound.
    var gateways: [String] = []
  }

  private struct Keys {
    var tokens: [HubConfiguration.Token]
    /// Milliseconds since 1970; `nil`: not used since these tokens were loaded.
    var usedAt: [Int64?]
    /// Indices of tokens by digest. Looking digests up reveals neither content nor length of a token by timing.
    var indices: [[UInt8]: [Int]] = [:]
    /// Gateways with a token of their own.
    var ownTokens: Set<String> = []
    /// The gateways of tokens for any gateway, by the tokens' digests in hex, as in the database.
    var bindings: [String: Set<String>] = [:]

    init(_ tokens: [HubConfiguration.Token]) {
      self.tokens = tokens
      usedAt = tokens.map { _ in nil }
      for (index, token) in tokens.enumerated() {
        for secret in token.secrets { indices[Digest.sha256(Array(secret.utf8)), default: []].append(index) }
        if token.gateway != "*", token.access.allows(.write) { ownTokens.insert(token.gateway) }
      }
    }

    /// Whether the hub binds the token to the first gateway that uses it.
    static func bindsFirstGateway(_ token: HubConfiguration.Token) -> Bool {
      token.gateway == "*" && token.access == .write
    }

    /// Whether this gateway may use the token at an index without a new binding.
    func isBound(_ digest: [UInt8], at index: Int, _ gateway: String?) -> Bool {
      guard Self.bindsFirstGateway(tokens[index]), let gateway else { return true }
      return bindings[digest.hex]?.contains(gateway) == true
    }

    /// The digests of all tokens that the hub binds to their first gateway, with the tokens' indices.
    var binding: [String: Int] {
      var found: [String: Int] = [:]
      for (digest, indices) in indices {
        if let index = indices.first(where: { Self.bindsFirstGateway(tokens[$0]) }) {
          found[digest.hex] = index
        }
      }
      return found
    }

    func matching(_ digest: [UInt8], _ gateway: String?, _ operation: Operation) -> Int? {
      let matching = (indices[digest] ?? []).filter { index in
        let token = tokens[index]
        return (token.gateway == "*" || token.gateway == gateway) && token.access.allows(operation)
      }
      return matching.first { tokens[$0].gateway == gateway } ?? matching.first
    }
  }

  private let keys: Mutex<Keys>

  init(_ tokens: [HubConfiguration.Token]) { keys = Mutex(Keys(tokens)) }

  func replace(with fresh: [HubConfiguration.Token]) {
    var fresh = Keys(fresh)
    keys.withLock { keys in
      fresh.bindings = keys.bindings
      keys = fresh
    }
  }

  var list: [TokenUse] {
    keys.withLock { keys in
      var uses = zip(keys.tokens, keys.usedAt).map { TokenUse(token: $0, usedAt: $1) }
      for (digest, index) in keys.binding { uses[index].gateways += (keys.bindings[digest] ?? []).sorted() }
      return uses
    }
  }

  /// Whether a token is for this gateway alone or is bound to it, so that the gateway may connect later.
  func expects(_ gateway: String) -> Bool {
    keys.withLock { keys in
      keys.tokens.contains { $0.gateway == gateway } || keys.bindings.values.contains { $0.contains(gateway) }
    }
  }

  /// The same, also if another hub on the database has bound the token since this one read the bindings.
  func expects(_ gateway: String, in store: HubStore) async throws -> Bool {
    if expects(gateway) { return true }
    return try await store.isBound(gateway)
  }

  /// Gateways with a token of their own, and digests of the tokens that the hub binds to their first gateway.
  var tokenHolders: (own: Set<String>, tokens: Set<String>) { keys.withLock { ($0.ownTokens, Set($0.binding.keys)) } }

  static let unknownToken = Verdict.unknown("unknown token")

  /// `gateway`: `nil` for operations on all gateways.
  func check(_ authorization: String?, gateway: String?, _ operation: Operation) -> Verdict {
    let scheme = Array("bearer ".utf8)
    guard let sent = authorization.map({ Array($0.utf8) }), sent.count > scheme.count,
      zip(sent, scheme).allSatisfy({ $0 | 0x20 == $1 })
    else { return .unknown("a bearer token is required") }
    let digest = Digest.sha256(Array(sent.dropFirst(scheme.count)))
    let now = HubClock.now
    return keys.withLock { keys in
      guard let indices = keys.indices[digest], let first = indices.first else { return Self.unknownToken }
      for index in indices { keys.usedAt[index] = now }
      guard let index = keys.matching(digest, gateway, operation) else { return .forbidden(keys.tokens[first].name) }
      let grant = Grant(name: keys.tokens[index].name, proof: .token(digest), gateway: gateway, operation: operation)
      return keys.isBound(digest, at: index, gateway) ? .allowed(grant) : .unbound(grant)
    }
  }

  /// The tokens' gateways, as the database has them.
  func load(_ bindings: [TokenBinding]) {
    keys.withLock { keys in
      keys.bindings = [:]
      for binding in bindings { keys.bindings[binding.token, default: []].insert(binding.gateway) }
    }
  }

  /// Binds a token for any gateway to this gateway, for good. Returns the reason of a refusal.
  func bind(_ grant: Grant, in stores: HubStores) async throws -> String? {
    guard case .token(let digest) = grant.proof, let gateway = grant.gateway else { return nil }
    let wanted = TokenBinding(token: digest.hex, gateway: gateway)
    let (own, tokens) = tokenHolders
    let hasOwn = own.contains(gateway)
    // A refused gateway costs a query of an index, and no write.
    var eligibility = try await stores.lookups.eligibility(of: wanted, hasOwn: hasOwn, tokens: tokens)
    if eligibility == .free {
      eligibility = try await stores.writer.bind(wanted, hasOwn: hasOwn, tokens: tokens, at: HubClock.now)
    }
    if case .refused(let reason) = eligibility { return reason }
    let isNew = keys.withLock { $0.bindings[wanted.token, default: []].insert(gateway).inserted }
    if isNew { HubLog.write(.notice, "the token \(grant.name) belongs to \(gateway) from now on") }
    return nil
  }

  /// Whether a token still allows the operation. `HubWeb.endRevoked` checks sessions.
  func allows(_ grant: Grant) -> Bool {
    guard case .token(let digest) = grant.proof else { return true }
    return keys.withLock { keys in
      keys.matching(digest, grant.gateway, grant.operation).map { keys.isBound(digest, at: $0, grant.gateway) } ?? false
    }
  }
}

extension HubConfiguration.Access {
  fileprivate func allows(_ operation: HubAccess.Operation) -> Bool {
    switch operation {
    case .read: self == .read || self == .command || self == .all
    case .greet: self != .metrics
    case .measure: self != .write
    case .administer: self == .all
    case .write: self == .write || self == .all
    case .command: self == .command || self == .all
    }
  }
}
