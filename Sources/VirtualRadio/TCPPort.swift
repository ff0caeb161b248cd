// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Timing

/// The port of a Wi-Fi radio: one client on TCP, and a new one throws out the one before.
public final class TCPPort: RadioPort {
  private var acceptor: Acceptor?
  private var client: Int32 = -1
  public private(set) var port: UInt16 = 0

  private let kind: FirmwareReceiver.Kind

  /// Loopback only. Port 0 selects a free one. `isLine`: it carries a serial line, so that invalid data is skipped as on one.
  public init(_ radio: VirtualRadio, on loop: EventLoop, port: UInt16, isLine: Bool = false) throws {
    kind = isLine ? .serial : .wifi
    super.init(radio, on: loop, kind)
    radio.isClientConnected = false
    try listen(on: port)
    radio.onReboot = { [weak self] in self?.dropClient() }
  }

  deinit {
    dropClient()
    stopListening()
  }

  public override var address: String { "tcp:127.0.0.1:\(port)" }

  private func listen(on wanted: UInt16) throws {
    let listener: Int32
    (listener, port) = try LoopbackSocket.listen(on: wanted)
    let acceptor = Acceptor(listener, name: address, reserve: .turnsAway, on: loop, log: Log())
    self.acceptor = acceptor
    loop.begin { [weak self] in
      // `try?`: it throws when the port no longer listens, and only then.
      while let socket = try? await acceptor.accept() {
        if let self { self.accept(socket) } else { close(socket) }
      }
    }
  }

  private func stopListening() {
    acceptor?.stop()
    acceptor = nil
  }

  private func accept(_ accepted: Int32) {
    dropClient()
    client = accepted
    radio.isClientConnected = true
    resetReceiver(kind)
    loop.watch(client, for: .readable) { [weak self] readiness in self?.ready(readiness) }
  }

  private func dropClient() {
    guard client >= 0 else { return }
    loop.unwatch(client)
    close(client)
    client = -1
    radio.isClientConnected = false
  }

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) {
      flush()
      updateInterest()
    }
    for _ in 0..<Descriptor.readsPerTurn where client >= 0 {
      switch Descriptor.read(client) {
      case .bytes(let bytes): received(bytes)
      case .wouldBlock: return
      case .end, .failed: return dropClient()
      }
    }
  }

  override func writeOut(_ bytes: ArraySlice<UInt8>) -> Int {
    guard client >= 0 else { return bytes.count }
    var written = 0
    while written < bytes.count {
      guard case .wrote(let count) = Descriptor.write(client, bytes[(bytes.startIndex + written)...]) else { break }
      written += count
    }
    loop.later { [weak self] in self?.updateInterest() }
    return written
  }

  private func updateInterest() {
    guard client >= 0 else { return }
    loop.changeInterest(client, to: wantsToWrite ? [.readable, .writable] : .readable)
  }

  public override func unplug(for duration: Duration) {
    dropClient()
    stopListening()
    let wanted = port
    loop.schedule(after: duration) { [weak self] in
      do { try self?.listen(on: wanted) } catch { Log().error("\(error)") }
    }
  }
}
