// SPDX-License-Identifier: MIT

import DBus

/// Answers BlueZ's request for the PIN during a pairing, for this radio alone. Source: BlueZ, `org.bluez.Agent1`.
///
/// It is registered for pairings of this program, and not as the default agent: devices of other programs are not affected.
final class PairingAgent {
  private static let path = "/org/meshpost/agent"

  private let bus: Bus
  private var device: String?
  var pin: UInt32?

  init(_ bus: Bus) {
    self.bus = bus
    bus.export(Self.path, BlueZ.agent) { [self] call throws(BusError) in try answer(call) }
  }

  /// Pairs with a device, and supplies the PIN on request. Throws `BusError`.
  func pair(_ device: String, timeout: Duration) async throws {
    self.device = device
    defer { self.device = nil }
    try await register()
    try await bus.call(.call(BlueZ.service, device, BlueZ.device, "Pair"), timeout: timeout)
  }

  /// Registered before each pairing: bluetoothd loses agents when it restarts.
  private func register() async throws {
    let call = BusMessage.call(
      BlueZ.service, "/org/bluez", BlueZ.agentManager, "RegisterAgent",
      [.objectPath(Self.path), .string("KeyboardOnly")])
    do {
      try await bus.call(call, timeout: .seconds(5))
    } catch BusError.refused(name: "org.bluez.Error.AlreadyExists", _) {
      return  // registered for an earlier pairing
    }
  }

  private func answer(_ call: BusMessage) throws(BusError) -> [BusValue] {
    let rejected = BusError.refused(name: "org.bluez.Error.Rejected", message: "not by Meshpost")
    switch call.member {
    case "Release", "Cancel", "DisplayPasskey", "DisplayPinCode": return []
    case "RequestPasskey", "RequestPinCode":
      guard let device, call.body.first?.string == device, let pin else { throw rejected }
      let digits = String(pin)
      let code = String(repeating: "0", count: max(0, 6 - digits.count)) + digits
      return [call.member == "RequestPasskey" ? .uint32(pin) : .string(code)]
    case "AuthorizeService", "RequestAuthorization":
      guard device != nil, call.body.first?.string == device else { throw rejected }
      return []
    // Only people may confirm: a radio displays its PIN and expects it to be entered.
    default: throw rejected
    }
  }
}
