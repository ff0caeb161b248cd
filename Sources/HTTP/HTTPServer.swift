// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Streams

/// A small HTTP/1.1 server on a Unix socket or on loopback, for the control socket and for tests.
public final class HTTPServer {
  /// Connections at once; further ones are closed right away.
  public static let mostConnections = 32
  /// Bodies of requests at most.
  static let mostBody = 1 << 20

  private let loop: EventLoop
  /// Of a Unix socket.
  private let location: String?
  private let descriptor: Int32
  /// Of a loopback server; 0 for a Unix socket.
  public private(set) var port: UInt16 = 0
  private let handler: (HTTPRequest, HTTPResponder) -> Void
  private var connections: [ObjectIdentifier: ServerConnection] = [:]

  /// Listens at `location`. A socket that a dead process left there is replaced, one that answers is not.
  /// `group`: who may connect besides the owner.
  public init(
    location: String, group: String?, on loop: EventLoop, _ handler: @escaping (HTTPRequest, HTTPResponder) -> Void
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
    guard listen(descriptor, 16) == 0 else { throw SystemError("listen \(location)") }
    loop.watch(descriptor, for: .readable) { [weak self] _ in self?.accept() }
  }

  /// Listens on 127.0.0.1; port 0 takes a free one.
  public init(
    loopbackPort: UInt16, on loop: EventLoop, _ handler: @escaping (HTTPRequest, HTTPResponder) -> Void
  ) throws(SystemError) {
    self.loop = loop
    location = nil
    self.handler = handler
    (descriptor, port) = try LoopbackSocket.listen(on: loopbackPort)
    loop.watch(descriptor, for: .readable) { [weak self] _ in self?.accept() }
  }

  /// Stops listening and closes all connections.
  public func stop() {
    loop.unwatch(descriptor)
    close(descriptor)
    if let location { unlink(location) }
    for connection in connections.values { connection.close() }
    connections.removeAll()
  }

  private func accept() {
    while true {
      let socket = accept4(descriptor, nil, nil, Int32(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue))
      guard socket >= 0 else { return }
      guard connections.count < Self.mostConnections else {
        close(socket)
        continue
      }
      let connection = ServerConnection(SocketStream(socket, on: loop), handler)
      let id = ObjectIdentifier(connection)
      connections[id] = connection
      connection.onEnd = { [weak self] in self?.connections[id] = nil }
      connection.start()
    }
  }
}

final class ServerConnection {
  private let stream: any ByteStream
  private let handler: (HTTPRequest, HTTPResponder) -> Void
  private var parser = HTTPParser(.requests, mostBody: HTTPServer.mostBody)
  private var request: HTTPRequest?
  private var waiting: [HTTPRequest] = []
  private var current: HTTPResponder?
  private var closesAfter = false
  var onEnd: () -> Void = {}

  init(_ stream: any ByteStream, _ handler: @escaping (HTTPRequest, HTTPResponder) -> Void) {
    self.stream = stream
    self.handler = handler
  }

  func start() {
    stream.onBytes = { [weak self] bytes in self?.received(bytes) }
    stream.onClose = { [weak self] _ in self?.ended() }
    stream.onDrained = { [weak self] in self?.drained() }
    stream.start()
  }

  func close() {
    stream.close()
    current?.onGone?()
    current = nil
  }

  private func ended() {
    current?.onGone?()
    current = nil
    onEnd()
  }

  private func drained() {
    if closesAfter, current == nil {
      stream.close()
      onEnd()
    } else {
      current?.onDrained?()
    }
  }

  private func received(_ bytes: [UInt8]) {
    do {
      try parser.parse(bytes) { event in
        switch event {
        case .request(let method, let target, let headers): request = HTTPRequest(method, target, headers: headers)
        case .body(let piece): request?.body.append(contentsOf: piece)
        case .end: if let request { waiting.append(request) }
        case .response: break
        }
      }
    } catch {
      closesAfter = true
      let status = error == .bodyTooLarge ? 413 : 400
      return stream.write(HTTPResponse(status: status, headers: ["Connection": "close"]).encode())
    }
    serveNext()
  }

  /// One request at a time; pipelined ones wait, a few at most.
  private func serveNext() {
    guard current == nil, !waiting.isEmpty else { return }
    guard waiting.count <= 8 else {
      stream.close()
      return onEnd()
    }
    let next = waiting.removeFirst()
    if !parser.keepsAlive { closesAfter = true }
    let responder = HTTPResponder(stream) { [weak self] in
      self?.current = nil
      self?.serveNext()
    }
    current = responder
    handler(next, responder)
  }
}

/// Answers one request: at once, or piece by piece.
public final class HTTPResponder {
  private let stream: any ByteStream
  private let done: () -> Void
  private var isOver = false
  private var isStreaming = false
  /// The peer went away while it was being answered.
  public var onGone: (() -> Void)?
  /// What was written so far has gone out: more may be written.
  public var onDrained: (() -> Void)?

  init(_ stream: any ByteStream, _ done: @escaping () -> Void) {
    self.stream = stream
    self.done = done
  }

  /// Bytes that wait to go out: a slow reader.
  public var pendingBytes: Int { stream.pendingBytes }

  public func respond(_ response: HTTPResponse) {
    guard !isOver, !isStreaming else { return }
    isOver = true
    stream.write(response.encode())
    done()
  }

  /// Begins an answer whose end is not known yet (chunked).
  public func begin(status: Int = 200, headers: HTTPHeaders) {
    guard !isOver, !isStreaming else { return }
    isStreaming = true
    var bytes = Array("HTTP/1.1 \(status) \(HTTPResponse.reason(status))\r\nTransfer-Encoding: chunked\r\n".utf8)
    headers.write(to: &bytes)
    bytes.append(contentsOf: "\r\n".utf8)
    stream.write(bytes)
  }

  public func write(_ piece: [UInt8]) {
    guard isStreaming, !isOver, !piece.isEmpty else { return }
    stream.write(Array("\(String(piece.count, radix: 16))\r\n".utf8) + piece + Array("\r\n".utf8))
  }

  public func end() {
    guard isStreaming, !isOver else { return }
    isOver = true
    stream.write(Array("0\r\n\r\n".utf8))
    done()
  }

  /// Gives up in the middle: the peer sees a broken answer.
  public func abort() {
    isOver = true
    stream.close()
    done()
  }
}
