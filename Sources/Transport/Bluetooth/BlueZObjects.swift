// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import EventLoop

/// Follows BlueZ's objects. While nothing is scanned for, only the radio's own signals are listened to, so that other
/// devices' do not wake anybody.
final class BlueZObjects {
  enum Event {
    case serviceUp
    case serviceDown(String)
    case adapter(AdapterFacts)
    case adapterGone(String)
    case device(DeviceFacts, isHeard: Bool)
    case deviceGone(String)
    case characteristics(device: String, rx: String?, tx: String?)
  }

  /// Devices heard during a scan; further ones are not looked at.
  private static let maxDevices = 256

  private let bus: Bus
  private var changes: Bus.Subscription?
  private var isServiceUp = false
  private(set) var devices: [String: DeviceFacts] = [:]
  private var adapters: [String: AdapterFacts] = [:]
  /// The flags of the characteristic that is written to.
  private(set) var rxFlags: [String] = []
  private var handle: (Event) -> Void = { _ in }

  init(_ bus: Bus) { self.bus = bus }

  /// Enters the bus, and tells `handle` of each event, in BlueZ's order, until `end`.
  func begin(_ handle: @escaping (Event) -> Void) {
    self.handle = handle
    bus.watchName(BlueZ.service) { [self] in ownerChanged($0) }
    for member in ["InterfacesAdded", "InterfacesRemoved"] {
      let rule = MatchRule(sender: BlueZ.service, path: "/", interface: BlueZ.objectManager, member: member)
      _ = bus.subscribe(rule) { [self] in objectsChanged($0) }
    }
    let rule = MatchRule(
      sender: BlueZ.service, interface: BlueZ.properties, member: "PropertiesChanged", argument: BlueZ.adapter)
    _ = bus.subscribe(rule) { [self] in adapterChanged($0) }
    bus.open()
  }

  /// Leaves the bus.
  func end() {
    bus.close()
    handle = { _ in }
  }

  /// Whose changes are told: all devices' during a scan, else one's.
  func listen(to device: String?) {
    if let changes { bus.unsubscribe(changes) }
    let rule = MatchRule(
      sender: BlueZ.service, path: device, interface: BlueZ.properties, member: "PropertiesChanged",
      argument: BlueZ.device)
    changes = bus.subscribe(rule) { [self] in deviceChanged($0) }
    if let device { devices = devices.filter { $0.key == device || $0.value.isPaired || $0.value.isConnected } }
  }

  private func ownerChanged(_ owner: Bus.Owner) {
    switch owner {
    case .unknown(let error): serviceGone(error.description)
    case .nobody: serviceGone(isServiceUp ? "bluetoothd ended" : "bluetoothd is not running")
    case .name:
      // A restart between two looks has another owner: everything is gone and there again.
      if isServiceUp { serviceGone("bluetoothd was restarted") }
      isServiceUp = true
      handle(.serviceUp)
    }
  }

  private func serviceGone(_ words: String) {
    isServiceUp = false
    devices = [:]
    adapters = [:]
    handle(.serviceDown(words))
  }

  // MARK: All objects

  /// Reads everything anew: events of what is there, then of what is not any more. Throws `BusError`.
  func read() async throws {
    let call = BusMessage.call(BlueZ.service, "/", BlueZ.objectManager, "GetManagedObjects")
    take(try await bus.call(call, timeout: .seconds(9)).body.first?.entries ?? [])
  }

  private func take(_ objects: [(key: String, value: BusValue)]) {
    let (oldAdapters, oldDevices) = (adapters, devices)
    adapters = [:]
    devices = [:]
    for (path, interfaces) in objects { take(path, interfaces, isNew: false) }
    for path in oldAdapters.keys where adapters[path] == nil { handle(.adapterGone(path)) }
    for path in oldDevices.keys where devices[path] == nil { handle(.deviceGone(path)) }
    tellCharacteristics(objects)
  }

  private func take(_ path: String, _ interfaces: BusValue, isNew: Bool) {
    if let values = interfaces[BlueZ.adapter] {
      let facts = BlueZ.adapterFacts(path, values)
      adapters[path] = facts
      handle(.adapter(facts))
    }
    if let values = interfaces[BlueZ.device], let facts = BlueZ.deviceFacts(path, values),
      devices.count < Self.maxDevices || facts.isPaired || facts.isConnected
    {
      devices[path] = facts
      handle(.device(facts, isHeard: isNew && facts.rssi != nil))
    }
  }

  /// Characteristics lie below their service, which lies below the device.
  private func tellCharacteristics(_ objects: [(key: String, value: BusValue)]) {
    var found: [String: (rx: String?, tx: String?)] = [:]
    for (path, interfaces) in objects {
      guard let values = interfaces[BlueZ.characteristic], let id = values["UUID"]?.string?.lowercased(),
        let device = devices.keys.first(where: { path.hasPrefix($0 + "/") })
      else { continue }
      if id == RadioService.tx { found[device, default: (nil, nil)].tx = path }
      guard id == RadioService.rx else { continue }
      found[device, default: (nil, nil)].rx = path
      rxFlags = values["Flags"]?.elements?.compactMap(\.string) ?? []
    }
    for (device, paths) in found { handle(.characteristics(device: device, rx: paths.rx, tx: paths.tx)) }
  }

  // MARK: Changes

  private func objectsChanged(_ message: BusMessage) {
    guard message.body.count == 2, let path = message.body[0].string else { return }
    if message.member == "InterfacesAdded" { return take(path, message.body[1], isNew: true) }
    let gone = message.body[1].elements?.compactMap(\.string) ?? []
    if gone.contains(BlueZ.adapter) {
      adapters[path] = nil
      handle(.adapterGone(path))
    }
    if gone.contains(BlueZ.device) {
      devices[path] = nil
      handle(.deviceGone(path))
    }
  }

  private func adapterChanged(_ message: BusMessage) {
    guard let path = message.path, message.body.count >= 2, var facts = adapters[path],
      let powered = message.body[1]["Powered"]?.bool
    else { return }
    facts.isPowered = powered
    adapters[path] = facts
    handle(.adapter(facts))
  }

  private func deviceChanged(_ message: BusMessage) {
    guard let path = message.path, message.body.count >= 2, var facts = devices[path] else { return }
    let values = message.body[1]
    BlueZ.apply(values, to: &facts)
    devices[path] = facts
    // Some devices' advertisements bring no RSSI of their own; data of a manufacturer or service came over the air too.
    let isHeard = ["RSSI", "ManufacturerData", "ServiceData", "TxPower"].contains { values[$0] != nil }
    handle(.device(facts, isHeard: isHeard))
  }
}
