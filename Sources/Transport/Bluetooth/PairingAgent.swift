// SPDX-License-Identifier: MIT

import DBus

/// Answers BlueZ's question for the PIN while we pair, for our radio alone. Source: BlueZ, `org.bluez.Agent1`.
///
/// It is registered for our own pairings and is not the machine's default agent: other programs' devices are theirs.
final class PairingAgent {
  private static let path = "/org/meshpost/agent"

  private let bus: Bus
  private var device: String?
  var pin: UInt32?

  init(_ bus: Bus) {
    self.bus = bus
    bus.export(Self.path, BlueZ.agent) { [weak self] call, reply in self?.answer(call, reply) }
  }

  /// Before each pairing: bluetoothd forgets agents when it is restarted.
  func register(for device: String, _ done: @escaping (BusError?) -> Void) {
    self.device = device
    let call = BusMessage.call(
      BlueZ.service, "/org/bluez", BlueZ.agentManager, "RegisterAgent",
      [.objectPath(Self.path), .string("KeyboardOnly")])
    bus.call(call, timeout: .seconds(5)) { result in
      switch result {
      case .success, .failure(.refused(name: "org.bluez.Error.AlreadyExists", _)): done(nil)
      case .failure(let error): done(error)
      }
    }
  }

  func pairingEnded() { device = nil }

  private func answer(_ call: BusMessage, _ reply: Bus.Reply) {
    let rejected = BusError.refused(name: "org.bluez.Error.Rejected", words: "not by Meshpost")
    switch call.member {
    case "Release", "Cancel", "DisplayPasskey", "DisplayPinCode": reply(.success([]))
    case "RequestPasskey", "RequestPinCode":
      guard let device, call.body.first?.string == device, let pin else { return reply(.failure(rejected)) }
      let digits = String(pin)
      let code = String(repeating: "0", count: max(0, 6 - digits.count)) + digits
      reply(.success([call.member == "RequestPasskey" ? .uint32(pin) : .string(code)]))
    case "AuthorizeService", "RequestAuthorization":
      let isOurs = device != nil && call.body.first?.string == device
      reply(isOurs ? .success([]) : .failure(rejected))
    // A confirmation is a person's to give: a radio shows its PIN and wants it typed in.
    default: reply(.failure(rejected))
    }
  }
}
