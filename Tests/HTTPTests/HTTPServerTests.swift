// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Streams
import TestSupport
import Testing
import Timing

@testable import HTTP

/// A client that writes what it likes.
private final class RawClient {
  let stream: SocketStream
  private(set) var heard = ""
  private(set) var isClosed = false

  init(_ location: String, on loop: EventLoop) throws {
    signal(SIGPIPE, SIG_IGN)
    stream = SocketStream(try UnixSocket.connect(location), on: loop)
    loop.begin { [weak self, stream] in
      // It is over when the server has closed it.
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

  /// Turns until nothing happens any more.
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

  @Test func `whoever asks again and again behind a stream is not read on`() throws {
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
    #expect(client.stream.pendingBytes > flood.count / 2, "the rest stays with who sends it")
    responder?.end()
    var (seen, limit) = (0, loop.now + .seconds(60))
    while asked < many, loop.now < limit {
      loop.turn(wait: true)
      if asked > seen { (seen, limit) = (asked, loop.now + .seconds(60)) }
    }
    #expect(asked == many, "and all of it comes to its turn")
    client.stream.close()
    server.stop()
  }

  @Test func `requests that come together take turns with everything else`() throws {
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

  @Test func `a new operator always gets in: who was idle longest goes`() throws {
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

  @Test func `streams leave room for questions`() throws {
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

  @Test func `what is no request is answered with 400 and closed; HEAD gets no body, 204 no length`() throws {
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
}
