// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Sockets
import LoopTestSupport
import Testing
import Timing

@testable import HTTP

/// A client that writes any bytes.
private final class RawClient {
  let stream: SocketStream
  private(set) var heard = ""
  private(set) var isClosed = false

  init(_ location: String, on loop: EventLoop) throws {
    signal(SIGPIPE, SIG_IGN)
    stream = SocketStream(try UnixSocket.connect(location), on: loop)
    _ = loop.begin { [weak self, stream] in
      // The loop ends when the server has closed the connection.
      while let bytes = try? await stream.read() { self?.heard += String(decoding: bytes, as: UTF8.self) }
      self?.isClosed = true
    }
  }

  var answers: Int { heard.split(separator: "HTTP/1.1 ").count }
}

@Suite struct HTTPServerTests {
  private let scratch = Scratch()
  private let loop = EventLoop()
  private static let request = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"

  private func server(_ handler: @escaping (HTTPRequest, HTTPResponder) -> Void) throws -> HTTPServer {
    try HTTPServer(location: scratch.location("socket"), group: nil, on: loop, handler)
  }

  private func client() throws -> RawClient { try RawClient(scratch.location("socket"), on: loop) }

  /// Turns the loop until nothing happens any more.
  private func settle() {
    var isOver = false
    var timer: LoopTimer?
    func wait() {
      let before = loop.wakeups
      timer = loop.schedule(after: .milliseconds(20)) { [loop] in
        if loop.wakeups - before <= 1 { isOver = true } else { wait() }
      }
    }
    wait()
    while !isOver { loop.turn(wait: true) }
    timer?.cancel()
  }

  @Test func `a client that sends more requests behind a stream is not read further`() throws {
    var (asked, responder) = (0, HTTPResponder?.none)
    let server = try server { request, answer in
      asked += 1
      guard responder == nil else { return answer.respond(HTTPResponse(status: 200)) }
      responder = answer
      _ = answer.begin(headers: [:])
    }
    let client = try client()
    let many = 30_000
    let flood = Array(String(repeating: Self.request, count: many).utf8)
    client.stream.write(flood)
    settle()
    #expect(asked == 1)
    #expect(client.stream.pendingBytes > flood.count / 2, "the rest stays with its sender")
    responder?.end()
    var (seen, limit) = (0, loop.now + .seconds(60))
    while asked < many, loop.now < limit {
      loop.turn(wait: true)
      if asked > seen { (seen, limit) = (asked, loop.now + .seconds(60)) }
    }
    #expect(asked == many, "and every request is handled")
    client.stream.close()
    server.stop()
  }

  @Test func `pipelined requests take turns with other work`() throws {
    var asked = 0
    let server = try server { _, answer in
      asked += 1
      answer.respond(HTTPResponse(status: 200))
    }
    let client = try client()
    client.stream.write(Array(String(repeating: Self.request, count: 100).utf8))
    var before = 0
    while asked < 100 {
      loop.turn(wait: true)
      #expect(asked - before <= 2)
      before = asked
    }
    settle()
    #expect(client.answers == 100)
    server.stop()
  }

  @Test func `a new operator always gets a connection: the one that was idle longest is closed`() throws {
    let server = try server { _, answer in answer.respond(HTTPResponse(status: 200)) }
    let idle = try (0..<HTTPServer.maxConnections).map { _ in
      let idle = try client()
      settle()
      return idle
    }
    idle[0].stream.write(Array(Self.request.utf8))
    idle[1].stream.write(Array("GET /half".utf8))
    settle()
    #expect(idle.allSatisfy { !$0.isClosed })
    let operators = try (0..<3).map { _ in try client() }
    for one in operators { one.stream.write(Array(Self.request.utf8)) }
    settle()
    #expect(operators.allSatisfy { $0.answers == 1 && !$0.isClosed })
    #expect(idle.indices.filter { idle[$0].isClosed } == [2, 3, 4])
    server.stop()
  }

