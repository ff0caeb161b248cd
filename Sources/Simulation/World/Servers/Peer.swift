// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Sockets
import Timing

/// What a server and the line to it do. A world's plan chooses.
enum Mood: Equatable, Codable {
  case well
  /// Connections end as soon as they are accepted.
  case refuses
  /// It accepts connections, and reads nothing.
  case deaf
  /// It reads everything, and answers nothing until it is well; a hub and a broker do not even answer pings.
  case mute
  /// It answers pings, and nothing else until it is well.
  case pingsOnly
  /// It answers each request with this status, and with this `Retry-After`.
  case status(Int, retryAfter: String?)
  /// It answers each request with 200 and a page, like the portal of a hotel.
  case portal
  /// It does what it is asked, and ends the connection before its answer.
  case losesAnswers
  /// Each connection ends after so many bytes, in either direction.
  case cuts(Int)
  /// It sends a byte every five seconds.
  case drips
  /// It takes the first half of each batch, or each second event.
  case takesHalf
  /// It answers messages whose number is a multiple of `every` with this status, and takes all others. For a webhook or a broker.
  case dislikes(status: Int, every: Int)
  /// Its answers arrive late by so many milliseconds.
  case slow(Int)
}

/// A server of the world, with a port for each gateway.
class Server {
  let name: String
  let loop: EventLoop
  private let clock: WorldClock
  private let moodChanged = Waiter()
  private var listeners: [String: (descriptor: Int32, port: UInt16, task: LoopTask?)] = [:]
  private var peers: [ObjectIdentifier: (gateway: String, peer: Peer, task: LoopTask)] = [:]
  /// Accepted connections of each gateway in each hour of the world.
  private(set) var connections: [String: Int] = [:]
  private(set) var mostConnections = 0
  /// Bytes from all gateways.
  fileprivate(set) var received = 0
  private var hour: Int64 = 0
  var mood = Mood.well {
    didSet {
      guard mood != oldValue else { return }
      for entry in peers.values { entry.peer.moodChanged() }
      if mood == .refuses { hangUp() }
      moodChanged.resume()
    }
  }

  init(_ name: String, on loop: EventLoop, of clock: WorldClock) {
    (self.name, self.loop, self.clock) = (name, loop, clock)
  }

  /// Serves a connection until it ends.
  func serve(_ peer: Peer, of gateway: String) async throws(StreamEnd) {}

  func port(of gateway: String) throws -> UInt16 {
    if let known = listeners[gateway] { return known.port }
    return try listen(gateway, on: 0)
  }

  private func listen(_ gateway: String, on port: UInt16) throws -> UInt16 {
    if clock.listeners != nil {
      let port = port > 0 ? port : clock.freePort()
      clock.listeners?[port] = { [weak self, loop] socket in
        loop.schedule(after: .zero) {
          guard let self, self.clock.listeners?[port] != nil else { return _ = close(socket) }
          self.accepted(socket, of: gateway)
        }
      }
      listeners[gateway] = (-1, port, nil)
      return port
    }
    let (descriptor, port) = try LoopbackSocket.listen(on: port)
    let acceptor = Acceptor(
      descriptor, name: name, reserve: .turnsAway, on: loop, log: Log(level: .error, clock: loop.wallClock) { _, _ in })
    let task = loop.begin { [weak self] in
      // `try?`: it is cancelled when the port closes.
      while let socket = try? await acceptor.accept(makingRoom: { false }) { self?.accepted(socket, of: gateway) }
      acceptor.stop()
    }
    listeners[gateway] = (descriptor, port, task)
    return port
  }

  /// The gateway is dead: none of its bytes arrive any more, and nobody listens until `comesBack`.
  func leaves(_ gateway: String) {
    guard let listener = listeners[gateway] else { return }
    listener.task?.cancel()
    if listener.descriptor >= 0 { shutdown(listener.descriptor, Int32(SHUT_RDWR)) }
    clock.listeners?[listener.port] = nil
    for entry in peers.values where entry.gateway == gateway {
      entry.peer.abort()
      entry.task.cancel()
    }
  }

