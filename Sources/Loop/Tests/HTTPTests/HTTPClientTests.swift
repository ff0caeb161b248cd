// SPDX-License-Identifier: MIT

import EventLoop
import Testing

@testable import HTTP

@Suite struct HTTPClientTests {
  private func ask(
    _ client: HTTPClient, _ loop: EventLoop, _ request: HTTPRequest = HTTPRequest("GET", "/"),
    isRepeatable: Bool = false
  ) -> Result<HTTPResponse, HTTPFailure>? {
    var result: Result<HTTPResponse, HTTPFailure>?
    _ = loop.begin {
      result = await Result { () async throws(HTTPFailure) in
        try await client.send(request, timeout: .seconds(60), isRepeatable: isRepeatable)
      }
      loop.stop()
    }
    loop.run()
    return result
  }

  @Test func `an answer without a body ends with its head, and the connection is reused`() throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    var answers = [
      "HTTP/1.1 204 No Content\r\nContent-Length: 12\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
      "HTTP/1.1 200 OK\r\nServer: x \t\r\nContent-Length: 2 \r\n\r\nok",
    ]
    server.onHeard = { server in if !answers.isEmpty { server.say(answers.removeFirst()) } }
    let client = HTTPClient(.tcp(host: "127.0.0.1", port: server.port, tls: false), on: loop)
    #expect(try ask(client, loop)?.get().status == 204)
    #expect(try ask(client, loop)?.get().status == 304)
    #expect(try ask(client, loop)?.get().body == Array("ok".utf8))
    #expect(server.connections.count == 1)
    client.close()
  }

  private static let keyed = HTTPRequest("POST", "/", headers: ["Idempotency-Key": "7"])

  @Test(
    arguments: [
      (HTTPRequest("GET", "/"), false, true), (HTTPRequest("POST", "/"), false, false),
      (HTTPRequest("POST", "/"), true, true), (keyed, false, true),
    ] as [(HTTPRequest, Bool, Bool)])
  func `only what may be done twice is repeated when a kept connection ends without an answer`(
    _ request: HTTPRequest, _ isRepeatable: Bool, _ isRepeated: Bool
  ) throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    var requests = 0
    server.onHeard = { server in
      requests += 1
      if requests == 2 { return server.hangUp() }
      server.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    }
    let client = HTTPClient(.tcp(host: "127.0.0.1", port: server.port, tls: false), on: loop)
    #expect(try ask(client, loop)?.get().status == 200)
    let result = ask(client, loop, request, isRepeatable: isRepeatable)
    if isRepeated {
      #expect(try result?.get().status == 200)
    } else if case .failure(.closed)? = result {
      // It is the caller's to ask whether the server has done it.
    } else {
      Issue.record("\(String(describing: result))")
    }
    #expect(requests == (isRepeated ? 3 : 2))
    client.close()
  }

  @Test func `an unasked second answer is dropped with its connection`() throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    server.onHeard = { server in
      server.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\ntwo")
    }
    let client = HTTPClient(.tcp(host: "127.0.0.1", port: server.port, tls: false), on: loop)
    for _ in 0..<2 {
      let answer = try ask(client, loop)?.get()
      #expect(answer?.status == 200 && answer?.body == Array("one".utf8))
    }
    #expect(server.connections.count == 2, "whose answer the next would be is not known")
    client.close()
  }

  @Test func `too many interim responses end the request`() throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    func flood() {
      server.say(String(repeating: "HTTP/1.1 100 Continue\r\n\r\n", count: 100))
      if server.ended == 0 { loop.nextTurn(flood) }
    }
    server.onHeard = { _ in flood() }
    let client = HTTPClient(.tcp(host: "127.0.0.1", port: server.port, tls: false), on: loop)
    #expect(ask(client, loop) == .failure(.malformed("it is not HTTP (too many interim responses)")))
  }

  @Test func `a refusal counts although the server reads no more of the request, and hangs up`() throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    server.onHeard = { server in
      server.onHeard = { _ in }
      server.say("HTTP/1.1 413 x\r\nContent-Length: 20\r\n\r\ntoo large")
      // Unread data makes the kernel reset the connection.
      server.hangUp()
    }
    let client = HTTPClient(.tcp(host: "127.0.0.1", port: server.port, tls: false), on: loop)
    var result: Result<HTTPResponse, HTTPFailure>?
    _ = loop.begin {
      result = await Result { () async throws(HTTPFailure) in
        try await client.send(
          HTTPRequest("POST", "/", body: [UInt8](repeating: 0x78, count: 16 << 20)), timeout: .seconds(60))
      }
      loop.stop()
    }
    loop.run()
    #expect(try result?.get().status == 413)
    #expect(try result?.get().body == Array("too large".utf8))
    client.close()
  }

  @Test func `a body that does not matter is read to a bound, and its status counts`() throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    var left = 2000
    func more() {
      guard left > 0, server.ended == 0 else { return }
      left -= 1
      server.say("8000\r\n" + String(repeating: "x", count: 32768) + "\r\n")
      loop.nextTurn(more)
    }
    server.onHeard = { server in
      server.onHeard = { _ in }
      server.say("HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n")
      more()
    }
    let client = HTTPClient(.tcp(host: "127.0.0.1", port: server.port, tls: false), on: loop)
    var result: Result<HTTPResponse, HTTPFailure>?
    _ = loop.begin {
      result = await Result { () async throws(HTTPFailure) in
        try await client.send(HTTPRequest("POST", "/"), timeout: .seconds(60), ignoresBody: true)
      }
      loop.stop()
    }
    loop.run()
    #expect(try result?.get().status == 200)
    #expect(left > 1000, "the client has read on")
    client.close()
  }

  @Test func `a body that is streamed has no size limit, and the body of a refusal is cut`() throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    var (status, left) = (200, 40)
    func more() {
      guard left > 0 else { return server.say("0\r\n\r\n") }
      left -= 1
      server.say("10000\r\n" + String(repeating: "x", count: 65536) + "\r\n")
      loop.nextTurn(more)
    }
    server.onHeard = { server in
      server.onHeard = { _ in }
      server.say("HTTP/1.1 \(status) x\r\nTransfer-Encoding: chunked\r\n\r\n")
      more()
    }
    var pieces = 0
    func stream() -> Result<HTTPResponse, HTTPFailure>? {
      let client = HTTPClient(.tcp(host: "127.0.0.1", port: server.port, tls: false), on: loop)
      var result: Result<HTTPResponse, HTTPFailure>?
      _ = loop.begin {
        result = await Result { () async throws(HTTPFailure) in
          try await client.send(HTTPRequest("GET", "/"), timeout: nil, onPiece: { pieces += $0.count })
        }
        loop.stop()
      }
      loop.run()
      client.close()
      return result
    }
    #expect(try stream()?.get().status == 200)
    #expect(pieces == 40 * 65536)
    (status, left) = (503, 40)
    server.onHeard = { server in
      server.onHeard = { _ in }
      server.say("HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n")
      more()
    }
    let refusal = try stream()?.get()
    #expect(refusal?.status == 503)
    #expect((1...1 << 20).contains(refusal?.body.count ?? 0))
    #expect(pieces == 40 * 65536)
  }
}
