// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Timing

/// A radio on a serial device, with hot-plug.
final class SerialLink: Link {
  enum Choice: Equatable {
    case named(String)
    /// `auto:`, and the beginning of the wanted radio's key
    case anyRadio(key: String?)
  }

  /// A line that takes no byte for so long is stuck.
  private static let stallLimit: Duration = .seconds(10)
  /// The serial core loses what is written while a board comes up; output waiting beyond this is an error of ours.
  private static let maxPending = 8192
  /// Let a device that just appeared settle: udev changes its group after it was made.
  private static let settling: Duration = .milliseconds(200)

  private let choice: Choice
  private let baud: UInt32
  private let loop: EventLoop
  private var port: SerialPort?
  private var pending: [UInt8] = []
  private var stall: LoopTimer?
  private var directory: DirectoryWatch?
  /// The DTR setting that was tried last: after a change it is where the next opening begins.
  private var dtr: Bool?
  private let kept: KeptPort?
  private let search: SerialSearch
  private var isEnding = false
  var onEvent: (LinkEvent) -> Void = { _ in }

  init(_ choice: Choice, baud: UInt32, kept: KeptPort? = nil, on loop: EventLoop) {
    self.choice = choice
    self.kept = kept
    search = SerialSearch(on: loop)
    self.baud = baud
    self.loop = loop
  }

  var name: String {
    switch choice {
    case .named(let location): "serial:\(location)"
    case .anyRadio: port.map { "serial:\($0.device)" } ?? "auto:"
    }
  }

  func open() {
    close()
    switch choice {
    case .named(let location): open(location)
    case .anyRadio(let key): find(key)
    }
  }

  /// What a predecessor had open; else each device is asked whether it is the radio.
  private func find(_ key: String?) {
    if let device = kept?.inheritedDevice { return open(device) }
    let devices = SerialDevices.all()
    guard !devices.isEmpty else { return loop.later { [weak self] in self?.onEvent(.down(.noDeviceFound)) } }
    search.look(devices, key: key, baud: baud) { [weak self] result in
      switch result {
      case .success(let device): self?.open(device)
      case .failure(let error): self?.onEvent(.down(error))
      }
    }
  }

  private func open(_ location: String) {
    do {
      let opened = try SerialPort(location: location, baud: baud, dtr: dtr, inherited: kept?.takeInherited())
      port = opened
      kept?.opened(opened)
      loop.watch(opened.descriptor, for: .readable) { [weak self] readiness in self?.ready(readiness) }
      loop.later { [weak self] in if self?.port === opened { self?.begin() } }
    } catch {
      loop.later { [weak self] in self?.onEvent(.down(error)) }
    }
  }

  private func begin() {
    onEvent(.up)
    let leftOver = kept?.takeLeftOvers() ?? []
    if !leftOver.isEmpty { onEvent(.bytes(leftOver)) }
  }

  var isFilling: Bool { kept?.spool?.isFilling ?? false }

  func settled(pending: Int) { kept?.spool?.settled(pending: pending) }

  func end() {
    isEnding = true
    close()
  }

  func close() {
    directory = nil
    search.cancel()
    stall?.cancel()
    stall = nil
    pending.removeAll()
    guard let port else { return }
    loop.unwatch(port.descriptor)
    // Whoever comes after us finds it open.
    if !isEnding { kept?.closed() }
    self.port = nil
  }

  func tryOtherLineSettings() -> Bool {
    guard let port else { return false }
    let changed = port.invertDTR()
    if changed { dtr = port.isDTRHigh }
    return changed
  }

  func watchForReturn(_ action: @escaping () -> Void) {
    let location =
      switch choice {
      case .named(let location): location
      case .anyRadio: "/dev/serial/by-id/any"
      }
    directory = DirectoryWatch(appearanceOf: location, on: loop) { [weak self] in
      guard let self, self.mayHaveReturned(location) else { return }
      self.loop.schedule(after: Self.settling) { [weak self] in if self?.port == nil { action() } }
    }
  }

  private func mayHaveReturned(_ location: String) -> Bool {
    switch choice {
    case .anyRadio: return !SerialDevices.all().isEmpty
    case .named: return access(location, F_OK) == 0
    }
  }

  func send(_ bytes: [UInt8]) {
    guard port != nil else { return }
    guard pending.count + bytes.count <= Self.maxPending else { return fail(.stalled(name)) }
    pending.append(contentsOf: bytes)
    flush()
  }

  private func flush() {
    guard let port, !pending.isEmpty else { return }
    switch Descriptor.write(port.descriptor, pending[...]) {
    case .wrote(let count): pending.removeFirst(count)
    case .wouldBlock: break
    case .failed(let error): return fail(Self.isGone(error) ? .unplugged(name) : .system(error.description))
    }
    stall?.cancel()
    stall = nil
    loop.changeInterest(port.descriptor, to: pending.isEmpty ? .readable : [.readable, .writable])
    guard !pending.isEmpty else { return }
    stall = loop.schedule(after: Self.stallLimit) { [weak self] in
      guard let self else { return }
      self.fail(.stalled(self.name))
    }
  }

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { flush() }
    for _ in 0..<Descriptor.readsPerTurn {
      guard let port else { return }
      switch kept?.read(from: port.descriptor) ?? Descriptor.read(port.descriptor) {
      case .bytes(let bytes): onEvent(.bytes(bytes))
      case .wouldBlock:
        if readiness.isDisjoint(with: .closed) { return }
        return fail(.unplugged(name))
      case .end: return fail(.unplugged(name))
      case .failed(let error): return fail(Self.isGone(error) ? .unplugged(name) : .system(error.description))
      }
    }
  }

  private static func isGone(_ error: SystemError) -> Bool { [EIO, ENXIO, ENODEV, EPIPE].contains(error.code) }

  private func fail(_ error: LinkError) {
    close()
    loop.later { [weak self] in self?.onEvent(.down(error)) }
  }
}
