// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import UntrustedText

/// BlueZ's names, and conversions of its values. Source: BlueZ, `doc/org.bluez.*.rst`.
enum BlueZ {
  static let service = "org.bluez"
  static let adapter = "org.bluez.Adapter1"
  static let device = "org.bluez.Device1"
  static let characteristic = "org.bluez.GattCharacteristic1"
  static let agentManager = "org.bluez.AgentManager1"
  static let agent = "org.bluez.Agent1"
  static let objectManager = "org.freedesktop.DBus.ObjectManager"
  static let properties = "org.freedesktop.DBus.Properties"

  static func adapterFacts(_ path: String, _ values: BusValue) -> AdapterFacts {
    AdapterFacts(
      path: path, address: values["Address"]?.string ?? "", isPowered: values["Powered"]?.bool ?? false)
  }

  static func deviceFacts(_ path: String, _ values: BusValue) -> DeviceFacts? {
    guard let address = values["Address"]?.string, let adapter = values["Adapter"]?.string else { return nil }
    var facts = DeviceFacts(path: path, adapter: adapter, address: address)
    apply(values, to: &facts)
    return facts
  }

  /// Applies the values of PropertiesChanged.
  static func apply(_ values: BusValue, to facts: inout DeviceFacts) {
    if let name = values["Name"]?.string { facts.name = name }
    if let flag = values["Paired"]?.bool { facts.isPaired = flag }
    if let flag = values["Trusted"]?.bool { facts.isTrusted = flag }
    if let flag = values["Connected"]?.bool { facts.isConnected = flag }
    if let flag = values["ServicesResolved"]?.bool { facts.isResolved = flag }
    if let rssi = values["RSSI"]?.integer { facts.rssi = Int16(clamping: rssi) }
    let hasService = values["UUIDs"]?.elements?.contains { $0.string?.lowercased() == RadioService.service } ?? false
    // Other devices use the same service, so the name is checked, too.
    if hasService || facts.name.utf8.starts(with: BluetoothTarget.namePrefix.utf8) { facts.isRadio = true }
  }

  /// The meaning of a BlueZ error. docs/bluetooth.md has the whole table.
  static func failure(_ error: BusError) -> BluetoothFailure {
    switch error {
    case .timedOut: return .timedOut
    case .refused(let name, let message): return failure(name, message)
    default: return .other(error.description)
    }
  }

  private static func failure(_ name: String, _ message: String) -> BluetoothFailure {
    if message.mentions("rfkill") { return .blocked }
    switch name {
    case "org.bluez.Error.InProgress": return .inProgress
    case "org.bluez.Error.AlreadyConnected", "org.bluez.Error.AlreadyExists": return .alreadyDone
    case "org.bluez.Error.NotReady": return .notReady
    case "org.bluez.Error.AuthenticationFailed", "org.bluez.Error.AuthenticationRejected",
      "org.bluez.Error.AuthenticationCanceled", "org.bluez.Error.AuthenticationTimeout":
      return .authentication
    case "org.bluez.Error.NotPermitted" where message.mentions("acquired"): return .inUse(message)
    case "org.bluez.Error.NotAuthorized", "org.bluez.Error.NotPermitted": return .authentication
    case "org.bluez.Error.DoesNotExist", "org.freedesktop.DBus.Error.UnknownObject",
      "org.freedesktop.DBus.Error.UnknownMethod", "org.freedesktop.DBus.Error.UnknownInterface",
      "org.freedesktop.DBus.Error.ServiceUnknown":
      return .unknownObject
    case "org.freedesktop.DBus.Error.AccessDenied": return .notAllowed
    case "org.freedesktop.DBus.Error.NoReply": return .timedOut
    case "org.bluez.Error.ConnectionAttemptFailed": return .aborted(message)
    default: return failure(message: message, name: name)
    }
  }

  /// `org.bluez.Error.Failed` carries its meaning in its text.
  private static func failure(message: String, name: String) -> BluetoothFailure {
    if message.mentions("connection-abort") || message.mentions("connection-canceled") || message.mentions("abort") {
      return .aborted(message)
    }
    if message.mentions("already-connected") { return .alreadyDone }
    if message.mentions("busy") || message.mentions("in progress") { return .inProgress }
    if message.mentions("not-powered") || message.mentions("Not Powered") { return .notReady }
    // ATT errors: insufficient authentication, authorization, encryption (key size): the bond is invalid.
    for code in ["0x05", "0x08", "0x0c", "0x0f"] where message.mentions("ATT error: \(code)") { return .authentication }
    if message.mentions("key-missing") || message.mentions("PIN or Key Missing") { return .authentication }
    if message.mentions("ATT error: 0x01") { return .unknownObject }  // invalid handle: a stale cache
    return .other(message.isEmpty ? name : message)
  }
}
