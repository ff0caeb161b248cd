// SPDX-License-Identifier: MIT

import Sockets

/// A WebSocket's binary messages as a stream of bytes, for protocols that are carried in one.
public final class WebSocketStream: ByteStream {
  private let socket: WebSocket

  /// `socket` is open.
  public init(_ socket: WebSocket) { self.socket = socket }

  public var pendingBytes: Int { socket.pendingBytes }
  /// Pings of a load balancer in between move nothing.
  public var movedBytes: UInt64 { socket.dataAcknowledged &+ socket.dataReceived }
  /// Nobody asks: what it carries speaks both ways.
  public var isQuiet: Bool { socket.isOpen }

  public func write(_ bytes: [UInt8]) { socket.send(binary: bytes) }

  public func read() async throws(StreamEnd) -> [UInt8] {
    while true {
      do throws(WebSocketFailure) {
        if case .message(let bytes) = try await socket.next() { return bytes }
      } catch {
        throw error == .cancelled ? .cancelled : .failed(error.description)
      }
    }
  }

  public func drained() async throws(StreamEnd) { try await socket.drained() }

  public func close() { socket.close() }
}
