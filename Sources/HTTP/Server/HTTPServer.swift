// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Streams

/// A small HTTP/1.1 server on a Unix socket or on loopback, for the control socket and for tests.
public final class HTTPServer {
  /// Connections at once; at that number the one that has been idle longest makes room for a new one.
  public static let maxConnections = 32
  /// Answers without an end at once: whoever follows something must not lock out who asks a question.
  public static let maxStreams = 24
  /// Bodies of requests at most.
  static let maxBody = 1 << 20

  private let loop: EventLoop
  /// Of a Unix socket.
  private let location: String?
  private let descriptor: Int32
  /// Of a loopback server; 0 for a Unix socket.
  public private(set) var port: UInt16 = 0
  private let handler: (HTTPRequest, HTTPResponder) -> Void
  private var acceptor: Acceptor?
  /// Each with the number of its last use.
  private var connections: [ObjectIdentifier: (connection: ServerConnection, used: UInt64)] = [:]
  private var uses: UInt64 = 0

  /// Listens at `location`. A socket that a dead process left there is replaced, one that answers is not.
  /// `group`: who may connect besides the owner.
  public init(
    location: String, group: String?, on loop: EventLoop, log: Log = Log(),
    _ handler: @escaping (HTTPRequest, HTTPResponder) -> Void
  ) throws(SystemError) {
    self.loop = loop
    self.location = location
    self.handler = handler
    if let other = try? UnixSocket.connect(location) {  // `try?`: a failure means that nobody listens
      close(other)
      throw SystemError("bind \(location)", code: EADDRINUSE)
    }
    unlink(location)
    let mask = umask(0o117)
    defer { umask(mask) }
    descriptor = try UnixSocket.bind(location)
    if let group, let entry = getgrnam(group) { _ = chown(location, uid_t.max, entry.pointee.gr_gid) }
    guard listen(descriptor, 16) == 0 else {
      let error = SystemError("listen \(location)")
      close(descriptor)
      throw error
    }
    accept("the control socket", .serves, log)
  }

  /// Listens on 127.0.0.1; port 0 takes a free one.
  public init(
    loopbackPort: UInt16, on loop: EventLoop, log: Log = Log(),
    _ handler: @escaping (HTTPRequest, HTTPResponder) -> Void
  ) throws(SystemError) {
    self.loop = loop
    location = nil
    self.handler = handler
    (descriptor, port) = try LoopbackSocket.listen(on: loopbackPort)
    accept("port \(port)", .turnsAway, log)
  }

  /// Stops listening and closes all connections.
  public func stop() {
    acceptor?.stop()
    acceptor = nil
    close(descriptor)
    if let location { unlink(location) }
    for entry in connections.values { entry.connection.close() }
    connections.removeAll()
  }

  private func accept(_ name: String, _ reserve: Acceptor.Reserve, _ log: Log) {
    acceptor = Acceptor(descriptor, name: name, reserve: reserve, on: loop, log: log) { [weak self] socket in
      if let self { self.begin(socket) } else { close(socket) }
    }
    acceptor?.makeRoom = { [weak self] in self?.closeIdle() ?? false }
  }

  private func begin(_ socket: Int32) {
    guard connections.count < Self.maxConnections || closeIdle() else {
      close(socket)
      return
    }
    var id: ObjectIdentifier?
    let connection = ServerConnection(
      SocketStream(socket, on: loop), on: loop, mayStream: { [weak self] in self?.mayStream ?? false },
      onUse: { [weak self] in if let id { self?.used(id) } }, handler)
    let key = ObjectIdentifier(connection)
    id = key
    connections[key] = (connection, uses)
    used(key)
    connection.start { [weak self] in self?.connections[key] = nil }
  }

  private func used(_ id: ObjectIdentifier) {
    uses &+= 1
    connections[id]?.used = uses
  }

  private var mayStream: Bool { connections.values.count { $0.connection.isStreaming } < Self.maxStreams }

  /// False: all of them are being answered.
  private func closeIdle() -> Bool {
    let idle = connections.filter { !$0.value.connection.isBusy }
    guard let longest = idle.min(by: { $0.value.used < $1.value.used }) else { return false }
    connections[longest.key] = nil
    longest.value.connection.close()
    return true
  }
}
