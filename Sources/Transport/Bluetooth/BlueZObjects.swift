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
  private var objects: [Bus.Subscription] = []
  private var changes: Bus.Subscription?
  private var isServiceUp = false
  private(set) var devices: [String: DeviceFacts] = [:]
  private var adapters: [String: AdapterFacts] = [:]
  /// The flags of the characteristic that is written to.
  private(set) var rxFlags: [String] = []
  var onEvent: (Event) -> Void = { _ in }

  init(_ bus: Bus) { self.bus = bus }

  func start() {
    bus.watchName(BlueZ.service) { [weak self] owner in self?.ownerChanged(owner) }
    bus.onDown = { [weak self] error in self?.serviceGone(error.description) }
    for member in ["InterfacesAdded", "InterfacesRemoved"] {
      let rule = MatchRule(sender: BlueZ.service, path: "/", interface: BlueZ.objectManager, member: member)
      objects.append(bus.subscribe(rule) { [weak self] in self?.objectsChanged($0) })
    }
    let rule = MatchRule(
      sender: BlueZ.service, interface: BlueZ.properties, member: "PropertiesChanged", argument: BlueZ.adapter)
    objects.append(bus.subscribe(rule) { [weak self] in self?.adapterChanged($0) })
    bus.open()
  }

  /// Whose changes are told: all devices' during a scan, else one's.
  func listen(to device: String?) {
    if let changes { bus.unsubscribe(changes) }
    let rule = MatchRule(
      sender: BlueZ.service, path: device, interface: BlueZ.properties, member: "PropertiesChanged",
      argument: BlueZ.device)
    changes = bus.subscribe(rule) { [weak self] in self?.deviceChanged($0) }
    if let device { devices = devices.filter { $0.key == device || $0.value.isPaired || $0.value.isConnected } }
  }

  private func ownerChanged(_ owner: String?) {
    guard bus.isUp else { return }  // the bus went: told by its own event
    let wasUp = isServiceUp
    guard owner != nil else { return serviceGone(wasUp ? "bluetoothd ended" : "bluetoothd is not running") }
    // A restart between two looks has another owner: everything is gone and there again.
    if wasUp { serviceGone("bluetoothd was restarted") }
    isServiceUp = true
    onEvent(.serviceUp)
  }

  private func serviceGone(_ words: String) {
    isServiceUp = false
    devices = [:]
    adapters = [:]
    onEvent(.serviceDown(words))
  }

  // MARK: All objects

  /// Reads everything anew; tells of what is there, then of what is not any more.
  func read(_ done: @escaping (BluetoothOutcome) -> Void) {
    let call = BusMessage.call(BlueZ.service, "/", BlueZ.objectManager, "GetManagedObjects")
    bus.call(call, timeout: .seconds(9)) { [weak self] result in
      switch result {
      case .failure(let error): done(.failed(BlueZ.failure(error)))
      case .success(let body):
        self?.take(body.first?.entries ?? [])
        done(.done)
      }
    }
  }

  private func take(_ objects: [(key: String, value: BusValue)]) {
    let (oldAdapters, oldDevices) = (adapters, devices)
    adapters = [:]
    devices = [:]
    for (path, interfaces) in objects { take(path, interfaces, isNew: false) }
    for path in oldAdapters.keys where adapters[path] == nil { onEvent(.adapterGone(path)) }
    for path in oldDevices.keys where devices[path] == nil { onEvent(.deviceGone(path)) }
    tellCharacteristics(objects)
  }

  private func take(_ path: String, _ interfaces: BusValue, isNew: Bool) {
    if let values = interfaces[BlueZ.adapter] {
      let facts = BlueZ.adapterFacts(path, values)
      adapters[path] = facts
      onEvent(.adapter(facts))
    }
    if let values = interfaces[BlueZ.device], let facts = BlueZ.deviceFacts(path, values),
      devices.count < Self.maxDevices || facts.isPaired || facts.isConnected
    {
      devices[path] = facts
      onEvent(.device(facts, isHeard: isNew && facts.rssi != nil))
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
    for (device, paths) in found { onEvent(.characteristics(device: device, rx: paths.rx, tx: paths.tx)) }
  }

  // MARK: Changes

  private func objectsChanged(_ message: BusMessage) {
    guard message.body.count == 2, let path = message.body[0].string else { return }
    if message.member == "InterfacesAdded" { return take(path, message.body[1], isNew: true) }
    let gone = message.body[1].elements?.compactMap(\.string) ?? []
    if gone.contains(BlueZ.adapter) {
      adapters[path] = nil
      onEvent(.adapterGone(path))
    }
    if gone.contains(BlueZ.device) {
      devices[path] = nil
      onEvent(.deviceGone(path))
    }
  }

  private func adapterChanged(_ message: BusMessage) {
    guard let path = message.path, message.body.count >= 2, var facts = adapters[path],
      let powered = message.body[1]["Powered"]?.bool
    else { return }
    facts.isPowered = powered
    adapters[path] = facts
    onEvent(.adapter(facts))
  }

  private func deviceChanged(_ message: BusMessage) {
    guard let path = message.path, message.body.count >= 2, var facts = devices[path] else { return }
    let values = message.body[1]
    BlueZ.apply(values, to: &facts)
    devices[path] = facts
    // Some devices' advertisements bring no RSSI of their own; data of a manufacturer or service came over the air too.
    let isHeard = ["RSSI", "ManufacturerData", "ServiceData", "TxPower"].contains { values[$0] != nil }
    onEvent(.device(facts, isHeard: isHeard))
  }
}
