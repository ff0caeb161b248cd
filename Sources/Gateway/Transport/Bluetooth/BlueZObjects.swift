// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import EventLoop

/// Tracks BlueZ's objects. Outside a scan it subscribes only to the radio's own signals, so that signals of other
/// devices do not wake the daemon.
final class BlueZObjects {
  enum Event {
    case serviceUp
    case serviceDown(String)
    case adapter(AdapterFacts)
    case adapterGone(String)
    case device(DeviceFacts, isHeard: Bool)
    case deviceGone(String)
    case characteristics(device: String, rx: String?, tx: String?)
    case value([UInt8], of: String)
  }

  /// Maximum number of devices per scan; further ones are ignored.
  private static let maxDevices = 256

  private let bus: Bus
  private let loop: EventLoop
  /// Receives all signals of BlueZ, in order.
  private let listener: BusListener
  /// Rules for the device and the characteristic whose changes are reported.
  private var (changes, values): (MatchRule?, MatchRule?)
  private var isServiceUp = false
  private(set) var devices: [String: DeviceFacts] = [:]
  private var adapters: [String: AdapterFacts] = [:]
  /// Flags of the characteristic for writing.
  private(set) var rxFlags: [String] = []
  private var handle: (Event) -> Void = { _ in }
  private var reading: LoopTask?

  init(_ bus: Bus, on loop: EventLoop) {
    self.bus = bus
    self.loop = loop
    listener = bus.listen()
  }

  /// Subscribes, and passes each event to `handle`, in BlueZ's order, until `end`.
  func begin(_ handle: @escaping (Event) -> Void) {
    self.handle = handle
    bus.watch(BlueZ.service, for: listener)
    for member in ["InterfacesAdded", "InterfacesRemoved"] {
      bus.add(
        MatchRule(sender: BlueZ.service, path: "/", interface: BlueZ.objectManager, member: member), to: listener)
    }
    bus.add(Self.changes(of: BlueZ.adapter), to: listener)
    bus.open()
    reading = loop.begin { [self] in
      do {
        while let event = try await listener.next() { take(event) }
      } catch {
        return  // cancelled by `end`
      }
    }
  }

  func end() {
    handle = { _ in }
    bus.close()
    reading?.cancel()
  }

  /// Selects the devices whose changes are reported: all during a scan, otherwise one.
  func listen(to device: String?) {
    if let changes { bus.remove(changes, from: listener) }
    let rule = Self.changes(of: BlueZ.device, at: device)
    bus.add(rule, to: listener)
    changes = rule
    if let device { devices = devices.filter { $0.key == device || $0.value.isPaired || $0.value.isConnected } }
  }

  /// Selects the characteristic whose values are reported.
  func listen(toValuesOf characteristic: String?) {
    if let values { bus.remove(values, from: listener) }
    values = characteristic.map { Self.changes(of: BlueZ.characteristic, at: $0) }
    if let values { bus.add(values, to: listener) }
  }

  private static func changes(of interface: String, at path: String? = nil) -> MatchRule {
    MatchRule(
      sender: BlueZ.service, path: path, interface: BlueZ.properties, member: "PropertiesChanged", argument: interface)
  }

  private func take(_ event: BusListener.Event) {
    switch event {
    case .owner(let owner, of: _): ownerChanged(owner)
    case .signal(let message) where message.interface == BlueZ.objectManager: objectsChanged(message)
    case .signal(let message):
      guard let path = message.path, message.body.count >= 2 else { return }
      switch message.body[0].string {
      case BlueZ.adapter: adapterChanged(path, message.body[1])
      case BlueZ.device: deviceChanged(path, message.body[1])
      case BlueZ.characteristic:
        if case .bytes(let value)? = message.body[1]["Value"] { handle(.value(value, of: path)) }
      default: return
      }
    }
  }

  private func ownerChanged(_ owner: Bus.Owner) {
    switch owner {
    case .unknown(let error): serviceGone(error.description)
    case .nobody: serviceGone(isServiceUp ? "bluetoothd ended" : "bluetoothd is not running")
    case .name:
      // After a restart between two queries the owner differs: all objects have been removed and added again.
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

  /// Reloads all objects: reports those that exist, then those that have disappeared. Throws `BusError`.
  func read() async throws {
    let call = BusMessage.call(BlueZ.service, "/", BlueZ.objectManager, "GetManagedObjects")
    let objects = try await bus.call(call, timeout: .seconds(9)).body.first?.entries ?? []
    // A signal before the answer may have ended this operation.
    try Task.checkCancellation()
    take(objects)
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

  /// The path of a characteristic begins with that of its service, which begins with that of the device.
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

  private func adapterChanged(_ path: String, _ values: BusValue) {
    guard var facts = adapters[path], let powered = values["Powered"]?.bool else { return }
    facts.isPowered = powered
    adapters[path] = facts
    handle(.adapter(facts))
  }

  private func deviceChanged(_ path: String, _ values: BusValue) {
    guard var facts = devices[path] else { return }
    BlueZ.apply(values, to: &facts)
    devices[path] = facts
    // Some advertisements have no RSSI; manufacturer or service data prove reception, too.
    let isHeard = ["RSSI", "ManufacturerData", "ServiceData", "TxPower"].contains { values[$0] != nil }
    handle(.device(facts, isHeard: isHeard))
  }
}
