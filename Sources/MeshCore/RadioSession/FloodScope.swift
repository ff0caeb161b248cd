// SPDX-License-Identifier: MIT

import Companion

/// Tracks from the radio's answers whether it floods in its default scope. The radio keeps the last scope until it
/// boots, whichever client has set it (docs/protocol/companion.md § 9.7).
struct FloodScopeWatch {
  /// SET_FLOOD_SCOPE_KEY exists from this protocol version on (docs/protocol/companion.md § 11).
  private static let firstVersion: UInt8 = 8

  /// Whether the radio floods in its default scope now.
  private(set) var isDefault = false
  /// Whether the radio has failed to return to its default scope.
  private(set) var isStuck = false
  private var key: PublicKey?
  /// Whether this radio has accepted another scope before, so that its firmware knows scopes.
  private var knowsScopes = false
  private var wasDefault = false

  mutating func linkUp() { (isDefault, isStuck) = (false, false) }

  mutating func met(_ radio: RadioIdentity) {
    if key != radio.info.key { (key, knowsScopes) = (radio.info.key, false) }
    if (radio.device?.protocolVersion ?? 0) < Self.firstVersion { isDefault = true }
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
