// SPDX-License-Identifier: MIT

import Companion
import EventLoop

/// One address at which other programs share the radio, and their permissions.
public struct SharingSettings: Equatable, Sendable {
  /// Potentially harmful operations, refused unless allowed.
  public enum Danger: String, CaseIterable, Sendable {
    /// Setting the clock to a wrong time.
    case time
    /// Frequency, power, tuning.
    case radio
    case name, position
    /// Advertising the radio, and sharing its contacts.
    case advert
    case contacts, channels
    /// Letting a node run commands on the radio over the mesh.
    case commands
    /// Automatic behaviour of the radio: telemetry, adding contacts, path hashes, the default flood scope, variables.
    case settings
    /// Raw packets of the client, which may impersonate anybody.
    case raw
    case reboot
    case factoryReset = "factory_reset"
    /// Reading and replacing the private key.
    case privateKey = "private_key"
    /// Setting and reading the PIN.
    case pin
    /// Signing arbitrary data: whoever can do that can impersonate the node.
    case sign
  }

  /// Its name in the status, and for the clients' stored positions.
  public var name: String
  public var address: ListenAddress
  /// Addresses that may connect; empty: this machine only.
  public var allowFrom: [AddressRange]
  public var allows: Set<Danger>
  public var maxClients: Int
  /// Number of earlier messages that a new client receives.
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
