// SPDX-License-Identifier: MIT

import CLinux
import Companion
import EventLoop
import Glibc

/// A radio over TCP: Wi-Fi and Ethernet firmware, or a proxy. Framed as on a serial line.
final class TCPLink: Link {
  private static let connectLimit: Duration = .seconds(10)
  private static let maxPending = 8192

  private let host: String
  private let port: UInt16
  private let loop: EventLoop
  /// Runs until it is connected, or has failed to connect.
  private var opening: LoopTask?
  private var socket: Int32 = -1
  private var pending: [UInt8] = []
  var onEvent: (LinkEvent) -> Void = { _ in }

  init(host: String, port: UInt16, on loop: EventLoop) {
    self.host = host
    self.port = port
    self.loop = loop
  }

  /// TCP loses no byte, but a mobile network or a lost packet can hold one back for long.
  var frameTimeout: Duration { FrameStream.frameTimeout }

  var name: String { LinkAddress.tcp(host: host, port: port).description }

  func open() {
    close()
    opening = loop.begin { [self] in
      do {
        try Task.checkCancellation()
        let socket = try await loop.connect(host: host, port: port, timeout: Self.connectLimit)
        guard !Task.isCancelled else { return Descriptor.close(socket) }
        connected(socket)
      } catch let failure as Connector.Failure where failure != .cancelled {
        onEvent(.down(.connection(failure.description)))
      } catch {
        return  // closed meanwhile
      }
    }
  }

  private func connected(_ connected: Int32) {
    socket = connected
    keepAlive()
    loop.watch(socket, for: .readable) { [self] readiness in ready(readiness) }
    onEvent(.up)
  }

  /// The kernel detects a lost radio: first probe after 60 s of silence, dead after 4 more in 60 s.
  private func keepAlive() {
    func set(_ level: Int32, _ option: Int32, _ value: Int32) {
      var value = value
      setsockopt(socket, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
    }
    set(SOL_SOCKET, SO_KEEPALIVE, 1)
    set(Int32(IPPROTO_TCP), TCP_KEEPIDLE, 60)
    set(Int32(IPPROTO_TCP), TCP_KEEPINTVL, 15)
    set(Int32(IPPROTO_TCP), TCP_KEEPCNT, 4)
  }

  func close() {
    opening?.cancel()
    pending.removeAll()
    guard socket >= 0 else { return }
    loop.unwatch(socket)
    Glibc.close(socket)
    socket = -1
  }

  func send(_ bytes: [UInt8]) {
    guard socket >= 0 else { return }
    guard pending.count + bytes.count <= Self.maxPending else { return fail(.stalled(name)) }
    pending.append(contentsOf: bytes)
    flush()
  }

  private func flush() {
    guard socket >= 0, !pending.isEmpty else { return }
    switch Descriptor.write(socket, pending[...]) {
    case .wrote(let count): pending.removeFirst(count)
    case .wouldBlock: break
    case .failed(let error) where error.code == ECONNRESET || error.code == EPIPE: return fail(.closedByPeer(name))
    case .failed(let error): return fail(.system("\(name): \(error.message)"))
    }
    loop.changeInterest(socket, to: pending.isEmpty ? .readable : [.readable, .writable])
  }

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { flush() }
    for _ in 0..<Descriptor.readsPerTurn where socket >= 0 {
      switch Descriptor.read(socket) {
      case .bytes(let bytes):
        onEvent(.bytes(bytes))
        // Those were all bytes: the kernel reports further ones.
        if bytes.count < Descriptor.chunk { return }
      case .wouldBlock: return
      case .end: return fail(.closedByPeer(name))
      // Some network stacks drop a client by a reset.
      case .failed(let error) where error.code == ECONNRESET: return fail(.closedByPeer(name))
      case .failed(let error): return fail(.system("\(name): \(error.message)"))
      }
    }
  }

  private func fail(_ error: LinkError) {
    close()
    loop.later { [self] in onEvent(.down(error)) }
  }
}
