// SPDX-License-Identifier: MIT

import Glibc
import TestSupport
import Testing
import Timing

@testable import EventLoop
@testable import HTTP

/// Connections to a server of ours are cut at any moment: before a request, during one, and during the answer. They are in the same suite as the
/// upstreams, because these tests must not run at the same time.
extension UpstreamLifetimeTests {
  /// Answers at once, later, in pieces, or never.
  private static func answer(_ request: HTTPRequest, _ responder: HTTPResponder, on loop: EventLoop) async {
    // Each wait ends by cancellation when the client has disconnected; there is no answer then.
    do {
      switch request.path {
      case "/later": try await loop.sleep(for: .milliseconds(2))
      case "/never": try await Waiter().wait()
      case "/pieces":
        guard responder.begin(headers: [:]) else { return }
        while true {
          responder.write(Array(repeating: 120, count: 60_000))
          try await responder.drained()
          try await loop.nextTurn()
        }
      default: break
      }
    } catch {
      return
    }
    responder.respond(HTTPResponse(status: 200, body: Array(repeating: 120, count: 100_000)))
  }

  private static func connect(_ location: String, _ request: ArraySlice<UInt8>) throws -> Int32 {
    let socket = try UnixSocket.connect(location)
    _ = request.withUnsafeBytes { send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
    return socket
  }

  @Test func `a thousand requests that are cut in the middle leave no task, descriptor or timer`() throws {
    signal(SIGPIPE, SIG_IGN)
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop())
    var random = SeededRandom(seed: 3)
    let none = (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount)
    let server = try HTTPServer(location: scratch.location("socket"), group: nil, on: loop) { request, responder in
      await Self.answer(request, responder, on: loop)
    }
    loop.turn(wait: false)
    let before = (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount)
    var sockets: [Int32] = []
    for _ in 0..<1000 {
      let path = ["/", "/later", "/never", "/pieces"][Int.random(in: 0..<4, using: &random)]
      let request = Array("POST \(path) HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody".utf8)
      let isWhole = Int.random(in: 0..<3, using: &random) > 0
      let bytes = isWhole ? request[...] : request.prefix(Int.random(in: 0..<request.count, using: &random))
      sockets.append(try Self.connect(scratch.location("socket"), bytes))
      for _ in 0..<Int.random(in: 0..<4, using: &random) { loop.turn(wait: false) }
      while sockets.count > Int.random(in: 0..<40, using: &random) {
        close(sockets.remove(at: Int.random(in: 0..<sockets.count, using: &random)))
      }
    }
    for socket in sockets { close(socket) }
    let isQuiet = turn(loop) { (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount) == before }
    #expect(
      isQuiet,
      "descriptors \(Self.descriptors), watches \(loop.watchCount), timers \(loop.waitingTimers), tasks \(loop.taskCount); before \(before)"
    )
    // Connections are children of the server's task, which cannot end before them.
    let last = try Self.connect(scratch.location("socket"), Array("GET /never HTTP/1.1\r\nHost: x\r\n\r\n".utf8)[...])
    for _ in 0..<3 { loop.turn(wait: false) }
    server.stop()
    close(last)
    let isOver = turn(loop) { (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount) == none }
    #expect(isOver, "descriptors \(Self.descriptors), tasks \(loop.taskCount); before \(none)")
  }

  @Test func `a thousand servers that start and stop leave no task, descriptor or timer`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop())
    let before = (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount)
    for round in 0..<1000 {
      let server = try HTTPServer(location: scratch.location("socket"), group: nil, on: loop) { _, responder in
        responder.respond(HTTPResponse(status: 200))
      }
      let request = Array("GET / HTTP/1.1\r\nHost: x\r\n\r\n".utf8)
      let socket = try Self.connect(scratch.location("socket"), request[...])
      for _ in 0..<round % 4 { loop.turn(wait: false) }
      server.stop()
      close(socket)
    }
    let isQuiet = turn(loop) { (Self.descriptors, loop.watchCount, loop.waitingTimers, loop.taskCount) == before }
    #expect(isQuiet, "descriptors \(Self.descriptors), tasks \(loop.taskCount); before \(before)")
  }
}
