// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Streams

/// A small HTTP/1.1 server on a Unix socket or TCP, for the control socket, the pages and tests.
public final class HTTPServer {
  /// Maximum number of connections; at the limit the longest idle one is closed for a new one.
  public static let maxConnections = 32
  /// Maximum number of endless answers, so that followers do not lock out other clients.
  public static let maxStreams = 24
  /// Maximum body of a request over the control socket.
  public static let maxBody = 1 << 20
  /// Time without an acknowledgement after which a TCP peer counts as gone.
  private static let silence: Duration = .seconds(60)

  /// Answers a request. Cancelled when the client disconnects.
  public typealias Handler = (HTTPRequest, HTTPResponder) async -> Void

  private let loop: EventLoop
  /// Location of a Unix socket.
  private let location: String?
  /// Port of a TCP server; 0 for a Unix socket.
  public let port: UInt16
  let handler: Handler
  /// Maximum body of a request.
  let bodyLimit: Int
  /// Decides who may connect.
  private let admits: (IPAddress?) -> Bool
  private let acceptor: Acceptor
  private var task: LoopTask?
  /// In order of their last use.
  private var connections: [ServerConnection] = []

  /// Listens at `location`. Replaces the stale socket of a dead process, but not one that answers.
  /// `group`: may connect besides the owner. The caller must stop the server.
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

  /// Listens on 127.0.0.1; port 0 selects a free one.
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

  /// Listens at an address that other machines may reach. `bodyLimit`: maximum body of a request, which any client can send.
  /// `admits`: who may connect; other connections are closed at once.
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

  /// Stops listening, and closes all connections.
  public func stop() {
    task?.cancel()
    acceptor.stop()
    if let location { unlink(location) }
    for connection in connections { connection.close() }
  }

  /// Accepts connections until it is stopped. Each is a child task; all have ended when this returns.
  private func run() async {
    await withDiscardingTaskGroup { group in
      // `try?`: throws only when the server is stopped.
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

  /// A phone that leaves the network says nothing: output to it would wait for a quarter of an hour.
  private static func noticeSilence(_ socket: Int32) {
    var milliseconds = UInt32(clamping: silence.components.seconds * 1000)
    setsockopt(
      socket, Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, &milliseconds, socklen_t(MemoryLayout<UInt32>.size))
  }

  private var hasRoom: Bool { connections.count { $0.isOpen } < Self.maxConnections }

  /// The connection was used.
  func used(_ connection: ServerConnection) {
    guard let place = connections.firstIndex(where: { $0 === connection }) else { return }
    connections.append(connections.remove(at: place))
  }

  /// Whether another endless answer is allowed.
  var mayStream: Bool { connections.count { $0.isStreaming } < Self.maxStreams }

  /// False: all connections are busy.
  private func closeIdle() -> Bool {
    guard let longest = connections.first(where: { $0.isOpen && !$0.isBusy }) else { return false }
    longest.close()
    return true
  }
}