  @Test func `streams leave connections for other requests`() throws {
    var streams: [HTTPResponder] = []
    let server = try server { request, answer in
      guard request.path == "/stream" else { return answer.respond(HTTPResponse(status: 200)) }
      if answer.begin(headers: [:]) { streams.append(answer) }
    }
    let followers = try (0..<HTTPServer.maxConnections).map { _ in
      let follower = try client()
      follower.stream.write(Array("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
      settle()
      return follower
    }
    #expect(streams.count == HTTPServer.maxStreams)
    #expect(followers.count { $0.heard.hasPrefix("HTTP/1.1 503") } == 32 - HTTPServer.maxStreams)
    let asker = try client()
    asker.stream.write(Array(Self.request.utf8))
    settle()
    #expect(asker.heard.hasPrefix("HTTP/1.1 200"))
    streams.removeFirst().abort()
    settle()
    #expect(followers[0].isClosed)
    server.stop()
  }

  @Test func `an invalid request gets 400 and is closed; HEAD gets no body, 204 no length`() throws {
    let server = try server { request, answer in
      answer.respond(request.path == "/none" ? HTTPResponse(status: 204) : HTTPResponse(status: 200, body: [0x78]))
    }
    for wrong in ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n", "\u{16}\u{3}\u{1}\r\n\r\n"] {
      let client = try client()
      client.stream.write(Array((wrong + Self.request).utf8))
      settle()
      #expect(client.heard.hasPrefix("HTTP/1.1 400 ") && client.answers == 1 && client.isClosed)
    }
    let client = try client()
    client.stream.write(Array("HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
    settle()
    #expect(client.heard == "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nHTTP/1.1 204 Status\r\n\r\n")
    server.stop()
  }

  @Test func `an answer of unknown length to HEAD ends after its headers`() throws {
    let server = try server { _, answer in
      guard answer.begin(headers: [:]) else { return }
      answer.write([0x78])
      answer.end()
    }
    let client = try client()
    client.stream.write(Array("HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
    settle()
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    #expect(client.heard == head + head + "1\r\nx\r\n0\r\n\r\n")
    server.stop()
  }

  @Test func `a client that ends its requests and reads slowly gets its whole answer`() throws {
    let server = try server { request, answer in
      answer.respond(
        HTTPResponse(status: 200, body: [UInt8](repeating: 0x78, count: Int(request.path.dropFirst()) ?? 0)))
    }
    // The kernel takes a part of each, and of some all but a little.
    for count in stride(from: 32 << 10, through: 512 << 10, by: 24 << 10) {
      let client = try UnixSocket.connect(scratch.location("socket"))
      let request = Array("GET /\(count) HTTP/1.1\r\nHost: x\r\n\r\n".utf8)
      #expect(write(client, request, request.count) == request.count)
      shutdown(client, Int32(SHUT_WR))
      settle()
      var heard = 0
      while let bytes = self.heard(client, most: 65536) {
        heard += bytes
        loop.turn(wait: false)
      }
      #expect(heard > count, "all of \(count) bytes, and a head")
      close(client)
    }
    server.stop()
  }

  /// Connects over TCP, in invented time: `peer` is an address of this machine.
  private func call(_ server: HTTPServer, from peer: String = "127.0.0.1", on loop: EventLoop) throws -> Int32 {
    let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0)
    var small: Int32 = 4096
    setsockopt(client, SOL_SOCKET, SO_RCVBUF, &small, socklen_t(MemoryLayout<Int32>.size))
    func address(_ host: String, _ port: UInt16) -> sockaddr_in {
      sockaddr_in(
        sin_family: sa_family_t(AF_INET), sin_port: port.bigEndian, sin_addr: in_addr(s_addr: inet_addr(host)),
        sin_zero: (0, 0, 0, 0, 0, 0, 0, 0))
    }
    let size = socklen_t(MemoryLayout<sockaddr_in>.size)
    for (call, host, port) in [(bind, peer, UInt16(0)), (connect, "127.0.0.1", server.port)] {
      var place = address(host, port)
      let done = withUnsafePointer(to: &place) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { call(client, $0, size) }
      }
      #expect(done == 0 || errno == EINPROGRESS)
    }
    for _ in 0..<8 { loop.turn(wait: false) }
    return client
  }

  private func say(_ text: String, _ client: Int32, on loop: EventLoop) {
    let bytes = Array(text.utf8)
    #expect(write(client, bytes, bytes.count) == bytes.count)
    for _ in 0..<8 { loop.turn(wait: false) }
  }

  /// The number of available bytes; 0: none yet; `nil`: the server has closed the connection.
  private func heard(_ client: Int32, most: Int = 2048) -> Int? {
    var buffer = [UInt8](repeating: 0, count: most)
    let count = read(client, &buffer, most)
    return count > 0 ? count : count < 0 && errno == EAGAIN ? 0 : nil
  }

  /// Whether an answer arrives. On a busy machine it may arrive a moment after it was sent.
  private func hasAnswer(_ client: Int32, on loop: EventLoop) -> Bool {
    for _ in 0..<10_000 {
      if let count = heard(client), count > 0 { return true }
      loop.turn(wait: false)
      usleep(1000)
    }
    return false
  }

  /// Reads the bytes in transit to `client`; returns whether the connection's end follows.
  private func isClosed(_ client: Int32) -> Bool {
    while let count = heard(client) {
      var entry = pollfd(fd: client, events: Int16(POLLIN), revents: 0)
      if count == 0, poll(&entry, 1, 10_000) == 0 { return false }
    }
    return true
  }

  @Test func `clients that do not read their answers neither block others nor stay connected`() throws {
    let loop = EventLoop(on: InventedMachine())
    let page = [UInt8](repeating: 0x78, count: 256 << 10)
    let server = try HTTPServer(loopbackPort: 0, on: loop) { request, answer in
      if request.path == "/known" { _ = answer.showed("session") }
      answer.respond(HTTPResponse(status: 200, body: request.path == "/page" ? page : [0x78]))
    }
    let known = try call(server, on: loop)
    say("GET /known HTTP/1.1\r\nHost: x\r\n\r\n", known, on: loop)
    var crowd: [Int32] = []
    for _ in 0..<40 {
      let one = try call(server, on: loop)
      say("GET /page HTTP/1.1\r\nHost: x\r\n\r\n", one, on: loop)
      crowd.append(one)
    }
    let other = try call(server, from: "127.0.0.2", on: loop)
    say(Self.request, other, on: loop)
    #expect(hasAnswer(other, on: loop), "somebody else comes in")
    say("GET /known HTTP/1.1\r\nHost: x\r\n\r\n", known, on: loop)
    #expect(hasAnswer(known, on: loop), "and a signed-in client stays")
    // A client that reads a byte each second, as if it made progress.
    for _ in 0..<120 {
      _ = heard(crowd[39], most: 1)
      let next = loop.now + .seconds(1)
      let tick = loop.schedule(after: .seconds(1)) {}
      while loop.now < next { loop.turn(wait: true) }
      tick.cancel()
    }
    #expect(crowd[30...].allSatisfy(isClosed), "all of them are closed within two minutes")
    for socket in crowd + [known, other] { close(socket) }
    server.stop()
  }

  @Test func `a server that takes no bodies refuses one`() throws {
    let loop = EventLoop(on: InventedMachine())
    var requests: [String] = []
    let server = try HTTPServer(loopbackPort: 0, bodyLimit: 0, on: loop) { request, answer in
      requests.append(request.method)
      answer.respond(HTTPResponse(status: 200))
    }
    for request in ["POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", Self.request] {
      let client = try call(server, on: loop)
      say(request, client, on: loop)
      let began = loop.now
      while heard(client) != nil, loop.now - began < .seconds(300) { loop.turn(wait: true) }
      close(client)
    }
    #expect(requests == ["GET"])
    server.stop()
  }

  @Test(arguments: ["", "GET /a HT", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"])
  func `a client that does not finish its request is disconnected`(_ beginning: String) throws {
    let loop = EventLoop(on: InventedMachine())
    let server = try HTTPServer(loopbackPort: 0, on: loop) { _, answer in answer.respond(HTTPResponse(status: 200)) }
    let client = try call(server, on: loop)
    say(beginning, client, on: loop)
    let began = loop.now
    while heard(client) != nil, loop.now - began < .seconds(300) { loop.turn(wait: true) }
    #expect(loop.now - began < .seconds(20))
    close(client)
    server.stop()
  }

  @Test func `a client waits for a place in a full queue, which is no sign that nobody listens`() throws {
    let (loop, location) = (EventLoop(), scratch.location("queue"))
    let listener = try UnixSocket.bind(location)
    #expect(listen(listener, 0) == 0)
    var waiting: [Int32] = []
    while let socket = try? UnixSocket.connect(location) { waiting.append(socket) }
    #expect(UnixSocket.hasListener(location))
    loop.schedule(after: .milliseconds(10)) { for _ in waiting { close(accept(listener, nil, nil)) } }
    loop.schedule(after: .milliseconds(500)) { close(listener) }
    let client = HTTPClient(.unix(location: location), on: loop)
    var failure: HTTPFailure?
    _ = loop.begin {
      do throws(HTTPFailure) {
        _ = try await client.send(HTTPRequest("GET", "/"), timeout: .seconds(60))
      } catch {
        failure = error
      }
      loop.stop()
    }
    loop.run()
    for socket in waiting { close(socket) }
    guard case .closed? = failure else {
      Issue.record("it had no connection: \(String(describing: failure))")
      return
    }
  }
}