  func comesBack(_ gateway: String) throws {
    guard let port = listeners[gateway]?.port else { return }
    _ = try listen(gateway, on: port)
  }

  /// The connections that are open now answer pings, and nothing else for ever; new ones are well.
  func stick() { for entry in peers.values { entry.peer.isStuck = true } }

  func hangUp() { for entry in peers.values { entry.peer.abort() } }

  private func accepted(_ socket: Int32, of gateway: String) {
    let now = (loop.now - MonotonicTime(seconds: 1000)).wholeNanoseconds / 3_600_000_000_000
    if now != hour { (hour, connections) = (now, [:]) }
    connections[gateway, default: 0] += 1
    mostConnections = max(mostConnections, connections[gateway] ?? 0)
    guard mood != .refuses else {
      close(socket)
      return
    }
    let peer = Peer(socket, self)
    let task = loop.begin { [weak self] in
      // `try?`: each connection ends in its way.
      try? await self?.serve(peer, of: gateway)
      peer.abort()
      self?.peers[ObjectIdentifier(peer)] = nil
    }
    peers[ObjectIdentifier(peer)] = (gateway, peer, task)
  }

  /// Returns once the server answers requests of this connection.
  func untilItAnswers(_ peer: Peer) async throws(StreamEnd) {
    while mood == .mute || mood == .pingsOnly || mood == .deaf || peer.isStuck {
      do { try await moodChanged.wait() } catch { throw .cancelled }
      // A waiter wakes all that wait, and then nobody who comes later in the same moment.
      do { try await loop.later() } catch { throw .cancelled }
    }
  }
}

/// A server's end of a connection, with the faults of the server's mood.
final class Peer {
  private let stream: SocketStream
  private unowned let server: Server
  private let loop: EventLoop
  private let changed = Waiter()
  /// Bytes until the connection ends.
  private var left: Int?
  private var lastSent: MonotonicTime
  private var isOver = false
  /// It answers pings, and nothing else for ever.
  var isStuck = false

  init(_ socket: Int32, _ server: Server) {
    // Small answers do not wait for an acknowledgement, which the kernel delays in real time.
    var yes: Int32 = 1
    setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
    stream = SocketStream(socket, on: server.loop)
    (self.server, loop, lastSent) = (server, server.loop, server.loop.now)
    if case .cuts(let bytes) = server.mood { left = bytes }
  }

  func moodChanged() { changed.resume() }

  /// Ends the connection at once: what was not sent is lost.
  func abort() {
    isOver = true
    stream.close()
    changed.resume()
  }

  func read() async throws(StreamEnd) -> [UInt8] {
    while server.mood == .deaf, !isOver { do { try await changed.wait() } catch { throw .cancelled } }
    let bytes = try await stream.read()
    server.received += bytes.count
    guard let left else { return bytes }
    self.left = left - bytes.count
    guard left > bytes.count else {
      abort()
      throw .cancelled
    }
    return bytes
  }

  func write(_ bytes: [UInt8]) {
    switch server.mood {
    case .drips:
      for byte in bytes { send([byte], after: .seconds(5)) }
    case .slow(let milliseconds): send(bytes, at: loop.now + .milliseconds(Int64(milliseconds)))
    default: send(bytes, at: loop.now)
    }
  }

  private func send(_ bytes: [UInt8], after pause: Duration) { send(bytes, at: max(lastSent, loop.now) + pause) }

  private func send(_ bytes: [UInt8], at time: MonotonicTime) {
    lastSent = max(lastSent, time)
    guard lastSent > loop.now else { return now(bytes) }
    loop.schedule(at: lastSent) { [weak self] in self?.now(bytes) }
  }

  private func now(_ bytes: [UInt8]) {
    guard let left, left <= bytes.count else {
      self.left = left.map { $0 - bytes.count }
      return stream.write(bytes)
    }
    stream.write(Array(bytes.prefix(left)))
    abort()
  }
}
