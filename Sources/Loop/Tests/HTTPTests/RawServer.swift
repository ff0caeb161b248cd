// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Sockets

/// A server that sends a test's bytes, on the test's own loop.
final class RawServer {
  private let loop: EventLoop
  private let descriptor: Int32
  let port: UInt16
  private(set) var connections: [SocketStream] = []
  /// All bytes received on the newest connection.
  private(set) var heard: [UInt8] = []
  private(set) var ended = 0
  /// Called when bytes arrive on the newest connection.
  var onHeard: (RawServer) -> Void = { _ in }
  var onEnded: () -> Void = {}

  init(on loop: EventLoop) throws {
    self.loop = loop
    // A client may close the connection before it has read everything.
    signal(SIGPIPE, SIG_IGN)
    (descriptor, port) = try LoopbackSocket.listen(on: 0)
    loop.watch(descriptor, for: .readable) { [unowned self] _ in self.accept() }
  }

  deinit {
    loop.unwatch(descriptor)
    close(descriptor)
  }

  private func accept() {
    let socket = Glibc.accept(descriptor, nil, nil)
    guard socket >= 0 else { return }
    Descriptor.setNonBlocking(socket)
    let stream = SocketStream(socket, on: loop)
    heard = []
    connections.append(stream)
    _ = loop.begin { [weak self] in
      // The loop ends with the client, or with the test.
      while let bytes = try? await stream.read() {
        guard let self else { return }
        self.heard += bytes
        self.onHeard(self)
      }
      self?.ended += 1
      self?.onEnded()
    }
  }

  func say(_ bytes: [UInt8]) { connections.last?.write(bytes) }
  func say(_ text: String) { say(Array(text.utf8)) }
  func hangUp() { connections.last?.close() }

  /// The key of a complete handshake.
  var key: String? {
    let head = String(decoding: heard, as: UTF8.self)
    guard head.hasSuffix("\r\n\r\n") else { return nil }
    return head.split(separator: "\r\n").first { $0.hasPrefix("Sec-WebSocket-Key: ") }.map { String($0.dropFirst(19)) }
  }
}
