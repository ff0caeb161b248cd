// SPDX-License-Identifier: MIT

import MeshCrypto
import Synchronization

/// Access control. Tokens can be replaced while the hub runs: it accepts old and new ones until the old are removed.
final class HubAccess: Sendable {
  /// An operation on a gateway.
  enum Deed: Sendable {
    case read
    /// Operations of the gateway itself: sending its journal, fetching updates.
    case write
    /// Operations of operators: commands, documents.
    case command
    /// Metrics, of all gateways together.
    case measure
    /// People and tokens.
    case administer
  }

  /// Why something was allowed, which is looked at again while it lasts.
  struct Grant: Equatable, Sendable {
    enum Proof: Equatable, Sendable {
      /// The token's digest.
      case token([UInt8])
      /// The token of a session in the pages.
      case session(String)
    }

    /// The token's name, or the person's.
    let name: String
    let proof: Proof
    /// `nil` for what concerns all of them.
    let gateway: String?
    let deed: Deed

    /// The name under which a connection is counted.
    var holder: String { "\(name)/\(gateway ?? "")" }
  }

  enum Verdict: Equatable, Sendable {
    case allowed(Grant)
    case unknown(String)
    /// The token's name.
    case forbidden(String)
  }

  private struct Keys {
    var tokens: [HubConfiguration.Token]
    /// Milliseconds since 1970; `nil`: not since these tokens count.
    var usedAt: [Int64?]
    /// Places of tokens. Looking digests up reveals neither content nor length of a token by timing.
    var places: [[UInt8]: [Int]] = [:]

    init(_ tokens: [HubConfiguration.Token]) {
      self.tokens = tokens
      usedAt = tokens.map { _ in nil }
      for (place, token) in tokens.enumerated() {
        for secret in token.secrets { places[Digest.sha256(Array(secret.utf8)), default: []].append(place) }
      }
    }

    func fitting(_ digest: [UInt8], _ gateway: String?, _ deed: Deed) -> Int? {
      places[digest]?.first { place in
        let token = tokens[place]
        return (token.gateway == "*" || token.gateway == gateway) && token.access.allows(deed)
      }
    }
  }

  private let keys: Mutex<Keys>

  init(_ tokens: [HubConfiguration.Token]) { keys = Mutex(Keys(tokens)) }

  /// From now on these count.
  func replace(with fresh: [HubConfiguration.Token]) {
    let fresh = Keys(fresh)
    keys.withLock { $0 = fresh }
  }

  /// What there are, without their secrets.
  var list: [(name: String, gateway: String, access: HubConfiguration.Access, usedAt: Int64?)] {
    keys.withLock { keys in zip(keys.tokens, keys.usedAt).map { ($0.name, $0.gateway, $0.access, $1) } }
  }

  /// `gateway`: `nil` for what concerns all of them.
  func check(_ authorization: String?, gateway: String?, _ deed: Deed) -> Verdict {
    let scheme = Array("bearer ".utf8)
    guard let sent = authorization.map({ Array($0.utf8) }), sent.count > scheme.count,
      zip(sent, scheme).allSatisfy({ $0 | 0x20 == $1 })
    else { return .unknown("a bearer token is required") }
    let digest = Digest.sha256(Array(sent.dropFirst(scheme.count)))
    let now = HubClock.now
    return keys.withLock { keys in
      guard let places = keys.places[digest], let first = places.first else { return .unknown("unknown token") }
      for place in places { keys.usedAt[place] = now }
      guard let place = keys.fitting(digest, gateway, deed) else { return .forbidden(keys.tokens[first].name) }
      return .allowed(Grant(name: keys.tokens[place].name, proof: .token(digest), gateway: gateway, deed: deed))
    }
  }

  /// Whether a token still allows it. Sessions are looked at by `Revocation`.
  func allows(_ grant: Grant) -> Bool {
    guard case .token(let digest) = grant.proof else { return true }
    return keys.withLock { $0.fitting(digest, grant.gateway, grant.deed) != nil }
  }
}

extension HubConfiguration.Access {
  fileprivate func allows(_ deed: HubAccess.Deed) -> Bool {
    switch deed {
    case .read: self != .metrics
    case .measure: true
    case .administer: self == .all
    case .write: self == .write || self == .all
    case .command: self == .command || self == .all
    }
  }
}
