// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// The port of a Wi-Fi radio: one client on TCP. A new client replaces the previous one.
public final class TCPPort: RadioPort {
  private var listener: Int32 = -1
  /// Wakes `serve` when a client connects.
  private let waiting = Waiter()
  private var client: Int32 = -1
  public private(set) var port: UInt16

  /// Listens on the loopback address only. Port 0 selects a free port. `isLine`: the connection carries a serial line, so invalid data is skipped.
  public init(_ radio: VirtualRadio, on loop: EventLoop, port: UInt16, isLine: Bool = false) throws {
    self.port = port
    super.init(radio, on: loop, isLine ? .serial : .wifi)
    radio.isClientConnected = false
    try plugIn()
  }

  deinit { pullOut() }

  public override var address: String { "tcp:127.0.0.1:\(port)" }
  override var isPluggedIn: Bool { listener >= 0 }

  override func plugIn() throws {
    (listener, port) = try LoopbackSocket.listen(on: port)
    loop.watch(listener, for: .readable) { [waiting] _ in waiting.resume() }
  }

  override func pullOut() {
    dropClient()
    guard listener >= 0 else { return }
    loop.unwatch(listener)
    close(listener)
    listener = -1
  }

  override func rebooted() { dropClient() }

  private func dropClient() {
    cut()
    guard client >= 0 else { return }
    close(client)
    client = -1
    radio.isClientConnected = false
  }

  override func serve() async throws {
    var next: Int32 = -1
    defer { if next >= 0 { close(next) } }
    while true {
      if next < 0 { next = try await accept() }
      client = next
      radio.isClientConnected = attach(client)
      next = -1
      try await loop.race({ try await self.carry() }, { next = try await self.accept() })
      dropClient()
    }
  }

  private func accept() async throws(CancellationError) -> Int32 {
    while true {
      let socket = accept4(listener, nil, nil, Int32(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue))
      guard socket < 0 else { return socket }
      if errno == EMFILE || errno == ENFILE { try await rest() }
      try await waiting.wait()
    }
  }

  /// Pauses while the process has no free descriptor: otherwise each turn would report the waiting connection.
  private func rest() async throws(CancellationError) {
    loop.changeInterest(listener, to: [])
    try await loop.sleep(for: .seconds(1))
    loop.changeInterest(listener, to: .readable)
  }
}
