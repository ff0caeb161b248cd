// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Sockets

/// A small HTTP/1.1 server on a Unix socket or TCP, for the control socket, the pages and tests.
public final class HTTPServer {
  /// Maximum number of connections; at the limit, a new connection takes the place of one that can be spared
  /// (`ConnectionLimiter`).
  public static let maxConnections = 32
  /// Maximum number of endless answers, so that followers do not lock out other clients.
  public static let maxStreams = 24
  /// Maximum body of a request over the control socket.
  public static let maxBody = 1 << 20
  /// Maximum number of TCP connections of one holder: a browser opens six, a proxy any number.
  private static let maxOfOne = 16
  /// How often the server looks for connections without progress.
  private static let looks: Duration = .seconds(5)

  /// Answers a request. Cancelled when the client disconnects.
  public typealias Handler = (HTTPRequest, HTTPResponder) async -> Void

  private let loop: EventLoop
  /// Location of a Unix socket.
  private let location: String?
  /// Port of a TCP server; 0 for a Unix socket.
  public let port: UInt16
  let handler: Handler
  let bodyLimit: Int
  private let admits: (IPAddress?) -> Bool
  private let acceptor: Acceptor
  private var task: LoopTask?
  private var connections: [Int: ServerConnection] = [:]
  private var lastNumber = 0
  private var limiter: ConnectionLimiter
  private var timer: LoopTimer?

  /// Listens at `location`. Replaces the stale socket of a dead process, but not one that answers. `group`: may connect
  /// besides the owner. The caller must call `stop`.
  public init(
    location: String, group: String?, on loop: EventLoop, log: Log = Log(),
    _ handler: @escaping Handler
  ) throws(SystemError) {
    self.loop = loop
    self.location = location
    self.handler = handler
    (bodyLimit, admits) = (Self.maxBody, { _ in true })
    guard !UnixSocket.hasListener(location) else { throw SystemError("bind \(location)", code: EADDRINUSE) }
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
    // All clients are the operator's: the one that was idle longest makes room.
    limiter = ConnectionLimiter(most: Self.maxConnections, mostOfOne: Self.maxConnections, fairShare: 0)
    acceptor = Acceptor(descriptor, name: "the control socket", reserve: .serves, on: loop, log: log)
    task = loop.begin { await self.run() }
  }

  /// Listens on 127.0.0.1; port 0 selects a free one. `bodyLimit`: maximum body of a request.
  public init(
    loopbackPort: UInt16, bodyLimit: Int = HTTPServer.maxBody, on loop: EventLoop, log: Log = Log(),
    _ handler: @escaping Handler
  ) throws(SystemError) {
    self.loop = loop
    location = nil
    self.handler = handler
    (self.bodyLimit, admits) = (bodyLimit, { _ in true })
    limiter = ConnectionLimiter(most: Self.maxConnections, mostOfOne: Self.maxOfOne)
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
    limiter = ConnectionLimiter(most: Self.maxConnections, mostOfOne: Self.maxOfOne)
    acceptor = Acceptor(try address.listen(), name: name, reserve: .turnsAway, on: loop, log: log)
    task = loop.begin { await self.run() }
  }

  /// Stops listening, and closes all connections.
  public func stop() {
    task?.cancel()
    acceptor.stop()
    if let location { unlink(location) }
    timer?.cancel()
    for connection in connections.values { connection.close() }
  }

  /// Accepts connections until it is stopped. Each is a child task; all have ended when this returns.
  private func run() async {
    await withDiscardingTaskGroup { group in
      // `try?`: throws only when the server is stopped.
      while let socket = try? await acceptor.accept(makingRoom: makeRoom) {
        let peer = location == nil ? ListenAddress.peer(of: socket) : nil
        guard admits(peer), let number = admit(peer) else {
          close(socket)
          continue
        }
        let connection = ServerConnection(
          SocketStream(socket, endsWithPeer: location == nil, on: loop), number, from: peer, on: loop, of: self)
        connections[number] = connection
        if location == nil, timer == nil { look() }
        loop.begin(in: &group) {
          await connection.run()
          self.connections[number] = nil
          self.limiter.left(number)
        }
      }
      group.cancelAll()
    }
  }

  // MARK: Admission

  /// The connection's number; `nil`: there is no room.
  private func admit(_ peer: IPAddress?) -> Int? {
    // A handler may still run after its connection was closed.
    for (number, connection) in connections where !connection.isOpen { limiter.left(number) }
    lastNumber += 1
    switch limiter.arrived(lastNumber, from: peer?.network ?? "") {
    case .full: return nil
    case .admittedInPlaceOf(let victim): connections[victim]?.close()
    case .admitted: break
    }
    if location != nil { _ = limiter.showed(lastNumber, as: "") }
    limiter.idle(lastNumber, true)
    return lastNumber
  }

  /// False: all connections are busy.
  private func makeRoom() -> Bool {
    guard let victim = limiter.makeRoom(for: "") else { return false }
    connections[victim]?.close()
    return true
  }

  /// A request on the connection has begun or ended.
  func used(_ connection: ServerConnection) { limiter.idle(connection.number, !connection.isBusy) }

  func isKnown(_ connection: ServerConnection) -> Bool { limiter.isKnown(connection.number) }

  func showed(_ connection: ServerConnection, as holder: String) -> Bool {
    limiter.showed(connection.number, as: holder)
  }

  func asks(_ connection: ServerConnection, for address: String) { limiter.asks(connection.number, for: address) }

  /// Closes connections without progress, but none on the control socket: an operator who pipes an answer into a pager
  /// may take any time.
  private func look() {
    for connection in connections.values where !connection.mayGoOn { connection.close() }
    timer = connections.isEmpty ? nil : loop.schedule(after: Self.looks) { [weak self] in self?.look() }
  }

  /// Whether another endless answer is allowed.
  var mayStream: Bool { connections.values.count { $0.isStreaming } < Self.maxStreams }
}
