// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// A radio on a serial device, with hot-plug.
final class SerialLink: Link {
  enum Choice: Equatable {
    case named(String)
    /// `auto:`, and the first digits of the radio's key.
    case anyRadio(key: String?)
  }

  /// A line that accepts no byte for this time is stuck.
  private static let stallLimit: Duration = .seconds(10)
  /// The serial core discards bytes written while a board boots; more pending output than this is a bug.
  private static let maxPending = 8192
  /// Delay for a device that just appeared: udev changes its group after creation.
  private static let settling: Duration = .milliseconds(200)

  private let choice: Choice
  private let baud: UInt32
  private let loop: EventLoop
  private var port: SerialPort?
  private var pending: [UInt8] = []
  private var stall: LoopTimer?
  /// Runs until the port is open, or has failed to open.
  private var opening: LoopTask?
  /// Runs while the owner waits for the radio to return.
  private var returning: LoopTask?
  /// The DTR setting of the last attempt; after a change the next attempt begins with it.
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
    opening = loop.begin { [self] in
      do {
        try Task.checkCancellation()
        let location = try await location()
        try Task.checkCancellation()
        try open(location)
      } catch let error as LinkError {
        onEvent(.down(error))
      } catch {
        return  // closed meanwhile
      }
    }
  }

  /// The named device; otherwise the inherited one; otherwise each device is probed.
  private func location() async throws -> String {
    let key: String?
    switch choice {
    case .named(let location): return location
    case .anyRadio(let wanted): key = wanted
    }
    if let device = kept?.inheritedDevice { return device }
    let devices = SerialDevices.all()
    guard !devices.isEmpty else { throw LinkError.noDeviceFound }
    return try await search.look(devices, key: key, baud: baud)
  }

  private func open(_ location: String) throws(LinkError) {
    let opened = try SerialPort(location: location, baud: baud, dtr: dtr, inherited: kept?.takeInherited())
    port = opened
    kept?.opened(opened)
    loop.watch(opened.descriptor, for: .readable) { [self] readiness in ready(readiness) }
    let leftOver = kept?.takeLeftOvers() ?? []
    if !leftOver.isEmpty { onEvent(.leftOver(leftOver, continues: opened.isInherited)) }
    guard port === opened else { return }
    onEvent(.up)
  }

  var isFilling: Bool { kept?.spool?.isFilling ?? false }

  func settled(pending: Int) { kept?.spool?.settled(pending: pending) }

  func end() {
    isEnding = true
    close()
  }

  func close() {
    opening?.cancel()
    returning?.cancel()
    stall?.cancel()
    stall = nil
    pending.removeAll()
    guard let port else { return }
    loop.unwatch(port.descriptor)
    // The next process finds it open.
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
    returning?.cancel()
    returning = loop.begin { [self] in
      do {
        var watch = DirectoryWatch(appearanceOf: watchedLocation)
        while let present = watch {
          try await present.change(on: loop)
          // Its folder may be new, too. Watched before the look: what appears later is reported.
          watch = DirectoryWatch(appearanceOf: watchedLocation)
          guard mayHaveReturned else { continue }
          try await loop.sleep(for: Self.settling)
          if port == nil { action() }
        }
      } catch {
        return  // opened or closed meanwhile
      }
    }
  }

  private var watchedLocation: String {
    switch choice {
    case .named(let location): location
    case .anyRadio: "/dev/serial/by-id/any"
    }
  }

  private var mayHaveReturned: Bool {
    switch choice {
    case .anyRadio: !SerialDevices.all().isEmpty
    case .named(let location): access(location, F_OK) == 0
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
    stall = loop.schedule(after: Self.stallLimit) { [self] in fail(.stalled(name)) }
  }

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { flush() }
    for _ in 0..<Descriptor.readsPerTurn {
      guard let port else { return }
      switch kept?.read(from: port.descriptor) ?? Descriptor.read(port.descriptor) {
      case .bytes(let bytes):
        onEvent(.bytes(bytes))
        // Those were all bytes: the kernel reports further ones, or that the device is gone.
        if bytes.count < Descriptor.chunk, readiness.isDisjoint(with: .closed) { return }
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
    loop.later { [self] in onEvent(.down(error)) }
  }
}
