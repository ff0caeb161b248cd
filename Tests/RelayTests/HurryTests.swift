// SPDX-License-Identifier: MIT

import Glibc
import Store
import TestSupport
import Testing

@testable import EventLoop
@testable import Relay

/// An unreachable server: packets to it are lost, as on a line that is cut.
private final class Unreachable: Carrier {
  let kind = "hub"
  let place = "nowhere"
  let keepsConnection = true
  let serverKeepsCount = true
  let bytesSent: UInt64 = 0
  private let loop: EventLoop
  private let listener: Int32
  private let port: UInt16
  private var fillers: [Int32] = []

  init(on loop: EventLoop) throws {
    self.loop = loop
    (listener, port) = try LoopbackSocket.listen(on: 0)
    // The queue of the listening socket is full.
    listen(listener, 0)
    let port = [UInt8(port >> 8), UInt8(port & 0xFF)]
    let address = NetworkAddress(
      family: AF_INET, bytes: [UInt8(AF_INET), 0] + port + [127, 0, 0, 1] + [UInt8](repeating: 0, count: 8))
    for _ in 0..<4 { fillers.append(try address.connect().socket) }
  }

  deinit { for socket in fillers + [listener] { Glibc.close(socket) } }

  func greet() async -> Greeting {
    do throws(Connector.Failure) {
      Descriptor.close(
        try await loop.connect(host: "127.0.0.1", port: port, timeout: .seconds(600), triesAgain: true))
      return .ready
    } catch {
      return .failed(.retry(reason: "\(error)", after: nil))
    }
  }

  func carry(_ batch: Batch) async -> Verdict { .retry(reason: "nobody is there", after: nil) }
  func close() {}
}

@Suite struct HurryTests {
  @Test(arguments: ["resume", "network"])
  func `a connection attempt is retried when the line is reported up`(_ sign: String) throws {
    let (loop, scratch) = (EventLoop(), Scratch(inMemory: true))
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let upstream = try Upstream(
      Upstream.Settings(name: "hub"), carrier: Unreachable(on: loop), store: store, on: loop,
      log: Log(level: .error, sink: { _, _ in }))
    let idle = loop.watchCount
    upstream.wake()
    while loop.connecting.isEmpty || loop.connecting.values.contains(where: \.isLookingUp) { loop.turn(wait: true) }
    #expect(upstream.shipment.state == .asking && loop.watchCount == idle + 1)
    if sign == "resume" { upstream.resume() } else { upstream.networkChanged() }
    #expect(loop.watchCount == idle + 2)
    upstream.stop()
    while !loop.connecting.isEmpty { loop.turn(wait: false) }
    #expect(loop.watchCount == idle)
  }
}
