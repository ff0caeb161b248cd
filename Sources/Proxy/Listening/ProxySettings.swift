// SPDX-License-Identifier: MIT

import Companion
import EventLoop

/// One address that other programs connect to, to share the radio, and what they may do there.
public struct ProxySettings: Equatable, Sendable {
  /// What may do harm, and is refused unless it is allowed.
  public enum Danger: String, CaseIterable, Sendable {
    /// Setting the clock to another time than the right one.
    case time
    /// Frequency, power, tuning.
    case radio
    case name, position
    /// Advertising the radio, and contacts of it.
    case advert
    case contacts, channels
    /// What the radio does by itself: telemetry, automatic adding, paths' hashes, the default flood scope, variables.
    case settings
    /// Packets as the client wrote them, which may be anybody's.
    case raw
    case reboot
    case factoryReset = "factory_reset"
    /// Reading and replacing the private key.
    case privateKey = "private_key"
    /// Setting the PIN, and seeing it.
    case pin
    /// Having the radio sign anything: whoever can do that can speak for the node.
    case sign
  }

  /// What it is called in the status, and in the memory of who has had which message.
  public var name: String
  public var address: ListenAddress
  /// Who may connect; empty: this machine alone.
  public var allowFrom: [AddressRange]
  public var allows: Set<Danger>
  public var maxClients: Int
  /// Messages from before it came that a client that was never here is handed.
  public var history: Int64

  public init(
    name: String, address: ListenAddress, allowFrom: [AddressRange] = [], allows: Set<Danger> = [],
    maxClients: Int = 8, history: Int64 = 0
  ) {
    self.name = name
    self.address = address
    self.allowFrom = allowFrom
    self.allows = allows
    self.maxClients = maxClients
    self.history = history
  }
}
