// SPDX-License-Identifier: MIT

import MeshCrypto
import Synchronization

/// Access control. Tokens can be replaced while the hub runs: it accepts old and new ones until the old are removed.
public final class HubAccess: Sendable {
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

  enum Verdict: Equatable, Sendable {
    /// The token's name.
    case allowed(String)
    case unknown(String)
    /// The token's name.
    case forbidden(String)
  }

  /// A token to look up. Comparing digests does not reveal its content or length by timing.
  private struct Key {
    let token: HubConfiguration.Token
    /// Milliseconds since 1970; `nil`: not since the hub began.
    var usedAt: Int64?
    let digests: [[UInt8]]

    init(_ token: HubConfiguration.Token) {
      self.token = token
      digests = token.secrets.map { Digest.sha256(Array($0.utf8)) }
    }
  }

  private let keys: Mutex<[Key]>

  init(_ tokens: [HubConfiguration.Token]) { keys = Mutex(tokens.map(Key.init)) }

  /// From now on these count.
  public func replace(with fresh: [HubConfiguration.Token]) {
    let fresh = fresh.map(Key.init)
    keys.withLock { $0 = fresh }
  }

  /// What there are, without their secrets.
  var list: [(name: String, gateway: String, access: HubConfiguration.Access, usedAt: Int64?)] {
    keys.withLock { keys in keys.map { ($0.token.name, $0.token.gateway, $0.token.access, $0.usedAt) } }
  }

  /// `gateway`: `nil` for what concerns all of them.
  func check(_ authorization: String?, gateway: String?, _ deed: Deed) -> Verdict {
    let scheme = Array("bearer ".utf8)
    guard let sent = authorization.map({ Array($0.utf8) }), sent.count > scheme.count,
      zip(sent, scheme).allSatisfy({ $0 | 0x20 == $1 })
    else { return .unknown("a bearer token is required") }
    let presented = Digest.sha256(Array(sent.dropFirst(scheme.count)))
    let now = HubClock.now
    let matching = keys.withLock { keys in
      // All of them are looked at, whichever it is.
      var matching: [HubConfiguration.Token] = []
      for place in keys.indices where keys[place].digests.filter({ Self.isEqual($0, presented) }).count > 0 {
        keys[place].usedAt = now
        matching.append(keys[place].token)
      }
      return matching
    }
    guard let first = matching.first else { return .unknown("unknown token") }
    let fitting = matching.first { token in
      (token.gateway == "*" || token.gateway == gateway) && token.access.allows(deed)
    }
    return fitting.map { .allowed($0.name) } ?? .forbidden(first.name)
  }

  /// Takes as long for a wrong token as for a right one.
  private static func isEqual(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    guard left.count == right.count else { return false }
    return zip(left, right).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
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
