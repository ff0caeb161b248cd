// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import EventLoop
import Timing

/// What an operator does about Bluetooth, beside the link: scan, pair, forget. Each on a bus connection of its own, which
/// ends with it.
public final class BluetoothTools {
  private static let startLimit: Duration = .seconds(5)
  private static let pairLimit: Duration = .seconds(150)

  private let loop: EventLoop
  private let log: Log
  /// What is under way: kept until it ends.
  private var running: [ObjectIdentifier: AnyObject] = [:]

  public init(on loop: EventLoop, log: Log) {
    self.loop = loop
    self.log = log
  }

  /// The MeshCore radios heard within so many seconds, and those that are bonded.
  public func scan(
    adapter: String?, seconds: Int, _ done: @escaping (Result<[DeviceFacts], BluetoothTrouble>) -> Void
  ) {
    let visit = BlueZVisit(on: loop)
    keep(visit)
    visit.begin(adapter: adapter, within: Self.startLimit) { [weak self, loop] result in
      switch result {
      case .failure(let trouble): self?.end(visit) { done(.failure(trouble)) }
      case .success(let adapter):
        visit.scan(adapter) { error in
          if let error { self?.end(visit) { done(.failure(error)) } }
        }
        loop.schedule(after: .seconds(Int64(seconds))) {
          let radios = visit.objects.devices.values.filter { $0.isRadio && ($0.rssi != nil || $0.isPaired) }
          self?.end(visit) { done(.success(radios.sorted { ($0.rssi ?? -128) > ($1.rssi ?? -128) })) }
        }
      }
    }
  }

  /// Pairs with a radio, and proves it by subscribing to it.
  public func pair(
    address: String, options: BluetoothOptions, _ done: @escaping (BluetoothTrouble?) -> Void
  ) {
    let link = BluetoothLink(.address(address), options, on: loop, log: log)
    link.pairAnew()
    keep(link)
    var last = BluetoothTrouble.notFound(address)
    let timer = loop.schedule(after: Self.pairLimit) { [weak self] in self?.end(link) { done(last) } }
    link.onEvent = { [weak self] event in
      switch event {
      case .up:
        timer.cancel()
        self?.end(link) { done(nil) }
      case .down(.bluetooth(let trouble)):
        last = trouble
        guard trouble.needsSomebody else { return }
        timer.cancel()
        self?.end(link) { done(trouble) }
      default: break
      }
    }
    link.open()
  }

  /// Removes a radio and its bond from BlueZ.
  public func forget(address: String, adapter: String?, _ done: @escaping (BluetoothTrouble?) -> Void) {
    let visit = BlueZVisit(on: loop)
    keep(visit)
    visit.begin(adapter: adapter, within: Self.startLimit) { [weak self] result in
      switch result {
      case .failure(let trouble): self?.end(visit) { done(trouble) }
      case .success(let adapter):
        guard
          let device = visit.objects.devices.values.first(where: { $0.address.uppercased() == address.uppercased() })
        else { return self?.end(visit) { done(.notFound(address)) } ?? () }
        visit.remove(device.path, from: adapter) { error in self?.end(visit) { done(error) } }
      }
    }
  }

  private func keep(_ tool: AnyObject) { running[ObjectIdentifier(tool)] = tool }

  /// Once: what comes later finds nothing to end.
  private func end(_ tool: AnyObject, _ done: () -> Void) {
    guard running.removeValue(forKey: ObjectIdentifier(tool)) != nil else { return }
    if let visit = tool as? BlueZVisit { visit.end() }
    if let link = tool as? BluetoothLink {
      // It disconnects, then goes.
      link.close()
      loop.schedule(after: .seconds(3)) { link.end() }
    }
    done()
  }
}

/// A short stay on the bus.
final class BlueZVisit {
  private let bus: Bus
  private let loop: EventLoop
  let objects: BlueZObjects
  private var adapters: [String: AdapterFacts] = [:]
  private var scanning: String?
  private(set) var isServiceUp = false

  init(on loop: EventLoop) {
    self.loop = loop
    bus = Bus(on: loop)
    objects = BlueZObjects(bus)
  }

  /// Reads what there is; gives the adapter's path.
  func begin(
    adapter name: String?, within limit: Duration, _ done: @escaping (Result<String, BluetoothTrouble>) -> Void
  ) {
    var isDone = false
    var words = "no answer"
    let finish: (Result<String, BluetoothTrouble>) -> Void = { result in
      guard !isDone else { return }
      isDone = true
      done(result)
    }
    objects.onEvent = { [weak self] event in
      switch event {
      case .serviceUp: self?.read(name, finish)
      case .serviceDown(let reason): words = reason
      case .adapter(let facts): self?.adapters[facts.path] = facts
      default: break
      }
    }
    loop.schedule(after: limit) { finish(.failure(.noService(words))) }
    objects.start()
  }

  private func read(_ name: String?, _ done: @escaping (Result<String, BluetoothTrouble>) -> Void) {
    isServiceUp = true
    objects.read { [weak self] outcome in
      guard let self else { return }
      if case .failed(let failure) = outcome {
        return done(.failure(failure == .notAllowed ? .notAllowed : .noService("\(failure)")))
      }
      let fitting = self.adapters.values.filter {
        name == nil || $0.path.hasSuffix("/\(name ?? "")") || $0.address == name
      }
      guard let adapter = fitting.min(by: { $0.path < $1.path }) else { return done(.failure(.noAdapter)) }
      let short = adapter.path.split(separator: "/").last.map(String.init) ?? ""
      done(adapter.isPowered ? .success(adapter.path) : .failure(.poweredOff(adapter: short)))
    }
  }

  func scan(_ adapter: String, _ failed: @escaping (BluetoothTrouble?) -> Void) {
    objects.listen(to: nil)
    let filter: BusValue = .options([("Transport", .string("le"))])
    bus.call(.call(BlueZ.service, adapter, BlueZ.adapter, "SetDiscoveryFilter", [filter])) { [weak self] _ in
      self?.scanning = adapter
      self?.bus.call(.call(BlueZ.service, adapter, BlueZ.adapter, "StartDiscovery")) { result in
        guard case .failure(let error) = result else { return }
        failed(.failed(step: "scanning", error.description))
      }
    }
  }

  func remove(_ device: String, from adapter: String, _ done: @escaping (BluetoothTrouble?) -> Void) {
    bus.call(.call(BlueZ.service, adapter, BlueZ.adapter, "RemoveDevice", [.objectPath(device)])) { result in
      if case .failure(let error) = result { return done(.failed(step: "forgetting", error.description)) }
      done(nil)
    }
  }

  /// Leaving the bus ends our scan too.
  func end() { bus.close() }
}

extension BluetoothTrouble {
  /// Trying again changes nothing before somebody has done something.
  public var needsSomebody: Bool {
    switch self {
    case .noAdapter, .poweredOff, .blocked, .several, .wantsPIN, .wrongPIN, .noUART, .inUse, .notAllowed: true
    case .noService, .notFound, .bondLost, .lost, .silent, .failed: false
    }
  }
}
