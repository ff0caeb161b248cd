// SPDX-License-Identifier: MIT

import Sockets

/// The binary messages of a WebSocket as a stream of bytes, for a protocol that is carried in them. Where they begin and
/// end does not count: `WebSocket.Settings.maxMessage` should be `.max`.
public final class WebSocketStream: ByteStream {
  private let socket: WebSocket

  /// `socket` must be open.
  public init(_ socket: WebSocket) { self.socket = socket }

  public var pendingBytes: Int { socket.pendingBytes }
  /// Without pings, such as those of a load balancer.
  public var movedBytes: UInt64 { socket.dataAcknowledged &+ socket.dataReceived }
  /// True while the socket is open: the protocols carried here do not need more.
  public var isQuiet: Bool { socket.isOpen }

  public func write(_ bytes: [UInt8]) { socket.send(binary: bytes) }

  public func read() async throws(StreamEnd) -> [UInt8] {
    while true {
      do throws(WebSocketFailure) {
        if case .message(let bytes) = try await socket.next(), !bytes.isEmpty { return bytes }
      } catch {
        throw error == .cancelled ? .cancelled : .failed(error.description)
      }
    }
  }

  public func drained() async throws(StreamEnd) { try await socket.drained() }

  public func close() { socket.close() }
}
