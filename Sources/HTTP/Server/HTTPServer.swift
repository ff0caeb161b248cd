// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Streams

/// A small HTTP/1.1 server on a Unix socket or on TCP, for the control socket, for pages and for tests.
public final class HTTPServer {
  /// Connections at once; at that number the one that has been idle longest makes room for a new one.
  public static let maxConnections = 32
  /// Answers without an end at once: whoever follows something must not lock out who asks a question.
  public static let maxStreams = 24
  /// Bodies of requests at most, of whoever may open the control socket.
  public static let maxBody = 1 << 20
  /// A peer over TCP that acknowledges nothing for so long has gone.
  private static let silence: Duration = .seconds(60)

  /// Answers a request. It is cancelled when whoever asked has gone.
  public typealias Handler = (HTTPRequest, HTTPResponder) async -> Void

  private let loop: EventLoop
  /// Of a Unix socket.
  private let location: String?
  /// Of a loopback server; 0 for a Unix socket.
  public let port: UInt16
  let handler: Handler
  /// Bytes of a request's body at most.
  let bodyLimit: Int
  /// Who may connect.
  private let admits: (IPAddress?) -> Bool
  private let acceptor: Acceptor
  private var task: LoopTask?
  /// In the order of their last use.
  private var connections: [ServerConnection] = []

  /// Listens at `location`. A socket that a dead process left there is replaced, one that answers is not.
  /// `group`: who may connect besides the owner. Whoever makes a server stops it.
  public init(
    location: String, group: String?, on loop: EventLoop, log: Log = Log(),
    _ handler: @escaping Handler
  ) throws(SystemError) {
    self.loop = loop
    self.location = location
    self.handler = handler
    (bodyLimit, admits) = (Self.maxBody, { _ in true })
    if let other = try? UnixSocket.connect(location) {  // `try?`: a failure means that nobody listens
      close(other)
      throw SystemError("bind \(location)", code: EADDRINUSE)
    }
    unlink(location)
    let mask = umask(0o117)
    defer { umask(mask) }
    let descriptor = try UnixSocket.bind(location)
    if let group, let entry = getgrnam(group) { _ = chown(location, uid_t.max, entry.pointee.gr_gid) }
    guard listen(descriptor, 16) == 0 else {
      let error = SystemError("listen \(location)")
      close(descriptor)
      throw error
    }
    port = 0
    acceptor = Acceptor(descriptor, name: "the control socket", reserve: .serves, on: loop, log: log)
    task = loop.begin { await self.run() }
  }

  /// Listens on 127.0.0.1; port 0 takes a free one.
  public init(
    loopbackPort: UInt16, on loop: EventLoop, log: Log = Log(),
    _ handler: @escaping Handler
  ) throws(SystemError) {
    self.loop = loop
    location = nil
    self.handler = handler
    (bodyLimit, admits) = (Self.maxBody, { _ in true })
    let descriptor: Int32
    (descriptor, port) = try LoopbackSocket.listen(on: loopbackPort)
    acceptor = Acceptor(descriptor, name: "port \(port)", reserve: .turnsAway, on: loop, log: log)
    task = loop.begin { await self.run() }
  }

  /// Listens at an address that other machines may reach. `bodyLimit`: bytes of a request's body at most, which everybody who connects can fill.
  /// `admits`: who may connect; the others are closed unheard.
  public init(
    _ address: ListenAddress, bodyLimit: Int, name: String, on loop: EventLoop, log: Log,
    admits: @escaping (IPAddress?) -> Bool, _ handler: @escaping Handler
  ) throws(SystemError) {
    self.loop = loop
    location = nil
    port = address.port
    self.handler = handler
    (self.bodyLimit, self.admits) = (bodyLimit, admits)
    acceptor = Acceptor(try address.listen(), name: name, reserve: .turnsAway, on: loop, log: log)
    task = loop.begin { await self.run() }
  }

  /// Stops listening and closes all connections.
  public func stop() {
    task?.cancel()
    acceptor.stop()
    if let location { unlink(location) }
    for connection in connections { connection.close() }
  }

  /// Takes connections until it is stopped. Each is a child: all of them have ended when this returns.
  private func run() async {
    await withDiscardingTaskGroup { group in
      // `try?`: it throws when the server is stopped, and only then.
      while let socket = try? await acceptor.accept(makingRoom: closeIdle) {
        let peer = location == nil ? ListenAddress.peer(of: socket) : nil
        guard admits(peer), hasRoom || closeIdle() else {
          close(socket)
          continue
        }
        if location == nil { Self.noticeSilence(socket) }
        let connection = ServerConnection(
          SocketStream(socket, endsWithPeer: location == nil, on: loop), from: peer, on: loop, of: self)
        connections.append(connection)
        loop.begin(in: &group) {
          await connection.run()
          self.connections.removeAll { $0 === connection }
        }
      }
      group.cancelAll()
    }
  }

  /// A phone that leaves the network says nothing: what is sent to it would wait for a quarter of an hour.
  private static func noticeSilence(_ socket: Int32) {
    var milliseconds = UInt32(clamping: silence.components.seconds * 1000)
    setsockopt(
      socket, Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, &milliseconds, socklen_t(MemoryLayout<UInt32>.size))
  }

  private var hasRoom: Bool { connections.count { $0.isOpen } < Self.maxConnections }

  /// Something came on it, or was answered.
  func used(_ connection: ServerConnection) {
    guard let place = connections.firstIndex(where: { $0 === connection }) else { return }
    connections.append(connections.remove(at: place))
  }

  /// Another one may answer piece by piece.
  var mayStream: Bool { connections.count { $0.isStreaming } < Self.maxStreams }

  /// False: all of them are being answered.
  private func closeIdle() -> Bool {
    guard let longest = connections.first(where: { $0.isOpen && !$0.isBusy }) else { return false }
    longest.close()
    return true
  }
}
