// SPDX-License-Identifier: MIT

import Synchronization

/// Who may do what. Tokens can be exchanged while the hub runs: it knows old and new ones until the old are taken away.
public final class HubAccess: Sendable {
  /// What is to be done with a gateway.
  enum Deed: Sendable {
    case read
    /// What the gateway itself does: hand over its journal, fetch updates.
    case write
    /// What operators do: commands, documents.
    case command
  }

  enum Verdict: Equatable, Sendable {
    /// The token's name.
    case allowed(String)
    case unknown(String)
    case forbidden
  }

  private let tokens: Mutex<[HubConfiguration.Token]>

  init(_ tokens: [HubConfiguration.Token]) { self.tokens = Mutex(tokens) }

  /// From now on these count.
  public func replace(with fresh: [HubConfiguration.Token]) { tokens.withLock { $0 = fresh } }

  /// `gateway`: `nil` for what concerns all of them.
  func check(_ authorization: String?, gateway: String?, _ deed: Deed) -> Verdict {
    guard let authorization, authorization.hasPrefix("Bearer ") else { return .unknown("a bearer token is wanted") }
    let presented = Array(authorization.dropFirst(7).utf8)
    let matching = tokens.withLock { tokens in
      tokens.filter { token in token.secrets.contains { Self.isEqual(Array($0.utf8), presented) } }
    }
    guard !matching.isEmpty else { return .unknown("the token is not known") }
    let fitting = matching.first { token in
      (token.gateway == "*" || token.gateway == gateway) && token.access.allows(deed)
    }
    return fitting.map { .allowed($0.name) } ?? .forbidden
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
    case .read: true
    case .write: self == .write || self == .all
    case .command: self == .command || self == .all
    }
  }
}
