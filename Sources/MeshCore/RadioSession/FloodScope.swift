// SPDX-License-Identifier: MIT

import Companion

/// Whether the radio floods in its default scope, as far as its answers tell: it keeps what was set last until it boots, whoever set it
/// (docs/protocol/companion.md § 9.7).
struct FloodScopeWatch {
  /// SET_FLOOD_SCOPE_KEY came with this version (docs/protocol/companion.md § 11).
  private static let firstVersion: UInt8 = 8

  /// What goes out now goes where the radio's default says.
  private(set) var isDefault = false
  /// It did not go back to its default when it was told to.
  private(set) var isStuck = false
  private var key: PublicKey?
  /// It has taken another scope before, so that it knows what they are.
  private var knowsScopes = false
  private var wasDefault = false

  mutating func linkUp() { (isDefault, isStuck) = (false, false) }

  mutating func met(_ radio: RadioIdentity) {
    if key != radio.info.key { (key, knowsScopes) = (radio.info.key, false) }
    if (radio.device?.protocolVersion ?? 0) < Self.firstVersion { isDefault = true }
  }

  /// Until the radio has answered it may be in the one or the other.
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
      // Firmware that does not know the command, and has never taken another scope, has none but the default.
      isDefault = wasDefault || isBack && !knowsScopes && error == .unsupported
      if isBack { isStuck = !isDefault }
    default: if isBack { isStuck = true }
    }
  }
}

extension Command {
  /// It is flooded in the scope that was set last, or may be: to a contact the radio sends by the path of its own table, which may have
  /// changed since it was read. Not what says its path itself, nor our own advert, which never goes in that scope.
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
