// SPDX-License-Identifier: MIT

import EventLoop
import Streams

/// A WebSocket's binary messages as a stream of bytes, for protocols that are carried in one.
public final class WebSocketStream: ByteStream {
  private let socket: WebSocket
  private var unsent: [UInt8] = []
  public var onBytes: ([UInt8]) -> Void = { _ in }
  public var onClose: (String?) -> Void = { _ in }
  public var onDrained: () -> Void = {}

  public init(_ settings: WebSocket.Settings, tls: TLSContext?, on loop: EventLoop) {
    socket = WebSocket(settings, tls: tls, on: loop)
    socket.onOpen = { [weak self] in self?.flush() }
    socket.onMessage = { [weak self] bytes in self?.onBytes(bytes) }
    socket.onDrained = { [weak self] in self?.onDrained() }
    socket.onEnd = { [weak self] failure in self?.onClose(failure.description) }
  }

  public var pendingBytes: Int { unsent.count + socket.pendingBytes }
  public var movedBytes: UInt64 { socket.movedBytes }
  public var bytesSent: UInt64 { socket.bytesSent }

  public func start() { socket.open() }

  public func write(_ bytes: [UInt8]) {
    unsent += bytes
    if socket.isOpen { flush() }
  }

  private func flush() {
    guard !unsent.isEmpty else { return }
    socket.send(binary: unsent)
    unsent = []
  }

  public func close() { socket.close() }
}
