// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Sockets

/// A server that says what a test tells it to, byte for byte, on the test's own loop.
final class RawServer {
  private let loop: EventLoop
  private let descriptor: Int32
  let port: UInt16
  private(set) var connections: [SocketStream] = []
  /// All that came on the newest connection.
  private(set) var heard: [UInt8] = []
  /// How many connections have ended.
  private(set) var ended = 0
  /// Something came on the newest connection.
  var onHeard: (RawServer) -> Void = { _ in }
  var onEnded: () -> Void = {}

  init(on loop: EventLoop) throws {
    self.loop = loop
    // A client that has enough closes while there is more to say.
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
      // It is over when the client has gone, and when the test has.
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

  /// The key of a handshake that was heard to its end.
  var key: String? {
    let head = String(decoding: heard, as: UTF8.self)
    guard head.hasSuffix("\r\n\r\n") else { return nil }
    return head.split(separator: "\r\n").first { $0.hasPrefix("Sec-WebSocket-Key: ") }.map { String($0.dropFirst(19)) }
  }
}
