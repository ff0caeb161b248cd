// SPDX-License-Identifier: MIT

import Companion

/// What it takes to flood a command in a scope.
public enum ScopeSetting: Equatable, Sendable {
  /// The radio's default scope is that scope.
  case asIs
  case set(FloodScopeOverride)
  /// The radio's firmware does not know such a scope.
  case impossible
}

/// Tracks from the radio's answers whether it floods in its default scope. The radio keeps the last scope until it
/// boots, whichever client has set it (docs/protocol/companion.md § 9.7).
struct FloodScopeWatch {
  /// Protocol versions: SET_FLOOD_SCOPE_KEY, a default scope, and mode 1 (docs/protocol/companion.md § 11).
  private static let (firstVersion, firstWithDefault, firstUnscoped): (UInt8, UInt8, UInt8) = (8, 11, 12)

  /// Whether the radio floods in its default scope now.
  private(set) var isDefault = false
  /// Whether the radio has failed to return to its default scope.
  private(set) var isStuck = false
  private var key: PublicKey?
  /// Whether this radio has accepted another scope before, so that its firmware knows scopes.
  private var knowsScopes = false
  private var wasDefault = false
  private var version: UInt8 = 0
  /// Scopes that this radio has said it does not know: it is not asked each time.
  private var (knowsKeys, knowsUnscoped) = (true, true)

  mutating func linkUp() {
    (isDefault, isStuck) = (false, false)
    (knowsKeys, knowsUnscoped) = (true, true)
  }

  mutating func met(_ radio: RadioIdentity) {
    if key != radio.info.key { (key, knowsScopes) = (radio.info.key, false) }
    version = radio.device?.protocolVersion ?? 0
    if version < Self.firstVersion { isDefault = true }
  }

  /// How a command is flooded in this scope.
  func setting(for scope: FloodScopeOverride) -> ScopeSetting {
    switch scope {
    case .useDefault: .asIs
    // Without a default scope, the default is none.
    case .unscoped where version < Self.firstWithDefault: .asIs
    case .unscoped: version >= Self.firstUnscoped && knowsUnscoped ? .set(scope) : .impossible
    case .key: version >= Self.firstVersion && knowsKeys ? .set(scope) : .impossible
    case .unknown: .impossible
    }
  }

  /// Until the radio has answered, either scope may be in force.
  mutating func sent(_ command: Command) {
    guard case .setFloodScopeKey = command else { return }
    (wasDefault, isDefault) = (isDefault, false)
  }

  mutating func answered(_ command: Command, _ outcome: RadioSession.Outcome) {
    guard case .setFloodScopeKey(let scope) = command else { return }
    let isBack = scope == .useDefault
    switch outcome {
    case .replied:
      if !isBack { knowsScopes = true }
      (isDefault, isStuck) = (isBack, false)
    case .failed(.refused(let error)):
      // If the firmware does not know the command and has never accepted a scope, the default is the only scope it has.
      isDefault = wasDefault || isBack && !knowsScopes && error == .unsupported
      if isBack { isStuck = !isDefault }
      guard error == .unsupported, !knowsScopes else { return }
      switch scope {
      case .key: knowsKeys = false
      case .unscoped: knowsUnscoped = false
      default: break
      }
    default: if isBack { isStuck = true }
    }
  }
}

extension Command {
  /// Whether the command is, or may be, flooded in the scope that was set last: the path in the radio's own table may
  /// have changed since it was read. Commands with an explicit path, and our own advert, never use that scope.
  public var goesInScope: Bool {
    switch self {
    case .sendChannelData(let datagram): datagram.path == nil
    case .sendText, .sendChannelText, .sendLogin, .sendStatusRequest, .sendTelemetryRequest(.some),
      .sendBinaryRequest, .sendPathDiscovery, .sendAnonymousRequest:
      true
    default: false
    }
  }
}
