// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import EventLoop

/// Bluetooth commands of an operator: scan, pair, forget. Each uses a bus connection of its own, which ends with
/// the command. Failures are thrown as `BluetoothTrouble`.
public struct BluetoothTools {
  private static let startLimit: Duration = .seconds(5)
  private static let pairLimit: Duration = .seconds(150)
  /// Time for the paired radio to disconnect.
  private static let partingLimit: Duration = .seconds(3)

  private let loop: EventLoop
  private let log: Log
  private let busAddress: String

  /// `bus`: the address of BlueZ's bus.
  public init(on loop: EventLoop, log: Log, bus address: String = Bus.systemAddress) {
    self.loop = loop
    self.log = log
    busAddress = address
  }

  /// The MeshCore radios received within `seconds`, and those with a bond.
  public func scan(adapter name: String?, seconds: Int) async throws -> [DeviceFacts] {
    let visit = BlueZVisit(on: loop, bus: busAddress)
    defer { visit.end() }
    let adapter = try await visit.begin(adapter: name, within: Self.startLimit)
    try await visit.scan(adapter)
    try await loop.sleep(for: .seconds(Int64(seconds)))
    let radios = visit.objects.devices.values.filter { $0.isRadio && ($0.rssi != nil || $0.isPaired) }
    return radios.sorted { ($0.rssi ?? -128) > ($1.rssi ?? -128) }
  }

  /// Pairs with a radio, and verifies the bond by subscribing to it.
  public func pair(address: String, options: BluetoothOptions) async throws {
    let link = BluetoothLink(.address(address), options, on: loop, log: log, bus: busAddress)
    defer { part(from: link) }
    let isUp = Promise<Result<Void, BluetoothTrouble>>()
    var last = BluetoothTrouble.notFound(address)
    link.onEvent = { event in
      switch event {
      case .up: isUp.keep(.success(()))
      case .down(.bluetooth(let trouble)):
        last = trouble
        if trouble.needsSomebody { isUp.keep(.failure(trouble)) }
      default: break
      }
    }
    link.pairAnew()
    link.open()
    guard let result = try await isUp.value(within: Self.pairLimit, on: loop) else { throw last }
    try result.get()
  }

  /// Disconnects, then ends the link.
  private func part(from link: BluetoothLink) {
    link.onEvent = { _ in }
    link.close()
    loop.schedule(after: Self.partingLimit) { link.end() }
  }

  /// Removes a radio and its bond from BlueZ.
  public func forget(address: String, adapter name: String?) async throws {
    let visit = BlueZVisit(on: loop, bus: busAddress)
    defer { visit.end() }
    let adapter = try await visit.begin(adapter: name, within: Self.startLimit)
    let devices = visit.objects.devices.values
    guard let device = devices.first(where: { $0.address.uppercased() == address.uppercased() }) else {
      throw BluetoothTrouble.notFound(address)
    }
    try await visit.remove(device.path, from: adapter)
  }
}

/// A connection to the bus for one command.
final class BlueZVisit {
  private let bus: Bus
  private let loop: EventLoop
  let objects: BlueZObjects
  private var adapters: [String: AdapterFacts] = [:]
  private(set) var isServiceUp = false
  /// Why the Bluetooth service is not available.
  private var words = "no answer"

  init(on loop: EventLoop, bus address: String = Bus.systemAddress) {
    self.loop = loop
    bus = Bus(address: address, on: loop)
    objects = BlueZObjects(bus, on: loop)
  }

  /// Loads BlueZ's objects; returns the adapter's path. Throws `BluetoothTrouble`.
  func begin(adapter name: String?, within limit: Duration) async throws -> String {
    do {
      return try await loop.withTimeout(limit) { [self] in
        try await read()
        return try adapter(name)
      }
    } catch is TimedOut {
      throw BluetoothTrouble.noService(words)
    }
  }

  private func read() async throws {
    let service = Promise<Void>()
    objects.begin { [self] event in
      switch event {
      case .serviceUp: service.keep(())
      case .serviceDown(let reason): words = reason
      case .adapter(let facts): adapters[facts.path] = facts
      default: break
      }
    }
    try await service.value()
    isServiceUp = true
    do {
      try await objects.read()
    } catch let error as BusError {
      let failure = BlueZ.failure(error)
      throw failure == .notAllowed ? BluetoothTrouble.notAllowed : .noService("\(failure)")
    }
  }

  private func adapter(_ name: String?) throws(BluetoothTrouble) -> String {
    let fitting = adapters.values.filter {
      name == nil || $0.path.hasSuffix("/\(name ?? "")") || $0.address == name
    }
    guard let adapter = fitting.min(by: { $0.path < $1.path }) else { throw .noAdapter }
    let short = adapter.path.split(separator: "/").last.map(String.init) ?? ""
    guard adapter.isPowered else { throw .poweredOff(adapter: short) }
    return adapter.path
  }

  /// BlueZ ends the scan when the connection closes.
  func scan(_ adapter: String) async throws {
    objects.listen(to: nil)
    let filter: BusValue = .options([("Transport", .string("le"))])
    do {
      try await bus.call(.call(BlueZ.service, adapter, BlueZ.adapter, "SetDiscoveryFilter", [filter]))
    } catch is BusError {
      // Scans without a filter find more devices.
    }
    try await call(adapter, "StartDiscovery", step: "scanning")
  }

  func remove(_ device: String, from adapter: String) async throws {
    try await call(adapter, "RemoveDevice", [.objectPath(device)], step: "forgetting")
  }

  private func call(_ adapter: String, _ method: String, _ arguments: [BusValue] = [], step: String) async throws {
    do {
      try await bus.call(.call(BlueZ.service, adapter, BlueZ.adapter, method, arguments))
    } catch let error as BusError {
      throw BluetoothTrouble.failed(step: step, error.description)
    }
  }

  func end() { objects.end() }
}

extension BluetoothTrouble {
  /// A retry cannot solve this.
  public var needsSomebody: Bool {
    switch self {
    case .noAdapter, .poweredOff, .blocked, .several, .wantsPIN, .wrongPIN, .noUART, .inUse, .notAllowed: true
    case .noService, .notFound, .bondLost, .lost, .silent, .failed: false
    }
  }
}
